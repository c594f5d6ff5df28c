/* SPDX-License-Identifier: MIT */
/*
 * Everything at once and at random: threads with a queue each, reads and writes of all sizes,
 * cancels, deadlines, and memory, files and queues that are freed with requests in flight.  A
 * second round adds failures of every kind.
 *
 * A byte of a file is a function of its offset, and writes write that byte, so the result of a
 * read is known in any order of events.  (Writes in flight never overlap: if one of two
 * overlapping writes uses O_DIRECT, the kernel makes the next fsync(2) fail.) Errors of the
 * library are a wrong byte, a byte that arrives after its request has ended, a completion that
 * comes twice or never, and anything that is left at the end.
 *
 * A round takes three seconds; with PST_SOAK=1 ten minutes, with PST_SOAK=N N seconds.  PST_SEED
 * repeats a run, as far as thread scheduling allows.
 */
#include <poll.h>
#include <pthread.h>

#include "again.h"
#include "fusefs.h"

#define SEED 61
#define NR_THREADS 4u
#define SLOTS 24u
#define STRIPE (256u << 10) /* bytes of the file for each slot: writes in flight never overlap */
#define FILE_LEN (UINT64_C(1) * NR_THREADS * SLOTS * STRIPE + 777)
#define SLOT_LEN (512u << 10)
#define GAP 4096u /* bytes between slots, never written */
#define SRC_LEN ((FILE_LEN | 4095) + 1)
#define POISON 0xa5

/* -------------------------------------------------------------- one thread */

struct slot {
	bool used;
	bool may_cancel, may_time_out, may_fail, is_sync, own, hung;
	uint64_t serial;
	struct pst_io io;
	struct pst_seg segs[3];
	struct pst_mem *own_mem; /* freed while the request is in flight */
	uint64_t want;
	bool poisoned; /* ended without its bytes: the memory must not change any more */
	bool busy;     /* the kernel may still use its memory */
	bool writing;  /* a write of the slot may still be in flight */
};

struct soak {
	pthread_t thread;
	unsigned nr;
	uint32_t backend;
	bool faults;
	uint64_t end;
	uint64_t random;
	jmp_buf fail;
	char why[300];

	struct pst_queue *q;
	struct pst_file *f, *hang;
	struct pst_mem *src[2]; /* shared: the file's bytes, on host and device */
	struct pst_mem *dst[2]; /* the thread's slots, on host and device */
	struct slot slots[SLOTS];
	unsigned nr_used;
	uint64_t serial;
	char *buf;
	uint64_t done, failed;
};

static char soak_path[PATH_MAX], hang_path[200];
static _Atomic bool anybody_failed;

#define S_FAIL(s, ...)                                                                         \
	do {                                                                                   \
		int _n = snprintf((s)->why, sizeof((s)->why), "thread %u, line %d: ", (s)->nr, \
				  __LINE__);                                                   \
		(void)snprintf((s)->why + _n, sizeof((s)->why) - (size_t)_n, __VA_ARGS__);     \
		anybody_failed = true;                                                         \
		longjmp((s)->fail, 1);                                                         \
	} while (0)
#define S_CHECK(s, cond)                                               \
	do {                                                           \
		if (!(cond))                                           \
			S_FAIL(s, "%s (%s)", #cond, pst_error_text()); \
	} while (0)

static uint64_t below(struct soak *s, uint64_t n)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return s->random % n;
}

static bool one_in(struct soak *s, uint64_t n)
{
	return below(s, n) == 0;
}

static uint64_t slot_off(const struct soak *s, const struct slot *sl)
{
	return (uint64_t)(sl - s->slots) * (SLOT_LEN + GAP) + GAP;
}

static void open_file(struct soak *s)
{
	uint32_t flags = RIG_RW | (one_in(s, 6) ? PST_FILE_PLAIN : 0) |
			 (one_in(s, 3) ? PST_FILE_STABLE : 0);
	int r;

	do
		r = pst_file_open(soak_path, flags, NULL, &s->f);
	while (r < 0 && s->faults);
	S_CHECK(s, r == 0);
}

static void open_queue(struct soak *s)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = s->backend };
	int r;

	o.depth = 2 * SLOTS;
	do
		r = pst_queue_new(&o, &s->q);
	while (r < 0 && s->faults);
	S_CHECK(s, r == 0);
}

