/* SPDX-License-Identifier: MIT */
/* penstock tier watch: show moves while they run. */
#include "cli/tier/tier.h"

#include <unistd.h>

#include "tier/progress.h"
#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "tools/common/util.h"

#define LOOK_MS 100
#define BAR_WIDTH 24u

static void put_ended(const struct tier_set *set, const struct progress_move *m)
{
	const char *src = tier_root_class(set, m->src), *dst = tier_root_class(set, m->dst);

	if (m->err)
		shown_printf(2, "%s: stays on %s: %s", m->name, src, m->why);
	else
		shown_printf(2, "%s: %s to %s, %s in %s, %s GB/s", m->name, src, dst,
			     size_text(m->done).s, time_text(m->ns).s, rate_text(m->done, m->ns).s);
}

static void json_ended(const struct tier_set *set, const struct progress_move *m)
{
	_cleanup_(json_putp) struct json_object *o = json_object_new_object();
	char name[2 * TIER_NAME_SIZE];

	/* Replace bytes that are not UTF-8, which JSON does not allow. */
	shown(name, sizeof(name), m->name);
	json_text(o, "name", name);
	json_text(o, "from", tier_root_class(set, m->src));
	json_text(o, "to", tier_root_class(set, m->dst));
	json_u64(o, "bytes", m->done);
	json_u64(o, "ns", m->ns);
	json_u64(o, "waited_ns", m->waited_ns);
	json_flag(o, "moved", !m->err);
	if (m->err)
		json_text(o, "why", m->why);
	(void)puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
}

/* Print a line that the next one overwrites. */
static void watch_put_bar(const struct tier_set *set, const struct progress_move *m)
{
	uint64_t ns = now_ns() - m->begun_ns;
	double part = m->bytes ? MIN(1.0, (double)m->done / (double)m->bytes) : 0;
	unsigned full = (unsigned)(part * BAR_WIDTH), width = shown_width(stdout);
	char name[2 * TIER_NAME_SIZE], line[2 * TIER_NAME_SIZE + 256];
	size_t len;

	shown(name, sizeof(name), m->name);
	(void)snprintf(line, sizeof(line), "%3.0f%% of %s  %s to %s  %s GB/s  %s", 100 * part,
		       size_text(m->bytes).s, tier_root_class(set, m->src),
		       tier_root_class(set, m->dst), rate_text(m->done, ns).s, name);
	/* Shorten the name until the line fits: a wrapped line cannot be overwritten.  A character
	 * may have several bytes. */
	for (len = strlen(line); len && shown_columns(line, len) + BAR_WIDTH + 4 > width;)
		len--;
	(void)printf("\r[%.*s%*s] %.*s\033[K", (int)full, "########################",
		     (int)(BAR_WIDTH - full), "", (int)len, line);
}

static void put_idle(uint64_t nr)
{
	(void)printf("\rnothing moves; %llu moves have ended\033[K", (unsigned long long)nr);
}

/* Print the moves that ended since the last call.  Return how many have ended in all. */
static uint64_t put_new(const struct tier_set *set, uint64_t seen, bool json, bool bar)
{
	uint64_t nr = progress_count(set->progress), lost = 0;
	struct progress_move m;

	if (nr != seen && bar)
		(void)fputs("\r\033[K", stdout);
	for (; seen < nr; seen++) {
		if (!progress_ended(set->progress, seen, &m))
			lost++;
		else if (json)
			json_ended(set, &m);
		else
			put_ended(set, &m);
	}
	if (lost)
		say("%llu moves ended too fast to be shown", (unsigned long long)lost);
	return nr;
}

int tier_watch(const char *name, const struct tier_opts *o)
{
	const struct timespec look = { .tv_nsec = LOOK_MS * (long)NSEC_PER_MSEC };
	_cleanup_(set_closep) struct tier_set *set = NULL;
	bool bar = !o->json && isatty(STDOUT_FILENO);
	struct progress_move m;
	uint64_t seen;
	int r = set_open(name, &set);

	if (r < 0)
		return fail_tier(r);
	seen = progress_count(set->progress);
	while (!stop_signal) {
		seen = put_new(set, seen, o->json, bar);
		progress_now(set->progress, &m);
		if (bar && m.running)
			watch_put_bar(set, &m);
		else if (bar)
			put_idle(seen);
		if (fflush(stdout) != 0)
			return fail(errno, "cannot write to standard output: %s", strerror(errno));
		(void)nanosleep(&look, NULL);
	}
	if (bar)
		(void)putchar('\n');
	return 0;
}
