/* SPDX-License-Identifier: MIT */
/* ioctl(2) calls on an open file of the mount, with 3FS's numbers. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "usrbio/mount/file.h"
#include "usrbio/mount/fs.h"
#include "usrbio/mount/rmtree.h"
#include "usrbio/mount/source.h"
#include "usrbio/proto/ioctl.h"
#include "usrbio/proto/plain.h"

#define MOUNT_NAME "penstock"

static void ioctl_reply(fuse_req_t req, const void *value, size_t len)
{
	(void)fuse_reply_ioctl(req, 0, value, len);
}

static void reply_u32(fuse_req_t req, uint32_t value)
{
	ioctl_reply(req, &value, sizeof(value));
}

/* Let this user's rings name the file: another user's program may have opened the file and passed
 * it to this one. */
static void on_magic(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi,
		     unsigned flags)
{
	struct fs *fs = fs_of(req);
	int err = flags & FUSE_IOCTL_DIR
			  ? 0
			  : fs->source->announce(fs, fuse_req_ctx(req)->uid, fs_node(req, ino), fi);

	if (err == 0)
		broker_tell(fs_of(req)->broker, fuse_req_ctx(req)->uid);
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		reply_u32(req, USRBIO_MAGIC);
}

static void on_fsync(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi,
		     unsigned flags)
{
	struct fs *fs = fs_of(req);
	int err = flags & FUSE_IOCTL_DIR ? -EISDIR
					 : fs->source->sync(fs, fs_node(req, ino), fi, false);

	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		reply_u32(req, 0);
}

/* Check that ranges cover whole chunks, as 3FS does.  On a mount a chunk is a block of the
 * source. */
static int check_holes(const struct usrbio_punch *p, const struct open_file *f)
{
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return -errno;
	if (p->n < 0 || p->n > USRBIO_PUNCH_RANGES)
		return -EINVAL;
	for (int i = 0; i < p->n; i++)
		if (p->start[i] >= p->end[i] || p->end[i] > INT64_MAX ||
		    (p->start[i] | p->end[i]) % (uint64_t)st.st_blksize)
			return -EINVAL;
	return 0;
}

static int ioctl_punch(const struct usrbio_punch *p, const struct open_file *f)
{
	int err = check_holes(p, f);

	for (int i = 0; err == 0 && i < p->n; i++)
		if (fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)p->start[i],
			      (off_t)(p->end[i] - p->start[i])) < 0)
			err = -errno;
	return err;
}

/*
 * Check that the caller may reach the directory by its path; the thread has the caller's rights.  A
 * caller who knows the inode number may lack rights on the directories above it.
 */
static int check_way(const struct fs *fs, int dir)
{
	const struct node *root = &fs->nodes.root;
	_cleanup_(closep) int at = fcntl(dir, F_DUPFD_CLOEXEC, 0);
	struct stat st;

	for (unsigned depth = 0; depth < PATH_MAX / 2; depth++) {
		int up;

		if (at < 0 || fstat(at, &st) < 0)
			return -errno;
		if (st.st_dev == root->dev && st.st_ino == root->ino)
			return 0;
		up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		(void)close(at);
		at = up;
	}
	return -ENAMETOOLONG;
}

static int link_in(fuse_req_t req, fuse_ino_t ino, const struct node *dir, const char *name)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, ino, fs_ino(fs_of(req), dir));

	if (err == 0)
		err = check_way(op.fs, op.n2->fd);
	if (err == 0 &&
	    linkat(op.fs->proc, fd_name(op.n->fd).s, op.n2->fd, name, AT_SYMLINK_FOLLOW) < 0)
		err = -errno;
	return err;
}

/* Make a hard link in the directory with that inode number on the mount. */
static int hard_link(fuse_req_t req, fuse_ino_t ino, const struct usrbio_hardlink *l)
{
	struct nodes *ns = &fs_of(req)->nodes;
	struct node *dir;
	int err = -EPERM;

	if (!memchr(l->name, '\0', sizeof(l->name)) || strchr(l->name, '/') || !l->name[0])
		return -EINVAL;
	dir = node_by_number(ns, l->parent);
	if (!dir)
		return -ENOENT;
	if (dir != &ns->root || strcmp(l->name, USRBIO_VIRT) != 0)
		err = link_in(req, ino, dir, l->name);
	node_put(ns, dir, 1);
	return err;
}

/* -------------------------------------------------- names, by their directory */

/* Return true if the name is NUL-terminated and of an entry that every user may see. */
static bool ioctl_is_name(const char *name, size_t size)
{
	return memchr(name, '\0', size) && name[0] && !strchr(name, '/') &&
	       strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Find a directory by its inode number, for a name that is not 3fs-virt.  Return 0, and later
 * call node_put(). */
static int find_dir(struct fs *fs, uint64_t number, const char *name, struct node **ret)
{
	*ret = node_by_number(&fs->nodes, number);
	if (!*ret)
		return -ENOENT;
	if (*ret != &fs->nodes.root || strcmp(name, USRBIO_VIRT) != 0)
		return 0;
	node_put(&fs->nodes, *ret, 1);
	return -EPERM;
}

static int remove_entry(fuse_req_t req, const struct usrbio_remove *r)
{
	struct fs *fs = fs_of(req);
	struct node *dir;
	struct op op;
	int err = ioctl_is_name(r->name, sizeof(r->name)) ? find_dir(fs, r->parent, r->name, &dir)
							  : -EINVAL;

	if (err < 0)
		return err;
	err = op_begin_as(&op, req, fs_ino(fs, dir), 0);
	if (err == 0)
		err = check_way(fs, op.n->fd);
	if (err == 0)
		err = rmtree_at(req, op.n->fd, r->name, r->recursive);
	fs_op_end(&op);
	node_put(&fs->nodes, dir, 1);
	return err;
}

static int move_between(fuse_req_t req, const struct usrbio_move *m, const struct node *from,
			const struct node *to)
{
	struct fs *fs = fs_of(req);
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, fs_ino(fs, from), fs_ino(fs, to));

	if (err == 0)
		err = check_way(fs, op.n->fd);
	if (err == 0)
		err = check_way(fs, op.n2->fd);
	if (err == 0 && renameat(op.n->fd, m->name, op.n2->fd, m->to_name) < 0)
		err = -errno;
	if (err == 0) {
		rmtree_forget(fs, op.n->fd, m->name);
		rmtree_forget(fs, op.n2->fd, m->to_name);
	}
	return err;
}

