/* SPDX-License-Identifier: MIT */
/* Rings that are full, wrap around, and hold as much as possible, on host and device memory. */
#include <pthread.h>

#include "worker_rig.h"

#include "again.h"

/* -------------------------------------------------------------- full rings */

/* Every slot is used, none twice at the same time, and no item is left at the end. */
static void accounting(int entries, unsigned batch)
{
	struct usrbio_cqe q[64];
	const unsigned many = MANY;
	uint64_t sum = 0;
	struct client c;

	env_ring(&c, entries, true, 0, 0);
	while (c.got < many) {
		unsigned n;

		for (unsigned i = 0; i < batch && c.sent < many; i++) {
			struct usrbio_args a = env_args(1, c.sent % 4096 * 512, c.sent % 512 * 64,
							64);

			a.user_data = c.sent;
			if (client_prep(&c, &a) < 0) {
				T_CHECK(c.sent - c.got == (unsigned)entries);
				break;
			}
		}
		server_ring_kick(c.ring);
		n = client_wait(&c, q, 1, RIG_NR(q), RIG_WAIT_MS);
		T_CHECK(n);
		for (unsigned i = 0; i < n; i++) {
			T_EQ(q[i].result, 64);
			sum += q[i].user_data;
		}
	}
	T_EQ(c.sent, many);
	T_EQ(c.got, many);
	T_EQ(sum, (uint64_t)many * (many - 1) / 2);
	T_EQ(usrbio_marker(c.at.sq_head), many % (unsigned)(entries + 1));
	T_EQ(usrbio_marker(c.at.sq_tail), many % (unsigned)(entries + 1));
	T_EQ(usrbio_marker(c.at.cq_head), many % (unsigned)(entries + 1));
	for (int i = 0; i < entries; i++)
		T_CHECK(!c.busy[i]);
	client_free(&c);
}

static void U12_a_million(void)
{
	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	rig_warm(rig_path("file1"));
	accounting(64, 64);
	accounting(7, 64);
	env_end();
}

/* A client that takes no completions: none is lost or overwritten. */
static void full_ring(void)
{
	struct usrbio_cqe q[16];
	struct usrbio_args a;
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 16, true, 0, 0);
	for (unsigned k = 0; k < 100; k++) {
		uint64_t end = t_in_ms(RIG_WAIT_MS);

		a = env_args(1, 0, 0, 64);
		for (unsigned i = 0; i < 16; i++) {
			a.user_data = c.sent;
			T_CHECK(client_prep(&c, &a) >= 0);
			server_ring_kick(c.ring);
		}
		T_EQ(client_prep(&c, &a), -EAGAIN);
		while (cq_held(&c) < 16 && t_now() < end)
			if (c.never_help || !server_ring_help(c.ring))
				(void)usleep(100);
		T_EQ(client_prep(&c, &a), -EAGAIN); /* no slot is free */
		T_EQ(client_harvest(&c, q, 16), 16);
		for (unsigned i = 0; i < 16; i++)
			T_EQ(q[i].result, 64);
		each_once(q, 16, k * 16);
	}
	client_free(&c);
	env_end();
}

/* ------------------------------------------------------------------ memory */

/* Reads and writes of all sizes, in any order, on the kind of memory that env_dev names. */
static void moves_bytes(void)
{
	enum { PLACE = 70000, NR = 40 };
	struct usrbio_cqe q[NR];
	struct client r, w;
	char *buf = malloc(PLACE);

	T_CHECK(buf);
	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDWR);
	env_ring(&r, NR, true, 0, 0);
	env_ring(&w, NR, false, 0, 0);
	for (unsigned k = 0; k < 10; k++) {
		uint64_t off[NR], len[NR];

		for (unsigned i = 0; i < NR; i++) {
			struct usrbio_args a;

			off[i] = i * PLACE + rig_below(5000);
			len[i] = 1 + rig_below(PLACE - 5000);
			a = env_args(1, off[i], i * PLACE, len[i]);
			a.user_data = i;
			T_CHECK(client_prep(&r, &a) >= 0);
		}
		server_ring_kick(r.ring);
		T_EQ(client_wait(&r, q, NR, NR, RIG_WAIT_MS), NR);
		for (unsigned i = 0; i < NR; i++) {
			T_EQ(q[i].user_data, i);
			T_EQ(q[i].result, len[i]);
			T_EQ(rig_mem_differs(my.mem, i * PLACE, len[i], 1 + (k > 0), off[i]),
			     len[i]);
			rig_mem_fill(my.mem, i * PLACE, PLACE, 2, i * PLACE);
		}
		for (unsigned i = 0; i < NR; i++) {
			struct usrbio_args a = env_args(1, i * PLACE, i * PLACE, PLACE);

			T_CHECK(client_prep(&w, &a) >= 0);
		}
		server_ring_kick(w.ring);
		T_EQ(client_wait(&w, q, NR, NR, RIG_WAIT_MS), NR);
		for (unsigned i = 0; i < NR; i++) {
			T_EQ(q[i].result, PLACE);
			T_EQ(rig_slurp(rig_path("file1"), i * PLACE, buf, PLACE), PLACE);
			T_EQ(t_differs(buf, 2, i * PLACE, PLACE), PLACE);
		}
	}
	client_free(&r);
	client_free(&w);
	env_end();
	free(buf);
}

