/* SPDX-License-Identifier: MIT */
/*
 * The measuring loops.  One thread for each queue; between start and end a thread allocates
 * nothing and asks the clock once for each batch of completions.
 */
#include <fcntl.h>
#include <pthread.h>

#include "cli/bench/bench.h"
#include "tools/common/xfer.h"

#define REAP_MAX 256
#define PIN_PIECE MIB(4)
#define PIN_DEPTH 16u
#define PIN_QUIET (500 * NSEC_PER_MSEC)

/* Which pieces a thread takes, in which order, until there are no more. */
struct walk {
	uint64_t first, nr; /* its part of the file, in pieces */
	uint64_t at;        /* the next one, from first */
	uint64_t stride;    /* coprime to nr: a random-looking order that meets each piece once */
	uint64_t left;      /* pieces it may still take */
};

/* Workers wait here when they are set up, until all are or one of them failed. */
struct gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned ready;
	bool failed, open;
};

struct worker {
	const struct bench_job *job;
	struct gate *gate;
	struct walk walk;
	uint64_t begun, ended; /* ns */
	struct bench_result res;
	int err;
	char text[512];
};

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t t = a % b;

		a = b;
		b = t;
	}
	return a;
}

static void walk_init(struct walk *w, const struct bench_job *job, unsigned idx)
{
	uint64_t all = job->file_size / job->size, random = UINT64_C(0x1234567) + idx;

	*w = (struct walk){
		.first = all * idx / job->threads,
		.nr = all * (idx + 1) / job->threads - all * idx / job->threads,
		.stride = 1,
		.left = UINT64_MAX,
	};
	if (job->cold)
		w->left = w->nr;
	if (job->bytes) {
		uint64_t n = job->bytes / job->size / job->threads;

		w->left = MIN(w->left, n ? n : 1);
	}
	if (job->random && w->nr > 2) {
		do {
			w->stride = random_next(&random) % w->nr;
		} while (gcd(w->stride, w->nr) != 1);
		w->at = random_next(&random) % w->nr;
	}
}

/* The file offset of the next piece; false when the walk is over. */
static bool walk_next(struct walk *w, uint64_t size, uint64_t *ret_off)
{
	if (!w->left)
		return false;
	w->left--;
	*ret_off = (w->first + w->at) * size;
	w->at += w->stride;
	if (w->at >= w->nr)
		w->at -= w->nr;
	return true;
}

/* -------------------------------------------------------------------- ours */

#define WINDOW_LEN 65536 /* longer requests take no window by themselves */

/* A request's place: its io, its pieces and when it was started. */
struct slot {
	struct pst_io io;
	struct pst_seg *segs;
	uint64_t begun;
};

struct rig {
	struct pst_queue *queue;
	struct pst_mem *mem;
	struct pst_file *file;
	bool shared; /* the file is not this thread's to close */
	struct slot *slots;
	struct pst_seg *segs;
};

static void rig_done(struct rig *rig)
{
	(void)pst_queue_free(rig->queue);
	(void)pst_mem_free(rig->mem);
	if (!rig->shared)
		(void)pst_file_close(rig->file);
	free(rig->slots);
	free(rig->segs);
}

/*
 * Start the engine of the device, which the first request for it does, without touching the
 * file: the request is cancelled before it is submitted.  And open a window.
 */
static int rig_start(struct rig *rig)
{
	struct pst_path_info info = { .sz = sizeof(info) };
	const struct pst_io *io = &rig->slots[0].io;
	struct pst_done d;
	int r = pst_queue_prep(rig->queue, io);

	if (r < 0)
		return fail_pst(r, "cannot prepare a request");
	(void)pst_queue_cancel(rig->queue, io->user_data);
	if (pst_queue_reap(rig->queue, &d, 1, 1, PST_NO_DEADLINE) != 1)
		return fail(EIO, "a cancelled request did not come back");
	if (io->len <= WINDOW_LEN)
		(void)pst_path_check(rig->file, rig->mem, io->op, PST_PATH_WINDOW, &info);
	return 0;
}

