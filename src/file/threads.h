/* SPDX-License-Identifier: MIT */
/* Interface for uring.c: threads take over when the kernel refuses a ring. */
#ifndef PST_FILE_THREADS_H
#define PST_FILE_THREADS_H

#include "file/op.h"

/*
 * threads_take() - take an operation that another I/O context has begun @base: an I/O context of
 * the threads back end
 *
 * The operation continues after the bytes that were already moved.  The next flush() starts it.
 */
void threads_take(struct io_ctx *base, struct io_op *op);

#endif
