/* SPDX-License-Identifier: MIT */
#include "tier/place.h"

#include "base/err.h"
#include "tier/move.h"

int place_root(struct tier_set *set, uint64_t bytes)
{
	for (unsigned c = 0; c < TIER_DISK_CLASSES; c++) {
		struct tier_space space;
		int root = move_target(set, (enum tier_class)c, MAX(bytes, UINT64_C(1)));
		uint64_t high;

		if (root < 0 || class_space(set, (enum tier_class)c, &space) < 0)
			continue;
		high = space.size / 100 * set->limits[c].high;
		if (space.used < high && bytes <= high - space.used)
			return root;
	}
	return err_set(ENOSPC,
		       "no class of the set %s has room for %llu bytes below its high watermark; "
		       "run penstock tier migrate, or make room",
		       set->name, (unsigned long long)bytes);
}

int place_dir(const struct tier_set *set, unsigned root, const char *name, const char **ret_base)
{
	int dir = -ENOENT;

	for (unsigned i = 0; i < set->nr_roots && dir == -ENOENT; i++)
		if (set->roots[i].fd >= 0)
			dir = name_make_parent(set->roots[root].fd, set->roots[i].fd, name,
					       ret_base);
	if (dir == -ENOENT)
		return err_set(dir,
			       "no root of the set %s has the directory of %s; make it below %s",
			       set->name, name, set->roots[root].path);
	return dir < 0 ? err_set(dir, "%s: cannot open its directory: %s", name, strerror(-dir))
		       : dir;
}
