/* SPDX-License-Identifier: MIT */
/*
 * Events during requests, in every order, on real queues.
 *
 * A run has a queue with a read, a write and a sync, or some of these.  Their operations wait at a
 * gate of the test provider (provider.h). Then events happen in one of many orders:
 *
 *   G      the gate lets all operations end, each with a result: done, short or an error
 *   r w s  the gate lets the operation of the read, the write, the sync end
 *   T      time is over: the deadline, or the grace period after a cancel
 *   C      pst_queue_cancel()
 *   R      pst_queue_reap() takes the completions that are there
 *   M      pst_mem_free()
 *   F      pst_file_close()
 *   Q      pst_queue_free()
 *
 * An operation hangs if its G comes late.  orders_rules.h has the expected effect of each event.
 * After each event the queue, its counters, the drains, the provider and the bytes are compared
 * with these effects.
 *
 * If a deadline passes before its T on a slow machine, the run is void and is repeated.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "orders_rules.h"

#define GRACE_NS UINT64_C(100000000) /* ns: grace period of pst_queue_cancel() */

/*
 * Each back end runs a part of the orders, because an operation at the gate is in no back end.
 * PST_ORDERS=36 runs every order with both back ends, in all variants.
 */
#if defined(__SANITIZE_ADDRESS__) || T_TSAN
#define STEP 6
#define TIME_NS UINT64_C(60000000) /* ns from submit to the deadline, at the first try */
#else
#define STEP 2
#define TIME_NS UINT64_C(20000000)
#endif

#define TRIES 12
#define NR_THREADS 24u
#define ANCHOR UINT64_C(0xa5c0)
#define TEXT_MAX 600

enum { SEED_FILE = 71, SEED_MEM, SEED_OLD, SEED_AFTER };

/* The objects of one thread.  Queue, memory and file are reused by the next run unless an event
 * ends them. */
struct run {
	const struct order *order;
	struct rules want;
	uint64_t user_data;
	uint64_t time_ns;
	unsigned at; /* index of the current event in order */

	struct pst_queue *q;
	struct pst_mem *m;
	struct pst_file *f, *anchor;
	void *wrap; /* the memory, if wrapped; else NULL */
	char path[512];
	int fd;
	struct test_gate gate;
	bool filled;    /* the test has overwritten the memory: nothing may change it */
	uint64_t limit; /* ns: the expectations hold until then */
	uint64_t over;  /* ns: the deadline has passed by then */
	atomic_bool opened;
	char why[TEXT_MAX];
};

enum how { GOOD, LATE, BAD };

#define TRY(call)                   \
	do {                        \
		enum how _h = call; \
		if (_h != GOOD)     \
			return _h;  \
	} while (0)
