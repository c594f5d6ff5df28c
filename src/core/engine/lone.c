/* SPDX-License-Identifier: MIT */
/*
 * Callers that copy a read by themselves.
 *
 * A read of some hundred KiB that nothing else of its queue goes with is through soonest if idle
 * workers share it.  While they work for other requests, a window makes its caller faster.  But all
 * windows of a device together take 34 GB/s (H200), and the device's own copies surpass that when
 * more callers than workers wait.
 */
#include "core/engine/engine.h"
#include "core/engine/share.h"
#include "core/queue/req.h"

bool lone_begin(struct req *r)
{
	struct engine *e = r->eng.share->engine;

	pthread_mutex_lock(&e->lock);
	r->caller.lone = e->nr_reqs && e->nr_reqs + e->nr_lone < MAX(e->nr_usual, 2u);
	e->nr_lone += r->caller.lone;
	pthread_mutex_unlock(&e->lock);
	return r->caller.lone;
}

void lone_end(struct req *r)
{
	struct engine *e;

	if (likely(!r->caller.lone))
		return;
	r->caller.lone = false;
	e = r->eng.share->engine;
	pthread_mutex_lock(&e->lock);
	e->nr_lone--;
	pthread_mutex_unlock(&e->lock);
}
