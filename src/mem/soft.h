/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the software device share.
 *
 *	soft.c		devices, allocations, grants, the table of operations
 *	soft_stream.c	streams, and the thread that copies
 */
#ifndef PST_MEM_SOFT_H
#define PST_MEM_SOFT_H

#include "mem/mem.h"

#define SOFT_DEVICES_MAX 8

/* Return the address of an allocation's bytes, only for the device's thread. */
char *soft_bytes(const struct mem_alloc *a);

/* Initialize; called once, before all other calls. */
void soft_streams_init(void);

int soft_stream_new(unsigned device, struct mem_stream **ret);
void soft_stream_free(struct mem_stream *base);
int soft_copy(struct mem_stream *base, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
	      uint64_t *ret_ticket);
int soft_poll(struct mem_stream *base, uint64_t ticket);
int soft_stream_fd(struct mem_stream *base);
int soft_sync(const struct mem_alloc *a);

#endif