static void moves_bytes_of_a_device(void)
{
	env_dev = "soft:0";
	moves_bytes();
	env_dev = "host";
}

/* Read a file that is not cached. */
static void reads_what_is_cold(void)
{
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 256, true, 0, 0);
	for (unsigned i = 0; i < 4; i++) {
		rig_cold(rig_path("file1"));
		prep(&c, 250);
		server_ring_kick(c.ring);
		expect(&c, 250, false);
	}
	client_free(&c);
	env_end();
}

/* Overlapping writes are done in order, and the last one's bytes stay. */
static void writes_that_overlap(void)
{
	enum { NR = 60 };
	struct usrbio_cqe q[NR];
	uint8_t got[16384];
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDWR);
	env_ring(&c, NR, false, 0, 0);
	for (unsigned k = 0; k < 20; k++) {
		for (unsigned i = 0; i < NR; i++) {
			uint64_t at = (uint64_t)i * sizeof(got);
			struct usrbio_args a = env_args(1, 4096 + rig_below(2) * 8192, at,
							sizeof(got));

			if (i == NR - 1)
				a.file_off = 4096;
			memset(my.host + at, (int)(k + i), sizeof(got));
			T_CHECK(client_prep(&c, &a) >= 0);
		}
		server_ring_kick(c.ring);
		T_EQ(client_wait(&c, q, NR, NR, RIG_WAIT_MS), NR);
		for (unsigned i = 0; i < NR; i++)
			T_EQ(q[i].result, sizeof(got));
		T_EQ(rig_slurp(rig_path("file1"), 4096, got, sizeof(got)), sizeof(got));
		for (unsigned i = 0; i < sizeof(got); i++)
			T_EQ(got[i], (uint8_t)(k + NR - 1));
	}
	client_free(&c);
	env_end();
}

/* ----------------------------------------------------------------- threads */

static struct client shared;
static _Atomic bool posted_all;

static void *poster(void *arg)
{
	uint64_t nr = *(uint64_t *)arg;

	while (shared.sent < nr) {
		struct usrbio_args a = env_args(1, shared.sent % 1024 * 64, shared.sent % 1024 * 64,
						64);

		a.user_data = shared.sent;
		if (client_prep(&shared, &a) < 0)
			(void)sched_yield();
		else if (rig_below(3) == 0)
			server_ring_kick(shared.ring);
	}
	server_ring_kick(shared.ring);
	posted_all = true;
	return NULL;
}

/* One thread prepares and wakes the server, another waits. */
static void two_threads_on_a_ring(void)
{
	uint64_t nr = MANY / 10, got = 0;
	bool *seen = calloc(nr, sizeof(*seen));
	struct usrbio_cqe q[16];
	pthread_t thread;

	T_CHECK(seen);
	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&shared, 32, true, 0, 0);
	posted_all = false;
	T_EQ(pthread_create(&thread, NULL, poster, &nr), 0);
	while (got < nr) {
		unsigned n = client_wait(&shared, q, 1, RIG_NR(q), 1000);

		/* Only after the poster's last wake-up may a wait find nothing. */
		T_CHECK(n || !posted_all);
		for (unsigned i = 0; i < n; i++) {
			T_EQ(q[i].result, 64);
			T_CHECK(q[i].user_data < nr && !seen[q[i].user_data]);
			seen[q[i].user_data] = true;
		}
		got += n;
	}
	T_EQ(pthread_join(thread, NULL), 0);
	free(seen);
	client_free(&shared);
	env_end();
}

static const struct again cases[] = {
	{ "writes_that_overlap", writes_that_overlap, AGAIN_ONCE, "file.write:0:1ms" },
	{ "moves_bytes", moves_bytes, AGAIN_ONCE, "file.read:0:short,file.write:0:short" },
	{ "two_threads_without_uring", two_threads_on_a_ring, AGAIN_ONCE, "file.uring:0:EPERM" },
	{ "moves_bytes_without_uring", moves_bytes, AGAIN_ONCE, "file.uring:0:EPERM" },
};

int main(int argc, char **argv)
{
	rig_init();
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	BOTH(U12_a_million);
	BOTH(full_ring);
	BOTH(moves_bytes);
	BOTH(moves_bytes_of_a_device);
	BOTH(reads_what_is_cold);
	BOTH(writes_that_overlap);
	BOTH(two_threads_on_a_ring);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
