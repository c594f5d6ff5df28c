/* SPDX-License-Identifier: MIT */
/*
 * Rings served by threads of the server's owner, as in a mount's worker: clients only get
 * completions, and do not help.
 */
#include <pthread.h>

#include "worker_rig.h"

#define SERVERS 3u

static const struct server_opts guarded = { .guard = true };

/* The clients' semaphore, and the threads that wait for it. */
static struct {
	sem_t sem;
	pthread_mutex_t lock; /* protects rings and nr */
	struct server_ring *rings[8];
	unsigned nr;
	atomic_bool ends;
	pthread_t threads[SERVERS];
} side;

static void *serve(void *arg)
{
	(void)arg;
	for (;;) {
		struct server_ring *rings[8];
		unsigned nr;

		while (sem_wait(&side.sem) < 0)
			;
		if (atomic_load(&side.ends))
			return NULL;
		(void)pthread_mutex_lock(&side.lock);
		nr = side.nr;
		memcpy(rings, side.rings, sizeof(rings));
		(void)pthread_mutex_unlock(&side.lock);
		for (unsigned i = 0; i < nr; i++)
			if (server_ring_work(rings[i]))
				server_ring_serve(rings[i]);
	}
}

static void side_begin(struct client *const *clients, unsigned nr)
{
	side.nr = nr;
	for (unsigned i = 0; i < nr; i++)
		side.rings[i] = clients[i]->ring;
	atomic_store(&side.ends, false);
	T_EQ(sem_init(&side.sem, 0, 0), 0);
	T_EQ(pthread_mutex_init(&side.lock, NULL), 0);
	for (unsigned i = 0; i < SERVERS; i++)
		T_EQ(pthread_create(&side.threads[i], NULL, serve, NULL), 0);
}

static void side_end(void)
{
	atomic_store(&side.ends, true);
	for (unsigned i = 0; i < SERVERS; i++)
		T_EQ(sem_post(&side.sem), 0);
	for (unsigned i = 0; i < SERVERS; i++)
		T_EQ(pthread_join(side.threads[i], NULL), 0);
	T_EQ(sem_destroy(&side.sem), 0);
	T_EQ(pthread_mutex_destroy(&side.lock), 0);
}

static void begin(void)
{
	env_help = false;
	env_begin(&guarded);
	env_file(1, FILE_LEN, O_RDWR);
	rig_warm(rig_path("file1"));
}

/* ------------------------------------------------------------------ cases */

/* server_ring_work() is 0 without entries, and estimates the remaining work otherwise. */
static void work_is_told(void)
{
	struct client c;
	uint64_t one;

	begin();
	env_ring(&c, 64, true, 0, 0);
	T_EQ(server_ring_work(c.ring), 0);
	prep(&c, 1);
	one = server_ring_work(c.ring);
	T_CHECK(one > 0);
	prep(&c, 3);
	T_EQ(server_ring_work(c.ring), 4 * one);
	server_ring_serve(c.ring);
	expect(&c, 4, false);
	T_EQ(server_ring_work(c.ring), 0);
	client_free(&c);
	env_end();
}

/* A serving thread completes all requests on cached bytes before it returns. */
static void served_on_this_thread(void)
{
	struct usrbio_cqe q[32];
	struct client c;

	begin();
	env_ring(&c, 64, true, 0, 0);
	for (unsigned i = 0; i < 200; i++) {
		uint64_t first = c.got;

		prep(&c, 1 + i % 32);
		server_ring_serve(c.ring);
		T_EQ(client_wait(&c, q, 1 + i % 32, RIG_NR(q), RIG_WAIT_MS), 1 + i % 32);
		each_once(q, 1 + i % 32, first);
	}
	env_check(1, (c.sent - 1) % (FILE_LEN / PIECE) * PIECE, (c.sent - 1) % 64 * PIECE, PIECE);
	client_free(&c);
	env_end();
}

/* Several clients post, and several threads serve all of their rings. */
static void many_clients(void)
{
	struct client c[4], *all[4];
	struct usrbio_cqe q[64];
	unsigned total = MANY / 20;

	begin();
	for (unsigned i = 0; i < 4; i++) {
		env_ring(&c[i], 64, true, i == 3 ? -8 : 0, i == 3 ? 1 : 0);
		all[i] = &c[i];
	}
	side_begin(all, 4);
	for (uint64_t done = 0; done < total;) {
		uint64_t first[4];
		unsigned nr[4];

		for (unsigned i = 0; i < 4; i++) {
			nr[i] = 1 + (unsigned)(done + 7 * i) % 48;
			first[i] = c[i].got;
			/* Post twice, so that entries arrive while a thread serves the ring. */
			prep(&c[i], nr[i] - nr[i] / 2);
			T_EQ(sem_post(&side.sem), 0);
			prep(&c[i], nr[i] / 2);
			T_EQ(sem_post(&side.sem), 0);
		}
		for (unsigned i = 0; i < 4; i++) {
			T_EQ(client_wait(&c[i], q, nr[i], RIG_NR(q), RIG_WAIT_MS), nr[i]);
			each_once(q, nr[i], first[i]);
			for (unsigned k = 0; k < nr[i]; k++)
				T_EQ(q[k].result, PIECE);
			done += nr[i];
		}
	}
	side_end();
	for (unsigned i = 0; i < 4; i++)
		client_free(&c[i]);
	env_end();
}