static int rig_init(struct rig *rig, const struct bench_job *job)
{
	struct pst_queue_opts qo = { .sz = sizeof(qo), .depth = job->depth, .backend = job->store };
	uint64_t each = job->size * job->pieces;
	int r;

	r = pst_queue_new(&qo, &rig->queue);
	if (r < 0)
		return fail_pst(r, "cannot make a queue");
	r = pst_mem_alloc(job->device, each * job->depth, NULL, &rig->mem);
	if (r < 0)
		return fail_pst(r, job->device);
	rig->shared = job->file;
	rig->file = job->file;
	r = rig->shared ? 0 : pst_file_wrap(job->fd, 0, NULL, &rig->file);
	if (r < 0)
		return fail_pst(r, job->path);
	rig->slots = calloc(job->depth, sizeof(*rig->slots));
	rig->segs = calloc((size_t)job->depth * job->pieces, sizeof(*rig->segs));
	if (!rig->slots || !rig->segs)
		return fail(ENOMEM, "out of memory");
	for (uint32_t i = 0; i < job->depth; i++) {
		struct slot *s = &rig->slots[i];

		s->segs = rig->segs + (size_t)i * job->pieces;
		s->io = (struct pst_io){
			.op = job->write ? PST_OP_WRITE : PST_OP_READ,
			.flags = job->strict ? PST_IO_STRICT : 0,
			.policy = job->policy,
			.file = rig->file,
			.mem = rig->mem,
			.mem_off = i * each,
			.len = job->size,
			.user_data = i,
		};
		for (uint32_t k = 0; k < job->pieces; k++)
			s->segs[k] = (struct pst_seg){ .mem_off = i * each + k * job->size,
						       .len = job->size };
	}
	return job->host ? 0 : rig_start(rig);
}

/* Put the slot's next request into the queue; 0 when there is nothing left to do. */
static int launch(struct worker *w, struct rig *rig, uint32_t idx, uint64_t now)
{
	const struct bench_job *job = w->job;
	struct slot *s = &rig->slots[idx];
	uint32_t n = 0;
	int r;

	if (job->pieces == 1) {
		if (!walk_next(&w->walk, job->size, &s->io.file_off))
			return 0;
	} else {
		while (n < job->pieces && walk_next(&w->walk, job->size, &s->segs[n].file_off))
			n++;
		if (!n)
			return 0;
		s->io.segs = s->segs;
		s->io.nr_segs = n;
	}
	s->begun = now;
	r = pst_queue_prep(rig->queue, &s->io);
	return r < 0 ? fail_pst(r, NULL) : 1;
}

static int account(struct worker *w, const struct rig *rig, const struct pst_done *d, uint64_t now)
{
	const struct slot *s = &rig->slots[d->user_data];
	uint64_t want = s->io.segs ? s->io.nr_segs * w->job->size : s->io.len;
	char buf[400];

	if (d->res < 0)
		return fail((int)-d->res, "%s%s", pst_done_text(d, buf, sizeof(buf)),
			    d->why == PST_WHY_NOT_STABLE ? ": say --stable" : "");
	if ((uint64_t)d->res != want)
		return fail(EIO, "%s ended early: something made it shorter", w->job->path);
	w->res.bytes += want;
	w->res.requests++;
	w->res.paths |= d->paths;
	w->res.whys.nr[d->why]++;
	w->res.whys.detail[d->why] = d->detail;
	hist_add(&w->res.hist, now - s->begun);
	return 0;
}

static int sync_queue(struct rig *rig)
{
	struct pst_io io = { .op = PST_OP_SYNC, .flags = PST_IO_DATASYNC, .file = rig->file };
	struct pst_done d;
	char buf[400];
	int r;

	r = pst_queue_prep(rig->queue, &io);
	if (r == 0)
		r = pst_queue_submit(rig->queue);
	if (r >= 0)
		r = pst_queue_reap(rig->queue, &d, 1, 1, PST_NO_DEADLINE);
	if (r < 0)
		return fail_pst(r, NULL);
	return r == 1 && d.res < 0 ? fail((int)-d.res, "%s", pst_done_text(&d, buf, sizeof(buf)))
				   : 0;
}

