/* SPDX-License-Identifier: MIT */
#ifndef PST_MEM_UDMABUF_H
#define PST_MEM_UDMABUF_H

#include "base/base.h"

/*
 * A dma-buf of whole pages of a memfd that cannot shrink, by the kernel's /dev/udmabuf: the
 * descriptor, or -errno with a sentence.  -EOPNOTSUPP where there is no such device.
 */
int udmabuf_new(int memfd, uint64_t off, uint64_t len);

#endif
