/* SPDX-License-Identifier: MIT */
/*
 * Memory that two processes can map: a memfd whose size is sealed, because touching a mapping
 * beyond the end of its file raises SIGBUS.
 */
#ifndef PST_MEM_MEMFD_H
#define PST_MEM_MEMFD_H

#include "base/base.h"

/* Create a sealed memfd of len bytes, all zero.  Return the descriptor, or -errno with a
 * sentence. */
int memfd_new(const char *name, uint64_t len);

/*
 * Return another descriptor of a memfd, read-only if rights (PST_RIGHT_*) lack writing.  A
 * read-only descriptor prevents mistakes, but not malice: the receiver has the same uid and can
 * open the file again.
 */
int memfd_again(int fd, uint32_t rights);

/*
 * Check that a received descriptor can be mapped safely: a regular file of plain pages that cannot
 * shrink, of exactly this size, opened with these rights.  Return 0, -EINVAL or -EACCES.
 */
int memfd_check(int fd, uint64_t size, uint32_t rights);

#endif