/* ---------------------------------------------------------------- requests */

static uint64_t random_len(struct soak *s)
{
	uint64_t len = 1 + below(s, UINT64_C(1) << below(s, 20));

	return len > SLOT_LEN ? SLOT_LEN : len;
}

/* Choose a range in the file, sometimes across its end. */
static void random_range(struct soak *s, const struct slot *sl, bool write, uint64_t *ret_off,
			 uint64_t *ret_len)
{
	uint64_t len = random_len(s), room = FILE_LEN + 8192, start = 0, off;

	if (write) {
		start = (s->nr * SLOTS + (uint64_t)(sl - s->slots)) * STRIPE;
		room = STRIPE;
		len = len > room ? room : len;
	}
	off = below(s, room - len + 1);
	if (one_in(s, 2)) {
		off &= ~UINT64_C(4095);
		len = (len + 4095) & ~UINT64_C(4095);
	}
	if (off + len > room)
		len = room - off;
	*ret_off = start + off;
	*ret_len = len;
}

static uint64_t want_of(uint64_t off, uint64_t len)
{
	if (off >= FILE_LEN)
		return 0;
	return off + len > FILE_LEN ? FILE_LEN - off : len;
}

static void fill_rw(struct soak *s, struct slot *sl, bool write)
{
	unsigned dev = (unsigned)below(s, 2);
	uint64_t off, len, at = slot_off(s, sl);
	struct pst_io *io = &sl->io;

	random_range(s, sl, write, &off, &len);
	io->op = write ? PST_OP_WRITE : PST_OP_READ;
	io->file = s->f;
	io->mem = write ? s->src[dev] : s->dst[dev];
	io->file_off = off;
	io->mem_off = write ? off : at;
	io->len = len;
	sl->want = want_of(off, len);
	if (!one_in(s, 3) || len < 64 || off + len > FILE_LEN)
		return;
	/* Split the request into pieces: one, eight adjacent ones of equal length, and the rest. */
	sl->segs[0] = (struct pst_seg){ off, io->mem_off, len / 8, 0, 0, 0 };
	sl->segs[1] = (struct pst_seg){ off + len / 8, io->mem_off + len / 8,
					len / 64,      len / 64,
					len / 64,      8 };
	sl->segs[2] = (struct pst_seg){ 0, 0, 0, 0, 0, 1 };
	sl->segs[2].file_off = off + len / 8 + len / 64 * 8;
	sl->segs[2].mem_off = io->mem_off + len / 8 + len / 64 * 8;
	sl->segs[2].len = len - len / 8 - len / 64 * 8;
	io->segs = sl->segs;
	io->nr_segs = 3;
	io->file_off = io->mem_off = io->len = 0;
}

/* Use new memory, which is freed while the request uses it. */
static void fill_own(struct soak *s, struct slot *sl)
{
	struct pst_io *io = &sl->io;

	if (io->segs || io->op != PST_OP_READ)
		return;
	if (pst_mem_alloc(one_in(s, 2) ? "host" : "soft:0", io->len, NULL, &sl->own_mem) < 0) {
		S_CHECK(s, s->faults);
		return;
	}
	io->mem = sl->own_mem;
	io->mem_off = 0;
	sl->own = true;
}

