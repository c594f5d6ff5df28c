/* SPDX-License-Identifier: MIT */
#ifndef PST_MEM_DMABUF_H
#define PST_MEM_DMABUF_H

#include "base/base.h"

/* Bits of enum pst_caching: mappings through which loads and stores exclude each other.  Cached
 * ones do where devices do not see the CPU's caches.  Tests set it while no use is under way. */
extern uint32_t dmabuf_excludes;

/*
 * Is a descriptor a dma-buf that has @size bytes and these rights (PST_RIGHT_*)?
 * @named: the caller's descriptor, for messages
 *
 * Return: 0; -EINVAL for another file or a smaller buffer, -EACCES, with a sentence.
 */
int dmabuf_check_fd(int fd, int named, uint64_t size, uint32_t rights);

struct mem_alloc;

/* Make a range a dma-buf, and close it: 0, or -errno with a sentence. */
int mem_dmabuf_probe(const struct mem_alloc *a, uint64_t off, uint64_t len);

/* Another descriptor of a dma-buf, or -errno with a sentence. */
int dmabuf_again(int fd);

#endif
