/* SPDX-License-Identifier: MIT */
/*
 * Runners that return requests which could not start, runners that clients use, and runners that
 * return while their executor's thread goes to sleep.
 */
#include <pthread.h>

#include "worker_rig.h"

#include "idle.h"

#define SOON_MS 5000u /* limit for events that take 1 or 2 ms */

/* Prepare reads of the hanging file. */
static void prep_hanging(struct client *c, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct usrbio_args a = env_args(2, i * 512, BUF_LEN / 2 + i * 512, 512);

		a.user_data = c->sent;
		T_CHECK(client_prep(c, &a) >= 0);
	}
}

static void until_hanging(unsigned nr)
{
	uint64_t end = t_hang();

	while (fusefs_waiting(&fs) < nr && t_now() < end)
		(void)usleep(200);
	T_EQ(fusefs_waiting(&fs), nr);
}

/* Wait until the kernel releases the buffer, after the file system's answer. */
static void drain(void)
{
	uint64_t end = t_hang();

	while (pst_mem_drain(my.mem, 0) < 0 && t_now() < end) {
		fusefs_release(&fs);
		(void)usleep(5000);
	}
}

static void env_ring_without_holes(struct client *c, int entries)
{
	struct server_ring_opts o;

	client_map(c, entries);
	o = client_opts(c, true);
	o.flags = SERVER_RING_FORBID_HOLES;
	client_add(c, my.w, &o);
}

/*
 * A client must not start requests that may block: the thread starts them with the client's runner.
 * Requests of other rings continue when the client's ring ends.
 */
static void client_uses_a_runner(void)
{
	struct client lender, c;
	struct usrbio_cqe q[8];
	struct usrbio_args a;

	need_fuse();
	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	rig_warm(rig_path("file1"));
	fuse_file(2, "hang");
	env_ring(&c, 8, true, 0, 0);
	c.never_help = true;
	for (unsigned i = 0; i < 20; i++) {
		unsigned n = 0;
		uint64_t end;

		env_ring_without_holes(&lender, 8);
		a = env_args(1, 0, 0, PIECE);
		T_CHECK(client_prep(&lender, &a) >= 0);
		prep_hanging(&c, 4);
		server_ring_kick(c.ring);
		(void)server_ring_help(lender.ring);
		/* Also kick: help does nothing while the thread holds the lock. */
		server_ring_kick(lender.ring);
		lender.never_help = true;
		T_EQ(client_wait(&lender, q, 1, 1, SOON_MS), 1);
		T_EQ(q[0].result, PIECE);
		until_hanging(4);
		client_free(&lender);
		for (end = t_in_ms(SOON_MS); n < 4 && t_now() < end;) {
			fusefs_release(&fs);
			n += client_wait(&c, q + n, 1, 4 - n, 20);
		}
		T_EQ(n, 4);
		for (unsigned k = 0; k < n; k++)
			T_EQ(q[k].result, 512);
	}
	client_free(&c);
	drain();
	env_end();
	fusefs_stop(&fs);
}

/* A client leaves other rings' work to the thread while the thread goes to sleep. */
static void left_while_lying_down(void)
{
	struct client hangs[12], other, mine;
	struct usrbio_cqe q[8];

	need_fuse();
	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	rig_warm(rig_path("file1"));
	fuse_file(2, "hang");
	for (unsigned i = 0; i < RIG_NR(hangs); i++) {
		env_ring(&hangs[i], 8, true, 0, 0);
		prep_hanging(&hangs[i], 1);
		(void)server_ring_help(hangs[i].ring);
		/* Also kick: help does nothing while the thread holds the lock. */
		server_ring_kick(hangs[i].ring);
	}
	until_hanging(RIG_NR(hangs));
	env_ring(&other, 8, true, 0, 0);
	env_ring(&mine, 8, true, 0, 0);
	other.never_help = true;
	for (unsigned i = 0; i < (RIG_TSAN ? 2000u : 10000u); i++) {
		uint64_t until;

		prep(&other, 1);
		prep(&mine, 1);
		/* Let the thread wake and check. */
		server_ring_kick(hangs[i % RIG_NR(hangs)].ring);
		for (until = t_now() + rig_below(150000); t_now() < until;)
			;
		server_ring_kick(other.ring);
		(void)server_ring_help(mine.ring);
		if (client_wait(&other, q, 1, 1, 3000) != 1)
			T_FAIL("round %u: nobody does what was left", i);
		server_ring_kick(mine.ring);
		T_EQ(client_wait(&mine, q, 1, 1, SOON_MS), 1);
	}
	for (unsigned i = 0; i < RIG_NR(hangs); i++)
		client_free(&hangs[i]);
	client_free(&other);
	client_free(&mine);
	drain();
	env_end();
	fusefs_stop(&fs);
}

/* Submit enough work for client and thread, repeatedly, and leave requests undone. */
static void call_and_leave(struct client *c)
{
	struct usrbio_cqe q[64];
	uint64_t end = t_in_ms(SOON_MS);
	unsigned n = 0;

	for (unsigned i = 0; i < RIG_NR(q); i++) {
		struct usrbio_args a = env_args(1, i * 65536, i * 65536, 65536);

		T_CHECK(client_prep(c, &a) >= 0);
	}
	server_ring_kick(c->ring);
	(void)server_ring_help(c->ring);
	while (n < RIG_NR(q) && t_now() < end)
		n += client_harvest(c, q + n, RIG_NR(q) - n);
	T_EQ(n, RIG_NR(q));
}

