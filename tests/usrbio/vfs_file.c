/* SPDX-License-Identifier: MIT */
/* Files of the backing directory: open, read, write, sync, attributes. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "vfs_int.h"

void vfs_file_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct vfs_caller who = vfs_caller_of(req);
	struct vfs *v = vfs_of(req);
	struct vfs_opened *o;
	int fd;

	/* The kernel handles O_APPEND, and passes on unaligned requests too. */
	fd = vfs_reopen(v, ino, fi->flags & ~(O_NOFOLLOW | O_APPEND | O_DIRECT));
	if (fd < 0) {
		vfs_reply(req, fd);
		return;
	}
	o = vfs_opened_new(v, ino, fd, fi->flags, &who);
	if (!o) {
		(void)close(fd);
		vfs_reply(req, -ENOMEM);
		return;
	}
	fi->fh = (uintptr_t)o;
	if (fuse_reply_open(req, fi) < 0)
		vfs_opened_free(v, o); /* the caller was interrupted */
}

void vfs_file_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	vfs_opened_free(vfs_of(req), vfs_opened_of(fi));
	vfs_reply(req, 0);
}

void vfs_file_read(fuse_req_t req, fuse_ino_t ino, size_t len, off_t off, struct fuse_file_info *fi)
{
	struct fuse_bufvec buf = FUSE_BUFVEC_INIT(len);

	(void)ino;
	buf.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	buf.buf[0].fd = vfs_opened_of(fi)->fd;
	buf.buf[0].pos = off;
	(void)fuse_reply_data(req, &buf, FUSE_BUF_SPLICE_MOVE);
}

void vfs_file_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t len, off_t off,
		    struct fuse_file_info *fi)
{
	ssize_t n = pwrite(vfs_opened_of(fi)->fd, buf, len, off);

	(void)ino;
	if (n < 0)
		vfs_reply(req, -errno);
	else
		(void)fuse_reply_write(req, (size_t)n);
}

void vfs_file_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	int fd = vfs_opened_of(fi)->fd;

	(void)ino;
	vfs_reply(req, (datasync ? fdatasync(fd) : fsync(fd)) < 0 ? -errno : 0);
}

static int set_times(int fd, const struct stat *attr, int to_set)
{
	struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_OMIT } };

	if (to_set & FUSE_SET_ATTR_ATIME_NOW)
		ts[0].tv_nsec = UTIME_NOW;
	else if (to_set & FUSE_SET_ATTR_ATIME)
		ts[0] = attr->st_atim;
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		ts[1].tv_nsec = UTIME_NOW;
	else if (to_set & FUSE_SET_ATTR_MTIME)
		ts[1] = attr->st_mtim;
	return utimensat(AT_FDCWD, vfs_path(fd).text, ts, 0);
}

/* Set attributes.  fd is O_PATH.  o: the open file whose rights to use, or NULL. */
static int set(int fd, const struct vfs_opened *o, const struct stat *attr, int to_set)
{
	struct vfs_path path = vfs_path(fd);

	if (to_set & FUSE_SET_ATTR_MODE && chmod(path.text, attr->st_mode) < 0)
		return -errno;
	if (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
		uid_t uid = to_set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
		gid_t gid = to_set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;

		if (fchownat(fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	}
	if (to_set & FUSE_SET_ATTR_SIZE) {
		int r = o ? ftruncate(o->fd, attr->st_size) : truncate(path.text, attr->st_size);

		if (r < 0)
			return -errno;
	}
	if (to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME) && set_times(fd, attr, to_set) < 0)
		return -errno;
	return 0;
}

void vfs_file_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		      struct fuse_file_info *fi)
{
	struct vfs *v = vfs_of(req);
	int r, fd = vfs_inode_fd(v, ino);
	struct stat st;

	if (fd < 0) {
		vfs_reply(req, -EPERM); /* the directory is virtual */
		return;
	}
	r = set(fd, fi ? vfs_opened_of(fi) : NULL, attr, to_set);
	if (r == 0)
		r = vfs_inode_stat(v, fd, &st);
	if (r < 0)
		vfs_reply(req, r);
	else
		(void)fuse_reply_attr(req, &st, v->config.timeout);
}
