/* SPDX-License-Identifier: MIT */
/*
 * Reads that their callers copy themselves.
 *
 * A read of some hundred KiB that is alone in its queue ends soonest if idle workers share it.  If
 * the workers are busy with other requests, the caller is faster with a window.  But all windows of
 * a device together reach 34 GB/s (H200), and the device's own copies are faster when more callers
 * wait than there are CPUs.  Sixteen callers on sixteen CPUs reach 33 GB/s with windows, and 30
 * GB/s if workers take some of their reads, because workers also need CPUs.
 *
 * Twenty callers on sixteen CPUs take turns at copying, and one read in a hundred takes four times
 * as long.  So after more callers waited than there are CPUs, no caller copies for MANY_NS,
 * provided that most requests were such reads.
 */
#include "core/queue/req.h"
#include "core/sched/engine.h"
#include "core/sched/single.h"
#include "core/sched/share.h"
#include "core/ways/way.h"

/* A lack of CPUs is remembered only if at least this many callers copy. */
#define MANY 8u
#define MANY_NS (20 * NSEC_PER_MSEC) /* ns for which a lack of CPUs is remembered */

/* Return the number of CPUs, but at most as many as engine_width() uses. */
static unsigned nr_cpus(const struct engine *e)
{
	return e->nr_workers + 1;
}

unsigned single_free_cpus(const struct engine *e)
{
	return nr_cpus(e) - MIN(e->nr_single, e->nr_workers);
}

/* Return true if fewer requests wait than there are CPUs, and no lack of CPUs was seen in the last
 * MANY_NS; under the lock. */
static bool few_wait(struct engine *e)
{
	bool few = e->nr_reqs + e->nr_single < nr_cpus(e);
	uint64_t now = about_now_ns();

	if (!few && e->nr_single >= MAX(MANY, 2 * e->nr_reqs))
		e->many_at = now;
	return few && now - e->many_at > MANY_NS;
}

bool single_begin(struct req *r)
{
	struct engine *e = req_engine(r)->share->engine;

	pthread_mutex_lock(&e->lock);
	req_way(r)->single = few_wait(e) && e->nr_reqs;
	e->nr_single += req_way(r)->single;
	pthread_mutex_unlock(&e->lock);
	return req_way(r)->single;
}

void single_end(struct req *r)
{
	struct engine *e;

	if (likely(!req_way(r)->single))
		return;
	req_way(r)->single = false;
	e = req_engine(r)->share->engine;
	pthread_mutex_lock(&e->lock);
	e->nr_single--;
	pthread_mutex_unlock(&e->lock);
}
