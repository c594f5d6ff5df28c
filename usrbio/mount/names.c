/* SPDX-License-Identifier: MIT */
/* Operations on names. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "usrbio/mount/source.h"

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	_cleanup_(fs_op_end) struct op op;
	struct fuse_entry_param e;
	int err = op_begin_as(&op, req, parent, 0);

	if (err == 0)
		err = fs_lookup(op.fs, op.n, name, &e);
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

/* Answer with the entry of a name just made; with errno if r < 0. */
static void made(fuse_req_t req, const struct op *op, int r, const char *name)
{
	struct fuse_entry_param e;
	int err = r < 0 ? -errno : fs_lookup(op->fs, op->n, name, &e);

	fs_reply_entry(req, err, &e);
}

static void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, parent, 0);

	if (err == 0 && !op.fs->source->has_links)
		err = -EPERM;
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		made(req, &op, mknodat(op.n->fd, name, mode, rdev), name);
}

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, parent, 0);

	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		made(req, &op, mkdirat(op.n->fd, name, mode), name);
}

static void do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, parent, 0);

	if (err == 0 && !op.fs->source->has_links)
		err = -EPERM;
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		made(req, &op, symlinkat(target, op.n->fd, name), name);
}

static void names_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, parent, ino);

	if (err == 0 && !op.fs->source->has_links)
		err = -EPERM;
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		made(req, &op,
		     linkat(op.fs->proc, fd_name(op.n2->fd).s, op.n->fd, name, AT_SYMLINK_FOLLOW),
		     name);
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name, int flags)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, parent, 0);

	if (err == 0)
		err = op.fs->source->remove(op.fs, op.n, name, flags);
	(void)fuse_reply_err(req, -err);
}

static void mount_names_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, 0);
}

static void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, AT_REMOVEDIR);
}

static void mount_names_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to,
			       const char *to_name, unsigned flags)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, parent, to);

	if (err == 0)
		err = op.fs->source->rename(op.fs, op.n, name, op.n2, to_name, flags);
	(void)fuse_reply_err(req, -err);
}

static void do_readlink(fuse_req_t req, fuse_ino_t ino)
{
	_cleanup_(fs_op_end) struct op op;
	char target[PATH_MAX + 1];
	int err = op_begin(&op, req, ino, 0);
	ssize_t n = err == 0 ? readlinkat(op.n->fd, "", target, sizeof(target)) : -1;

	if (n < 0) {
		(void)fuse_reply_err(req, err < 0 ? -err : errno);
	} else if (n == sizeof(target)) {
		(void)fuse_reply_err(req, ENAMETOOLONG);
	} else {
		target[n] = '\0';
		(void)fuse_reply_readlink(req, target);
	}
}

void names_ops(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = do_lookup;
	ops->forget = do_forget;
	ops->forget_multi = do_forget_multi;
	ops->mknod = do_mknod;
	ops->mkdir = do_mkdir;
	ops->symlink = do_symlink;
	ops->link = names_link;
	ops->unlink = mount_names_unlink;
	ops->rmdir = do_rmdir;
	ops->rename = mount_names_rename;
	ops->readlink = do_readlink;
}