/* The thread sleeps after it did the work that clients left, even while it expects calls. */
static void rests_after_calls(void)
{
	struct client c;

	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	rig_warm(rig_path("file1"));
	env_ring(&c, 64, true, 0, 0);
	for (unsigned k = 0; k < 100; k++) {
		uint64_t before;

		for (unsigned i = 0; i < 40; i++)
			call_and_leave(&c);
		(void)usleep(5000);
		before = idle_spent("usrbio");
		(void)usleep(20000);
		if (idle_spent("usrbio") - before > 5000000)
			idle_rests("usrbio");
	}
	client_free(&c);
	env_end();
}

/* Fill the queue of the executor's thread with requests that the kernel keeps. */
static void fill_the_queue(void)
{
	struct client c;

	for (unsigned nr = 240; nr; nr = nr > 16 ? 16 : 0) {
		env_ring(&c, 256, true, 0, 0);
		prep_hanging(&c, nr);
		server_ring_kick(c.ring);
		taken(&c);
		(void)usleep(300000);
		client_free(&c);
	}
	T_EQ(fusefs_waiting(&fs), 256);
}

/* A request without room in the queue waits, and starts when there is room. */
static void queue_is_full(void)
{
	struct usrbio_cqe q[8];
	struct client c;
	uint64_t before;

	need_fuse();
	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	fuse_file(2, "hang");
	fill_the_queue();
	env_ring(&c, 8, true, 0, 0);
	c.never_help = true;
	prep_hanging(&c, 8);
	server_ring_kick(c.ring);
	(void)client_wait(&c, q, 1, 1, 100);
	before = idle_spent("usrbio");
	(void)usleep(500000);
	T_CHECK(idle_spent("usrbio") - before < 250000000);
	T_EQ(release_until(&c, q, 8), 8);
	client_free(&c);
	drain();
	env_end();
	fusefs_stop(&fs);
}

/* Repeatedly remove a buffer while a runner returns requests that name it. */
static void removed_while_coming_back(void)
{
	uint8_t id[USRBIO_ID_LEN] = { 7 };
	struct usrbio_cqe q[8];
	struct client c;

	need_fuse();
	env_begin(&one_thread);
	fuse_file(2, "hang");
	fill_the_queue();
	env_ring(&c, 8, true, 0, 0);
	c.never_help = true;
	for (unsigned k = 0; k < 100; k++) {
		struct server_buffer *b = NULL;

		T_OK(server_buffer_add(my.w, id, my.mem, BUF_LEN, 0, &b));
		for (unsigned i = 0; i < 8; i++) {
			struct usrbio_args a = env_args(2, i * 512, BUF_LEN / 2 + i * 512, 512);

			memcpy(a.buf_id, id, sizeof(id));
			T_CHECK(client_prep(&c, &a) >= 0);
		}
		server_ring_kick(c.ring);
		(void)usleep((useconds_t)rig_below(3000));
		server_buffer_remove(my.w, b);
		if (client_wait(&c, q, 8, 8, 2000) != 8)
			T_FAIL("round %u: requests without memory do not end", k);
		for (unsigned i = 0; i < 8; i++)
			T_EQ(q[i].result, -EINVAL);
	}
	client_free(&c);
	drain();
	env_end();
	fusefs_stop(&fs);
}

static void *remove_ring(void *arg)
{
	struct client *c = arg;

	(void)pthread_cancel(pthread_self());
	server_ring_remove(my.w, c->ring);
	c->ring = NULL;
	pthread_testcancel();
	return NULL;
}

static void *remove_buffer(void *arg)
{
	struct server_buffer **b = arg;

	(void)pthread_cancel(pthread_self());
	server_buffer_remove(my.w, *b);
	*b = NULL;
	pthread_testcancel();
	return NULL;
}

static void join(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	T_EQ(pthread_create(&thread, NULL, fn, arg), 0);
	T_EQ(pthread_join(thread, NULL), 0);
}

/* A thread with a pending cancellation removes something: the removal completes and leaves no
 * lock taken. */
static void removal_is_not_cancelled(void)
{
	uint8_t id[USRBIO_ID_LEN] = { 7 };
	struct usrbio_cqe q[64];
	struct client c, hangs;

	need_fuse();
	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	rig_warm(rig_path("file1"));
	fuse_file(2, "hang");
	env_ring(&c, 64, true, 0, 0);
	c.never_help = true;
	for (unsigned i = 0; i < 200; i++) {
		struct server_buffer *b = NULL;

		for (unsigned e = 0; e < 4; e++) {
			struct usrbio_args a = env_args(1, 0, 0, BUF_LEN);

			T_CHECK(client_prep(&c, &a) >= 0);
		}
		server_ring_kick(c.ring);
		T_OK(server_buffer_add(my.w, id, my.mem, BUF_LEN, 0, &b));
		join(remove_buffer, &b);
		T_CHECK(!b);
		T_EQ(client_wait(&c, q, 4, 4, SOON_MS), 4);
	}
	env_ring(&hangs, 8, true, 0, 0);
	prep_hanging(&hangs, 4);
	server_ring_kick(hangs.ring);
	until_hanging(4);
	join(remove_ring, &hangs);
	T_CHECK(!hangs.ring);
	client_free(&hangs);
	prep(&c, 8);
	server_ring_kick(c.ring);
	expect(&c, 8, false);
	client_free(&c);
	drain();
	env_end();
	fusefs_stop(&fs);
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN1(client_uses_a_runner);
	RIG_RUN1(left_while_lying_down);
	RIG_RUN1(rests_after_calls);
	RIG_RUN1(queue_is_full);
	RIG_RUN1(removed_while_coming_back);
	RIG_RUN1(removal_is_not_cancelled);
	return rig_done();
}
