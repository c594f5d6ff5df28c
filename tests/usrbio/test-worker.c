/* SPDX-License-Identifier: MIT */
/*
 * When the server takes entries of a ring, and in which order rings are served.  Most cases run
 * twice: with clients that sleep until the server's threads are done, and with clients that help.
 */
#include "worker_rig.h"

#include "again.h"

/* ------------------------------------------------------------------- depth */

static void P4_depth_exact(void)
{
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 20, true, 4, 5);
	prep(&c, 3);
	server_ring_kick(c.ring);
	expect(&c, 0, true);
	prep(&c, 1);
	server_ring_kick(c.ring);
	expect(&c, 4, true);
	prep(&c, 9);
	server_ring_kick(c.ring);
	expect(&c, 8, true);
	prep(&c, 3);
	server_ring_kick(c.ring);
	expect(&c, 4, true);
	client_free(&c);
	env_end();
}

/* Depth 0: a batch has all entries, which are more than can start at once. */
static void P4_depth_is_all(void)
{
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 200, true, 200, 0);
	for (unsigned i = 0; i < 3; i++) {
		prep(&c, 199);
		server_ring_kick(c.ring);
		expect(&c, 0, true);
		prep(&c, 1);
		server_ring_kick(c.ring);
		expect(&c, 200, true);
	}
	client_free(&c);
	env_end();
}

static void P4_depth_zero(void)
{
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 200, true, 0, 0);
	for (unsigned i = 1; i <= 200; i += 33) {
		prep(&c, i);
		server_ring_kick(c.ring);
		expect(&c, i, false);
	}
	client_free(&c);
	env_end();
}

static void P4_depth_below_zero_at_once(void)
{
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 100, true, -8, 0);
	for (unsigned i = 1; i <= 100; i += 9) {
		prep(&c, i);
		server_ring_kick(c.ring);
		expect(&c, i, false);
	}
	client_free(&c);
	env_end();
}

/* A partial batch starts at its timeout without another kick. */
static void P4_timeout_fires(void)
{
	uint64_t start;
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	/* A full batch does not wait for the timeout. */
	env_ring(&c, 100, true, -8, 600000);
	prep(&c, 8);
	server_ring_kick(c.ring);
	expect(&c, 8, false);
	client_free(&c);
	env_ring(&c, 100, true, -8, 500);
	for (unsigned i = 1; i < 8; i += 3) {
		start = t_now();
		prep(&c, 8 + i);
		server_ring_kick(c.ring);
		expect(&c, 8, false);
		expect(&c, i, false);
		T_CHECK(t_now() >= start + 499 * 1000000u);
	}
	client_free(&c);
	env_end();
}

/* The timeout also fires if a client's help was the last check of the ring and that client does not
 * wait. */
static void P4_timeout_after_help(void)
{
	struct usrbio_cqe q;
	struct client c;
	unsigned busy = 0;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 100, true, -8, 30);
	for (unsigned i = 0; i < 40; i++) {
		prep(&c, 1 + i % 7);
		/*
		 * The client gets nothing if the thread holds the ring at that moment, which is
		 * rare.
		 */
		for (unsigned tries = 0; c.got < c.sent && tries < 4; tries++) {
			uint64_t end = t_in_ms(2000);

			busy += tries > 0;
			(void)server_ring_help(c.ring);
			while (c.got < c.sent && t_now() < end)
				if (!client_harvest(&c, &q, 1))
					(void)usleep(1000);
		}
		T_EQ(c.got, c.sent);
	}
	T_CHECK(busy <= 10);
	client_free(&c);
	env_end();
}

/* Requests of one batch stay in order; batches may overtake each other. */
static void P4_order_within_batches(void)
{
	struct usrbio_args hang, quick;
	struct usrbio_cqe q[8];
	unsigned nr = 0;
	struct client c;

	need_fuse();
	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	fuse_file(2, "hang");
	env_ring(&c, 32, true, 3, 0);
	hang = env_args(2, 0, 0, PIECE);
	quick = env_args(1, 0, PIECE, PIECE);
	for (unsigned i = 0; i < 6; i++) {
		struct usrbio_args *a = i == 1 ? &hang : &quick;

		a->user_data = i;
		T_CHECK(client_prep(&c, a) >= 0);
	}
	server_ring_kick(c.ring);
	T_EQ(client_wait(&c, q, 4, 8, RIG_WAIT_MS), 4);
	for (unsigned i = 0; i < 4; i++)
		if (q[i].user_data)
			T_EQ(q[i].user_data, 3 + nr++);
	T_EQ(nr, 3);
	/* A later batch completes before the first one. */
	for (unsigned i = 6; i < 9; i++) {
		quick.user_data = i;
		T_CHECK(client_prep(&c, &quick) >= 0);
	}
	server_ring_kick(c.ring);
	T_EQ(client_wait(&c, q, 3, 8, RIG_WAIT_MS), 3);
	for (unsigned i = 0; i < 3; i++)
		T_EQ(q[i].user_data, i + 6);
	T_EQ(release_until(&c, q, 2), 2);
	T_EQ(q[0].user_data, 1);
	T_EQ(q[1].user_data, 2);
	T_EQ(q[0].result, PIECE);
	client_free(&c);
	env_end();
	fusefs_stop(&fs);
}

