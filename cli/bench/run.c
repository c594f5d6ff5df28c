/* SPDX-License-Identifier: MIT */
/*
 * The measuring loops.  Each queue has one thread for all turns.  During a turn, a thread allocates
 * nothing and reads the clock once per batch of completions.
 */
#include <fcntl.h>
#include <pthread.h>

#include "cli/bench/walk.h"
#include "tools/common/xfer.h"

#define REAP_MAX 256
#define PIN_PIECE MIB(4)
#define PIN_DEPTH 16u

/* Workers wait here for the next turn, and the side waits here for all workers. */
struct gate {
	pthread_mutex_t lock;
	pthread_cond_t all_ready, go;
	unsigned ready;
	unsigned turns; /* turns begun so far */
	bool over;      /* true: no turn follows */
};

struct worker {
	struct bench_side *side;
	const struct bench_job *job;
	unsigned turns; /* turns begun so far */
	struct walk walk;
	uint64_t begun, ended; /* now_ns() of the turn's begin and end */
	uint64_t setup;
	struct bench_result res; /* result of the current turn */
	int err;
	char text[512];
};

struct bench_side {
	const struct bench_job *job;
	bool plain;
	struct gate gate;
	struct worker *workers;
	pthread_t ids[BENCH_THREADS_MAX];
	unsigned nr; /* number of threads that were started */
};

/* Return true if each byte may be read only once: a page cache read leaves the bytes in memory, an
 * O_DIRECT read does not. */
static bool reads_once(const struct bench_job *job, bool plain)
{
	return job->cold && (plain || job->policy != PST_POLICY1(PST_PATH_DIRECT));
}

/* -------------------------------------------------------------------- ours */

#define WINDOW_LEN 65536 /* bytes; longer requests use a window only with an explicit policy */

/* One request in flight: its io, its pieces and its start time. */
struct slot {
	struct pst_io io;
	struct pst_seg *segs;
	uint64_t begun;
};

