/* SPDX-License-Identifier: MIT */
/* Several requests in one engine: whose turn it is, and what one request does to another. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "rig.h"

#include "again.h"
#include "engine.h"
#include "fusefs.h"
#include "symbol.h"

#define SMALL 32768u
#define PER_SEG (FUSEFS_SIZE / SMALL / 2)
#define SEGS 8u

static struct fusefs fs;

/* Submit a request of scattered pieces of a hanging file: it takes all slots that it may, and
 * waits for more. */
static void scattered(struct pst_queue *q, struct pst_file *f, struct pst_mem *m)
{
	static struct pst_seg segs[SEGS];
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 0);

	for (unsigned i = 0; i < SEGS; i++)
		segs[i] = (struct pst_seg){ .mem_off = (uint64_t)i * PER_SEG * SMALL,
					    .len = SMALL,
					    .file_stride = 2u * SMALL,
					    .mem_stride = SMALL,
					    .count = PER_SEG };
	io.segs = segs;
	io.nr_segs = SEGS;
	io.deadline_ns = PST_NO_DEADLINE;
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
}

static unsigned late;

static void beside(uint64_t bound)
{
	struct pst_mem *all = rig_alloc("soft:0", (uint64_t)SEGS * PER_SEG * SMALL);
	struct pst_mem *m = rig_alloc("soft:0", RIG_MIB(1));
	struct pst_queue *q = rig_queue(rig_backend, 0), *sure = rig_queue(rig_backend, 0);
	struct pst_file *f, *hang;
	struct pst_done d;
	struct pst_io io;
	char path[200];

	T_OK(engine_set_pool(bound));
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hang = rig_open(path, RIG_R);
	rig_make(rig_path("warm"), ENGINE_SEED, RIG_MIB(1));
	rig_warm(rig_path("warm"));
	f = rig_open(rig_path("warm"), RIG_R);
	io = rig_io(PST_OP_READ, f, m, 0, 0, 65536);
	io.policy = PST_POLICY2(PST_PATH_CACHED, PST_PATH_STAGED);
	T_EQ(rig_do(sure, &io).res, 65536);
	scattered(q, hang, all);
	(void)usleep(100000);
	for (unsigned i = 0; i < 5; i++) {
		io.deadline_ns = t_in_ms(i || RIG_TSAN ? RIG_WAIT_MS : 3000);
		d = rig_do(sure, &io);
		late += d.res != 65536;
		if (late)
			break;
	}
	while (pst_queue_reap(q, &d, 0, 1, 0) == 0) {
		fusefs_release(&fs);
		(void)usleep(500);
	}
	T_EQ(d.res, (int64_t)SEGS * PER_SEG * SMALL);
	pst_queue_free(q);
	pst_queue_free(sure);
	pst_file_close(hang);
	pst_file_close(f);
	pst_mem_free(all);
	pst_mem_free(m);
	fusefs_stop(&fs);
	T_OK(engine_set_pool(0));
}

/* A queue's reserved slots stay available to it even if others wait, and a freed one wakes it. */
static void a_reserve_beside_scattered_pieces(void)
{
	late = 0;
	/* With one of these pool sizes, the worker with the fewest jobs serves scattered pieces
	 * only. */
	for (unsigned mib = 12; mib < 20; mib++)
		beside(RIG_MIB(mib));
	T_EQ(late, 0);
}

/* --------------------------------------------------- jobs at the same device */

#define TAIL 12345u    /* bytes of the last piece that are past the end of the file */
#define WORKERS_MAX 15 /* the most workers of an engine */

static int (*ctx_retain)(void **ctx, int dev), (*ctx_release)(int dev);
static int (*ctx_push)(void *ctx), (*ctx_pop)(void **ctx);
static int (*mem_alloc)(uint64_t *ptr, size_t len), (*mem_free)(uint64_t ptr);

static void find_driver(void)
{
	void *lib = engine_stub();

	engine_find(lib, "cuDevicePrimaryCtxRetain", &ctx_retain);
	engine_find(lib, "cuDevicePrimaryCtxRelease_v2", &ctx_release);
	engine_find(lib, "cuCtxPushCurrent_v2", &ctx_push);
	engine_find(lib, "cuCtxPopCurrent_v2", &ctx_pop);
	engine_find(lib, "cuMemAlloc_v2", &mem_alloc);
	engine_find(lib, "cuMemFree_v2", &mem_free);
}

