/* SPDX-License-Identifier: MIT */
#ifndef PST_URING_RING_H
#define PST_URING_RING_H

#include <liburing.h>

#include "base/base.h"

/* Create a ring with the best flags that the kernel accepts.  Return 0, or -errno without a
 * sentence. */
int uring_ring_new(unsigned entries, struct io_uring *ret);

/* Set the sentence for a ring that could not be created; err is positive.  Return -err. */
int uring_ring_err(int err);

/* Check whether a ring can be created.  Return 0, or -errno with a sentence. */
int uring_ring_check(void);

/* Add an empty table of nr entries; opcode is IORING_REGISTER_FILES2 or _BUFFERS2.  Return 0 or
 * -errno. */
int uring_ring_sparse(const struct io_uring *ring, unsigned opcode, unsigned nr);

/* Allow more kernel threads, so that a hanging file system leaves some for other operations. */
void uring_ring_may_hang(struct io_uring *ring);

#endif
