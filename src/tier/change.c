/* SPDX-License-Identifier: MIT */
#include "tier/change.h"

#include <stdio.h>
#include <sys/file.h>

#include "tier/lookup.h"
#include "tier/object.h"
#include "tier/place.h"
#include "tier/stamp.h"

int change_find(struct tier_set *set, const char *name, struct tier_file *ret)
{
	int fd = lookup_open(set, name, O_PATH, ret), r;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		(void)close(fd);
		return -ENOENT;
	}
	if (ret->id)
		return fd;
	/* A file without a number was created without the set's knowledge, or has moved since
	 * lookup_open() asked the catalogue. */
	ret->stamp = stamp_of(&st);
	ret->bytes = (uint64_t)st.st_blocks * 512;
	r = catalog_note(set->catalog, ret);
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	return fd;
}

/*
 * Lock a file against moves.  Return its descriptor; -EWOULDBLOCK while the mover renames the file;
 * -EEXIST for something that is not a regular file; or -errno.
 */
static int hold_name(struct tier_set *set, const char *name, struct tier_file *ret)
{
	int fd = lookup_open(set, name, O_RDONLY, ret), now = -1;
	struct tier_file again;
	struct stat a, b;
	int err = -EWOULDBLOCK;

	if (fd < 0)
		return fd;
	if (fstat(fd, &a) < 0) {
		err = -errno;
	} else if (!S_ISREG(a.st_mode)) {
		err = -EEXIST;
	} else if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
		/* The file may have moved before it was locked. */
		now = change_find(set, name, &again);
		if (now >= 0 && fstat(now, &b) == 0 && a.st_ino == b.st_ino &&
		    a.st_dev == b.st_dev) {
			(void)close(now);
			*ret = again;
			return fd;
		}
	}
	closep(&now);
	(void)close(fd);
	return err;
}

int change_unlink_all(struct tier_set *set, const char *name, int flags, unsigned except)
{
	for (unsigned i = 0; i < set->nr_roots; i++) {
		_cleanup_(closep) int dir = -1;
		const char *base;

		if (i == except || root_is_object(&set->roots[i]))
			continue;
		dir = name_parent(set->roots[i].fd, name, &base);
		if (dir == -ENOENT || dir == -ENOTDIR)
			continue;
		if (dir < 0)
			return dir;
		if (unlinkat(dir, base, flags) < 0 && errno != ENOENT)
			return -errno;
	}
	return 0;
}

/* Forget a file that is an object.  Return -EAGAIN if the file has moved meanwhile. */
static int unlink_object(struct tier_set *set, const char *name, struct tier_file *ret)
{
	int err = catalog_begin(set->catalog);

	if (err < 0)
		return err;
	err = catalog_find(set->catalog, name, ret);
	if (err == 0 && !file_is_object(set, ret))
		err = -EAGAIN;
	/* The object is deleted later, so that readers can end. */
	if (err == 0)
		err = catalog_object_release(set->catalog, ret, object_due());
	if (err == 0)
		err = catalog_drop(set->catalog, name);
	/* Remove a copy that is just moving to a disk. */
	if (err == 0)
		err = change_unlink_all(set, name, 0, UINT_MAX);
	if (err == 0)
		err = catalog_commit(set->catalog);
	if (err < 0)
		catalog_rollback(set->catalog);
	else
		set_moved(set, name);
	return err;
}

int change_unlink(struct tier_set *set, const char *name, struct tier_file *ret)
{
	_cleanup_(closep) int held = hold_name(set, name, ret);
	int err;

	if (held == -EREMOTE) {
		err = unlink_object(set, name, ret);
		return err == -EAGAIN ? -EWOULDBLOCK : err;
	}
	if (held < 0)
		return held;
	/* Change the catalogue first: if that fails, the file stays. */
	err = catalog_begin(set->catalog);
	if (err < 0)
		return err;
	err = catalog_drop(set->catalog, name);
	if (err == 0)
		err = change_unlink_all(set, name, 0, UINT_MAX);
	if (err == 0)
		err = catalog_commit(set->catalog);
	if (err < 0)
		catalog_rollback(set->catalog);
	return err;
}

static int rename_in_root(struct tier_set *set, unsigned root, const char *name, const char *to,
			  unsigned flags)
{
	_cleanup_(closep) int from_dir = -1, to_dir = -1;
	const char *base, *to_base;

	from_dir = name_parent(set->roots[root].fd, name, &base);
	if (from_dir < 0)
		return from_dir;
	to_dir = place_dir(set, root, to, &to_base);
	if (to_dir < 0)
		return to_dir;
	return renameat2(from_dir, base, to_dir, to_base, flags) < 0 ? -errno : 0;
}

/* Rename a locked file within a transaction.  old has id 0 if no file had the new name. */
static int rename_held(struct tier_set *set, const struct tier_file *f, const char *to,
		       const struct tier_file *old, unsigned flags)
{
	/* Remove copies that a dead mover left: they would still be found by the old name. */
	int err = change_unlink_all(set, f->name, 0, f->root);

	if (err == 0 && old->id)
		err = change_unlink_all(set, to, 0, f->root);
	if (err == 0)
		err = rename_in_root(set, f->root, f->name, to, flags);
	if (err == 0)
		err = catalog_rename(set->catalog, f->name, to);
	return err == 0 ? catalog_commit(set->catalog) : err;
}

int change_rename(struct tier_set *set, const char *name, const char *to, unsigned flags,
		  struct tier_file *ret, struct tier_file *ret_old)
{
	_cleanup_(closep) int held = hold_name(set, name, ret), target = -1;
	int err;

	ret_old->id = 0;
	if (held < 0 || !strcmp(name, to))
		return held < 0 ? held : 0;
	target = hold_name(set, to, ret_old);
	if (target < 0) {
		ret_old->id = 0;
		if (target != -ENOENT)
			return target;
	}
	if (target >= 0 && flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (target >= 0 && ret_old->root != ret->root)
		return -EXDEV;
	err = catalog_begin(set->catalog);
	if (err < 0)
		return err;
	err = rename_held(set, ret, to, ret_old, flags);
	if (err < 0)
		catalog_rollback(set->catalog);
	return err;
}