static void fill_slot(struct soak *s, struct slot *sl)
{
	static const uint64_t policies[] = {
		PST_POLICY1(PST_PATH_BUFFERED),
		PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED),
		PST_POLICY3(PST_PATH_CACHED, PST_PATH_DIRECT, PST_PATH_BUFFERED),
		PST_POLICY2(PST_PATH_STAGED, PST_PATH_BUFFERED),
		PST_POLICY2(PST_PATH_BUFFERED, PST_PATH_STAGED),
	};
	unsigned kind = (unsigned)below(s, 20);

	*sl = (struct slot){ .serial = ++s->serial, .writing = sl->writing };
	if (kind == 0) {
		sl->is_sync = true;
		sl->io.op = PST_OP_SYNC;
		sl->io.file = s->f;
		sl->io.flags = one_in(s, 2) ? PST_IO_DATASYNC : 0;
	} else {
		fill_rw(s, sl, kind < 6 && !sl->writing);
		if (one_in(s, 12))
			fill_own(s, sl);
		if (one_in(s, 4))
			sl->io.policy = policies[below(s, RIG_NR(policies))];
		if (sl->io.policy == policies[3] || sl->io.policy == policies[4])
			sl->io.policy = one_in(s, 2) ? sl->io.policy : 0;
		sl->io.flags = (one_in(s, 3) ? PST_IO_CRC32C : 0) |
			       (one_in(s, 20) ? PST_IO_STRICT : 0);
		sl->may_fail = sl->io.flags & PST_IO_STRICT;
	}
	if (s->hang && one_in(s, 60) && !sl->is_sync && sl->io.op == PST_OP_READ) {
		sl->io.file = s->hang;
		sl->hung = sl->may_time_out = true;
		sl->io.deadline_ns = t_in_ms(1 + below(s, 30));
	} else if (one_in(s, 15)) {
		sl->may_time_out = true;
		sl->io.deadline_ns = one_in(s, 10) ? 1 : t_now() + below(s, 3000000);
	}
	sl->io.user_data = (uint64_t)(sl - s->slots) | sl->serial << 8;
	sl->may_fail |= s->faults;
}

static bool prep_slot(struct soak *s, struct slot *sl)
{
	int r;

	fill_slot(s, sl);
	r = pst_queue_prep(s->q, &sl->io);
	if (r == 0) {
		sl->used = true;
		s->nr_used++;
	} else if (r != -EAGAIN && !s->faults) {
		S_FAIL(s, "pst_queue_prep gave %d: %s", r, pst_error_text());
	}
	/* Free the handle: the request keeps the memory. */
	sl->own_mem = pst_mem_free(sl->own_mem);
	return r == 0;
}

/* -------------------------------------------------------------- completions */

static void poison(struct soak *s, const struct slot *sl, struct pst_mem *m)
{
	memset(s->buf, POISON, SLOT_LEN);
	S_CHECK(s, pst_mem_copy_in(m, slot_off(s, sl), s->buf, SLOT_LEN) == 0 || s->faults);
}

/* Check that a request that has ended writes no more. */
static void check_poison(struct soak *s, struct slot *sl)
{
	if (!sl->poisoned)
		return;
	sl->poisoned = false;
	if (pst_mem_copy_out(sl->io.mem, slot_off(s, sl), s->buf, SLOT_LEN) < 0) {
		S_CHECK(s, s->faults);
		return;
	}
	for (unsigned i = 0; i < SLOT_LEN; i++)
		if ((uint8_t)s->buf[i] != POISON)
			S_FAIL(s, "byte %u of slot %u came after its request was over", i,
			       (unsigned)(sl - s->slots));
}

static void check_bytes(struct soak *s, struct slot *sl, const struct pst_done *d)
{
	const struct pst_io *io = &sl->io;
	uint64_t off = io->segs ? io->segs[0].file_off : io->file_off;
	uint32_t seed = sl->hung ? FUSEFS_SEED : SEED;

	if (pst_mem_copy_out(io->mem, slot_off(s, sl), s->buf, d->prefix) < 0) {
		S_CHECK(s, s->faults);
		return;
	}
	if (t_differs(s->buf, seed, off, d->prefix) != d->prefix) {
		char text[300];

		S_FAIL(s, "a wrong byte at %" PRIu64 ": %s",
		       off + t_differs(s->buf, seed, off, d->prefix),
		       pst_done_text(d, text, sizeof(text)));
	}
	if (d->flags & PST_DONE_CRC32C)
		S_CHECK(s, d->crc32c == rig_crc32c(0, s->buf, d->prefix) || d->res < 0);
}

