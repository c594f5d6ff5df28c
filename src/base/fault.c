/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"

#define RULES_MAX 32        /* most SITE:N:WHAT in one specification */
#define DELAY_MAX_MS 60000u /* a longer delay is assumed to be a typing error */
#define ERRNO_MAX 4095      /* the kernel's largest errno */

static const char *const site_names[FAULT_SITE_NR] = {
	[FAULT_MEM_ALLOC] = "mem.alloc",     [FAULT_MEM_COPY] = "mem.copy",
	[FAULT_MEM_STREAM] = "mem.stream",   [FAULT_MEM_PIN] = "mem.pin",
	[FAULT_FILE_OPEN] = "file.open",     [FAULT_IO_CTX] = "file.context",
	[FAULT_FILE_READ] = "file.read",     [FAULT_FILE_WRITE] = "file.write",
	[FAULT_FILE_SYNC] = "file.sync",     [FAULT_FILE_PIN] = "file.pin",
	[FAULT_FILE_DIRECT] = "file.direct", [FAULT_FILE_URING] = "file.uring",
	[FAULT_GDS_PROBE] = "gds.probe",
};

struct rule {
	enum fault_site site;
	uint64_t n; /* number of the call, 0 for every call */
	int what;   /* errno, FAULT_SHORT, FAULT_WRONG, or 0 with a delay */
	uint64_t delay_ns;
};

_Atomic bool fault_active;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX];
static unsigned nr_rules;
static uint64_t passed[FAULT_SITE_NR];

/* Parse decimal digits and nothing else.  Return false for other text, or a number above max. */
static bool fault_parse_number(const char *s, uint64_t max, uint64_t *ret)
{
	char *end;
	uint64_t v;

	if (*s < '0' || *s > '9' || strlen(s) > 18)
		return false;
	v = strtoull(s, &end, 10);
	if (*end || v > max)
		return false;
	*ret = v;
	return true;
}

static bool parse_delay(const char *s, uint64_t *ret_ns)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = { { "ns", 1 }, { "us", 1000 }, { "ms", NSEC_PER_MSEC }, { "s", NSEC_PER_SEC } };
	char digits[20] = "";
	size_t n = strspn(s, "0123456789");
	uint64_t v;

	if (n >= sizeof(digits))
		return false;
	memcpy(digits, s, n);
	for (unsigned i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(s + n, units[i].unit) != 0)
			continue;
		if (!fault_parse_number(digits, DELAY_MAX_MS * NSEC_PER_MSEC / units[i].ns, &v))
			return false;
		*ret_ns = v * units[i].ns;
		return true;
	}
	return false;
}

static int errno_by_name(const char *s)
{
	for (int e = 1; e <= ERRNO_MAX; e++) {
		const char *n = strerrorname_np(e);

		if (n && !strcmp(n, s))
			return e;
	}
	return 0;
}

/* Parse one SITE:N:WHAT.  Modifies s. */
static int parse_rule(char *s, struct rule *ret)
{
	char *n = strchr(s, ':');
	char *what = n ? strchr(n + 1, ':') : NULL;
	struct rule r = { .site = FAULT_SITE_NR };

	if (!what)
		return err_set(EINVAL, "PST_FAULT: \"%s\" is not SITE:N:WHAT", s);
	*n++ = '\0';
	*what++ = '\0';

	for (int i = 0; i < FAULT_SITE_NR; i++)
		if (!strcmp(s, site_names[i]))
			r.site = (enum fault_site)i;
	if (r.site == FAULT_SITE_NR)
		return err_set(EINVAL, "PST_FAULT: there is no site \"%s\"", s);
	if (!fault_parse_number(n, UINT64_MAX, &r.n))
		return err_set(EINVAL,
			       "PST_FAULT: \"%s\" does not count calls; 1 is the first, "
			       "0 every one",
			       n);

	if (!strcmp(what, "short")) {
		if (r.site != FAULT_FILE_READ && r.site != FAULT_FILE_WRITE &&
		    r.site != FAULT_GDS_PROBE)
			return err_set(EINVAL,
				       "PST_FAULT: %s cannot be short; file.read, "
				       "file.write and gds.probe can",
				       s);
		r.what = FAULT_SHORT;
	} else if (!strcmp(what, "wrong")) {
		if (r.site != FAULT_MEM_COPY)
			return err_set(EINVAL, "PST_FAULT: %s cannot be wrong; mem.copy can", s);
		r.what = FAULT_WRONG;
	} else if (!parse_delay(what, &r.delay_ns)) {
		r.what = errno_by_name(what);
		if (!r.what)
			return err_set(EINVAL,
				       "PST_FAULT: \"%s\" is no errno name, \"short\", "
				       "\"wrong\" or delay up to 60s",
				       what);
	}
	*ret = r;
	return 0;
}

int fault_set(const char *spec)
{
	_cleanup_(freep) char *copy = NULL;
	struct rule parsed[RULES_MAX];
	unsigned nr = 0;
	char *next, *s;
	int r;

	if (spec && *spec) {
		copy = strdup(spec);
		if (!copy)
			return err_set(ENOMEM, "no memory for PST_FAULT");
		next = copy;
		while ((s = strsep(&next, ","))) {
			if (nr == RULES_MAX)
				return err_set(EINVAL, "PST_FAULT: more than %d rules", RULES_MAX);
			r = parse_rule(s, &parsed[nr]);
			if (r < 0)
				return r;
			nr++;
		}
	}

	(void)pthread_mutex_lock(&lock);
	memset(passed, 0, sizeof(passed));
	memcpy(rules, parsed, nr * sizeof(*parsed));
	nr_rules = nr;
	fault_active = nr > 0;
	(void)pthread_mutex_unlock(&lock);
	return 0;
}

int fault_check(enum fault_site site)
{
	int saved = errno;
	uint64_t delay_ns = 0;
	int what = 0;

	(void)pthread_mutex_lock(&lock);
	passed[site]++;
	for (unsigned i = 0; i < nr_rules; i++) {
		if (rules[i].site != site || (rules[i].n && rules[i].n != passed[site]))
			continue;
		delay_ns += rules[i].delay_ns;
		if (!what)
			what = rules[i].what;
	}
	(void)pthread_mutex_unlock(&lock);

	if (delay_ns) {
		struct timespec ts = { .tv_sec = (time_t)(delay_ns / NSEC_PER_SEC),
				       .tv_nsec = (long)(delay_ns % NSEC_PER_SEC) };

		while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
			;
	}
	if (what)
		log_debug("fault: %s fails with %s", site_names[site],
			  what == FAULT_SHORT   ? "a short count"
			  : what == FAULT_WRONG ? "a wrong bit"
						: err_name(what));
	errno = saved;
	return what;
}

uint64_t fault_passed(enum fault_site site)
{
	uint64_t n;

	(void)pthread_mutex_lock(&lock);
	n = passed[site];
	(void)pthread_mutex_unlock(&lock);
	return n;
}

/* Read PST_FAULT in a constructor, because fault_hit() checks only fault_active. */
__attribute__((constructor)) static void read_env(void)
{
	int saved = errno;

	if (fault_set(secure_getenv("PST_FAULT")) < 0)
		log_error("%s, ignoring PST_FAULT", err_text());
	errno = saved;
}
