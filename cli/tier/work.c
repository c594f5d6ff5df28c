/* SPDX-License-Identifier: MIT */
/* The subcommands that change a set: pin, migrate and scrub. */
#include <linux/ioprio.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "cli/tier/tier.h"
#include "tier/move.h"
#include "tier/object.h"
#include "tier/plan.h"
#include "tier/scrub.h"
#include "tools/common/shown.h"
#include "tools/common/util.h"

int tier_pin(const char *name, bool pinned, char *files[], int nr)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	int r = tier_open_locked(name, &set);

	for (int i = 0; i < nr && r == 0; i++) {
		r = catalog_pin(set->catalog, files[i], pinned);
		if (r == -ENOENT)
			return fail(r, "there is no file %s in the set %s", files[i], name);
		if (r < 0)
			return fail_tier(r);
	}
	return r;
}

/* --------------------------------------------------------------- migrate */

/* Return true for errors that other objects will meet as well. */
static bool is_store_error(int err)
{
	switch (-err) {
	case EACCES:
	case ECONNREFUSED:
	case EHOSTUNREACH:
	case EIO:
	case ENODEV:
	case ENOKEY:
	case ETIMEDOUT:
		return true;
	default:
		return false;
	}
}

/* Delete objects that no file needs any more.  A store that fails is tried again later. */
static void collect(struct tier_set *set)
{
	unsigned nr;

	if (object_collect(set, (int64_t)time(NULL), &nr) < 0)
		say("objects that no file needs are not deleted now: %s", err_text());
}

static int move_one(struct tier_set *set, const char *file, enum tier_class to)
{
	struct move_done done = { 0 };
	struct tier_file f;
	int r = catalog_find(set->catalog, file, &f), dst;

	if (r == -ENOENT)
		return fail(ENOENT, "there is no file %s in the set %s", file, set->name);
	if (r < 0)
		return fail_tier(r);
	if (f.root < set->nr_roots && set->roots[f.root].class == to)
		return 0;
	dst = move_target(set, to, f.bytes);
	if (dst >= 0)
		r = move_file(set, file, (unsigned)dst, &done);
	if (dst < 0 || r < 0)
		return fail_tier(dst < 0 ? dst : r);
	shown_printf(2, "%s: to %s, %s in %s", file, tier_class_name(to), size_text(done.bytes).s,
		     time_text(done.ns).s);
	(void)fflush(stdout);
	return 0;
}

#define LET_OTHERS_MS 10 /* ms between two moves, in which a waiting process takes the lock */
#define LOCK_AGAIN_MS 20

static void work_sleep_ms(unsigned ms)
{
	const struct timespec ts = { .tv_nsec = ms * (long)NSEC_PER_MSEC };

	(void)nanosleep(&ts, NULL);
}

bool tier_let_others(struct tier_set *set)
{
	set_unlock(set);
	work_sleep_ms(LET_OTHERS_MS);
	while (!stop_signal) {
		if (set_try_lock(set) == 0)
			return true;
		work_sleep_ms(LOCK_AGAIN_MS);
	}
	return false;
}

int tier_move_planned(struct tier_set *set, unsigned *ret_moved, unsigned *ret_failed)
{
	bool no_store = false, object;
	struct plan plan;
	int r = plan_make(set, &plan);

	*ret_moved = *ret_failed = 0;
	if (r < 0)
		return fail_tier(r);
	/* Give other programs' I/O priority, if the I/O scheduler supports that. */
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
		      IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
	set->background = true;
	for (size_t i = 0; i < plan.nr && !stop_signal; i++) {
		if (i && !tier_let_others(set))
			break;
		object = plan.moves[i].to == TIER_OBJECT || plan.moves[i].from == TIER_OBJECT;
		if (object && no_store) {
			(*ret_failed)++;
			continue;
		}
		r = move_one(set, plan.moves[i].name, plan.moves[i].to);
		if (r == 0) {
			(*ret_moved)++;
			continue;
		}
		no_store |= object && is_store_error(r);
		/* Continue with the other files if one is open for writing. */
		say("%s", fail_text());
		(*ret_failed)++;
	}
	plan_done(&plan);
	/* Between two moves another command may have taken the lock. */
	if (!stop_signal)
		collect(set);
	return 0;
}

static int migrate_planned(struct tier_set *set)
{
	unsigned moved, failed;
	int r = tier_move_planned(set, &moved, &failed);

	if (r < 0)
		return r;
	if (!moved && !failed && !stop_signal)
		(void)puts("nothing is to be moved");
	return failed ? 1 : 0;
}

int tier_migrate(const char *name, const struct tier_opts *o, char *files[], int nr)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	int r = tier_open_locked(name, &set);

	if (r < 0)
		return r;
	/* Stop if a root has disappeared: files planned for it must not fill the other roots. */
	r = set_whole(set);
	if (r < 0)
		return fail_tier(r);
	if (!nr)
		return migrate_planned(set);
	for (int i = 0; i < nr && r == 0 && !stop_signal; i++)
		r = move_one(set, files[i], o->to);
	if (r == 0)
		collect(set);
	return r;
}

/* ----------------------------------------------------------------- scrub */

static void bad_file(const char *name, const char *why, void *arg)
{
	(void)arg;
	say("%s: %s", name, why);
}

int tier_scrub(const char *name, const struct tier_opts *o)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	struct scrub_counts counts;
	int r = 0;

	if (o->rebuild)
		r = set_rebuild(name);
	if (r < 0)
		return fail_tier(r);
	r = tier_open_locked(name, &set);
	if (r < 0)
		return r;
	r = scrub_set(set, bad_file, NULL, &counts);
	if (r < 0)
		return fail_tier(r);
	shown_printf(2,
		     "%llu files match their checksum, %llu got one, %llu differ, %llu cannot be "
		     "read",
		     (unsigned long long)counts.checked, (unsigned long long)counts.added,
		     (unsigned long long)counts.bad, (unsigned long long)counts.unreadable);
	if (counts.strays)
		shown_printf(
			2,
			"objects that belong to no file: %llu, the first is %s; an interrupted "
			"upload may have left them; remove them with penstock rm",
			(unsigned long long)counts.strays, counts.stray);
	collect(set);
	return counts.bad || counts.unreadable ? 1 : 0;
}