static void check_done(struct soak *s, const struct pst_done *d)
{
	struct slot *sl = &s->slots[d->user_data & 0xff];
	char text[300];

	S_CHECK(s, (d->user_data & 0xff) < SLOTS);
	if (!sl->used || sl->serial != d->user_data >> 8)
		S_FAIL(s, "a completion nobody waits for: %s",
		       pst_done_text(d, text, sizeof(text)));
	S_CHECK(s, d->op == sl->io.op);
	sl->used = false;
	s->nr_used--;
	s->done++;
	s->failed += d->res < 0;
	if (d->res < 0 && !sl->may_fail && !(d->res == -ECANCELED && sl->may_cancel) &&
	    !(d->res == -ETIMEDOUT && sl->may_time_out))
		S_FAIL(s, "%s", pst_done_text(d, text, sizeof(text)));
	if (d->res >= 0 && d->res != (int64_t)sl->want && !sl->hung)
		S_FAIL(s, "not %" PRIu64 ": %s", sl->want, pst_done_text(d, text, sizeof(text)));
	if (d->res >= 0)
		S_CHECK(s, !(d->flags & PST_DONE_BUSY));
	S_CHECK(s, d->res < 0 || d->prefix == (uint64_t)d->res);
	sl->writing |= sl->io.op == PST_OP_WRITE && (d->flags & PST_DONE_BUSY);
	if (sl->is_sync || sl->own || sl->io.op != PST_OP_READ)
		return;
	if (d->flags & PST_DONE_BUSY) {
		sl->busy = true;
		return;
	}
	check_bytes(s, sl, d);
	if (d->res < 0 && one_in(s, 4)) {
		poison(s, sl, sl->io.mem);
		sl->poisoned = !s->faults;
	}
}

/* Reuse slots that were busy, once their memory is quiet. */
static void look_at_busy(struct soak *s)
{
	bool quiet[2] = { pst_mem_drain(s->dst[0], 0) == 0, pst_mem_drain(s->dst[1], 0) == 0 };
	struct pst_stats st = { .sz = sizeof(st) };

	S_CHECK(s, pst_stats(NULL, &st) == 0);
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *sl = &s->slots[i];

		if (!st.busy && !sl->used)
			sl->writing = false;
		if (sl->busy && quiet[sl->io.mem == s->dst[1]])
			sl->busy = false;
	}
}

static bool any_busy(const struct soak *s)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (s->slots[i].busy)
			return true;
	return false;
}

/* ------------------------------------------------------------------- turns */

static void reap_some(struct soak *s)
{
	struct pst_done d[8];
	int n, fd;

	switch (below(s, 4)) {
	case 0:
		n = pst_queue_reap(s->q, d, 0, 1 + (unsigned)below(s, 8), 0);
		break;
	case 1:
		fd = pst_queue_fd(s->q);
		if (fd >= 0) {
			struct pollfd p = { .fd = fd, .events = POLLIN };

			n = pst_queue_reap(s->q, d, 0, 8, 0);
			if (n == 0 && s->nr_used && poll(&p, 1, 20000) == 0)
				S_FAIL(s, "nobody woke us in 20 s");
			break;
		}
		/* fallthrough */
	case 2:
		n = pst_queue_reap(s->q, d, (unsigned)below(s, 9), 8, t_now() + below(s, 2000000));
		break;
	default:
		n = pst_queue_reap(s->q, d, 1, 8, t_hang());
		S_CHECK(s, n > 0 || !s->nr_used);
		break;
	}
	S_CHECK(s, n >= 0);
	for (int i = 0; i < n; i++)
		check_done(s, &d[i]);
}

static void cancel_some(struct soak *s)
{
	struct slot *sl = &s->slots[below(s, SLOTS)];
	int r;

	if (!sl->used)
		return;
	sl->may_cancel = true;
	r = pst_queue_cancel(s->q, sl->io.user_data);
	S_CHECK(s, r == 1 || r == -ENOENT); /* -ENOENT: done, and not reaped yet */
}

/* Free the queue with all its requests, whose completions never come. */
static void new_queue(struct soak *s)
{
	uint64_t start = t_now();

	s->q = pst_queue_free(s->q);
	S_CHECK(s, t_now() - start < T_HANG_NS);
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *sl = &s->slots[i];

		if (sl->used && !sl->is_sync && !sl->own && sl->io.op == PST_OP_READ)
			sl->busy = true;
		sl->writing |= sl->used && sl->io.op == PST_OP_WRITE;
		sl->used = false;
	}
	s->nr_used = 0;
	open_queue(s);
}

/* Check that nothing was written between the slots. */
static void check_gaps(struct soak *s)
{
	for (unsigned dev = 0; dev < 2; dev++)
		for (unsigned i = 0; i <= SLOTS; i++) {
			uint64_t at = (uint64_t)i * (SLOT_LEN + GAP);

			if (pst_mem_copy_out(s->dst[dev], at, s->buf, GAP) < 0) {
				S_CHECK(s, s->faults);
				continue;
			}
			for (unsigned k = 0; k < GAP; k++)
				S_CHECK(s, (uint8_t)s->buf[k] == POISON);
		}
}

