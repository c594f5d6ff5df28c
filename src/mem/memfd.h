/* SPDX-License-Identifier: MIT */
/*
 * Memory that two processes can map: a memfd sealed against changes of its size, since touching a
 * mapping behind the end of its file raises SIGBUS.
 */
#ifndef PST_MEM_MEMFD_H
#define PST_MEM_MEMFD_H

#include "base/base.h"

/* A sealed memfd of len bytes, all zero: the descriptor, or -errno with a sentence. */
int memfd_new(const char *name, uint64_t len);

/*
 * Another descriptor of a memfd, read-only where rights (PST_RIGHT_*) lack writing.  That
 * guards against mistakes and not against malice: the receiver runs under our uid and
 * can open the file again.
 */
int memfd_again(int fd, uint32_t rights);

/*
 * Is a descriptor that somebody sent fit to be mapped: a regular file of plain pages that cannot
 * shrink, of just this size, opened with these rights?  0; -EINVAL; -EACCES.
 */
int memfd_check(int fd, uint64_t size, uint32_t rights);

#endif