#define CHECK_EQ(a, b)                                                                           \
	do {                                                                                     \
		long long _a = (long long)(a), _b = (long long)(b);                              \
		if (_a != _b)                                                                    \
			return broken(r, __LINE__, "%s is %lld, not %s = %lld", #a, _a, #b, _b); \
	} while (0)
#define CHECK(cond)                                              \
	do {                                                     \
		if (!(cond))                                     \
			return broken(r, __LINE__, "%s", #cond); \
	} while (0)

__attribute__((format(printf, 3, 4))) static enum how broken(struct run *r, int line,
							     const char *fmt, ...)
{
	char order[EV_NR + 1] = "", cast[TEST_BARS + 1] = "", text[200];
	va_list ap;

	if (t_now() >= r->limit)
		return LATE;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (unsigned i = 0; i < r->order->nr; i++)
		order[i] = letters[r->order->ev[i]];
	for (unsigned i = 0; i < r->want.v.cast->nr; i++)
		cast[i] = "RWS"[r->want.v.cast->bar[i]];
	(void)snprintf(r->why, sizeof(r->why),
		       "%d: order %s, event %u, of %s%s, results %d %d %d%s%s%s%s: %s (%s)", line,
		       order, r->at, cast, r->want.v.deaf ? ", deaf" : "", r->want.v.result[0],
		       r->want.v.result[1], r->want.v.result[2], r->want.v.grace ? ", grace" : "",
		       r->want.v.sleeps ? ", sleeps" : "", r->want.v.drains ? ", drains" : "",
		       r->want.v.wrapped ? ", wrapped" : "", text, pst_error_text());
	return BAD;
}

/* ------------------------------------------------------- what there is now */

/*
 * Let the queue make progress without taking a completion: pst_file_drain() does so for each
 * queue with requests on the file.  The anchor is a file with a request that was prepared and is
 * never submitted.
 */
static int look(struct run *r)
{
	return pst_file_drain(r->f && uses_file(&r->want) ? r->f : r->anchor, 0);
}

/* Wait until the queue's counters have the expected values. */
static enum how settle(struct run *r)
{
	uint64_t end = t_hang();
	struct pst_stats st = { .sz = sizeof(st) };

	for (;;) {
		CHECK_EQ(look(r), -EBUSY);
		CHECK_EQ(pst_stats(r->q, &st), 0);
		if (st.inflight == nr_inflight(&r->want) && st.busy == nr_busy(&r->want))
			break;
		if (t_now() >= r->limit)
			return LATE;
		if (t_now() >= end) {
			CHECK_EQ(st.inflight, nr_inflight(&r->want));
			CHECK_EQ(st.busy, nr_busy(&r->want));
		}
		(void)usleep(100);
	}
	CHECK_EQ(st.requests, r->want.requests);
	CHECK_EQ(st.errors, r->want.errors);
	CHECK_EQ(st.timeouts, r->want.timeouts);
	CHECK_EQ(st.canceled, r->want.canceled);
	return GOOD;
}

/* Wait until the provider has nr open files, and the expected operations at the gate. */
static enum how provider_has(struct run *r, unsigned nr)
{
	struct pst_stats st = { .sz = sizeof(st) };
	uint64_t end = t_hang();

	while (atomic_load(&r->gate.files) != nr && t_now() < end) {
		if (t_now() >= r->limit)
			return LATE;
		/* pst_stats() lets a freed queue make progress. */
		(void)pst_stats(NULL, &st);
		(void)usleep(100);
	}
	CHECK_EQ(r->gate.files, nr);
	for (unsigned i = 0; i < TEST_BARS; i++) {
		while (atomic_load(&r->gate.held[i]) != r->want.subs[i].at_gate && t_now() < end) {
			if (t_now() >= r->limit)
				return LATE;
			(void)usleep(100);
		}
		CHECK_EQ(r->gate.held[i], r->want.subs[i].at_gate);
		/* An engine's worker passes the cancel on a moment later. */
		while (r->want.subs[i].told && !atomic_load(&r->gate.told[i]) && t_now() < end) {
			if (t_now() >= r->limit)
				return LATE;
			(void)usleep(100);
		}
		CHECK(!r->want.subs[i].told || r->gate.told[i]);
	}
	return GOOD;
}

static enum how mem_is(struct run *r, uint64_t off, uint64_t len, uint64_t seed)
{
	char buf[2 * LEN];

	if (!len)
		return GOOD;
	if (r->wrap)
		memcpy(buf, (char *)r->wrap + off, len);
	else
		CHECK_EQ(pst_mem_copy_out(r->m, off, buf, len), 0);
	CHECK_EQ(t_differs(buf, seed, off, len), len);
	return GOOD;
}

static enum how mem_fill(struct run *r, uint64_t seed)
{
	char buf[2 * LEN];

	t_fill(buf, seed, 0, sizeof(buf));
	if (r->wrap)
		memcpy(r->wrap, buf, sizeof(buf));
	else
		CHECK_EQ(pst_mem_copy_in(r->m, 0, buf, sizeof(buf)), 0);
	return GOOD;
}

/*
 * Check that the memory holds what was read, then overwrite it: from now on nothing may change
 * it.
 */
static enum how take_mem(struct run *r)
{
	const struct sub *s = &r->want.subs[TEST_BAR_READ];

	if (r->filled || (!r->wrap && !r->m))
		return GOOD;
	if (s->there)
		TRY(mem_is(r, 0, s->prefix, SEED_FILE));
	TRY(mem_is(r, LEN, LEN, SEED_MEM));
	r->filled = true;
	return mem_fill(r, SEED_AFTER);
}

/* Compare everything with the expectations. */
static enum how look_at_all(struct run *r)
{
	if (r->q)
		TRY(settle(r));
	if (r->m)
		CHECK_EQ(pst_mem_drain(r->m, uses_mem(&r->want) ? 0 : t_hang()),
			 uses_mem(&r->want) ? -EBUSY : 0);
	if (r->f && !uses_file(&r->want))
		CHECK_EQ(pst_file_drain(r->f, t_hang()), 0);
	else if (r->f && !r->q)
		CHECK_EQ(pst_file_drain(r->f, 0), -EBUSY);
	TRY(provider_has(r, r->f || uses_file(&r->want)));
	if (!uses_mem(&r->want))
		TRY(take_mem(r));
	return t_now() >= r->limit ? LATE : GOOD;
}

/* ------------------------------------------------------------------- events */

static enum how check_done(struct run *r, const struct pst_done *d)
{
	static const uint8_t bars[] = { [PST_OP_READ] = TEST_BAR_READ,
					[PST_OP_WRITE] = TEST_BAR_WRITE,
					[PST_OP_SYNC] = TEST_BAR_SYNC };
	struct sub *s;

	CHECK_EQ(d->user_data, r->user_data);
	CHECK(d->op >= PST_OP_READ && d->op <= PST_OP_SYNC);
	s = &r->want.subs[bars[d->op]];
	CHECK(s->completed && !s->reaped);
	s->reaped = true;
	CHECK_EQ(d->res, s->res);
	CHECK_EQ(d->prefix, s->prefix);
	if (!s->may_be_busy)
		CHECK_EQ(d->flags & PST_DONE_BUSY, s->busy && s->at_gate ? PST_DONE_BUSY : 0);
	return GOOD;
}

/* Take every completion.  Sleep until at least min of them have arrived. */
static enum how reap(struct run *r, unsigned min)
{
	unsigned nr = nr_unreaped(&r->want);
	struct pst_done d[8];

	CHECK_EQ(pst_queue_reap(r->q, d, min, RIG_NR(d), min ? t_hang() : 0), nr);
	for (unsigned i = 0; i < nr; i++)
		TRY(check_done(r, &d[i]));
	CHECK_EQ(nr_unreaped(&r->want), 0);
	return GOOD;
}

static void *drain(void *arg)
{
	struct run *r = arg;
	int res = pst_file_drain(r->f, t_hang());

	if (res == 0 && r->m)
		res = pst_mem_drain(r->m, t_hang());
	return (void *)(intptr_t)(res == 0 && !atomic_load(&r->opened) ? -EAGAIN : res);
}

static void open_bar(struct run *r, enum test_bar bar)
{
	test_gate_set(&r->gate, bar, r->want.v.result[bar]);
	r->want.open[bar] = true;
	answered(&r->want, bar);
}

static enum how event_gate(struct run *r)
{
	bool drains = r->want.v.drains && r->f && uses_file(&r->want);
	void *res = NULL;
	pthread_t thread;
	enum how how;

	atomic_store(&r->opened, false);
	if (drains) {
		CHECK_EQ(pthread_create(&thread, NULL, drain, r), 0);
		(void)usleep(2000);
	}
	atomic_store(&r->opened, true);
	for (enum test_bar bar = 0; bar < TEST_BARS; bar++)
		open_bar(r, bar);
	how = drains && r->q ? settle(r) : GOOD;
	if (drains)
		(void)pthread_join(thread, &res);
	TRY(how);
	CHECK_EQ((intptr_t)res, 0);
	return GOOD;
}

static enum how event_time(struct run *r)
{
	unsigned nr = nr_inflight(&r->want) + nr_unreaped(&r->want);
	struct timespec ts = { .tv_sec = (time_t)(r->over / 1000000000u),
			       .tv_nsec = (long)(r->over % 1000000000u) };
	bool sleeps = r->want.v.sleeps && nr_inflight(&r->want) && r->at + 1 < r->order->nr &&
		      r->order->ev[r->at + 1] == EV_REAP;

	if (t_now() >= r->limit)
		return LATE;
	r->limit = UINT64_MAX;
	if (!sleeps && nr_inflight(&r->want))
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
			;
	ended(&r->want, -ETIMEDOUT);
	return sleeps ? reap(r, nr) : GOOD;
}

static enum how event_cancel(struct run *r)
{
	uint64_t before = t_now();
	int got = pst_queue_cancel(r->q, r->user_data);

	r->over = t_now() + GRACE_NS < r->over ? t_now() + GRACE_NS : r->over;
	if (nr_inflight(&r->want) && before + GRACE_NS < r->limit)
		r->limit = before + GRACE_NS;
	CHECK_EQ(got, canceled(&r->want));
	return GOOD;
}

static enum how event(struct run *r, enum event ev)
{
	switch (ev) {
	case EV_GATE:
		return event_gate(r);
	case EV_READ:
	case EV_WRITE:
	case EV_SYNC:
		open_bar(r, TEST_BAR_READ + (ev - EV_READ));
		return GOOD;
	case EV_TIME:
		return event_time(r);
	case EV_CANCEL:
		return event_cancel(r);
	case EV_REAP:
		return reap(r, 0);
	case EV_MEM:
		r->m = pst_mem_free(r->m);
		return GOOD;
	case EV_FILE:
		r->f = pst_file_close(r->f);
		return GOOD;
	default:
		r->q = pst_queue_free(r->q);
		r->limit = UINT64_MAX;
		ended(&r->want, -ECANCELED);
		return GOOD;
	}
}

/* ------------------------------------------------------------ from end to end */

static _Atomic uint64_t sum; /* requests that have completed */

/* Make the objects that the last run ended; reuse the others. */
static enum how make_things(struct run *r)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = rig_backend, .depth = 4 };
	char name[600];

	if (!r->q) {
		CHECK_EQ(pst_queue_new(&o, &r->q), 0);
		r->want.requests = r->want.errors = r->want.timeouts = r->want.canceled = 0;
	}
	if (!r->f) {
		(void)snprintf(name, sizeof(name), "test://%s", r->path);
		test_gate_use(&r->gate);
		CHECK_EQ(pst_file_open(name, RIG_RW | PST_FILE_PLAIN, NULL, &r->f), 0);
		test_gate_use(NULL);
	}
	if (r->m && r->want.v.wrapped == !!r->wrap)
		return GOOD;
	r->m = pst_mem_free(r->m);
	free(r->wrap);
	r->wrap = r->want.v.wrapped ? aligned_alloc(LEN, 2 * LEN) : NULL;
	if (r->want.v.wrapped)
		CHECK_EQ(pst_mem_wrap((uintptr_t)r->wrap, 2 * LEN, NULL, &r->m), 0);
	else
		CHECK_EQ(pst_mem_alloc(rig_dev, 2 * LEN, NULL, &r->m), 0);
	return GOOD;
}

