/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "base/limit.h"
#include "core/queue/idle.h"
#include "core/sched/limits.h"
#include "core/sched/pool.h"

int limits_set(const struct pst_limits *l)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* makes setting both limits
								  * atomic */
	int r;

	pthread_mutex_lock(&lock);
	r = limit_check(LIMIT_POOL, l->pool_bytes);
	if (r == 0)
		r = limit_check(LIMIT_PAGES, l->pages_bytes);
	if (r == 0)
		r = pool_limit(l->pool_bytes);
	if (r == -EBUSY) {
		idle_free();
		r = pool_limit(l->pool_bytes);
	}
	if (r == 0)
		limit_store(LIMIT_PAGES, l->pages_bytes);
	pthread_mutex_unlock(&lock);
	return r;
}

void limits_get(struct pst_limits *ret)
{
	ret->pool_bytes = limit_set(LIMIT_POOL);
	ret->pages_bytes = limit_set(LIMIT_PAGES);
}