static int move_entry(fuse_req_t req, const struct usrbio_move *m)
{
	struct fs *fs = fs_of(req);
	struct node *from, *to;
	int err;

	if (!ioctl_is_name(m->name, sizeof(m->name)) ||
	    !ioctl_is_name(m->to_name, sizeof(m->to_name)))
		return -EINVAL;
	/* Refuse moves to the trash, which this mount does not have. */
	if (m->to_trash)
		return -EOPNOTSUPP;
	err = find_dir(fs, m->from, m->name, &from);
	if (err < 0)
		return err;
	err = find_dir(fs, m->to, m->to_name, &to);
	if (err == 0) {
		err = move_between(req, m, from, to);
		node_put(&fs->nodes, to, 1);
	}
	node_put(&fs->nodes, from, 1);
	return err;
}

static int remove_tree(fuse_req_t req, fuse_ino_t ino, unsigned flags)
{
	_cleanup_(fs_op_end) struct op op = { 0 };
	int err = !(flags & FUSE_IOCTL_DIR) ? -ENOTDIR
		  : virt_is(ino)            ? -EPERM
					    : op_begin_as(&op, req, ino, 0);

	return err < 0 ? err : rmtree_node(req, op.n);
}

static void on_name(fuse_req_t req, fuse_ino_t ino, unsigned cmd, unsigned flags, const void *in,
		    size_t in_len)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct fs *fs = fs_of(req);
	uid_t uid = ctx->uid;
	int err = -EINVAL;

	if (cmd == USRBIO_IOC_REMOVE_TREE || in_len >= _IOC_SIZE(cmd))
		err = remover_begin(fs, uid);
	if (err == 0) {
		err = cmd == USRBIO_IOC_REMOVE ? remove_entry(req, in)
		      : cmd == USRBIO_IOC_MOVE ? move_entry(req, in)
					       : remove_tree(req, ino, flags);
		remover_end(fs, uid);
	}
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else if (cmd == USRBIO_IOC_REMOVE_TREE)
		reply_u32(req, 0);
	else
		ioctl_reply(req, NULL, 0);
}

/* -------------------------------------------------------------------- files */

/* Do one of the two calls that change a regular file. */
static int change(fuse_req_t req, fuse_ino_t ino, unsigned cmd, const struct fuse_file_info *fi,
		  const void *in)
{
	_cleanup_(fs_op_end) struct op op = { 0 };
	int err;

	if (cmd == USRBIO_IOC_HARDLINK)
		return hard_link(req, ino, in);
	err = op_begin_as(&op, req, ino, 0);
	return err < 0 ? err : ioctl_punch(in, file_of(fi));
}

static void on_change(fuse_req_t req, fuse_ino_t ino, unsigned cmd, const struct fuse_file_info *fi,
		      unsigned flags, const void *in, size_t in_len)
{
	int err = flags & FUSE_IOCTL_DIR ? -EISDIR : -EINVAL;

	if (!(flags & FUSE_IOCTL_DIR) && in_len >= _IOC_SIZE(cmd))
		err = change(req, ino, cmd, fi, in);
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		ioctl_reply(req, NULL, 0);
}

static void do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
		     struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_len,
		     size_t out_len)
{
	const char *dir = fs_of(req)->opts->dir;
	char name[32] = MOUNT_NAME;

	(void)arg;
	(void)out_len;
	switch (cmd) {
	case USRBIO_IOC_MOUNT_NAME:
		ioctl_reply(req, name, sizeof(name));
		break;
	case USRBIO_IOC_PATH_OFFSET:
		reply_u32(req, (uint32_t)strlen(dir));
		break;
	case USRBIO_IOC_MAGIC:
		on_magic(req, ino, fi, flags);
		break;
	case USRBIO_IOC_VERSION:
		reply_u32(req, USRBIO_IOCTL_VERSION);
		break;
	case USRBIO_IOC_FSYNC:
		on_fsync(req, ino, fi, flags);
		break;
	case USRBIO_IOC_HARDLINK:
		if (!fs_of(req)->source->has_links) {
			(void)fuse_reply_err(req, EPERM);
			break;
		}
		on_change(req, ino, cmd, fi, flags, in, in_len);
		break;
	case USRBIO_IOC_PUNCH:
		if (!fs_of(req)->source->has_fds) {
			(void)fuse_reply_err(req, EOPNOTSUPP);
			break;
		}
		on_change(req, ino, cmd, fi, flags, in, in_len);
		break;
	case USRBIO_IOC_REMOVE_TREE:
	case USRBIO_IOC_MOVE:
	case USRBIO_IOC_REMOVE:
		if (!fs_of(req)->source->has_links) {
			(void)fuse_reply_err(req, EOPNOTSUPP);
			break;
		}
		on_name(req, ino, cmd, flags, in, in_len);
		break;
	default:
		(void)fuse_reply_err(req, ENOTTY);
	}
}

void ioctl_ops(struct fuse_lowlevel_ops *ops)
{
	ops->ioctl = do_ioctl;
}
