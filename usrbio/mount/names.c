/* SPDX-License-Identifier: MIT */
/* Operations on names. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "usrbio/mount/caller.h"
#include "usrbio/mount/fs.h"

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	int err = fs_begin(req);

	if (err == 0) {
		err = fs_lookup(fs_of(req), fs_node(req, parent), name, &e);
		caller_end();
	}
	fs_reply_entry(req, err, &e);
}

static void do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	node_put(&fs_of(req)->nodes, fs_node(req, ino), lookups);
	fuse_reply_none(req);
}

static void do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		node_put(&fs_of(req)->nodes, fs_node(req, forgets[i].ino), forgets[i].nlookup);
	fuse_reply_none(req);
}

/* A name was made, or not. */
static void made(fuse_req_t req, int r, const struct node *dir, const char *name)
{
	struct fuse_entry_param e;
	int err = r < 0 ? -errno : fs_lookup(fs_of(req), dir, name, &e);

	caller_end();
	fs_reply_entry(req, err, &e);
}

static void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	const struct node *dir = fs_node(req, parent);
	int err = fs_begin(req);

	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		made(req, mknodat(dir->fd, name, mode, rdev), dir, name);
}

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	const struct node *dir = fs_node(req, parent);
	int err = fs_begin(req);

	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		made(req, mkdirat(dir->fd, name, mode), dir, name);
}

static void do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	const struct node *dir = fs_node(req, parent);
	int err = fs_begin(req);

	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		made(req, symlinkat(target, dir->fd, name), dir, name);
}

static void do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	const struct node *dir = fs_node(req, parent);
	int err = fs_begin(req);

	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		made(req,
		     linkat(fs_of(req)->proc, fd_name(fs_node(req, ino)->fd).s, dir->fd, name,
			    AT_SYMLINK_FOLLOW),
		     dir, name);
}

static void do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int err = fs_begin(req);

	if (err == 0) {
		err = unlinkat(fs_node(req, parent)->fd, name, 0) < 0 ? -errno : 0;
		caller_end();
	}
	(void)fuse_reply_err(req, -err);
}

static void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int err = fs_begin(req);

	if (err == 0) {
		err = unlinkat(fs_node(req, parent)->fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
		caller_end();
	}
	(void)fuse_reply_err(req, -err);
}

static void do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to,
		      const char *to_name, unsigned flags)
{
	int err = fs_begin(req);

	if (err == 0) {
		err = renameat2(fs_node(req, parent)->fd, name, fs_node(req, to)->fd, to_name,
				flags) < 0
			      ? -errno
			      : 0;
		caller_end();
	}
	(void)fuse_reply_err(req, -err);
}

static void do_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(fs_node(req, ino)->fd, "", target, sizeof(target));

	if (n < 0 || n == sizeof(target)) {
		(void)fuse_reply_err(req, n < 0 ? errno : ENAMETOOLONG);
		return;
	}
	target[n] = '\0';
	(void)fuse_reply_readlink(req, target);
}

void names_ops(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = do_lookup;
	ops->forget = do_forget;
	ops->forget_multi = do_forget_multi;
	ops->mknod = do_mknod;
	ops->mkdir = do_mkdir;
	ops->symlink = do_symlink;
	ops->link = do_link;
	ops->unlink = do_unlink;
	ops->rmdir = do_rmdir;
	ops->rename = do_rename;
	ops->readlink = do_readlink;
}