struct rig {
	struct pst_queue *queue;
	struct pst_mem *mem;
	struct pst_file *file;
	bool shared; /* the file is shared, and another thread closes it */
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
 * Start the device's engine and open a window.  Preparing a request starts the engine; the request
 * is cancelled before the submit, so it does not access the file.
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

/* Return how many slots the row uses: fewer than the depth if the row has few requests. */
static uint64_t places_used(const struct bench_job *job)
{
	return MIN(walk_requests(job, reads_once(job, false)), job->depth);
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
	/* Touch the pages now, as the plain side does: page faults are not measured. */
	if (job->host)
		memset(pst_mem_ptr(rig->mem), 0x5a, each * places_used(job));
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

/* Prepare the slot's next request.  Return false if no bytes are left. */
static bool aim(struct worker *w, struct slot *s, uint64_t now)
{
	const struct bench_job *job = w->job;
	uint32_t n = 0;

	s->begun = now;
	if (job->pieces == 1)
		return walk_next(&w->walk, job->size, &s->io.file_off);
	while (n < job->pieces && walk_next(&w->walk, job->size, &s->segs[n].file_off))
		n++;
	s->io.segs = s->segs;
	s->io.nr_segs = n;
	return n;
}

/* Queue the slot's next request.  Return 0 if no bytes are left. */
static int run_launch(struct worker *w, struct rig *rig, uint32_t idx, uint64_t now)
{
	struct slot *s = &rig->slots[idx];
	int r;

	if (!aim(w, s, now))
		return 0;
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

static int run_wait_for(struct rig *rig, const struct pst_io *io, struct pst_done *ret)
{
	int r = pst_queue_prep(rig->queue, io);

	if (r == 0)
		r = pst_queue_submit(rig->queue);
	if (r >= 0)
		r = pst_queue_reap(rig->queue, ret, 1, 1, PST_NO_DEADLINE);
	return r < 0 ? fail_pst(r, NULL) : 0;
}

static int sync_queue(struct rig *rig)
{
	struct pst_io io = { .op = PST_OP_SYNC, .flags = PST_IO_DATASYNC, .file = rig->file };
	struct pst_done d;
	char buf[400];
	int r = run_wait_for(rig, &io, &d);

	if (r == 0 && d.res < 0)
		r = fail((int)-d.res, "%s", pst_done_text(&d, buf, sizeof(buf)));
	return r;
}

/* Move one piece at a time, like pst_read(): bytes in the page cache are copied without a
 * request. */
static int loop_one(struct worker *w, struct rig *rig)
{
	uint64_t now = w->begun, end = now + (uint64_t)(w->job->seconds * 1e9);
	struct slot *s = &rig->slots[0];
	struct pst_done d;
	int r = 0;

	while (r == 0 && now < end && !stop_signal && aim(w, s, now)) {
		if (pst_queue_try(rig->queue, &s->io, 1, &d) != 1)
			r = run_wait_for(rig, &s->io, &d);
		now = now_ns();
		if (r == 0)
			r = account(w, rig, &d, now);
	}
	return r == 0 && w->job->write ? sync_queue(rig) : r;
}

static int loop_ours(struct worker *w, struct rig *rig)
{
	const struct bench_job *job = w->job;
	uint64_t now = w->begun, end = now + (uint64_t)(job->seconds * 1e9);
	struct pst_done done[REAP_MAX];
	uint32_t inflight = 0;
	int n, r;

	for (uint32_t i = 0; i < job->depth; i++) {
		r = run_launch(w, rig, i, now);
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
			r = run_launch(w, rig, (uint32_t)done[i].user_data, now);
			if (r < 0)
				return r;
			inflight += (uint32_t)r;
		}
		r = pst_queue_submit(rig->queue);
	}
	return job->write ? sync_queue(rig) : 0;
}

/* ------------------------------------------------------------------ stable */

static int get_stats(struct pst_stats *ret)
{
	int r;

	*ret = (struct pst_stats){ .sz = sizeof(*ret) };
	r = pst_stats(NULL, ret);
	return r < 0 ? fail_pst(r, "counters") : 0;
}

/* Read the whole file, including an unaligned end, with PIN_DEPTH requests in flight. */
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
	struct pst_stats st;
	uint64_t begun;
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
	begun = now_ns();
	/* Twice: pinning begins with the second pass over the file. */
	for (unsigned i = 0; i < 2 && r >= 0; i++)
		r = pin_read(job, q, mem);
	if (r < 0)
		return r;
	/* Wait until the library, which pins in the background, has no piece left to pin. */
	while ((r = get_stats(&st)) == 0 && st.pages_waiting && !stop_signal)
		(void)usleep(2000);
	if (r < 0)
		return r;
	ret->bytes = st.pages_bytes;
	ret->ns = st.pages_ns;
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

/*
 * Return the bytes of the plain side's buffer.  For a device, the buffer has one piece.  For the
 * host, the buffer has as many pieces as a queue has requests in flight, because a single piece
 * would stay in the CPU's cache.
 */
static uint64_t plain_len(const struct bench_job *job)
{
	return job->plain_copies ? job->size : job->size * job->pieces * places_used(job);
}

static int loop_plain(struct worker *w, uint8_t *buf, struct pst_mem *mem)
{
	const struct bench_job *job = w->job;
	uint64_t now = w->begun, end = now + (uint64_t)(job->seconds * 1e9);
	uint64_t len = plain_len(job), at = 0;

	while (now < end && !stop_signal) {
		uint64_t before = now, off;
		uint32_t n;
		int r;

		for (n = 0; n < job->pieces && walk_next(&w->walk, job->size, &off); n++) {
			if (job->write)
				r = write_piece(job, off, buf + at, mem, n * job->size);
			else
				r = read_piece(job, off, buf + at, mem, n * job->size);
			at = (at + job->size) % len;
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

/*
 * Report r, the result of the setup or of the last turn, and wait for the next turn.  Return false
 * if no turn follows.  During the wait only the side may access the worker's walk and result.
 */
static bool run_begin(struct worker *w, int r)
{
	struct gate *g = &w->side->gate;
	bool go;

	w->ended = now_ns();
	keep_error(w, r);
	(void)pthread_mutex_lock(&g->lock);
	/* Wake the side only when the last worker is ready: waking it earlier would disturb workers
	 * that still measure. */
	if (++g->ready == w->job->threads)
		(void)pthread_cond_signal(&g->all_ready);
	while (g->turns == w->turns && !g->over)
		(void)pthread_cond_wait(&g->go, &g->lock);
	w->turns = g->turns;
	go = !g->over;
	(void)pthread_mutex_unlock(&g->lock);
	w->begun = now_ns();
	return go;
}

static void *run_ours(void *arg)
{
	_cleanup_(rig_done) struct rig rig = { 0 };
	struct worker *w = arg;
	uint64_t start = now_ns();
	int r = rig_init(&rig, w->job);

	w->setup = now_ns() - start;
	while (run_begin(w, r)) {
		r = w->job->depth == 1 ? loop_one(w, &rig) : loop_ours(w, &rig);
		if (r < 0)
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

	/* If the plain side does not copy, this buffer is the target of its reads. */
	if (posix_memalign((void **)&buf, 4096, plain_len(job)) != 0)
		r = fail(ENOMEM, "out of memory");
	else
		memset(buf, 0x5a, plain_len(job));
	if (r == 0 && job->plain_copies) {
		r = pst_mem_alloc(job->device, job->size * job->pieces, NULL, &mem);
		if (r < 0)
			r = fail_pst(r, job->device);
	}
	while (run_begin(w, r))
		r = loop_plain(w, buf, mem);
	return NULL;
}

/* -------------------------------------------------------------------- side */

/* Wait until all workers are set up or have ended their turn; return the first error. */
static int side_wait(struct bench_side *s)
{
	(void)pthread_mutex_lock(&s->gate.lock);
	while (s->gate.ready < s->nr)
		(void)pthread_cond_wait(&s->gate.all_ready, &s->gate.lock);
	(void)pthread_mutex_unlock(&s->gate.lock);
	for (unsigned i = 0; i < s->nr; i++)
		if (s->workers[i].err < 0)
			return fail(s->workers[i].err, "%s", s->workers[i].text);
	return 0;
}

struct bench_side *bench_side_free(struct bench_side *s)
{
	if (!s)
		return NULL;
	(void)pthread_mutex_lock(&s->gate.lock);
	s->gate.over = true;
	(void)pthread_cond_broadcast(&s->gate.go);
	(void)pthread_mutex_unlock(&s->gate.lock);
	for (unsigned i = 0; i < s->nr; i++)
		(void)pthread_join(s->ids[i], NULL);
	free(s->workers);
	free(s);
	return NULL;
}

int bench_side_new(const struct bench_job *job, bool plain, struct bench_side **ret_side)
{
	_cleanup_(bench_sidep) struct bench_side *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return fail(ENOMEM, "out of memory");
	*s = (struct bench_side){ .job = job,
				  .plain = plain,
				  .gate = { .lock = PTHREAD_MUTEX_INITIALIZER,
					    .all_ready = PTHREAD_COND_INITIALIZER,
					    .go = PTHREAD_COND_INITIALIZER } };
	s->workers = calloc(job->threads, sizeof(*s->workers));
	if (!s->workers)
		return fail(ENOMEM, "out of memory");
	for (; s->nr < job->threads; s->nr++) {
		struct worker *w = &s->workers[s->nr];

		w->side = s;
		w->job = job;
		r = pthread_create(&s->ids[s->nr], NULL, plain ? run_plain : run_ours, w);
		if (r != 0)
			return fail(r, "cannot start %u threads: %s", job->threads, strerror(r));
	}
	r = side_wait(s);
	if (r < 0)
		return r;
	*ret_side = TAKE_PTR(s);
	return 0;
}

static int prepare_file(const struct bench_job *job)
{
	if (job->write)
		return 0;
	if (job->cold) {
		make_cold(job->fd);
		return 0;
	}
	/* Check residency first: that is cheaper than reading the whole file again. */
	return resident_part(job->fd) < 1 ? make_warm(job->fd, job->path) : 0;
}

static void side_go(struct bench_side *s, unsigned turn)
{
	struct gate *g = &s->gate;

	(void)pthread_mutex_lock(&g->lock);
	for (unsigned i = 0; i < s->nr; i++) {
		struct worker *w = &s->workers[i];

		memset(&w->res, 0, sizeof(w->res));
		walk_init(&w->walk, s->job, i, turn, s->plain, reads_once(s->job, s->plain));
	}
	g->ready = 0;
	g->turns++;
	(void)pthread_cond_broadcast(&g->go);
	(void)pthread_mutex_unlock(&g->lock);
}

static void run_gather(const struct bench_side *s, struct bench_result *ret)
{
	uint64_t begun = UINT64_MAX, ended = 0;

	memset(ret, 0, sizeof(*ret));
	for (unsigned i = 0; i < s->nr; i++) {
		const struct worker *w = &s->workers[i];

		bench_result_add(ret, &w->res);
		ret->setup = MAX(ret->setup, w->setup);
		begun = MIN(begun, w->begun);
		ended = MAX(ended, w->ended);
	}
	ret->pieces = ret->bytes / s->job->size;
	ret->ns = ended - begun;
}

int bench_side_turn(struct bench_side *s, unsigned turn, struct bench_result *ret)
{
	int r = prepare_file(s->job);
	double cpu;

	if (r < 0)
		return r;
	cpu = cpu_seconds();
	side_go(s, turn);
	r = side_wait(s);
	cpu = cpu_seconds() - cpu;
	if (r < 0)
		return r;
	if (stop_signal)
		return fail(EINTR, "interrupted");
	run_gather(s, ret);
	ret->cpu = cpu;
	return 0;
}

void bench_result_add(struct bench_result *to, const struct bench_result *r)
{
	to->bytes += r->bytes;
	to->pieces += r->pieces;
	to->requests += r->requests;
	to->ns += r->ns;
	to->setup = MAX(to->setup, r->setup);
	to->cpu += r->cpu;
	to->paths |= r->paths;
	whys_merge(&to->whys, &r->whys);
	hist_merge(&to->hist, &r->hist);
}

unsigned bench_turns(const struct bench_job *job, bool with_plain, unsigned wanted)
{
	return walk_turns(job, reads_once(job, with_plain), wanted);
}
