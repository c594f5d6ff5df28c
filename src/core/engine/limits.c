/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <pthread.h>

#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "core/engine/limits.h"
#include "core/engine/pool.h"
#include "core/queue/idle.h"

static struct {
	const char *name;
	const char *text; /* of the environment, NULL for none */
	uint64_t env;
	_Atomic uint64_t set; /* by the program, 0 for not */
} limits[LIMIT_NR] = {
	[LIMIT_POOL] = { .name = "PST_POOL" },
	[LIMIT_PAGES] = { .name = "PST_PAGES" },
	[LIMIT_APERTURE] = { .name = "PST_APERTURE" },
};

static void read_env(void)
{
	for (unsigned i = 0; i < LIMIT_NR; i++) {
		const char *text = secure_getenv(limits[i].name);

		if (!text || !*text)
			continue;
		if (size_parse(text, &limits[i].env) < 0)
			log_warn("%s: %s, ignoring", limits[i].name, err_text());
		else
			limits[i].text = text;
	}
}

uint64_t limit_if(enum limit l, uint64_t set, uint64_t builtin)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, read_env);
	return set ? set : limits[l].text ? limits[l].env : builtin;
}

uint64_t limit_get(enum limit l, uint64_t builtin)
{
	return limit_if(l, limits[l].set, builtin);
}

void limit_store(enum limit l, uint64_t set)
{
	limits[l].set = set;
}

/* May the program set it so? */
static int limit_check(enum limit l, uint64_t set)
{
	uint64_t most = limit_if(l, 0, UINT64_MAX);

	if (set <= most)
		return 0;
	return err_set(EPERM, "%" PRIu64 " bytes are more than %s in the environment allows: %s",
		       set, limits[l].name, limits[l].text);
}

int limits_set(const struct pst_limits *l)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* both or none */
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
	ret->pool_bytes = limits[LIMIT_POOL].set;
	ret->pages_bytes = limits[LIMIT_PAGES].set;
}
