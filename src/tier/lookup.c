/* SPDX-License-Identifier: MIT */
#include "tier/lookup.h"

#include <stdio.h>

#include "base/err.h"
#include "tier/object.h"

#define TRIES 16u /* attempts to look up a file that keeps moving */

static int open_at(const struct tier_set *set, unsigned root, const char *name, int flags)
{
	if (root >= set->nr_roots)
		return -EUCLEAN;
	if (root_is_object(&set->roots[root]))
		return -EREMOTE;
	if (set->roots[root].fd < 0)
		return -ENODEV;
	/* openat2(2) rejects O_NONBLOCK with O_PATH, which never blocks anyway. */
	return name_open(set->roots[root].fd, name,
			 flags | O_NOFOLLOW | (flags & O_PATH ? 0 : O_NONBLOCK), 0);
}

static int open_anywhere(const struct tier_set *set, const char *name, int flags,
			 struct tier_file *ret)
{
	int err = -ENOENT;

	for (unsigned class = 0; class < TIER_DISK_CLASSES; class ++) {
		for (unsigned i = 0; i < set->nr_roots; i++) {
			int fd = set->roots[i].class == class ? open_at(set, i, name, flags)
							      : -ENOENT;

			if (fd < 0) {
				if (fd != -ENOENT && fd != -ENOTDIR && fd != -ENODEV)
					err = fd;
				continue;
			}
			*ret = (struct tier_file){ .root = i };
			(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
			return fd;
		}
	}
	return err;
}

int lookup_open(struct tier_set *set, const char *name, int flags, struct tier_file *ret_file)
{
	int r = name_check(name);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < TRIES; i++) {
		int fd = -ENOENT;

		r = catalog_find(set->catalog, name, ret_file);
		if (r < 0 && r != -ENOENT)
			return r;
		if (r == 0)
			fd = open_at(set, ret_file->root, name, flags);
		if (fd == -ENODEV)
			return err_set(ENODEV, "%s", set->roots[ret_file->root].why);
		if (fd == -EREMOTE)
			return err_set(EREMOTE,
				       "%s is an object in %s: first move it to a disk with "
				       "'penstock tier migrate %s %s --to CLASS'",
				       name, set->roots[ret_file->root].path, set->name, name);
		if (fd == -ENOENT || fd == -ENOTDIR)
			fd = open_anywhere(set, name, flags, ret_file);
		if (fd >= 0)
			return fd;
		if (fd != -ENOENT && fd != -ENOTDIR)
			return err_set(fd, "%s: cannot open it: %s", name, strerror(-fd));
		/* Only files in the catalogue move, so this file does not exist. */
		if (r == -ENOENT)
			break;
	}
	return err_set(ENOENT, "there is no file %s in the set %s", name, set->name);
}