static void prep(struct pst_file *f, struct pst_mem *m, unsigned piece, uint32_t flags)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, piece * PIECE, 0, PIECE);

	io.user_data = piece;
	io.flags = flags;
	T_OK(pst_queue_prep(rig_q, &io));
}

/* While the device is busy, jobs gather into one batch, and the memory of one of them is freed:
 * only that job may fail. */
static void one_of_a_batch_fails(void)
{
	struct pst_file *f;
	bool failed = false;
	void *ctx;

	engine_needs_stub();
	T_EQ(ctx_retain(&ctx, 0), 0);
	f = engine_warm_file(0, FILE_LEN);
	for (unsigned round = 0; round < 20 && !failed; round++) {
		struct pst_mem *m[PIECES];
		uint64_t own;
		unsigned victim = PIECES - 3;
		struct pst_done d[PIECES];

		T_EQ(ctx_push(ctx), 0);
		T_EQ(mem_alloc(&own, PIECE), 0);
		T_EQ(ctx_pop(&ctx), 0);
		for (unsigned i = 0; i < PIECES; i++) {
			if (i == victim)
				T_OK(pst_mem_wrap(own, PIECE, NULL, &m[i]));
			else
				m[i] = rig_alloc(rig_dev, PIECE);
			prep(f, m[i], i, 0);
		}
		delay_us(20000);
		T_EQ(pst_queue_submit(rig_q), PIECES);
		T_EQ(ctx_push(ctx), 0);
		T_EQ(mem_free(own), 0);
		T_EQ(ctx_pop(&ctx), 0);
		T_EQ(pst_queue_reap(rig_q, d, PIECES, PIECES, t_hang()), PIECES);
		delay_us(0);
		for (unsigned i = 0; i < PIECES; i++) {
			unsigned k = (unsigned)d[i].user_data;

			if (k == victim && d[i].res < 0) {
				T_EQ(d[i].res, -EFAULT);
				failed = true;
				continue;
			}
			T_EQ(d[i].res, (int64_t)PIECE);
			if (k != victim)
				T_EQ(rig_mem_differs(m[k], 0, PIECE, ENGINE_SEED, k * PIECE),
				     PIECE);
		}
		for (unsigned i = 0; i < PIECES; i++)
			pst_mem_free(m[i]);
	}
	T_CHECK(failed);
	T_EQ(ctx_release(0), 0);
	pst_file_close(f);
}

/* Return true if each block has the bytes of the file before or after its change. */
static bool old_or_new(struct pst_mem *m, uint64_t at)
{
	char *buf = malloc(PIECE);
	bool good = buf && pst_mem_copy_out(m, 0, buf, PIECE) == 0;

	for (uint64_t off = 0; good && off < PIECE; off += 4096)
		good = t_differs(buf + off, ENGINE_SEED, at + off, 4096) == 4096 ||
		       t_differs(buf + off, ENGINE_SEED + 1, at + off, 4096) == 4096;
	free(buf);
	return good;
}

/*
 * Overwrite a stable file while the device copies its pinned pages: all copies must be discarded
 * and the bytes read again.  Reads through slots at the time of the change complete, too.
 */
static void changed_while_it_is_copied(void)
{
	struct pst_mem *m[PIECES], *all, *host;
	struct pst_done d[PIECES];
	struct pst_file *f, *w;
	uint64_t end = t_hang();

	engine_needs_stub();
	all = rig_alloc(rig_dev, FILE_LEN);
	f = engine_warm_file(PST_FILE_STABLE, FILE_LEN);
	host = rig_alloc("host", FILE_LEN);
	rig_mem_fill(host, 0, FILE_LEN, ENGINE_SEED + 1, 0);
	T_EQ(rig_read(f, all, 0, 0, FILE_LEN).res, (int64_t)FILE_LEN);
	while (!(rig_read(f, all, 0, 0, PIECE).paths & PST_PATH_BIT(PST_PATH_PAGECACHE))) {
		T_CHECK(t_now() < end);
		rig_warm(rig_path("data"));
		(void)usleep(1000);
	}
	w = rig_open(rig_path("data"), PST_FILE_WRITE);
	stall("cuEventQuery");
	for (unsigned i = 0; i < PIECES; i++) {
		m[i] = rig_alloc(rig_dev, PIECE);
		prep(f, m[i], i, 0);
	}
	T_EQ(pst_queue_submit(rig_q), PIECES);
	(void)usleep(20000);
	{
		struct pst_queue *q = rig_queue(rig_backend, 0);
		struct pst_io io = rig_io(PST_OP_WRITE, w, host, 0, 0, FILE_LEN);

		T_EQ(rig_do(q, &io).res, (int64_t)FILE_LEN);
		pst_queue_free(q);
	}
	stall(NULL);
	T_EQ(pst_queue_reap(rig_q, d, PIECES, PIECES, t_hang()), PIECES);
	for (unsigned i = 0; i < PIECES; i++) {
		T_EQ(d[i].res, (int64_t)PIECE);
		T_CHECK(!(d[i].paths & PST_PATH_BIT(PST_PATH_PAGECACHE)));
		T_CHECK(old_or_new(m[i], i * PIECE));
		pst_mem_free(m[i]);
	}
	T_EQ(rig_read(f, all, 0, 0, FILE_LEN).res, (int64_t)FILE_LEN);
	T_EQ(rig_mem_differs(all, 0, FILE_LEN, ENGINE_SEED + 1, 0), FILE_LEN);
	pst_file_close(w);
	pst_file_close(f);
	pst_mem_free(host);
	pst_mem_free(all);
}

