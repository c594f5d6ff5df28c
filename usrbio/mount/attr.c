/* SPDX-License-Identifier: MIT */
/* Attributes: stat(2) and changes of it, extended attributes, statfs(2). */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "usrbio/mount/file.h"
#include "usrbio/mount/fs.h"
#include "usrbio/mount/loop.h"
#include "usrbio/mount/source.h"

void fs_reply_attr(fuse_req_t req, struct node *n)
{
	struct fs *fs = fs_of(req);
	struct stat st;
	int err = fs_stat(fs, n, &st);

	if (err < 0) {
		(void)fuse_reply_err(req, -err);
		return;
	}
	node_tell(n, &st);
	if (fuse_reply_attr(req, &st, fs_attr_timeout(fs, n)) < 0)
		node_tell_failed(n);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, ino, 0);

	(void)fi;
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		fs_reply_attr(req, op.n);
}

static int set_owner(const struct node *n, const struct stat *st, int set)
{
	uid_t uid = set & FUSE_SET_ATTR_UID ? st->st_uid : (uid_t)-1;
	gid_t gid = set & FUSE_SET_ATTR_GID ? st->st_gid : (gid_t)-1;

	return fchownat(n->fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
}

static int set_size(struct fs *fs, struct node *n, off_t size, bool is_open, int fd)
{
	int mine = -1, r;

	if (is_open)
		return ftruncate(fd, size);
	mine = file_open(fs, n, O_WRONLY | O_CLOEXEC);
	if (mine < 0) {
		errno = -mine;
		return -1;
	}
	r = ftruncate(mine, size);
	(void)close(mine);
	return r;
}

static struct timespec attr_time_of(int set, int given, int now, struct timespec t)
{
	if (set & now)
		t.tv_nsec = UTIME_NOW;
	else if (!(set & given))
		t.tv_nsec = UTIME_OMIT;
	return t;
}

static int set_times(const struct node *n, const struct stat *st, int set)
{
	struct timespec t[2] = {
		attr_time_of(set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, st->st_atim),
		attr_time_of(set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, st->st_mtim),
	};

	return utimensat(n->fd, "", t, AT_EMPTY_PATH);
}

#define SET_OWNER (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)
#define SET_TIMES                                                              \
	(FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME | \
	 FUSE_SET_ATTR_MTIME_NOW)

/* Set the owner before the mode, because changing the owner clears the set-user-ID bit. */
static int set_all(struct fs *fs, struct node *n, const struct stat *st, int set,
		   const struct fuse_file_info *fi)
{
	if ((set & SET_OWNER) && set_owner(n, st, set) < 0)
		return -errno;
	if ((set & FUSE_SET_ATTR_MODE) &&
	    fchmodat(fs->proc, fd_name(n->fd).s, st->st_mode & 07777, 0) < 0)
		return -errno;
	if ((set & FUSE_SET_ATTR_SIZE) &&
	    set_size(fs, n, st->st_size, fi != NULL, fi ? file_of(fi)->fd : -1) < 0)
		return -errno;
	if ((set & SET_TIMES) && set_times(n, st, set) < 0)
		return -errno;
	return 0;
}

/*
 * Begin as op_begin_as() does.  For a regular file the source also keeps the file in its place
 * until *ret_held is closed.  Return -EWOULDBLOCK if a lease prevents that: call loop_again().
 */
static int begin_change(struct op *op, fuse_req_t req, fuse_ino_t ino, int *ret_held)
{
	int err = op_begin_as(op, req, ino, 0);

	if (err < 0 || !op->fs->source->hold || op->n->type != S_IFREG)
		return err;
	*ret_held = err = op->fs->source->hold(op->fs, op->n);
	if (err >= 0) {
		fs_op_end(op);
		err = op_begin_as(op, req, ino, 0);
	}
	return err;
}

static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set,
		       struct fuse_file_info *fi)
{
	_cleanup_(closep) int held = -1;
	_cleanup_(fs_op_end) struct op op;
	int err = begin_change(&op, req, ino, &held);

