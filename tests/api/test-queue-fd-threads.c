/* SPDX-License-Identifier: MIT */
/*
 * Sleeping queues and threads: a queue for each of many threads, a queue that moves between
 * threads, many random requests, and a queue that another thread drains.
 */
#include "queue_fd.h"

/* ---------------------------------------------------------------- threads */

#define THREADS 8u
#define SLICE (16u * 8000u)

struct worker {
	pthread_t thread;
	unsigned idx;
	uint32_t backend;
	struct pst_mem *shared; /* each thread uses a slice of it */
	struct pst_file *file;
	char why[600];
	bool good;
};

/* Each thread leaves its work by a longjmp() of its own. */
#define W_CHECK(w, cond)                                                                         \
	do {                                                                                     \
		if (!(cond)) {                                                                   \
			(void)snprintf((w)->why, sizeof((w)->why), "line %d: %s (%s)", __LINE__, \
				       #cond, pst_error_text());                                 \
			return NULL;                                                             \
		}                                                                                \
	} while (0)

static void *work(void *arg)
{
	struct worker *w = arg;
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = w->backend, .depth = 16 };
	struct pst_queue *q = NULL;
	uint64_t x = w->idx + 12345, want[16];
	static const uint64_t place = SLICE / 16;
	uint8_t *buf = malloc(place);
	unsigned left = 300;

	W_CHECK(w, buf && pst_queue_new(&o, &q) == 0);
	while (left) {
		unsigned n = 1 + (unsigned)(x % 16), got = 0;
		struct pst_done d[16];

		for (unsigned i = 0; i < n; i++) {
			struct pst_io io = rig_io(PST_OP_READ, w->file, w->shared, 0,
						  w->idx * SLICE + i * place, place);

			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			io.file_off = want[i] = x % (LEN - place);
			io.user_data = i;
			W_CHECK(w, pst_queue_prep(q, &io) == 0);
		}
		W_CHECK(w, pst_queue_submit(q) == (int)n);
		if (left % 3 == 0)
			W_CHECK(w, pst_queue_fd(q) >= 0 && sleep_on(pst_queue_fd(q), 5000));
		while (got < n) {
			int r = pst_queue_reap(q, d, 1, RIG_NR(d), t_in_ms(RIG_WAIT_MS));

			W_CHECK(w, r > 0);
			for (int i = 0; i < r; i++) {
				uint64_t k = d[i].user_data;

				W_CHECK(w, d[i].res == (int64_t)place);
				if (left % 8)
					continue;
				W_CHECK(w, pst_mem_copy_out(w->shared, w->idx * SLICE + k * place,
							    buf, place) == 0);
				W_CHECK(w, t_differs(buf, w->idx, want[k], place) == place);
			}
			got += (unsigned)r;
		}
		left--;
	}
	free(buf);
	pst_queue_free(q);
	w->good = true;
	return NULL;
}

/* Read counters and wait for memory from another thread. */
static void *look(void *arg)
{
	atomic_bool *stop = arg;
	static char done[] = "done";

	while (!*stop) {
		struct pst_stats st = { .sz = sizeof(st) };

		if (pst_stats(NULL, &st) < 0)
			return NULL;
		(void)usleep(500);
	}
	return done;
}

static void eight_threads(void)
{
	struct pst_mem *shared = rig_alloc(rig_dev, THREADS * SLICE);
	struct worker w[THREADS] = { 0 };
	atomic_bool stop = false;
	pthread_t looker;
	void *looked;

	T_EQ(pthread_create(&looker, NULL, look, &stop), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "data%u", i);
		rig_make(rig_path(name), i, LEN);
		w[i].idx = i;
		w[i].backend = rig_backend;
		w[i].shared = shared;
		w[i].file = rig_open(rig_path(name), PST_FILE_READ);
		T_EQ(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	}
	for (unsigned i = 0; i < 50; i++)
		(void)pst_mem_drain(shared, t_in_ms(1));
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_join(w[i].thread, NULL), 0);
	stop = true;
	T_EQ(pthread_join(looker, &looked), 0);
	T_CHECK(looked);
	for (unsigned i = 0; i < THREADS; i++) {
		if (!w[i].good)
			T_FAIL("thread %u: %.300s", i, w[i].why);
		pst_file_close(w[i].file);
	}
	T_OK(pst_mem_drain(shared, 0));
	pst_mem_free(shared);
}

/* Reap in another thread than the one that submitted: a queue may move between calls. */
static void *finish_elsewhere(void *arg)
{
	struct pst_done d = { 0 };
	struct worker *w = arg;

	w->good = pst_queue_reap(rig_q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)) == 1 &&
		  d.res == (int64_t)LEN;
	return NULL;
}

static void *start_elsewhere(void *arg)
{
	struct worker *w = arg;
	struct pst_io io = rig_io(PST_OP_READ, w->file, w->shared, 0, 0, LEN);

	w->good = pst_queue_prep(rig_q, &io) == 0 && pst_queue_submit(rig_q) == 1;
	return NULL;
}