#define MIX 32u
#define MIX_SEGS 512u

/* A request: one piece, or many pieces of a few pages all over the file. */
struct mixed {
	struct pst_mem *m;
	struct pst_seg segs[MIX_SEGS];
	unsigned nr;
	uint64_t len;
};

static void mix_prep(struct mixed *x, struct pst_file *f, unsigned i)
{
	unsigned nr = i % 4 == 0 ? MIX_SEGS : i % 4 == 1 ? 15 + (unsigned)rig_below(3) : 1;
	struct pst_io io;

	x->nr = nr;
	x->len = 0;
	for (unsigned k = 0; k < nr; k++) {
		uint64_t len = nr == 1 ? 1 + rig_below(2 * PIECE) : 1 + rig_below(4096);

		x->segs[k] = (struct pst_seg){ .file_off = rig_below(FILE_LEN - len),
					       .mem_off = x->len,
					       .len = len };
		x->len += len;
	}
	/* Let some requests meet the end of the file in the middle of a job. */
	if (i % 8 == 2)
		x->segs[0].file_off = FILE_LEN - TAIL - x->len / 2;
	x->m = rig_alloc(rig_dev, x->len);
	io = rig_io(PST_OP_READ, f, x->m, 0, 0, 0);
	io.segs = x->segs;
	io.nr_segs = nr;
	io.user_data = i;
	io.flags = i % 3 ? 0 : PST_IO_CRC32C;
	T_OK(pst_queue_prep(rig_q, &io));
}

static void mix_check(const struct mixed *x, const struct pst_done *d)
{
	uint64_t size = FILE_LEN - TAIL, want = 0;
	char *buf = malloc(x->len);
	bool short_of = false;

	T_CHECK(buf);
	T_OK(pst_mem_copy_out(x->m, 0, buf, x->len));
	for (unsigned k = 0; k < x->nr; k++) {
		const struct pst_seg *s = &x->segs[k];
		uint64_t n = s->file_off >= size           ? 0
			     : s->file_off + s->len > size ? size - s->file_off
							   : s->len;

		T_EQ(t_differs(buf + s->mem_off, ENGINE_SEED, s->file_off, n), n);
		if (!short_of)
			want += n;
		short_of |= n < s->len;
	}
	T_EQ(d->res, (int64_t)want);
	if (d->flags & PST_DONE_CRC32C)
		T_EQ(d->crc32c, rig_crc32c(0, buf, want));
	free(buf);
}

static void mixed_jobs(void)
{
	struct mixed *x = calloc(MIX, sizeof(*x));
	struct pst_done d[MIX];
	struct pst_file *f = engine_warm_file(0, FILE_LEN - TAIL);

	T_CHECK(x);
	for (unsigned round = 0; round < (RIG_TSAN ? 4 : 20); round++) {
		for (unsigned i = 0; i < MIX; i++)
			mix_prep(&x[i], f, i);
		T_EQ(pst_queue_submit(rig_q), MIX);
		T_EQ(pst_queue_reap(rig_q, d, MIX, MIX, t_hang()), MIX);
		for (unsigned i = 0; i < MIX; i++) {
			mix_check(&x[d[i].user_data], &d[i]);
			x[d[i].user_data].m = pst_mem_free(x[d[i].user_data].m);
		}
	}
	pst_file_close(f);
	free(x);
}