/* Work that would block is completed by the server's own threads. */
static void slow_files(void)
{
	struct usrbio_cqe q[8];
	struct client c;

	need_fuse();
	begin();
	fuse_file(2, "hang");
	env_ring(&c, 8, true, 0, 0);
	for (unsigned i = 0; i < 4; i++) {
		struct usrbio_args a = env_args(2, i * 512, BUF_LEN / 2 + i * 512, 512);

		T_CHECK(client_prep(&c, &a) >= 0);
	}
	server_ring_serve(c.ring);
	T_EQ(release_until(&c, q, 4), 4);
	for (unsigned i = 0; i < 4; i++)
		T_EQ(q[i].result, 512);
	/* The ring can still be served. */
	prep(&c, 4);
	server_ring_serve(c.ring);
	T_EQ(client_wait(&c, q, 4, 4, RIG_WAIT_MS), 4);
	client_free(&c);
	for (uint64_t end = t_hang(); pst_mem_drain(my.mem, 0) < 0 && t_now() < end;) {
		fusefs_release(&fs);
		(void)usleep(5000);
	}
	env_end();
	fusefs_stop(&fs);
}

/* A partial batch starts at its timeout without another post. */
static void batches_have_their_time(void)
{
	struct client c;

	begin();
	env_ring(&c, 64, true, -8, 20);
	prep(&c, 3);
	server_ring_serve(c.ring);
	expect(&c, 3, true);
	client_free(&c);
	env_end();
}

/* ---------------------------------------------------------------- writes */

static struct {
	atomic_uint nr;
	struct server_range last;
	struct client *client; /* client without visible completions yet */
	atomic_bool early;
} told;

static void writes(const struct server_range *ranges, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		told.last = ranges[i];
	if (told.client && cq_held(told.client))
		atomic_store(&told.early, true);
	/* No completion may be visible to another thread before this returns. */
	(void)usleep(1000);
	if (told.client && cq_held(told.client))
		atomic_store(&told.early, true);
	(void)atomic_fetch_add(&told.nr, nr);
}

static const struct server_opts telling = { .guard = true, .writes = writes };

/*
 * Writes to files added by server_file_add_told() are reported before they begin and again before
 * their completion is visible; reads are not.
 */
static void writes_are_told_first(void)
{
	struct server_file *file;
	struct client w, r;
	struct usrbio_args a;
	int fd;

	env_help = false;
	env_begin(&telling);
	env_file(1, FILE_LEN, O_RDWR);
	rig_make(rig_path("told"), 2, FILE_LEN);
	fd = open(rig_path("told"), O_RDWR | O_CLOEXEC);
	T_CHECK(fd >= 0);
	T_OK(server_file_add_told(my.w, 2, fd, &file));
	env_ring(&w, 8, false, 0, 0);
	env_ring(&r, 8, true, 0, 0);
	atomic_store(&told.nr, 0);
	atomic_store(&told.early, false);
	told.client = &w;
	for (unsigned i = 0; i < 20; i++) {
		a = env_args(2, i * 8192, 0, 4096 + i);
		T_EQ(env_do(&w, &a), 4096 + i);
		T_EQ(told.nr, 2 * (i + 1));
		T_EQ(told.last.number, 2);
		T_EQ(told.last.off, i * 8192);
		T_EQ(told.last.len, 4096 + i);
	}
	T_CHECK(!told.early);
	a = env_args(2, 0, 0, 4096);
	T_EQ(env_do(&r, &a), 4096);
	a = env_args(1, 0, 0, 4096);
	T_EQ(env_do(&w, &a), 4096);
	T_EQ(told.nr, 40);
	told.client = NULL;
	client_free(&r);
	client_free(&w);
	server_file_remove(my.w, file);
	(void)close(fd);
	env_end();
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN1(work_is_told);
	RIG_RUN1(served_on_this_thread);
	RIG_RUN1(many_clients);
	RIG_RUN1(slow_files);
	RIG_RUN1(batches_have_their_time);
	RIG_RUN1(writes_are_told_first);
	return rig_done();
}
