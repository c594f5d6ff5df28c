/* SPDX-License-Identifier: MIT */
/*
 * The inbox of an I/O context whose operations end in other threads: those of a pool, a library's
 * callbacks, a completion queue.  They push, and the context's user takes operations out.
 */
#ifndef PST_INBOX_H
#define PST_INBOX_H

#include <pthread.h>

#include "file/op.h"

struct io_inbox {
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t more;  /* wait_for operations are there */
	struct io_fifo done;
	unsigned nr_done;
	unsigned wait_for; /* 0: nobody waits */
	bool armed;
	int efd; /* -1 until the first io_inbox_arm() */
};

void io_inbox_init(struct io_inbox *b);

/* End it.  No further push() begins; one that another thread is inside of is waited for. */
void io_inbox_done(struct io_inbox *b);

/*
 * Put in an operation that has ended, whose result is in op->res; from any thread.  Its I/O context
 * may be freed as soon as the last operation is out, so the caller touches neither afterwards.
 */
void io_inbox_push(struct io_inbox *b, struct io_op *op);

/* Take out at most max operations, the first first; how many.  The caller counts ctx->nr_ops. */
unsigned io_inbox_reap(struct io_inbox *b, struct io_op **ret, unsigned max);

/* Wait until min operations are there, min > 0: 0, or -ETIMEDOUT. */
int io_inbox_wait(struct io_inbox *b, unsigned min, uint64_t deadline_ns);

/* As io_backend.arm(). */
void io_inbox_arm(struct io_inbox *b, int efd, bool armed);

#endif
