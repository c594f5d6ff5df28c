/* SPDX-License-Identifier: MIT */
/*
 * The inbox of an I/O context whose operations end on other threads: those of a pool, a library's
 * callbacks, a completion queue.  They push operations, and the context's user takes them out.
 */
#ifndef PST_INBOX_H
#define PST_INBOX_H

#include <pthread.h>

#include "file/op.h"

struct io_inbox {
	pthread_mutex_t lock; /* covers all members below */
	pthread_cond_t more;  /* signalled when wait_for operations are there */
	struct io_fifo done;
	unsigned nr_done;
	unsigned wait_for; /* operations to wait for; 0: nobody waits */
	bool armed;
	int efd; /* -1 until the first io_inbox_arm() */
};

void io_inbox_init(struct io_inbox *b);

/* Destroy the inbox.  No further push() begins; one that another thread is in is waited for. */
void io_inbox_done(struct io_inbox *b);

/*
 * Push an operation that has ended, with its result in op->res; from any thread.  Do not touch op
 * or its I/O context afterwards: the context may be freed as soon as its last operation is out.
 */
void io_inbox_push(struct io_inbox *b, struct io_op *op);

/* Take out at most max operations, oldest first, and return their number.  The caller updates
 * ctx->nr_ops. */
unsigned io_inbox_reap(struct io_inbox *b, struct io_op **ret, unsigned max);

/* Wait until min > 0 operations are there.  Return 0 or -ETIMEDOUT. */
int io_inbox_wait(struct io_inbox *b, unsigned min, uint64_t deadline_ns);

/* As io_backend.arm(). */
void io_inbox_arm(struct io_inbox *b, int efd, bool armed);

#endif