static enum how prep(struct run *r, enum test_bar bar)
{
	static const uint32_t ops[] = { PST_OP_READ, PST_OP_WRITE, PST_OP_SYNC };
	struct pst_io io = { .op = ops[bar],
			     .file = r->f,
			     .user_data = r->user_data,
			     .deadline_ns = r->over == UINT64_MAX ? PST_NO_DEADLINE : r->over };

	if (bar != TEST_BAR_SYNC) {
		io.mem = r->m;
		io.file_off = io.mem_off = bar == TEST_BAR_WRITE ? LEN : 0;
		io.len = LEN;
		if (r->want.soft)
			io.policy = PST_POLICY2(PST_PATH_STAGED, PST_PATH_BUFFERED);
	}
	CHECK_EQ(pst_queue_prep(r->q, &io), 0);
	return GOOD;
}

/* Submit the requests, and wait until their operations are at the gate. */
static enum how start(struct run *r)
{
	struct pst_io anchor = { .op = PST_OP_SYNC, .file = r->anchor, .user_data = ANCHOR };
	const struct cast *c = r->want.v.cast;
	bool write = false;
	char old[LEN];

	TRY(mem_fill(r, SEED_MEM));
	t_fill(old, SEED_OLD, LEN, LEN);
	CHECK_EQ(pwrite(r->fd, old, LEN, LEN), LEN);
	r->over = UINT64_MAX;
	if (comes(r->order, EV_TIME) && !r->want.v.grace)
		r->over = t_now() + r->time_ns;
	r->limit = r->over;
	for (unsigned i = 0; i < c->nr; i++) {
		struct sub *s = &r->want.subs[c->bar[i]];

		TRY(prep(r, c->bar[i]));
		s->there = true;
		s->held = c->bar[i] == TEST_BAR_SYNC && write;
		s->at_gate = !s->held;
		s->touches = s->at_gate && !r->want.soft && c->bar[i] != TEST_BAR_SYNC;
		write |= c->bar[i] == TEST_BAR_WRITE;
	}
	CHECK_EQ(pst_queue_submit(r->q), c->nr);
	CHECK_EQ(pst_queue_prep(r->q, &anchor), 0);
	/* The operations of an engine reach the gate a moment later. */
	TRY(provider_has(r, 1));
	return look_at_all(r);
}