static int loop_ours(struct worker *w, struct rig *rig)
{
	const struct bench_job *job = w->job;
	uint64_t now = w->begun, end = now + (uint64_t)(job->seconds * 1e9);
	struct pst_done done[REAP_MAX];
	uint32_t inflight = 0;
	int n, r;

	for (uint32_t i = 0; i < job->depth; i++) {
		r = launch(w, rig, i, now);
		if (r < 0)
			return r;
		inflight += (uint32_t)r;
	}
	r = pst_queue_submit(rig->queue);
	while (inflight) {
		if (r < 0)
			return fail_pst(r, NULL);
		n = pst_queue_reap(rig->queue, done, MIN(job->batch, inflight), REAP_MAX,
				   now + 100 * NSEC_PER_MSEC);
		if (n < 0)
			return fail_pst(n, NULL);
		now = now_ns();
		inflight -= (uint32_t)n;
		for (int i = 0; i < n; i++) {
			r = account(w, rig, &done[i], now);
			if (r < 0)
				return r;
			if (now >= end || stop_signal)
				continue;
			r = launch(w, rig, (uint32_t)done[i].user_data, now);
			if (r < 0)
				return r;
			inflight += (uint32_t)r;
		}
		r = pst_queue_submit(rig->queue);
	}
	return job->write ? sync_queue(rig) : 0;
}

/* ------------------------------------------------------------------ stable */

static uint64_t pages_pinned(uint64_t *ret_ns)
{
	struct pst_stats st = { .sz = sizeof(st) };

	if (pst_stats(NULL, &st) < 0)
		return 0;
	*ret_ns = st.pages_ns;
	return st.pages_bytes;
}

/* All of the file, its odd end too, PIN_DEPTH requests at a time. */
static int pin_read(const struct bench_job *job, struct pst_queue *q, struct pst_mem *mem)
{
	uint64_t off = 0;
	uint32_t inflight = 0, at = 0;
	struct pst_done d;
	char buf[400];
	int r = 0;

	while (r >= 0 && !stop_signal && (off < job->file_size || inflight)) {
		for (; r >= 0 && off < job->file_size && inflight < PIN_DEPTH; inflight++) {
			struct pst_io io = { .op = PST_OP_READ,
					     .file = job->file,
					     .mem = mem,
					     .file_off = off,
					     .mem_off = at++ % PIN_DEPTH * PIN_PIECE,
					     .len = MIN(PIN_PIECE, job->file_size - off) };

			r = pst_queue_prep(q, &io);
			off += io.len;
		}
		if (r >= 0)
			r = pst_queue_submit(q);
		if (r >= 0)
			r = pst_queue_reap(q, &d, 1, 1, PST_NO_DEADLINE);
		if (r < 0)
			return fail_pst(r, job->path);
		if (d.res < 0)
			return fail((int)-d.res, "%s", pst_done_text(&d, buf, sizeof(buf)));
		inflight--;
	}
	return stop_signal ? fail(EINTR, "interrupted") : 0;
}

