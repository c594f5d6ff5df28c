/* SPDX-License-Identifier: MIT */
/*
 * Which workers may take a job while a device is behind, and which worker is woken while the
 * engine waits for a disk.
 */
#include <sys/eventfd.h>

#include "rig.h"

#include "core/queue/req.h"
#include "core/sched/engine.h"
#include "core/sched/share.h"
#include "core/sched/wake.h"

#define USUAL 6u
#define NEEDED 2u
#define LESS_MS 20u /* ms; a queue below its part counts as using less only after this time */

/* The engine's clock, which stands still: a test that gets no CPU for long misses no deadline. */
static int64_t stopped_s = 1000, stopped_ns;

/* Replaces libc's function for the library. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *ts)
{
	(void)id;
	*ts = (struct timespec){ .tv_sec = stopped_s, .tv_nsec = stopped_ns };
	return 0;
}

static void less_is_over(void)
{
	stopped_ns += (LESS_MS + 1) * 1000000;
}

static struct engine e;
static struct share busy, other;
static struct engine_req
	reqs[2]; /* not on the stack, where gcc's ASan does not align to a cache line */

/* Make request i, which no worker has begun. */
static struct req *request(unsigned i, struct share *s, enum pst_op op)
{
	struct req *r = &reqs[i].base.req;

	reqs[i] = (struct engine_req){ .eng.share = s };
	*r = (struct req){ .total = MIB(1), .one_piece = true };
	r->io.op = op;
	r->seg.len = MIB(1);
	return r;
}

/* Two queues have slots.  All jobs that wait for the device belong to one of them. */
static void begin(void)
{
	e = (struct engine){ .nr_workers = USUAL, .nr_usual = USUAL };
	e.worker_jobs = 8;
	e.slot_size = MIB(1);
	list_init(&e.active);
	for (unsigned i = 0; i < USUAL; i++)
		e.workers[i].engine = &e;
	engine_begin(&e);
	e.nr_needed = NEEDED;
	e.pool.nr_busy = 2;
	e.pool.nr_shares = 2;
	atomic_store(&e.copier.nr, 20);
	atomic_store(&e.copier.nr_bytes, MIB(20));
	busy = (struct share){ .engine = &e, .nr_slots = 22, .nr_copying = 20 };
	other = (struct share){ .engine = &e, .nr_slots = 2 };
}

/* Return how many workers, from the first on, may take the request's next job. */
static unsigned takers(struct req *r)
{
	unsigned nr = 0;

	cursor_init(&r->cur, &r->seg, 1);
	while (nr < USUAL && worker_may_take(&e.workers[nr], r, false))
		nr++;
	for (unsigned i = nr; i < USUAL; i++)
		T_CHECK(!worker_may_take(&e.workers[i], r, false));
	return nr;
}

static void reads_that_wait_for_the_device_have_few(void)
{
	struct req *read = request(0, &busy, PST_OP_READ);
	struct req *write = request(1, &busy, PST_OP_WRITE);

	begin();
	T_EQ(takers(read), NEEDED);
	T_EQ(takers(write), USUAL);
	atomic_store(&e.copier.nr_bytes, 0);
	T_EQ(takers(read), USUAL);
}

/* Queues take turns, and between turns each has no job at the device for a moment. */
static void a_queue_with_less_has_few_at_first_and_then_all(void)
{
	struct req *read = request(0, &other, PST_OP_READ);

	begin();
	T_EQ(takers(read), NEEDED);
	less_is_over();
	T_EQ(takers(read), USUAL);
	T_EQ(takers(read), USUAL);
	other.nr_copying = 5; /* half of the queue's fair part */
	T_EQ(takers(read), NEEDED);
	other.nr_copying = 4;
	T_EQ(takers(read), NEEDED);
	less_is_over();
	T_EQ(takers(read), USUAL);
}

static void queues_without_a_slot_have_no_part(void)
{
	struct req *read = request(0, &busy, PST_OP_READ);

	begin();
	/* One of 16 queues has slots, so it may use all slots, not a sixteenth of them. */
	busy.nr_copying = 8;
	e.pool.nr_shares = 16;
	e.pool.nr_busy = 1;
	(void)takers(read);
	less_is_over();
	T_EQ(takers(read), USUAL);
	e.pool.nr_busy = 2;
	T_EQ(takers(read), NEEDED);
}

/* A queue without jobs gets its first job, however much waits for the device: single jobs do not
 * overload it. */
