/* SPDX-License-Identifier: MIT */
#ifndef PST_MEM_DMABUF_H
#define PST_MEM_DMABUF_H

#include <stdint.h>

/* Bits of enum pst_caching: mappings through which loads and stores exclude each other.  Cached
 * ones do where devices do not see the CPU's caches.  Tests set it while no use is under way. */
extern uint32_t dmabuf_excludes;

#endif