int bench_pin(const struct bench_job *job, struct bench_pages *ret)
{
	_cleanup_(pst_queuep) struct pst_queue *q = NULL;
	_cleanup_(pst_memp) struct pst_mem *mem = NULL;
	struct pst_path_info info = { .sz = sizeof(info) };
	uint64_t begun, since, last;
	int r = make_warm(job->fd, job->path);

	if (r < 0)
		return r;
	r = pst_queue_new(NULL, &q);
	if (r < 0)
		return fail_pst(r, "cannot make a queue");
	r = pst_mem_alloc(job->device, PIN_DEPTH * PIN_PIECE, NULL, &mem);
	if (r < 0)
		return fail_pst(r, job->device);
	r = pst_path_check(job->file, mem, PST_OP_READ, PST_PATH_PAGECACHE, &info);
	if (r < 0)
		return fail_pst(r, job->path);
	ret->why = info.why;
	ret->detail = info.detail;
	begun = since = now_ns();
	/* Only what is read again is worth it. */
	for (unsigned i = 0; i < 2 && r >= 0; i++)
		r = pin_read(job, q, mem);
	if (r < 0)
		return r;
	/* It goes on in the background until all is pinned, or nothing moves any more. */
	ret->bytes = pages_pinned(&ret->ns);
	while (info.state != PST_STATE_IMPOSSIBLE && ret->bytes < job->file_size &&
	       now_ns() - since < PIN_QUIET) {
		last = ret->bytes;
		(void)usleep(2000);
		ret->bytes = pages_pinned(&ret->ns);
		if (ret->bytes != last)
			since = now_ns();
	}
	ret->wait = since - begun;
	if (ret->bytes >= job->file_size)
		ret->wait = now_ns() - begun;
	return stop_signal ? fail(EINTR, "interrupted") : 0;
}

/* ------------------------------------------------------------------- plain */

static int read_piece(const struct bench_job *job, uint64_t off, uint8_t *buf, struct pst_mem *mem,
		      uint64_t mem_off)
{
	int r = pread_all(job->fd, buf, job->size, off, job->path);

	if (r < 0 || !mem)
		return r;
	r = pst_mem_copy_in(mem, mem_off, buf, job->size);
	return r < 0 ? fail_pst(r, NULL) : 0;
}

static int write_piece(const struct bench_job *job, uint64_t off, uint8_t *buf, struct pst_mem *mem,
		       uint64_t mem_off)
{
	int r = mem ? pst_mem_copy_out(mem, mem_off, buf, job->size) : 0;

	if (r < 0)
		return fail_pst(r, NULL);
	return pwrite_all(job->fd, buf, job->size, off, job->path);
}

static int loop_plain(struct worker *w, uint8_t *buf, struct pst_mem *mem)
{
	const struct bench_job *job = w->job;
	uint64_t now = w->begun, end = now + (uint64_t)(job->seconds * 1e9);

	while (now < end && !stop_signal) {
		uint64_t before = now, off;
		uint32_t n;
		int r;

		for (n = 0; n < job->pieces && walk_next(&w->walk, job->size, &off); n++) {
			if (job->write)
				r = write_piece(job, off, buf, mem, n * job->size);
			else
				r = read_piece(job, off, buf, mem, n * job->size);
			if (r < 0)
				return r;
		}
		if (!n)
			break;
		now = now_ns();
		hist_add(&w->res.hist, now - before);
		w->res.bytes += n * job->size;
		w->res.requests++;
	}
	if (job->write && fdatasync(job->fd) < 0)
		return fail(errno, "syncing %s: %s", job->path, strerror(errno));
	return 0;
}

/* ----------------------------------------------------------------- threads */

static void keep_error(struct worker *w, int r)
{
	w->err = r;
	if (r < 0)
		(void)snprintf(w->text, sizeof(w->text), "%s", fail_text());
}

/* Wait for the others; r is how the own set-up ended.  False: there is nothing to do. */
static bool begin(struct worker *w, int r)
{
	struct gate *g = w->gate;
	bool go;

	keep_error(w, r);
	(void)pthread_mutex_lock(&g->lock);
	g->ready++;
	g->failed = g->failed || r < 0;
	(void)pthread_cond_broadcast(&g->changed);
	while (!g->open)
		(void)pthread_cond_wait(&g->changed, &g->lock);
	go = !g->failed;
	(void)pthread_mutex_unlock(&g->lock);
	w->begun = w->ended = now_ns();
	return go;
}

static void finish(struct worker *w, int r)
{
	w->ended = now_ns();
	keep_error(w, r);
}

