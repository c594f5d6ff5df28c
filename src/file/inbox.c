/* SPDX-License-Identifier: MIT */
#include <sys/eventfd.h>

#include "base/thread.h"
#include "file/inbox.h"

void io_inbox_init(struct io_inbox *b)
{
	*b = (struct io_inbox){ .efd = -1 };
	(void)pthread_mutex_init(&b->lock, NULL);
	cond_init_monotonic(&b->more);
}

void io_inbox_done(struct io_inbox *b)
{
	(void)pthread_mutex_lock(&b->lock);
	(void)pthread_mutex_unlock(&b->lock);
	(void)pthread_mutex_destroy(&b->lock);
	(void)pthread_cond_destroy(&b->more);
}

void io_inbox_push(struct io_inbox *b, struct io_op *op)
{
	(void)pthread_mutex_lock(&b->lock);
	io_fifo_push(&b->done, op);
	b->nr_done++;
	/* Write only for the first operation: the eventfd stays readable until the user reads
	 * it. */
	if (b->armed && b->nr_done == 1)
		(void)eventfd_write(b->efd, 1);
	if (b->wait_for && b->nr_done >= b->wait_for)
		(void)pthread_cond_signal(&b->more);
	(void)pthread_mutex_unlock(&b->lock);
}

unsigned io_inbox_reap(struct io_inbox *b, struct io_op **ret, unsigned max)
{
	unsigned n = 0;

	(void)pthread_mutex_lock(&b->lock);
	for (; n < max && b->nr_done; n++, b->nr_done--)
		ret[n] = io_fifo_pop(&b->done);
	(void)pthread_mutex_unlock(&b->lock);
	return n;
}

int io_inbox_wait(struct io_inbox *b, unsigned min, uint64_t deadline_ns)
{
	int r = 0;

	(void)pthread_mutex_lock(&b->lock);
	b->wait_for = min;
	while (b->nr_done < min && r == 0)
		r = cond_wait_until(&b->more, &b->lock, deadline_ns);
	b->wait_for = 0;
	(void)pthread_mutex_unlock(&b->lock);
	return -r;
}

void io_inbox_arm(struct io_inbox *b, int efd, bool armed)
{
	(void)pthread_mutex_lock(&b->lock);
	b->efd = efd;
	b->armed = armed;
	if (armed && b->nr_done)
		(void)eventfd_write(efd, 1);
	(void)pthread_mutex_unlock(&b->lock);
}