/* PST_FAULT refuses an I/O context to one worker: the engine works without it.  If it is the
 * first worker, the engine does not start. */
static void a_worker_less(void)
{
	struct pst_file *f = engine_warm_file(0, FILE_LEN - TAIL);
	struct pst_mem *m = rig_alloc("soft:0", 4096);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 4096);
	int r = pst_queue_prep(rig_q, &io);

	if (r == 0) {
		T_EQ(pst_queue_submit(rig_q), 1);
		T_EQ(rig_reap1(rig_q).res, 4096);
	} else {
		T_EQ(r, -ENOMEM);
	}
	pst_file_close(f);
	pst_mem_free(m);
	rig_dev = "soft:0";
	mixed_jobs();
}

/* Threads that pthread_create() may still start; the test computes the number started from it. */
static atomic_int threads_left = INT_MAX;

/* Replaces libc's function for the library. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *ret,
							  const pthread_attr_t *attr,
							  void *(*fn)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	symbol(RTLD_NEXT, &real, "pthread_create");
	if (atomic_fetch_sub(&threads_left, 1) > 0)
		return real(ret, attr, fn, arg);
	atomic_fetch_add(&threads_left, 1);
	return EAGAIN;
}

/*
 * Make a new queue's first read into a device, with at most this number of engine threads.
 * Return bytes, or -errno of pst_queue_prep().
 */
static int64_t first_read(struct pst_file *f, struct pst_mem *m, int threads, int *ret_started)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, FILE_LEN - TAIL);
	struct pst_queue *q = rig_queue(PST_BACKEND_URING, 0);
	struct pst_done d = { 0 };
	int r;

	atomic_store(&threads_left, threads);
	r = pst_queue_prep(q, &io);
	*ret_started = threads - atomic_exchange(&threads_left, INT_MAX);
	if (r == 0) {
		T_EQ(pst_queue_submit(q), 1);
		d = rig_reap1(q);
		T_EQ(rig_mem_differs(m, 0, FILE_LEN - TAIL, ENGINE_SEED, 0), FILE_LEN - TAIL);
	}
	pst_queue_free(q);
	return r < 0 ? r : d.res;
}

/* An engine must work with as many workers as it gets, down to one. */
static void threads_are_refused(void)
{
	struct pst_file *f = engine_warm_file(0, FILE_LEN - TAIL);
	struct pst_mem *m = rig_alloc("soft:0", FILE_LEN);
	int started, cpus, all;
	cpu_set_t set;

	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring: %s", pst_error_text());
	T_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
	cpus = CPU_COUNT(&set);
	T_EQ(first_read(f, m, 1000, &all), FILE_LEN - TAIL);
	T_CHECK(all >= 1);
	for (int less = 1; less < cpus - 1 && less < WORKERS_MAX; less++) {
		T_EQ(first_read(f, m, all - less, &started), FILE_LEN - TAIL);
		T_EQ(started, all - less);
	}
	T_EQ(first_read(f, m, 0, &started), -EBUSY);
	T_EQ(first_read(f, m, 1000, &started), FILE_LEN - TAIL);
	pst_file_close(f);
	pst_mem_free(m);
}

static const struct again cases[] = {
	{ "a_worker_less", a_worker_less, AGAIN_BACKENDS, "file.context:5:ENOMEM" },
};

int main(int argc, char **argv)
{
	struct pst_mem *keep = NULL;

	(void)setenv("PST_SOFT_DEVICES", "2", 1);
	rig_init();
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	again_all(cases, RIG_NR(cases));
	RIG_RUN1(threads_are_refused);
	RIG_RUN_BACKENDS(a_reserve_beside_scattered_pieces);
	fusefs_stop(&fs);
	RIG_RUN_SOFT(mixed_jobs);
	/* Create a context before counting threads: a real driver has threads as long as one
	 * exists. */
	if (pst_mem_alloc("cuda:0", 1, NULL, &keep) == 0)
		(void)pst_mem_copy_in(keep, 0, "", 1);
	find_driver();
	rig_tasks = rig_count_tasks();
	ENGINE_RUN("cuda:0", mixed_jobs);
	ENGINE_RUN("cuda:0", one_of_a_batch_fails);
	ENGINE_RUN("cuda:0", changed_while_it_is_copied);
	pst_mem_free(keep);
	return rig_done();
}