static void *run_ours(void *arg)
{
	_cleanup_(rig_done) struct rig rig = { 0 };
	struct worker *w = arg;
	uint64_t start = now_ns();
	int r = rig_init(&rig, w->job);

	w->res.setup = now_ns() - start;
	if (begin(w, r)) {
		finish(w, loop_ours(w, &rig));
		if (w->err < 0)
			xfer_abandon(rig.queue, w->job->depth);
	}
	return NULL;
}

static void *run_plain(void *arg)
{
	_cleanup_(pst_memp) struct pst_mem *mem = NULL;
	_cleanup_(freep) uint8_t *buf = NULL;
	struct worker *w = arg;
	const struct bench_job *job = w->job;
	int r = 0;

	/* For host memory the buffer is already where the bytes belong. */
	if (posix_memalign((void **)&buf, 4096, job->size) != 0)
		r = fail(ENOMEM, "out of memory");
	else
		memset(buf, 0x5a, job->size);
	if (r == 0 && !job->host) {
		r = pst_mem_alloc(job->device, job->size * job->pieces, NULL, &mem);
		if (r < 0)
			r = fail_pst(r, job->device);
	}
	if (begin(w, r))
		finish(w, loop_plain(w, buf, mem));
	return NULL;
}

static int gather(const struct bench_job *job, struct worker *workers, double cpu,
		  struct bench_result *ret)
{
	uint64_t begun = UINT64_MAX, ended = 0;

	memset(ret, 0, sizeof(*ret));
	for (unsigned i = 0; i < job->threads; i++) {
		struct worker *w = &workers[i];

		if (w->err < 0)
			return fail(w->err, "%s", w->text);
		ret->bytes += w->res.bytes;
		ret->requests += w->res.requests;
		ret->paths |= w->res.paths;
		whys_merge(&ret->whys, &w->res.whys);
		hist_merge(&ret->hist, &w->res.hist);
		ret->setup = MAX(ret->setup, w->res.setup);
		begun = MIN(begun, w->begun);
		ended = MAX(ended, w->ended);
	}
	ret->pieces = ret->bytes / job->size;
	ret->ns = ended - begun;
	ret->cpu = cpu;
	return stop_signal ? fail(EINTR, "interrupted") : 0;
}

static int run_all(const struct bench_job *job, void *(*fn)(void *), struct bench_result *ret)
{
	_cleanup_(freep) struct worker *workers = calloc(job->threads, sizeof(*workers));
	struct gate gate = { .lock = PTHREAD_MUTEX_INITIALIZER,
			     .changed = PTHREAD_COND_INITIALIZER };
	pthread_t ids[BENCH_THREADS_MAX];
	unsigned nr = 0;
	double cpu;
	int r = 0;

	if (!workers)
		return fail(ENOMEM, "out of memory");
	if (job->cold)
		make_cold(job->fd);
	else if (!job->write && (r = make_warm(job->fd, job->path)) < 0)
		return r;
	for (; r == 0 && nr < job->threads; nr++) {
		workers[nr] = (struct worker){ .job = job, .gate = &gate };
		walk_init(&workers[nr].walk, job, nr);
		r = pthread_create(&ids[nr], NULL, fn, &workers[nr]);
		if (r != 0)
			break;
	}

	(void)pthread_mutex_lock(&gate.lock);
	gate.failed = gate.failed || r != 0;
	while (gate.ready < nr)
		(void)pthread_cond_wait(&gate.changed, &gate.lock);
	gate.open = true;
	cpu = cpu_seconds();
	(void)pthread_cond_broadcast(&gate.changed);
	(void)pthread_mutex_unlock(&gate.lock);
	for (unsigned i = 0; i < nr; i++)
		(void)pthread_join(ids[i], NULL);
	cpu = cpu_seconds() - cpu;
	if (r != 0)
		return fail(r, "cannot start %u threads: %s", job->threads, strerror(r));
	return gather(job, workers, cpu, ret);
}

int bench_ours(const struct bench_job *job, struct bench_result *ret)
{
	return run_all(job, run_ours, ret);
}

int bench_plain(const struct bench_job *job, struct bench_result *ret)
{
	return run_all(job, run_plain, ret);
}
