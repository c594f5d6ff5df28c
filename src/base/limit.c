/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <pthread.h>

#include "base/err.h"
#include "base/limit.h"
#include "base/log.h"
#include "base/size.h"

static struct {
	const char *name;
	const char *text; /* value of the environment variable, or NULL */
	uint64_t env;
	_Atomic uint64_t set; /* limit that the program set, bytes; 0: none */
} limits[LIMIT_NR] = {
	[LIMIT_POOL] = { .name = "PST_POOL" },
	[LIMIT_PAGES] = { .name = "PST_PAGES" },
	[LIMIT_APERTURE] = { .name = "PST_APERTURE" },
};

static void limit_read_env(void)
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

	(void)pthread_once(&once, limit_read_env);
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

int limit_check(enum limit l, uint64_t set)
{
	uint64_t most = limit_if(l, 0, UINT64_MAX);

	if (set <= most)
		return 0;
	return err_set(EPERM, "%" PRIu64 " bytes are more than %s in the environment allows: %s",
		       set, limits[l].name, limits[l].text);
}

uint64_t limit_set(enum limit l)
{
	return limits[l].set;
}
