/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "base/err.h"
#include "tier/copy.h"
#include "tier/scan.h"

/* Rename the file to a name that is not in use. */
static int put_aside(const char *state, const char *file)
{
	char from[PATH_MAX], to[PATH_MAX];

	(void)snprintf(from, sizeof(from), "%s/%s", state, file);
	for (unsigned i = 1; i < 1000; i++) {
		(void)snprintf(to, sizeof(to), "%s/%s.damaged-%u", state, file, i);
		if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 ||
		    errno == ENOENT)
			return 0;
		if (errno != EEXIST)
			break;
	}
	return err_set(errno, "cannot put %s aside: %s", from, strerror(errno));
}

/* Remove a slower copy of a file if it has the same bytes. */
static int remove_second(struct tier_set *set, const struct tier_file *f, unsigned root)
{
	_cleanup_(closep) int first = -1, second = -1, dir = -1;
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
	const char *base;

	second = name_open(set->roots[root].fd, f->name, flags, 0);
	if (second < 0)
		return 0;
	first = name_open(set->roots[f->root].fd, f->name, flags, 0);
	if (first < 0 || copy_equal(first, second) != 1)
		return 0;
	dir = name_parent(set->roots[root].fd, f->name, &base);
	/* Sync the copy that stays before removing the other one. */
	if (dir < 0 || fsync(first) < 0 || unlinkat(dir, base, 0) < 0 || fsync(dir) < 0)
		return err_set(errno, "%s: cannot remove its second copy: %s", f->name,
			       strerror(errno));
	return 0;
}

static int one_copy(const struct tier_file *f, void *arg)
{
	struct tier_set *set = arg;
	int r = 0;

	for (unsigned i = 0; i < set->nr_roots && r == 0; i++)
		if (i != f->root && set->roots[i].fd >= 0 && !set->roots[i].read_only)
			r = remove_second(set, f, i);
	return r;
}

int set_rebuild(const char *name)
{
	static const char *const files[] = { "catalog.db-wal", "catalog.db-shm", "catalog.db" };
	_cleanup_(set_closep) struct tier_set *set = NULL;
	struct scan_counts counts;
	int r = set_open_roots(name, &set);

	if (r == 0)
		r = set_lock(set);
	/* Require all roots: files on an absent root would be forgotten. */
	if (r == 0)
		r = set_whole(set);
	for (size_t i = 0; i < ARRAY_SIZE(files) && r == 0; i++)
		r = put_aside(set->state, files[i]);
	if (r == 0)
		r = catalog_open(set->state, &set->catalog);
	if (r == 0)
		r = scan_set(set, &counts);
	if (r == 0 && counts.twice)
		r = catalog_each(set->catalog, one_copy, set);
	return r;
}
