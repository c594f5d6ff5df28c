/* SPDX-License-Identifier: MIT */
/* penstock tier run: the background mover. */
#include "cli/tier/tier.h"

#include "base/err.h"
#include "tools/common/util.h"

#define EVERY_S 60u
/* Rest 20 times as long as the search for files to move took: the search walks all files. */
#define REST 20u

/* Open and lock as tier_open_locked() does, but let a signal end the wait for another mover. */
static int open_round(const char *name, struct tier_set **ret)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	struct recover_counts recovered;
	struct scan_counts scanned;
	int r = set_open(name, &set);

	if (r == 0)
		r = set_whole(set);
	if (r < 0)
		return fail_tier(r);
	if (!tier_let_others(set))
		return 0;
	r = recover_set(set, &recovered);
	if (r == 0)
		r = scan_set(set, &scanned);
	if (r < 0)
		return fail_tier(r);
	if (recovered.waiting)
		say("a move that was interrupted cannot be ended: %s", recovered.why);
	*ret = TAKE_PTR(set);
	return 0;
}

/* Find and move files.  *ret_ns is the time for finding them. */
static int one_round(const char *name, uint64_t *ret_ns)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	uint64_t began = now_ns();
	unsigned moved, failed;
	int r = open_round(name, &set);

	*ret_ns = now_ns() - began;
	return r < 0 || !set ? r : tier_move_planned(set, &moved, &failed);
}

int tier_run(const char *name, const struct tier_opts *o)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	uint64_t every = (o->every_s ? o->every_s : EVERY_S) * NSEC_PER_SEC;
	char said[ERR_TEXT_MAX] = "";
	/* Open the set once before the loop: a wrong name or a wrong set.conf ends the command. */
	int r = set_open(name, &set);

	if (r < 0)
		return fail_tier(r);
	while (!stop_signal) {
		uint64_t ns, end;

		r = one_round(name, &ns);
		/* Continue after an error, because an unmounted disk may come back.  Report each
		 * cause once. */
		if (r < 0 && strcmp(said, fail_text()) != 0)
			say("%s", fail_text());
		(void)snprintf(said, sizeof(said), "%s", r < 0 ? fail_text() : "");
		end = now_ns() + MAX(every, REST * ns);
		while (!stop_signal && now_ns() < end) {
			uint64_t left = MIN(end - now_ns(), NSEC_PER_SEC / 10);
			const struct timespec ts = { .tv_nsec = (long)MIN(left,
									  NSEC_PER_SEC / 10) };

			(void)nanosleep(&ts, NULL);
		}
	}
	return 0;
}
