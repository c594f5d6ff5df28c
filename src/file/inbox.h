/* SPDX-License-Identifier: MIT */
/*
 * The inbox of an I/O context whose operations end on other threads: pool threads, a library's
 * callbacks, a completion queue.  Those threads push operations, and the context's user reaps them.
 */
#ifndef PST_INBOX_H
#define PST_INBOX_H

#include <pthread.h>

#include "file/op.h"

struct io_inbox {
	pthread_mutex_t lock; /* covers all members of the inbox */
	pthread_cond_t more;  /* signalled when at least wait_for operations have arrived */
	struct io_fifo done;
	unsigned nr_done;
	unsigned wait_for; /* operations that the waiter needs; 0: nobody waits */
	bool armed;
	int efd; /* eventfd; -1 until the first io_inbox_arm() */
};

void io_inbox_init(struct io_inbox *b);

/* Wait until no thread is inside io_inbox_push(), then destroy the inbox.  No further push may
 * begin. */
void io_inbox_done(struct io_inbox *b);

/*
 * Push an ended operation, with its result in op->res; any thread may call this.  Do not touch op
 * or its I/O context afterwards: the context may be freed once its last operation is reaped.
 */
void io_inbox_push(struct io_inbox *b, struct io_op *op);

/* Take out at most max operations, oldest first, and return their number.  The caller updates
 * ctx->nr_ops. */
unsigned io_inbox_reap(struct io_inbox *b, struct io_op **ret, unsigned max);

/* Wait until min > 0 operations have arrived.  Return 0 or -ETIMEDOUT. */
int io_inbox_wait(struct io_inbox *b, unsigned min, uint64_t deadline_ns);

/* Arm or disarm the eventfd, as io_backend.arm(). */
void io_inbox_arm(struct io_inbox *b, int efd, bool armed);

#endif