/* Check the end of a run: nothing is in flight, and the bytes are right. */
static enum how finish(struct run *r)
{
	const struct sub *w = &r->want.subs[TEST_BAR_WRITE];
	struct pst_done d[8];
	char file[LEN];

	if (r->q) {
		TRY(reap(r, nr_unreaped(&r->want)));
		CHECK_EQ(pst_queue_cancel(r->q, ANCHOR), 1);
		CHECK_EQ(pst_queue_reap(r->q, d, 1, RIG_NR(d), t_hang()), 1);
		CHECK_EQ(d[0].user_data, ANCHOR);
		CHECK_EQ(d[0].res, -ECANCELED);
		r->want.requests++;
		r->want.errors++;
		r->want.canceled++;
		sum++;
	}
	for (unsigned i = 0; i < TEST_BARS; i++)
		CHECK(!r->want.subs[i].there ||
		      (r->want.subs[i].completed && !r->want.subs[i].at_gate));
	if (r->filled && (r->m || r->wrap))
		TRY(mem_is(r, 0, 2 * LEN, SEED_AFTER));
	CHECK_EQ(pread(r->fd, file, LEN, LEN), LEN);
	CHECK_EQ(t_differs(file, SEED_MEM, LEN, w->moved), w->moved);
	CHECK_EQ(t_differs(file + w->moved, SEED_OLD, LEN + w->moved, LEN - w->moved),
		 LEN - w->moved);
	return GOOD;
}

