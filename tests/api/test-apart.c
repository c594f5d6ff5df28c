/* SPDX-License-Identifier: MIT */
/*
 * Threads that share nothing do not wait for each other.  A cancelled thread leaves nothing locked.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "rig.h"

#include "fusefs.h"

#define LEN RIG_MIB(1)
#define TRIES 20u
#define ROUNDS 10u

static struct fusefs fs;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

/* ------------------------------------------------------- a queue that hangs */

struct hung {
	pthread_t thread;
	struct pst_queue *q;
	atomic_bool begun, freed;
};

static void *free_it(void *arg)
{
	struct hung *h = arg;

	h->begun = true;
	(void)pst_queue_free(h->q);
	h->freed = true;
	return NULL;
}

/* Allocate, use and free memory with another queue while a queue with a hung read is freed.  Return
 * the rounds that ended before the free did. */
static unsigned rounds_meanwhile(struct hung *h, struct pst_file *f)
{
	unsigned n = 0;

	T_EQ(pthread_create(&h->thread, NULL, free_it, h), 0);
	while (!h->begun)
		(void)usleep(100);
	(void)usleep(10000); /* let the free begin; if it has not, the test retries */
	while (!h->freed && n < ROUNDS) {
		struct pst_mem *m = rig_alloc(rig_dev, LEN);

		T_EQ(rig_read(f, m, 0, 0, 4096).res, 4096);
		T_OK(pst_mem_drain(m, 0));
		pst_mem_free(m);
		n += !h->freed;
	}
	T_EQ(pthread_join(h->thread, NULL), 0);
	return n;
}

static void queue_that_is_freed(void)
{
	struct pst_file *f, *hangs;
	struct pst_mem *m;
	unsigned best = 0;
	char path[200];

	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	rig_make(rig_path("data"), 1, LEN);
	rig_warm(rig_path("data"));
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	f = rig_open(rig_path("data"), PST_FILE_READ | PST_FILE_PLAIN);
	hangs = rig_open(path, PST_FILE_READ);
	m = rig_alloc(rig_dev, TRIES * 65536);
	T_EQ(rig_read(f, m, 0, 0, 4096).res, 4096);
	for (unsigned i = 0; i < TRIES && best < ROUNDS; i++) {
		struct hung h = { .q = rig_queue(rig_backend, 8) };
		struct pst_io io = rig_io(PST_OP_READ, hangs, m, i * 65536, i * 65536, 65536);
		unsigned n;

		T_OK(pst_queue_prep(h.q, &io));
		T_EQ(pst_queue_submit(h.q), 1);
		n = rounds_meanwhile(&h, f);
		best = n > best ? n : best;
	}
	pst_mem_free(m);
	pst_file_close(hangs);
	pst_file_close(f);
	for (uint64_t end = t_hang(); rig_stats(NULL).busy > rig_before.busy && t_now() < end;) {
		fusefs_release(&fs);
		(void)usleep(5000);
	}
	fusefs_stop(&fs);
	T_CHECK(best >= ROUNDS);
}

/* ------------------------------------------------------------- cancellation */

enum { PREP, SUBMIT, REAP, FD, CANCEL, STATS, DRAIN, OPEN, FREE, CALLS };

struct canceled {
	int call;
	struct pst_io io;
	atomic_bool came_back;
};

/* Make one call of the library in a thread that is already cancelled. */
static void *call(void *arg)
{
	struct pst_stats st = { .sz = sizeof(st) };
	struct canceled *c = arg;
	struct pst_file *f = NULL;
	struct pst_done d;

	(void)pthread_cancel(pthread_self());
	switch (c->call) {
	case PREP:
		(void)pst_queue_prep(rig_q, &c->io);
		break;
	case SUBMIT:
		(void)pst_queue_submit(rig_q);
		break;
	case REAP:
		(void)pst_queue_reap(rig_q, &d, 1, 1, t_in_ms(RIG_WAIT_MS));
		break;
	case FD:
		(void)pst_queue_fd(rig_q);
		break;
	case CANCEL:
		(void)pst_queue_cancel(rig_q, 7);
		break;
	case STATS:
		(void)pst_stats(NULL, &st);
		break;
	case DRAIN:
		(void)pst_mem_drain(c->io.mem, t_in_ms(10));
		break;
	case OPEN:
		(void)pst_file_open(rig_path("data"), PST_FILE_READ, NULL, &f);
		(void)pst_file_close(f);
		break;
	default:
		rig_q = pst_queue_free(rig_q);
	}
	c->came_back = true;
	pthread_testcancel();
	return NULL;
}

static void thread_that_is_cancelled(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;

	rig_make(rig_path("data"), 1, LEN);
	rig_warm(rig_path("data"));
	f = rig_open(rig_path("data"), PST_FILE_READ);
	for (int i = 0; i < CALLS; i++) {
		struct canceled c = { .call = i, .io = rig_io(PST_OP_READ, f, m, 0, 0, 4096) };
		pthread_t thread;
		void *ret;

		T_EQ(pthread_create(&thread, NULL, call, &c), 0);
		T_EQ(pthread_join(thread, &ret), 0);
		if (!c.came_back)
			T_FAIL("call %d", i);
		T_CHECK(ret == PTHREAD_CANCELED);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN(queue_that_is_freed);
	RIG_RUN(thread_that_is_cancelled);
	return rig_done();
}
