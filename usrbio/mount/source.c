/* SPDX-License-Identifier: MIT */
/* The table of sources, and the first kind: a directory. */
#include "usrbio/mount/source.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>

#include "usrbio/mount/file.h"

static bool dir_owns(const char *name)
{
	(void)name;
	return true;
}

/*
 * Open the root of the source.  For read-only or no-atime, clone the mounts below it with these
 * flags; DIR itself stays writable, because programs publish their rings in it.
 */
static int dir_open_root(struct fs *fs, int *ret_root_fd, struct stat *ret_root)
{
	const struct fs_opts *o = fs->opts;
	struct mount_attr attr = { 0 };
	_cleanup_(closep) int fd = -1;

	(void)ret_root;
	if (!o->read_only && !o->no_atime) {
		*ret_root_fd = open(o->source, O_PATH | O_DIRECTORY | O_CLOEXEC);
		return *ret_root_fd < 0 ? -errno : 0;
	}
	if (o->read_only)
		attr.attr_set |= MOUNT_ATTR_RDONLY;
	if (o->no_atime) {
		attr.attr_set |= MOUNT_ATTR_NOATIME;
		attr.attr_clr |= MOUNT_ATTR__ATIME;
	}
	fd = open_tree(AT_FDCWD, o->source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
		return -errno;
	*ret_root_fd = TAKE_FD(fd);
	return 0;
}

static int dir_remove(struct fs *fs, struct node *dir, const char *name, int flags)
{
	(void)fs;
	return unlinkat(dir->fd, name, flags) < 0 ? -errno : 0;
}

static int dir_rename(struct fs *fs, struct node *dir, const char *name, struct node *to,
		      const char *to_name, unsigned flags)
{
	(void)fs;
	return renameat2(dir->fd, name, to->fd, to_name, flags) < 0 ? -errno : 0;
}

static int dir_statfs(struct fs *fs, const struct node *n, struct statvfs *ret)
{
	(void)fs;
	return fstatvfs(n->fd, ret) < 0 ? -errno : 0;
}

const struct source_ops source_dir = {
	.owns = dir_owns,
	.has_links = true,
	.has_fds = true,
	.can_be_ro = true,
	.open = dir_open_root,
	.stat = fs_stat_plain,
	.lookup = fs_lookup_plain,
	.remove = dir_remove,
	.rename = dir_rename,
	.statfs = dir_statfs,
	.close_files = files_done,
	.announce = file_announce_plain,
	.sync = file_sync_plain,
	.open_file = file_open,
	.create = file_create_plain,
	.created = file_created_plain,
};

const struct source_ops *source_of(const char *name)
{
	/* The directory is last, because it accepts every name. */
	static const struct source_ops *const kinds[] = { &source_set, &source_service,
							  &source_dir };
	size_t i = 0;

	while (!kinds[i]->owns(name))
		i++;
	return kinds[i];
}