/* Free everything that a void or failed run has left. */
static void give_up(struct run *r)
{
	struct pst_stats st = { .sz = sizeof(st) };
	uint64_t end = t_hang();

	for (enum test_bar bar = 0; bar < TEST_BARS; bar++)
		test_gate_set(&r->gate, bar, TEST_DONE);
	r->q = pst_queue_free(r->q);
	r->m = pst_mem_free(r->m);
	r->f = pst_file_close(r->f);
	for (; atomic_load(&r->gate.files) && t_now() < end; (void)usleep(100))
		(void)pst_stats(NULL, &st);
	free(r->wrap);
	r->wrap = NULL;
}

static enum how one(struct run *r)
{
	static _Atomic uint64_t numbers = ANCHOR + 1;

	r->user_data = numbers++;
	r->limit = UINT64_MAX;
	r->at = 0;
	r->filled = false;
	memset(r->want.subs, 0, sizeof(r->want.subs));
	memset(r->want.open, 0, sizeof(r->want.open));
	r->gate.deaf = r->want.v.deaf;
	for (enum test_bar bar = 0; bar < TEST_BARS; bar++) {
		test_gate_set(&r->gate, bar, TEST_SHUT);
		atomic_store(&r->gate.told[bar], 0);
	}
	TRY(make_things(r));
	sum += r->want.v.cast->nr;
	TRY(start(r));
	for (; r->at < r->order->nr; r->at++) {
		TRY(event(r, r->order->ev[r->at]));
		TRY(look_at_all(r));
		if (!nr_inflight(&r->want))
			r->limit = UINT64_MAX;
	}
	return finish(r);
}

/* ------------------------------------------------------------------ threads */

static struct {
	bool apart;
	unsigned step, per_order; /* run each step-th order, in per_order variants */
	unsigned number;          /* number of the case; it selects the variants */
	atomic_uint next, good, tries, given_up;
	atomic_bool stop;
	pthread_mutex_t lock;
	char why[TEXT_MAX];
} work = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void fail(const char *why)
{
	(void)pthread_mutex_lock(&work.lock);
	if (!atomic_exchange(&work.stop, true))
		(void)snprintf(work.why, sizeof(work.why), "%s", why);
	(void)pthread_mutex_unlock(&work.lock);
}

