/* SPDX-License-Identifier: MIT */
#ifndef PST_MEM_UDMABUF_H
#define PST_MEM_UDMABUF_H

#include "base/base.h"

/*
 * Create a dma-buf of whole pages of a memfd that cannot shrink, by the kernel's /dev/udmabuf.
 * Return the descriptor, or -errno with a sentence; -EOPNOTSUPP if there is no such device.
 */
int udmabuf_new(int memfd, uint64_t off, uint64_t len);

#endif