/* Drop the file's clean pages from the page cache. */
static void cold(struct soak *s)
{
	int fd = open(soak_path, O_RDONLY | O_CLOEXEC);

	S_CHECK(s, fd >= 0);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	(void)close(fd);
}

static void turn(struct soak *s)
{
	unsigned n = (unsigned)below(s, 10);

	if (any_busy(s) || one_in(s, 100))
		look_at_busy(s);
	for (unsigned i = 0; i < SLOTS && n; i++) {
		struct slot *sl = &s->slots[i];

		if (sl->used || sl->busy || one_in(s, 2))
			continue;
		check_poison(s, sl);
		if (!prep_slot(s, sl))
			break;
		n--;
	}
	if (!one_in(s, 5))
		S_CHECK(s, pst_queue_submit(s->q) >= 0);
	if (one_in(s, 8))
		cancel_some(s);
	if (one_in(s, 40)) {
		s->f = pst_file_close(s->f);
		open_file(s);
	}
	if (one_in(s, 300))
		new_queue(s);
	if (one_in(s, 200))
		check_gaps(s);
	if (one_in(s, 30))
		cold(s);
	S_CHECK(s, pst_queue_submit(s->q) >= 0);
	reap_some(s);
}

static void finish(struct soak *s)
{
	uint64_t end = t_hang();
	struct pst_stats st = { .sz = sizeof(st) };
	struct pst_done d[8];

	while (s->nr_used && t_now() < end) {
		int n = pst_queue_reap(s->q, d, 1, 8, t_in_ms(1000));

		S_CHECK(s, n >= 0);
		for (int i = 0; i < n; i++)
			check_done(s, &d[i]);
	}
	S_CHECK(s, s->nr_used == 0);
	S_CHECK(s, pst_stats(s->q, &st) == 0 && st.inflight == 0);
	check_gaps(s);
}

static void *soak_main(void *arg)
{
	struct soak *s = arg;

	if (!setjmp(s->fail)) {
		open_queue(s);
		open_file(s);
		if (hang_path[0])
			while (pst_file_open(hang_path, RIG_R, NULL, &s->hang) < 0)
				S_CHECK(s, s->faults);
		while (t_now() < s->end && !anybody_failed)
			turn(s);
		finish(s);
	}
	pst_file_close(s->f);
	pst_file_close(s->hang);
	pst_queue_free(s->q);
	return NULL;
}

/* --------------------------------------------------------------- all of it */

static struct fusefs fuse;

static struct pst_mem *mem_new(const char *dev, uint64_t len)
{
	struct pst_mem *m = NULL;
	int r;

	do
		r = pst_mem_alloc(dev, len, NULL, &m);
	while (r < 0 && getenv("PST_FAULT"));
	T_OK(r);
	return m;
}

static void mem_store(struct pst_mem *m, const void *buf, uint64_t len)
{
	int r;

	do
		r = pst_mem_copy_in(m, 0, buf, len);
	while (r < 0 && getenv("PST_FAULT"));
	T_OK(r);
}

static uint64_t seconds(void)
{
	const char *env = getenv("PST_SOAK");
	uint64_t n = env ? strtoull(env, NULL, 10) : 0;

	return n == 1 ? 600 : n ? n : 3;
}

static void release_while(uint64_t end, bool until_quiet)
{
	while (t_now() < end) {
		struct pst_stats st = rig_stats(NULL);

		if (until_quiet && !st.busy && !st.inflight)
			return;
		if (fuse.pid)
			fusefs_release(&fuse);
		(void)usleep(10000);
	}
}

