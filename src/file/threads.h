/* SPDX-License-Identifier: MIT */
/* Threads, for a ring that the kernel refuses (uring.c). */
#ifndef PST_FILE_THREADS_H
#define PST_FILE_THREADS_H

#include "file/op.h"

/*
 * threads_take() - take an operation that another I/O context has begun
 * @base: of the threads
 *
 * Bytes that were moved are not moved again.  The next flush() starts it.
 */
void threads_take(struct io_ctx *base, struct io_op *op);

#endif