static void moves_between_threads(void)
{
	struct worker w = { .shared = rig_alloc(rig_dev, LEN) };

	rig_make(rig_path("data"), 5, LEN);
	w.file = rig_open(rig_path("data"), PST_FILE_READ);
	for (unsigned i = 0; i < 10; i++) {
		rig_cold(rig_path("data"));
		T_EQ(pthread_create(&w.thread, NULL, start_elsewhere, &w), 0);
		T_EQ(pthread_join(w.thread, NULL), 0); /* the thread's request has not ended */
		T_CHECK(w.good);
		T_EQ(pthread_create(&w.thread, NULL, finish_elsewhere, &w), 0);
		T_EQ(pthread_join(w.thread, NULL), 0);
		T_CHECK(w.good);
		T_EQ(rig_mem_differs(w.shared, 0, LEN, 5, 0), LEN);
		rig_mem_fill(w.shared, 0, LEN, 6, 0);
	}
	pst_file_close(w.file);
	pst_mem_free(w.shared);
}

/* ------------------------------------------------------------------ storm */

#define SLOTS 64u
#define SLOT_LEN (256u << 10)
#define IMAGE_LEN RIG_MIB(4)

/* Keep 64 requests in flight, each replaced when it completes. */
struct storm {
	struct pst_file *f;
	struct pst_mem *src, *dst; /* src: the file's bytes; dst: SLOTS places of SLOT_LEN */
	struct pst_io ios[SLOTS];
	bool used[SLOTS];
	unsigned nr_used;
	char *buf;
};

static void storm_prep(struct storm *s, unsigned slot)
{
	/* Choose lengths over all powers of two alike. */
	uint64_t len = 1 + rig_below(1u << rig_below(19)), off = rig_below(IMAGE_LEN - len + 1);
	bool write = rig_below(4) == 0;

	if (write) { /* in a range of the slot's own: writes in flight must not overlap */
		len = len > IMAGE_LEN / SLOTS ? IMAGE_LEN / SLOTS : len;
		off = slot * (IMAGE_LEN / SLOTS) + rig_below(IMAGE_LEN / SLOTS - len + 1);
	} else if (rig_below(2)) {
		len = (len + 4095) & ~UINT64_C(4095);
		off = off + len > IMAGE_LEN ? 0 : off & ~UINT64_C(4095);
	}
	s->ios[slot] = write ? rig_io(PST_OP_WRITE, s->f, s->src, off, off, len)
			     : rig_io(PST_OP_READ, s->f, s->dst, off, slot * SLOT_LEN, len);
	s->ios[slot].user_data = slot;
	T_OK(pst_queue_prep(rig_q, &s->ios[slot]));
	s->used[slot] = true;
	s->nr_used++;
}

static void storm_done(struct storm *s, const struct pst_done *d)
{
	const struct pst_io *io = &s->ios[d->user_data % SLOTS];

	T_CHECK(d->user_data < SLOTS && s->used[d->user_data]);
	s->used[d->user_data] = false;
	s->nr_used--;
	if (d->res != (int64_t)io->len)
		rig_show(d);
	T_EQ(d->res, io->len);
	if (io->op == PST_OP_WRITE || rig_below(4))
		return;
	T_OK(pst_mem_copy_out(s->dst, io->mem_off, s->buf, io->len));
	T_EQ(t_differs(s->buf, 11, io->file_off, io->len), io->len);
}

static void storm(void)
{
	struct storm s = { .buf = malloc(SLOT_LEN) };
	unsigned left = STORM, done = 0;
	int fd = pst_queue_fd(rig_q);

	T_CHECK(fd >= 0 && s.buf);
	rig_make(rig_path("storm"), 11, IMAGE_LEN);
	s.f = rig_open(rig_path("storm"), RIG_RW);
	s.src = rig_alloc(rig_dev, IMAGE_LEN);
	s.dst = rig_alloc(rig_dev, SLOTS * SLOT_LEN);
	rig_mem_fill(s.src, 0, IMAGE_LEN, 11, 0);
	while (done < STORM) {
		struct pst_done d[SLOTS];
		unsigned taken = 0;
		int n;

		for (unsigned i = 0; i < SLOTS && left; i++)
			if (!s.used[i]) {
				storm_prep(&s, i);
				taken++;
				left--;
			}
		if (taken)
			T_EQ(pst_queue_submit(rig_q), taken);
		if (rig_below(50) == 0)
			rig_cold(rig_path("storm"));
		n = pst_queue_reap(rig_q, d, 0, 1 + (unsigned)rig_below(SLOTS), 0);
		T_CHECK(n >= 0);
		for (int i = 0; i < n; i++)
			storm_done(&s, &d[i]);
		done += (unsigned)n;
		if (n || !s.nr_used || sleep_on(fd, SLEEP_MS))
			continue;
		n = pst_queue_reap(rig_q, d, 0, SLOTS, 0);
		T_FAIL("asleep for %d ms with %u in flight, %d of them done", SLEEP_MS, s.nr_used,
		       n);
	}
	pst_file_close(s.f);
	pst_mem_free(s.src);
	pst_mem_free(s.dst);
	free(s.buf);
}

