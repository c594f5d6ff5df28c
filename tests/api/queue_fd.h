/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of sleeping on a queue's descriptor.
 */
#ifndef PST_TEST_QUEUE_FD_H
#define PST_TEST_QUEUE_FD_H
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "rig.h"

#include "fusefs.h"

#define LEN RIG_MIB(1)
#define SLEEP_MS 10000 /* ms; a longer sleep means that a wake-up was lost */

#if defined(__SANITIZE_THREAD__)
#define STORM 6000u
#else
#define STORM 20000u
#endif

static struct fusefs fs;

static inline void stop_fuse(void)
{
	fusefs_stop(&fs);
}

/* Sleep until the descriptor is readable. Return false after ms milliseconds. */
static inline bool sleep_on(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t end = t_in_ms((uint64_t)ms);
	int n;

	do
		n = poll(&p, 1, ms);
	while (n < 0 && errno == EINTR && t_now() < end);
	return n > 0;
}

/* use EPOLLONESHOT */
static bool once;

/*
 * Run random batches and sleep by epoll in between.  A lost wake-up shows as a sleep of seconds
 * that ends with completions waiting.
 */
static inline void random_batches(struct pst_queue *q, struct pst_file *f, struct pst_mem *m,
				  unsigned nr, uint64_t seed, unsigned depth, uint64_t place)
{
	int ep = epoll_create1(EPOLL_CLOEXEC), fd = pst_queue_fd(q);
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = q };
	unsigned sent = 0, got = 0, spurious = 0;
	uint64_t x = seed * 2654435761u + 88172645463325252u;

	T_CHECK(ep >= 0 && fd >= 0);
	T_EQ(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
	while (got < nr) {
		struct pst_done d[16];
		unsigned batch, took = 0;
		int n;

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		batch = 1 + (unsigned)(x % 8);
		for (; batch && sent < nr && sent - got < depth; batch--, sent++) {
			struct pst_io io = rig_io(PST_OP_READ, f, m, (x >> 8) % (LEN - place),
						  sent % depth * place, 1 + (x >> 20) % place);

			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			io.user_data = io.len;
			T_OK(pst_queue_prep(q, &io));
		}
		T_CHECK(pst_queue_submit(q) >= 0);
		if (once)
			T_EQ(pst_queue_fd(q), fd);
		do
			n = epoll_wait(ep, &ev, 1, 5000);
		while (n < 0 && errno == EINTR);
		if (n == 0 && pst_queue_reap(q, d, 0, 1, 0) > 0)
			T_FAIL("a wake-up got lost after %u of %u", got, nr);
		T_EQ(n, 1);
		/* Sometimes leave completions in the queue: they must wake the next sleep. */
		do {
			unsigned max = 1 + (unsigned)(x >> 40) % RIG_NR(d);

			n = pst_queue_reap(q, d, 0, max, 0);
			T_CHECK(n >= 0);
			for (int i = 0; i < n; i++)
				T_EQ(d[i].res, d[i].user_data);
			took += (unsigned)n;
			if ((unsigned)n < max || x >> 50 & 1)
				break;
		} while (true);
		got += took;
		spurious += !took;
	}
	T_CHECK(spurious <= nr / 4); /* A wake-up may find no completion, but rarely. */
	(void)close(ep);
}

static inline struct pst_queue *fd_queue(uint32_t depth)
{
	struct pst_queue_opts o = {
		.sz = sizeof(o),
		.backend = rig_backend,
		.depth = depth,
		.flags = once ? PST_QUEUE_FD_ONCE : 0,
	};
	struct pst_queue *q = NULL;

	T_OK(pst_queue_new(&o, &q));
	return q;
}

#endif
