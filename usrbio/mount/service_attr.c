/* SPDX-License-Identifier: MIT */
/* Attributes of files of a storage service, and operations that the protocol lacks. */
#include "usrbio/mount/service.h"

#define ALL_TIMES                                                              \
	(FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME | \
	 FUSE_SET_ATTR_MTIME_NOW)

/* Check that owner, mode and times do not change: the protocol has no request for that. */
static int check_fixed(struct fs *fs, struct node *n, const struct stat *st, int set)
{
	struct stat now;
	int err = set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | FUSE_SET_ATTR_MODE)
			  ? fs_stat(fs, n, &now)
			  : 0;

	if (err < 0)
		return err;
	if ((set & FUSE_SET_ATTR_UID && st->st_uid != now.st_uid) ||
	    (set & FUSE_SET_ATTR_GID && st->st_gid != now.st_gid) ||
	    (set & FUSE_SET_ATTR_MODE && (st->st_mode & 07777) != (now.st_mode & 07777)))
		return -EPERM;
	/* Accept new times together with a new size, which changes the time anyway. */
	return set & ALL_TIMES && !(set & FUSE_SET_ATTR_SIZE) ? -EPERM : 0;
}

static void service_do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set,
			       struct fuse_file_info *fi)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin(&op, req, ino, 0);

	if (err == 0)
		err = check_fixed(op.fs, op.n, st, set);
	if (err == 0 && set & FUSE_SET_ATTR_SIZE)
		err = service_set_size(op.fs, fuse_req_ctx(req)->uid, op.n, (uint64_t)st->st_size,
				       fi ? (struct service_file *)(uintptr_t)fi->fh : NULL);
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		fs_reply_attr(req, op.n);
}

static void service_do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent;
	(void)name;
	(void)mode;
	(void)fuse_reply_err(req, fs_of(req)->service->read_only ? EROFS : EPERM);
}

/* Answer ENOSYS once: after that the kernel sends no request of this kind, and calls get EOPNOTSUPP
 * or the kernel's own result. */
static void no_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	(void)ino;
	(void)name;
	(void)size;
	(void)fuse_reply_err(req, ENOSYS);
}

static void no_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	(void)ino;
	(void)name;
	(void)value;
	(void)size;
	(void)flags;
	(void)fuse_reply_err(req, ENOSYS);
}

static void no_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	(void)ino;
	(void)size;
	(void)fuse_reply_err(req, ENOSYS);
}

static void no_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	(void)ino;
	(void)name;
	(void)fuse_reply_err(req, ENOSYS);
}

static void no_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	(void)ino;
	(void)mode;
	(void)off;
	(void)len;
	(void)fi;
	(void)fuse_reply_err(req, ENOSYS);
}

static void no_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		     struct fuse_file_info *fi)
{
	(void)ino;
	(void)off;
	(void)whence;
	(void)fi;
	(void)fuse_reply_err(req, ENOSYS);
}

static void no_copy(fuse_req_t req, fuse_ino_t ino_in, off_t off_in, struct fuse_file_info *fi_in,
		    fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
		    int flags)
{
	(void)ino_in;
	(void)off_in;
	(void)fi_in;
	(void)ino_out;
	(void)off_out;
	(void)fi_out;
	(void)len;
	(void)flags;
	(void)fuse_reply_err(req, ENOSYS);
}

void service_attr_ops(struct fuse_lowlevel_ops *ops)
{
	ops->setattr = service_do_setattr;
	ops->mkdir = service_do_mkdir;
	ops->fallocate = no_fallocate;
	ops->lseek = no_lseek;
	ops->copy_file_range = no_copy;
	ops->getxattr = no_getxattr;
	ops->setxattr = no_setxattr;
	ops->listxattr = no_listxattr;
	ops->removexattr = no_removexattr;
}