static void run_one(struct run *r, unsigned n)
{
	unsigned i = n / work.per_order * work.step + rig_backend % work.step;
	unsigned v = (i + work.number * 10007) * 2654435761u / 65536 + n % work.per_order;
	enum how how = LATE;

	if (i >= nr_orders)
		return;
	r->order = &orders[i];
	r->want.v = variant(v % VARIANTS, work.apart);
	r->want.v.wrapped = !r->want.soft && n % 3 == 0;
	r->want.v.grace = n % 5 < 2 && comes_before(r->order, EV_CANCEL, EV_TIME);
	r->want.v.sleeps = n % 2;
	r->want.v.drains = n % 4 == 0;
	r->time_ns = TIME_NS;
	for (unsigned k = 0; k < TRIES && how == LATE; k++, r->time_ns *= 2) {
		work.tries++;
		how = one(r);
		if (how != GOOD)
			give_up(r);
	}
	if (how == GOOD)
		work.good++;
	else if (how == LATE)
		work.given_up++;
	else
		fail(r->why);
}

static void *thread(void *arg)
{
	struct run *r = arg;
	unsigned total = (nr_orders + work.step - 1) / work.step * work.per_order, n;

	while (!work.stop && (n = work.next++) < total)
		run_one(r, n);
	give_up(r);
	r->anchor = pst_file_close(r->anchor);
	(void)close(r->fd);
	return NULL;
}

static void threads(void)
{
	/* Let each request take one operation on the file. */
	const struct test_plan plan = { .seed = 1, .hang_off = UINT64_MAX };
	static struct run runs[NR_THREADS];
	pthread_t ids[NR_THREADS];
	unsigned nr = 0;

	for (unsigned i = 0; i < NR_THREADS; i++) {
		struct run *r = &runs[i];
		char name[20];

		memset(r, 0, sizeof(*r));
		(void)snprintf(name, sizeof(name), "data-%u", i);
		(void)snprintf(r->path, sizeof(r->path), "%s", rig_path(name));
		rig_make(r->path, SEED_FILE, 2 * LEN);
		r->want.soft = rig_soft();
		r->fd = open(r->path, O_RDWR | O_CLOEXEC);
		T_CHECK(r->fd >= 0);
		T_OK(pst_file_open(r->path, RIG_RW | PST_FILE_PLAIN, NULL, &r->anchor));
	}
	test_provider_plan(&plan); /* opening the anchors has set another plan */
	for (; nr < NR_THREADS; nr++)
		if (pthread_create(&ids[nr], NULL, thread, &runs[nr]) != 0)
			fail("no thread");
	for (unsigned i = 0; i < nr; i++)
		(void)pthread_join(ids[i], NULL);
}

static void walk(unsigned must, unsigned nr, unsigned step)
{
	struct order o = { 0 };
	const char *each = getenv("PST_ORDERS");
	unsigned ctxs = test_provider_ctxs(), files = test_provider_files();
	uint64_t start = t_now(), requests = rig_stats(NULL).requests;

	nr_orders = 0;
	orders_make(&o, 0, must, nr);
	work.apart = must != BIT(EV_GATE);
	work.step = each ? 1 : step;
	work.per_order = each && atoi(each) > 0 ? (unsigned)atoi(each) : 1;
	work.next = work.good = work.tries = work.given_up = 0;
	work.stop = false;
	sum = 0;
	threads();
	if (work.stop)
		T_FAIL("%s", work.why);
	printf("# %u orders of %u, %u tries, %u never in time, %" PRIu64 " requests, %" PRIu64
	       " ms\n",
	       work.good, nr_orders, work.tries, work.given_up, sum, (t_now() - start) / 1000000);
	T_EQ(test_provider_ctxs(), ctxs);
	T_EQ(test_provider_files(), files);
	/* Each request has completed once, even those of freed queues. */
	T_EQ(rig_stats(NULL).requests - requests, sum);
	T_CHECK(work.good > 100);
	T_CHECK(work.given_up * 50 < work.good);
	work.number++;
}

static void every_order(void)
{
	walk(BIT(EV_GATE), 6, STEP);
}

static void one_by_one(void)
{
	walk(EV_APART, 2, STEP);
}

int main(void)
{
	struct pst_limits limits = { .sz = sizeof(limits), .pool_bytes = RIG_MIB(4096) };

	rig_init();
	(void)pst_limits_set(&limits); /* each of the many queues needs its share */
	RIG_RUN(every_order);
	RIG_RUN(one_by_one);
	free(orders);
	return rig_done();
}
