/* SPDX-License-Identifier: MIT */
#ifndef PST_MEM_DMABUF_H
#define PST_MEM_DMABUF_H

#include "base/base.h"

/* Set of enum pst_caching, as bits.  In a mapping with one of these values, loads and stores
 * exclude each other.  By default, cached mappings are in the set on machines whose devices do not
 * see the CPU's caches.  Tests change the set while there are no uses. */
extern uint32_t dmabuf_excludes;

/*
 * Check that a descriptor is a dma-buf of at least @size bytes with these rights (PST_RIGHT_*).
 * @named: the caller's descriptor, for messages
 *
 * Return: 0; -EINVAL for another file or a smaller buffer, -EACCES, with a sentence.
 */
int dmabuf_check_fd(int fd, int named, uint64_t size, uint32_t rights);

struct mem_alloc;

/* Check that a range can become a dma-buf: export the range, and close the dma-buf.  Return 0, or
 * -errno with a sentence. */
int mem_dmabuf_probe(const struct mem_alloc *a, uint64_t off, uint64_t len);

/* Duplicate the descriptor of a dma-buf.  Return it, or -errno with a sentence. */
int dmabuf_again(int fd);

#endif