/* Sleep right after pst_queue_submit(), without a reap in between. */
static void no_look_before_sleep(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, 65536);
	int fd = pst_queue_fd(rig_q);
	struct pst_file *f;

	T_CHECK(fd >= 0);
	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), RIG_RW);
	for (unsigned i = 0; i < 200; i++) {
		struct pst_io io = rig_io(i % 3 ? PST_OP_READ : PST_OP_WRITE, f, m, i * 11, 0,
					  1 + i * 317);
		struct pst_done d = { 0 };
		int n = 0;

		if (i % 10 == 9)
			io = (struct pst_io){ .op = PST_OP_SYNC, .file = f };
		if (i % 16 == 0)
			rig_cold(rig_path("data"));
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		while (!n) {
			T_CHECK(sleep_on(fd, SLEEP_MS));
			n = pst_queue_reap(rig_q, &d, 0, 1, 0);
		}
		T_EQ(d.res, io.len);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

/* Another thread drains the memory, and in doing so executes the queue's work: the sleeper must
 * still be woken. */
struct drainer {
	struct pst_mem *m;
	atomic_bool stop;
};

static void *drain_main(void *arg)
{
	struct drainer *dr = arg;

	while (!dr->stop) {
		int r = pst_mem_drain(dr->m, 0);

		if (r && r != -EBUSY)
			return arg;
		(void)usleep(50);
	}
	return NULL;
}

static void drained_by_another(void)
{
	struct drainer dr = { .m = rig_alloc(rig_dev, 8 * 65536) };
	int fd = pst_queue_fd(rig_q);
	unsigned lost = 0;
	struct pst_file *f;
	void *bad = NULL;
	pthread_t t;

	T_CHECK(fd >= 0);
	rig_make(rig_path("data"), 11, 8 * 65536);
	f = rig_open(rig_path("data"), RIG_RW);
	rig_mem_fill(dr.m, 0, 8 * 65536, 11, 0);
	T_EQ(pthread_create(&t, NULL, drain_main, &dr), 0);
	for (unsigned round = 0; round < 300 && !lost; round++) {
		struct pst_done d[8];
		unsigned n = 0;

		for (unsigned i = 0; i < 8; i++) {
			struct pst_io io = rig_io(i % 4 ? PST_OP_READ : PST_OP_WRITE, f, dr.m,
						  i * 65536, i * 65536, 1 + rig_below(65536));

			(void)pst_queue_prep(rig_q, &io);
		}
		(void)pst_queue_submit(rig_q);
		while (n < 8 && !lost) {
			n += (unsigned)pst_queue_reap(rig_q, d, 0, 8, 0);
			if (n < 8 && !sleep_on(fd, SLEEP_MS))
				lost = 8 - n;
		}
	}
	dr.stop = true;
	T_EQ(pthread_join(t, &bad), 0);
	if (lost)
		T_FAIL("asleep for %d ms with %u in flight", SLEEP_MS, lost);
	T_CHECK(!bad);
	T_EQ(rig_mem_differs(dr.m, 0, 8 * 65536, 11, 0), 8 * 65536);
	pst_file_close(f);
	pst_mem_free(dr.m);
}

/* An operation that ends during the sleep must wake the sleeper. */
static void *release_main(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 50; i++) {
		(void)usleep(20000); /* wait until the other thread sleeps */
		fusefs_release(&fs);
	}
	return NULL;
}

static void late_answer_wakes(void)
{
	int fd = pst_queue_fd(rig_q);
	struct pst_done d = { 0 };
	struct pst_mem *m;
	struct pst_file *f;
	struct pst_io io;
	char path[200];
	pthread_t t;
	bool woken = true;

	T_CHECK(fd >= 0);
	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	f = rig_open(path, PST_FILE_READ);
	m = rig_alloc(rig_dev, 65536);
	io = rig_io(PST_OP_READ, f, m, LEN, 0, 65536);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	T_EQ(pthread_create(&t, NULL, release_main, NULL), 0);
	while (woken && pst_queue_reap(rig_q, &d, 0, 1, 0) == 0)
		woken = sleep_on(fd, SLEEP_MS);
	T_EQ(pthread_join(t, NULL), 0);
	T_CHECK(woken);
	T_EQ(d.res, 65536);
	T_EQ(rig_mem_differs(m, 0, 65536, FUSEFS_SEED, LEN), 65536);
	pst_file_close(f);
	pst_mem_free(m);
	rig_q = pst_queue_free(rig_q);
	fusefs_stop(&fs);
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN(eight_threads);
	RIG_RUN(moves_between_threads);
	RIG_RUN(storm);
	RIG_RUN(no_look_before_sleep);
	RIG_RUN(drained_by_another);
	RIG_RUN(late_answer_wakes);
	return rig_done();
}