	if (err == 0)
		err = set_all(op.fs, op.n, st, set, fi);
	if (err == 0 && op.fs->source->dir_changed && op.n->type == S_IFDIR)
		op.fs->source->dir_changed(op.fs, op.n);
	/* A change of size may have to wait until another process gives up its lease. */
	if (err == -EWOULDBLOCK) {
		loop_again(req);
		return;
	}
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		fs_reply_attr(req, op.n);
}

/* ------------------------------------------------------ extended attributes */

/* Extended attribute calls take only paths and follow the last link.  This path is the link in
 * /proc/self/fd to the inode. */
struct proc_path {
	char s[32];
};

static struct proc_path attr_proc_path(const struct node *n)
{
	struct proc_path ret;

	(void)snprintf(ret.s, sizeof(ret.s), "/proc/self/fd/%d", n->fd);
	return ret;
}

/* Reply with a call's value, or with its length if the caller gave a size of 0. */
static void reply_value(fuse_req_t req, ssize_t n, const char *value, size_t size)
{
	if (n < 0)
		(void)fuse_reply_err(req, errno);
	else if (size)
		(void)fuse_reply_buf(req, value, (size_t)n);
	else
		(void)fuse_reply_xattr(req, (size_t)n);
}

static void do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	_cleanup_(freep) char *value = size ? malloc(size) : NULL;
	_cleanup_(fs_op_end) struct op op = { 0 };
	int err = size && !value ? -ENOMEM : op_begin_as(&op, req, ino, 0);

	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		reply_value(req, getxattr(attr_proc_path(op.n).s, name, value, size), value, size);
}

/* Remove names that only privileged processes may see, as file systems do. */
static ssize_t without_trusted(char *names, ssize_t len)
{
	static const char prefix[] = "trusted.";
	ssize_t at = 0;

	while (at < len) {
		size_t n = strlen(names + at) + 1;

		if (strncmp(names + at, prefix, sizeof(prefix) - 1) != 0) {
			at += (ssize_t)n;
			continue;
		}
		memmove(names + at, names + at + n, (size_t)len - (size_t)at - n);
		len -= (ssize_t)n;
	}
	return len;
}

static void do_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	_cleanup_(freep) char *names = size ? malloc(size) : NULL;
	_cleanup_(fs_op_end) struct op op = { 0 };
	int err = size && !names ? -ENOMEM : op_begin_as(&op, req, ino, 0);
	ssize_t n;

	if (err < 0) {
		(void)fuse_reply_err(req, -err);
		return;
	}
	n = listxattr(attr_proc_path(op.n).s, names, size);
	if (n > 0 && size && fuse_req_ctx(req)->uid != 0)
		n = without_trusted(names, n);
	reply_value(req, n, names, size);
}

static void do_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	_cleanup_(closep) int held = -1;
	_cleanup_(fs_op_end) struct op op;
	int err = begin_change(&op, req, ino, &held);

	if (err == -EWOULDBLOCK) {
		loop_again(req);
		return;
	}
	if (err == 0 && setxattr(attr_proc_path(op.n).s, name, value, size, flags) < 0)
		err = -errno;
	(void)fuse_reply_err(req, -err);
}

static void do_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	_cleanup_(closep) int held = -1;
	_cleanup_(fs_op_end) struct op op;
	int err;

	/* The kernel reads this attribute before each write: use the server's rights, and do not
	 * wait for a lease. */
	if (strcmp(name, "security.capability") == 0)
		err = op_begin(&op, req, ino, 0);
	else
		err = begin_change(&op, req, ino, &held);
	if (err == -EWOULDBLOCK) {
		loop_again(req);
		return;
	}
	if (err == 0 && removexattr(attr_proc_path(op.n).s, name) < 0)
		err = -errno;
	(void)fuse_reply_err(req, -err);
}

static void do_statfs(fuse_req_t req, fuse_ino_t ino)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin(&op, req, ino, 0);
	struct statvfs st;

	if (err == 0)
		err = op.fs->source->statfs(op.fs, op.n, &st);
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		(void)fuse_reply_statfs(req, &st);
}

void attr_ops(struct fuse_lowlevel_ops *ops)
{
	ops->getattr = do_getattr;
	ops->setattr = do_setattr;
	ops->getxattr = do_getxattr;
	ops->setxattr = do_setxattr;
	ops->listxattr = do_listxattr;
	ops->removexattr = do_removexattr;
	ops->statfs = do_statfs;
}