static void a_queue_without_jobs_takes_one_however_much_waits_for_the_device(void)
{
	struct req *much = request(0, &busy, PST_OP_READ);
	struct req *first = request(1, &other, PST_OP_READ);

	begin();
	T_CHECK(worker_may_take(&e.workers[0], much, true));
	atomic_store(&e.copier.nr, LONG_JOBS);
	T_CHECK(!worker_may_take(&e.workers[0], much, true));
	T_CHECK(!worker_may_take(&e.workers[0], first, true));
	other.nr_slots = SLOT_RESERVED - 1;
	T_CHECK(worker_may_take(&e.workers[0], first, true));
}

/* Each clogged worker, and each that never started, is replaced by another. */
static void clogged_workers_do_not_count(void)
{
	struct req *read = request(0, &busy, PST_OP_READ);

	begin();
	e.nr_clogged = 1;
	T_EQ(takers(read), NEEDED + 1);
	e.nr_clogged = USUAL;
	T_EQ(takers(read), USUAL);
}

/* The engine waits for a disk, and this number of workers sleeps. */
static void begin_cold(struct req *read, unsigned sleepers)
{
	begin();
	for (unsigned i = 0; i < 8; i++)
		engine_count_cold(&e);
	T_CHECK(engine_waits_for_disk(&e));
	for (unsigned i = 0; i < sleepers; i++) {
		e.workers[i].efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		e.workers[i].sleeping = true;
	}
	list_add_tail(&e.active, &req_engine(read)->active);
	e.pool.nr_free = 8;
}

/* A clogged worker leaves a job to a clear worker even while the engine waits for a disk: behind
 * hung operations the job would wait. */
static void one_with_operations_that_hang_leaves_what_a_disk_has(void)
{
	struct req *read = request(0, &busy, PST_OP_READ);

	begin_cold(read, 2);
	e.workers[0].clogged = true;
	e.nr_clogged = 1;
	e.pool.nr_free = e.pool.unmet; /* no slots to share */
	T_CHECK(worker_leaves(&e.workers[0]));
	T_CHECK(e.workers[0].sleeping && e.workers[1].woken);
	/* A worker that is awake will look for work itself, so none must be woken. */
	engine_wake_one(&e);
	T_CHECK(e.workers[0].sleeping);
	/* If all workers are clogged, they must look for work themselves. */
	e.workers[1].clogged = true;
	e.nr_clogged = USUAL;
	T_CHECK(!worker_leaves(&e.workers[0]));
	engine_wake_one(&e);
	T_CHECK(e.workers[0].woken);
	for (unsigned i = 0; i < 2; i++)
		(void)close(e.workers[i].efd);
}

static void one_that_was_woken_is_about_to_look(void)
{
	struct req *read = request(0, &busy, PST_OP_READ);

	begin_cold(read, 3);
	T_CHECK(worker_leaves(&e.workers[4]));
	T_CHECK(e.workers[0].woken && !e.workers[0].sleeping);
	/* Other workers rely on the woken one and wake nobody. */
	T_CHECK(worker_leaves(&e.workers[3]));
	engine_wake_one(&e);
	T_CHECK(e.workers[1].sleeping && e.workers[2].sleeping);
	/* Once the woken worker has looked for work, it is busy. */
	e.workers[0].woken = false;
	T_CHECK(worker_leaves(&e.workers[3]));
	T_CHECK(e.workers[1].woken && e.workers[2].sleeping);
	/* With stream dependencies the woken worker queries the driver first, so others do not rely
	 * on it. */
	atomic_store(&e.nr_orders, 1);
	T_CHECK(worker_leaves(&e.workers[3]));
	T_CHECK(e.workers[2].woken);
	atomic_store(&e.nr_orders, 0);
	for (unsigned i = 0; i < 3; i++)
		(void)close(e.workers[i].efd);
}

int main(void)
{
	rig_init();
	T_RUN(reads_that_wait_for_the_device_have_few);
	T_RUN(a_queue_with_less_has_few_at_first_and_then_all);
	T_RUN(queues_without_a_slot_have_no_part);
	T_RUN(a_queue_without_jobs_takes_one_however_much_waits_for_the_device);
	T_RUN(clogged_workers_do_not_count);
	T_RUN(one_with_operations_that_hang_leaves_what_a_disk_has);
	T_RUN(one_that_was_woken_is_about_to_look);
	return rig_done();
}
