/* SPDX-License-Identifier: MIT */
#ifndef PST_URING_RING_H
#define PST_URING_RING_H

#include <liburing.h>

#include "base/base.h"

/* Set one up with the best flags that the kernel takes.  0, or -errno without a sentence. */
int uring_ring_new(unsigned entries, struct io_uring *ret);

/* The sentence for one that could not be set up; err is positive.  -err. */
int uring_ring_err(int err);

/* Can there be one?  0, or -errno with a sentence. */
int uring_ring_check(void);

/* An empty table of nr places; opcode is IORING_REGISTER_FILES2 or _BUFFERS2.  0, or -errno. */
int uring_ring_sparse(const struct io_uring *ring, unsigned opcode, unsigned nr);

/* Let the operations of a file system that hangs leave threads of the kernel to the others. */
void uring_ring_may_hang(struct io_uring *ring);

#endif