/* -------------------------------------------------- priorities and fairness */

/* Fill several rings that share one thread.  PST_FAULT makes each read take some time. */
static void side_by_side(struct client *c, const enum usrbio_priority *priority, unsigned nr,
			 unsigned entries)
{
	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	for (unsigned i = 0; i < nr; i++) {
		struct server_ring_opts o;

		client_map(&c[i], (int)entries);
		o = client_opts(&c[i], true);
		o.priority = priority[i];
		client_add(&c[i], my.w, &o);
		c[i].never_help = true;
	}
	/* The first read takes so long that all other entries are present when it ends. */
	prep(&c[0], 1);
	server_ring_kick(c[0].ring);
	taken(&c[0]);
	for (unsigned i = nr; i-- > 0;) {
		prep(&c[i], entries - (i == 0));
		server_ring_kick(c[i].ring);
	}
}

static void finish(struct client *c, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct usrbio_cqe q[512];
		unsigned want = (unsigned)(c[i].sent - c[i].got);

		T_EQ(client_wait(&c[i], q, want, RIG_NR(q), RIG_WAIT_MS), want);
		client_free(&c[i]);
	}
	env_end();
}

static void P5_priorities(void)
{
	static const enum usrbio_priority priority[] = { USRBIO_HIGH, USRBIO_NORMAL, USRBIO_LOW };
	unsigned high, normal, low, late;
	uint64_t last, now = t_now();
	struct client c[3];

	side_by_side(c, priority, 3, 256);
	do {
		(void)usleep(500);
		last = now;
		now = t_now();
		high = cq_held(&c[0]);
		normal = cq_held(&c[1]);
		low = cq_held(&c[2]);
	} while (high < 256);
	/* A read takes a millisecond, so this many may have completed since the last check. */
	late = (unsigned)((t_now() - last) / 1000000);
	/* Rings of lower priority are served later, but do not starve. */
	T_CHECK(normal >= 8 && normal < 96 + late);
	T_CHECK(low >= 8 && low < 96 + late);
	do {
		(void)usleep(500);
		last = now;
		now = t_now();
		normal = cq_held(&c[1]);
		low = cq_held(&c[2]);
	} while (normal < 256);
	late = (unsigned)((t_now() - last) / 1000000);
	T_CHECK(low < 160 + late);
	finish(c, 3);
}

static void fair_to_small_rings(void)
{
	static const enum usrbio_priority priority[] = { USRBIO_NORMAL, USRBIO_NORMAL,
							 USRBIO_NORMAL };
	struct client c[3];

	side_by_side(c, priority, 3, 256);
	/* A fourth ring submits only 8 requests after the other three are full.  These 8 must
	 * complete before the other rings have 400 completions together. */
	{
		struct usrbio_cqe q[8];
		struct client late;

		client_new(&late, my.w, 8, true, 0, 0);
		late.never_help = true;
		prep(&late, 8);
		server_ring_kick(late.ring);
		T_EQ(client_wait(&late, q, 8, 8, RIG_WAIT_MS), 8);
		T_CHECK(cq_held(&c[0]) + cq_held(&c[1]) + cq_held(&c[2]) < 400);
		client_free(&late);
	}
	finish(c, 3);
}

/* A hanging file blocks its ring, and at most half of the executor's requests. */
static void others_go_on_beside_one_that_hangs(void)
{
	static struct usrbio_cqe q[600];
	struct usrbio_args a;
	struct client bad, good;

	need_fuse();
	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	fuse_file(2, "hang");
	env_ring(&good, 64, true, 0, 0);
	env_ring(&bad, 600, true, 0, 0);
	for (unsigned i = 0; i < 600; i++) {
		a = env_args(2, i * 64, i * 64, 64);
		T_CHECK(client_prep(&bad, &a) >= 0);
	}
	server_ring_kick(bad.ring);
	for (unsigned i = 0; i < 200; i++) {
		prep(&good, 10);
		server_ring_kick(good.ring);
		expect(&good, 10, false);
	}
	T_EQ(cq_held(&bad), 0);
	T_EQ(release_until(&bad, q, 600), 600);
	for (unsigned i = 0; i < 600; i++)
		T_EQ(q[i].result, 64);
	T_EQ(rig_mem_differs(my.mem, 0, 600 * 64, FUSEFS_SEED, 0), 600 * 64);
	client_free(&bad);
	client_free(&good);
	env_end();
	fusefs_stop(&fs);
}

static const struct again cases[] = {
	{ "P5_priorities", P5_priorities, AGAIN_ONCE, "file.read:1:100ms,file.read:0:1ms" },
	{ "fair_to_small_rings", fair_to_small_rings, AGAIN_ONCE,
	  "file.read:1:100ms,file.read:0:1ms" },
};

int main(int argc, char **argv)
{
	rig_init();
	(void)atexit(stop_fuse);
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	BOTH(P4_depth_exact);
	BOTH(P4_depth_is_all);
	BOTH(P4_depth_zero);
	BOTH(P4_depth_below_zero_at_once);
	BOTH(P4_timeout_fires);
	rig_run1("P4_timeout_after_help", P4_timeout_after_help);
	BOTH(P4_order_within_batches);
	BOTH(others_go_on_beside_one_that_hangs);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
