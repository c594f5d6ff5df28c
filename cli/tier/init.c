/* SPDX-License-Identifier: MIT */
#include "cli/tier/tier.h"

#include "tools/common/shown.h"
#include "tools/common/util.h"

static const char *const defaults[TIER_DISK_CLASSES] = { "/nvme", "/ssd", "/hdd" };

int tier_init(const char *name, const struct tier_opts *o)
{
	struct tier_set *set = o->init;
	int r;

	if (strlen(name) >= sizeof(set->name))
		return fail(EINVAL, "the name of a set has up to 64 letters");
	(void)snprintf(set->name, sizeof(set->name), "%s", name);
	set->policy = tier_policy_find(o->policy ? o->policy : TIER_POLICY_DEFAULT);
	set->same_fs = o->same_fs;
	for (unsigned i = 0; !set->nr_roots && i < TIER_DISK_CLASSES; i++) {
		struct tier_root *root = &set->roots[i];

		root->class = (enum tier_class)i;
		root->fd = -1;
		(void)snprintf(root->path, sizeof(root->path), "%s", defaults[i]);
	}
	if (!set->nr_roots)
		set->nr_roots = TIER_DISK_CLASSES;
	r = set_init(set);
	for (unsigned i = 0; i < set->nr_roots; i++)
		closep(&set->roots[i].fd);
	if (r < 0)
		return fail_tier(r);
	shown_printf(2, "set %s: %s/set.conf has its directories and limits", name, set->state);
	return 0;
}
