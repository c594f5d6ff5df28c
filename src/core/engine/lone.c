/* SPDX-License-Identifier: MIT */
/*
 * Callers that copy a read by themselves.
 *
 * A read of some hundred KiB that nothing else of its queue goes with is through soonest if idle
 * workers share it.  While they work for other queues, a window makes its caller faster.  But all
 * windows of a device together take 34 GB/s (H200), and the device's own copies surpass that when
 * more callers than workers wait.
 */
#include "core/engine/engine.h"
#include "core/engine/share.h"

bool lone_begin(struct share *s)
{
	struct engine *e = s->engine;
	bool good;

	pthread_mutex_lock(&e->lock);
	good = e->nr_reqs && e->nr_reqs + e->nr_lone < MAX(e->nr_usual, 2u);
	e->nr_lone += good;
	pthread_mutex_unlock(&e->lock);
	return good;
}

void lone_end(struct share *s)
{
	struct engine *e = s->engine;

	pthread_mutex_lock(&e->lock);
	e->nr_lone--;
	pthread_mutex_unlock(&e->lock);
}
