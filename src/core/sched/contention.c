/* SPDX-License-Identifier: MIT */
#include <sys/resource.h>

#include "core/queue/object.h"
#include "core/queue/req.h"
#include "core/sched/contention.h"
#include "core/sched/engine.h"
#include "core/sched/share.h"
#include "core/ways/path.h"
#include "core/ways/way.h"

#define LOOK_JOBS 16u /* jobs that a worker begins between two checks */
/* Fewer interruptions between two checks do not count: the kernel's own work causes some. */
#define INTERRUPTED_MIN 2u
/* Interruptions per second of CPU time that mean contention.  Measured: 4 without, hundreds with
 * it. */
#define INTERRUPTED_PER_S 200u
/* Bytes per worker that may wait in slots for the device under contention. */
#define CONTENTION_BYTES MIB(1)
/* The limit is never below that of this many workers. */
#define CONTENTION_WORKERS 4u
/* Nanoseconds for which contention is assumed after a check saw it. */
#define CONTENTION_NS (100 * NSEC_PER_MSEC)

static uint64_t as_ns(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * NSEC_PER_SEC + (uint64_t)t->tv_usec * 1000;
}

/* Return true if the thread was often switched out against its will.  The kernel counts a switch as
 * involuntary if the thread could have continued: its time slice ended, or sched_yield() found
 * another thread. */
static bool was_interrupted(struct contention_check *look)
{
	uint64_t nr_switches, cpu_ns, nr, ns;
	struct rusage u;

	if (getrusage(RUSAGE_THREAD, &u) < 0)
		return false;
	nr_switches = (uint64_t)u.ru_nivcsw;
	cpu_ns = as_ns(&u.ru_utime) + as_ns(&u.ru_stime);
	nr = nr_switches - look->nr_switches;
	ns = cpu_ns - look->cpu_ns;
	look->nr_switches = nr_switches;
	look->cpu_ns = cpu_ns;
	return nr >= INTERRUPTED_MIN && nr * NSEC_PER_SEC >= ns * INTERRUPTED_PER_S;
}

void contention_check(struct contention *c, struct contention_check *look)
{
	uint64_t since;

	if (likely(++look->nr_jobs < LOOK_JOBS))
		return;
	look->nr_jobs = 0;
	since = c->since;
	if (was_interrupted(look)) {
		c->since = about_now_ns();
		c->here = true;
	} else if (unlikely(c->here) && about_now_ns() - since > CONTENTION_NS) {
		c->here = false;
	}
}

bool contention_limits(const struct req *r)
{
	const struct path_ops *ops = path_ops_of(req_plan(r)->hop[0]);

	return r->io.op == PST_OP_READ && ops->now && ops->now(req_file(r));
}

bool contention_has_enough(const struct req *r)
{
	const struct share *s = req_engine(r)->share;
	const struct engine *e = s->engine;
	uint64_t most = MAX(e->nr_usual, CONTENTION_WORKERS) * CONTENTION_BYTES;

	return unlikely(e->contention.here) && e->slotted >= most &&
	       s->slotted * e->pool.nr_busy >= most && contention_limits(r);
}