static void soak_all(bool faults, uint64_t ns)
{
	static struct soak soaks[NR_THREADS];
	const char *env = getenv("PST_SEED");
	uint64_t seed = env ? strtoull(env, NULL, 10) : t_now() / 1000;
	struct pst_mem *src[2] = { mem_new("host", SRC_LEN), mem_new("soft:0", SRC_LEN) };
	uint64_t dst_len = (uint64_t)SLOTS * (SLOT_LEN + GAP) + GAP, total = 0, bad = 0;
	uint64_t room = dst_len > SRC_LEN ? dst_len : SRC_LEN;
	char *buf = malloc(room);
	const char *why = NULL;

	printf("# PST_SEED=%" PRIu64 "\n", seed);
	/* the first call makes the table, which threads must not do at once */
	(void)rig_crc32c(0, buf, 0);
	T_CHECK(buf);
	(void)snprintf(soak_path, sizeof(soak_path), "%s", rig_path("soak"));
	rig_make(soak_path, SEED, FILE_LEN);
	(void)fusefs_start(&fuse, rig_dir);
	if (fuse.pid)
		(void)snprintf(hang_path, sizeof(hang_path), "%s/hang", fuse.dir);
	t_fill(buf, SEED, 0, SRC_LEN);
	mem_store(src[0], buf, SRC_LEN);
	mem_store(src[1], buf, SRC_LEN);
	memset(buf, POISON, dst_len);
	anybody_failed = false;
	for (unsigned i = 0; i < NR_THREADS; i++) {
		struct soak *s = &soaks[i];

		*s = (struct soak){ .nr = i, .faults = faults };
		s->backend = i & 1 && rig_backend_check(PST_BACKEND_URING) == 0
				     ? PST_BACKEND_URING
				     : PST_BACKEND_THREADS;
		s->random = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1;
		s->src[0] = src[0];
		s->src[1] = src[1];
		s->dst[0] = mem_new("host", dst_len);
		s->dst[1] = mem_new("soft:0", dst_len);
		mem_store(s->dst[0], buf, dst_len);
		mem_store(s->dst[1], buf, dst_len);
		s->buf = malloc(SLOT_LEN);
		T_CHECK(s->buf);
	}
	for (unsigned i = 0; i < NR_THREADS; i++) {
		soaks[i].end = t_now() + ns;
		T_EQ(pthread_create(&soaks[i].thread, NULL, soak_main, &soaks[i]), 0);
	}
	release_while(t_now() + ns, false);
	for (unsigned i = 0; i < NR_THREADS; i++) {
		struct soak *s = &soaks[i];

		(void)pthread_join(s->thread, NULL);
		total += s->done;
		bad += s->failed;
		if (s->why[0])
			why = s->why;
		pst_mem_free(s->dst[0]);
		pst_mem_free(s->dst[1]);
		free(s->buf);
	}
	pst_mem_free(src[0]);
	pst_mem_free(src[1]);
	free(buf);
	release_while(t_hang(), true);
	fusefs_stop(&fuse);
	if (why)
		T_FAIL("%s", why);
	printf("# %" PRIu64 " requests, %" PRIu64 " of them ended early or failed\n", total, bad);
	T_CHECK(total > 0);
}

static void calm(void)
{
	soak_all(false, seconds() * 500000000);
}

static void rough(void)
{
	soak_all(true, seconds() * 125000000);
}

#define FEW                                                                                  \
	"file.read:20:EIO,file.read:40:short,file.read:41:short,file.read:77:20ms,"          \
	"file.read:300:EAGAIN,file.read:301:EINTR,file.read:500:EINVAL,file.write:9:EIO,"    \
	"file.write:30:short,file.write:31:short,file.write:60:ENOSPC,file.write:90:50ms,"   \
	"file.sync:3:EIO,file.sync:9:30ms,mem.copy:25:EIO,mem.copy:60:30ms,mem.copy:61:EIO," \
	"mem.alloc:9:ENOMEM,file.pin:2:ENOMEM,file.open:9:EMFILE,file.context:7:ENOMEM,"     \
	"file.direct:6:EINVAL,mem.stream:14:ENOMEM,mem.stream:30:EMFILE"

static const struct again cases[] = {
	{ "a_few_failures", rough, AGAIN_ONCE, FEW },
	{ "short_counts", rough, AGAIN_ONCE, "file.read:0:short,file.write:0:short" },
	{ "slow_files", rough, AGAIN_ONCE, "file.read:0:2ms,file.write:0:3ms,file.sync:0:5ms" },
	{ "failing_copies", rough, AGAIN_ONCE, "mem.copy:0:1ms,mem.copy:100:EIO,mem.copy:101:EIO" },
};

int main(int argc, char **argv)
{
	rig_init();
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	RIG_RUN1(calm);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
