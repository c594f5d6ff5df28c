/* SPDX-License-Identifier: MIT */
/* Programs ask an open file of the mount these questions by ioctl(2), with 3FS's numbers. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "usrbio/mount/file.h"
#include "usrbio/mount/fs.h"
#include "usrbio/proto/ioctl.h"
#include "usrbio/proto/plain.h"

#define MOUNT_NAME "penstock"

static void reply(fuse_req_t req, const void *value, size_t len)
{
	(void)fuse_reply_ioctl(req, 0, value, len);
}

static void reply_u32(fuse_req_t req, uint32_t value)
{
	reply(req, &value, sizeof(value));
}

/* The file may have come from a program of another user, and is about to be used in a ring. */
static void on_magic(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi,
		     unsigned flags)
{
	int err = flags & FUSE_IOCTL_DIR ? 0
					 : file_announce(fs_of(req), fuse_req_ctx(req)->uid,
							 fs_node(req, ino), file_of(fi));

	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		reply_u32(req, USRBIO_MAGIC);
}

static void on_fsync(fuse_req_t req, const struct fuse_file_info *fi, unsigned flags)
{
	if (flags & FUSE_IOCTL_DIR)
		(void)fuse_reply_err(req, EISDIR);
	else if (fsync(file_of(fi)->fd) < 0)
		(void)fuse_reply_err(req, errno);
	else
		reply_u32(req, 0);
}

/* As 3FS: whole chunks.  Ours are those of the source. */
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

static int punch(const struct usrbio_punch *p, const struct open_file *f)
{
	int err = check_holes(p, f);

	for (int i = 0; err == 0 && i < p->n; i++)
		if (fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)p->start[i],
			      (off_t)(p->end[i] - p->start[i])) < 0)
			err = -errno;
	return err;
}

/*
 * May the caller come to the directory by its path?  A number alone says nothing of the directories
 * above it.  The thread has his rights.
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
	_cleanup_(op_end) struct op op;
	int err = op_begin_as(&op, req, ino, fs_ino(fs_of(req), dir));

	if (err == 0)
		err = check_way(op.fs, op.n2->fd);
	if (err == 0 &&
	    linkat(op.fs->proc, fd_name(op.n->fd).s, op.n2->fd, name, AT_SYMLINK_FOLLOW) < 0)
		err = -errno;
	return err;
}

/* The directory is named by its number on the mount. */
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

/* The two calls that change a regular file. */
static int change(fuse_req_t req, fuse_ino_t ino, unsigned cmd, const struct fuse_file_info *fi,
		  const void *in)
{
	_cleanup_(op_end) struct op op = { 0 };
	int err;

	if (cmd == USRBIO_IOC_HARDLINK)
		return hard_link(req, ino, in);
	err = op_begin_as(&op, req, ino, 0);
	return err < 0 ? err : punch(in, file_of(fi));
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
		reply(req, NULL, 0);
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
		reply(req, name, sizeof(name));
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
		on_fsync(req, fi, flags);
		break;
	case USRBIO_IOC_HARDLINK:
	case USRBIO_IOC_PUNCH:
		on_change(req, ino, cmd, fi, flags, in, in_len);
		break;
	default:
		(void)fuse_reply_err(req, ENOTTY);
	}
}

void ioctl_ops(struct fuse_lowlevel_ops *ops)
{
	ops->ioctl = do_ioctl;
}
