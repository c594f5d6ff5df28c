/* SPDX-License-Identifier: MIT */
/* Regular files. */
#include "usrbio/mount/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "usrbio/mount/backing.h"
#include "usrbio/mount/broker.h"
#include "usrbio/mount/caller.h"
#include "usrbio/mount/fds.h"
#include "usrbio/mount/loop.h"
#include "usrbio/mount/source.h"

static int fd_of(const struct fuse_file_info *fi)
{
	return file_of(fi)->fd;
}

/* Create an open file.  Takes over the descriptor, which is charged to the user, and closes it on
 * failure. */
static struct open_file *new_open(struct fs *fs, uid_t uid, int fd)
{
	struct open_file *f = malloc(sizeof(*f));

	if (!f) {
		(void)close(fd);
		fds_give(uid, 1);
		return NULL;
	}
	*f = (struct open_file){ .fd = fd, .uid = uid };
	(void)pthread_mutex_init(&f->lock, NULL);
	(void)pthread_mutex_lock(&fs->lock);
	list_add_tail(&fs->files, &f->link);
	(void)pthread_mutex_unlock(&fs->lock);
	return f;
}

static void free_file(struct fs *fs, struct open_file *f)
{
	broker_file_remove(fs->broker, &f->rings);
	(void)pthread_mutex_lock(&fs->lock);
	list_del(&f->link);
	(void)pthread_mutex_unlock(&fs->lock);
	(void)close(f->fd);
	fds_give(f->uid, 1);
	(void)pthread_mutex_destroy(&f->lock);
	free(f);
}

static void close_file(struct fs *fs, struct node *n, struct open_file *f)
{
	backing_close(fs, n, f->fd);
	free_file(fs, f);
}

void files_done(struct fs *fs)
{
	while (!list_empty(&fs->files))
		free_file(fs, list_first(&fs->files, struct open_file, link));
}

int file_announce(struct fs *fs, uid_t uid, const struct node *n, struct open_file *f)
{
	/* The path of the bytes, passthrough or cache, is fixed while the file is open. */
	const struct broker_open o = {
		.number = n->number,
		.cached = n->backing ? 0 : fs_ino(fs, n),
		.fd = f->fd,
	};
	int err;

	(void)pthread_mutex_lock(&f->lock);
	err = broker_file_add(fs->broker, uid, &f->rings, &o);
	(void)pthread_mutex_unlock(&f->lock);
	return err;
}

int file_announce_plain(struct fs *fs, uid_t uid, struct node *n, const struct fuse_file_info *fi)
{
	return file_announce(fs, uid, n, file_of(fi));
}

int file_sync_plain(struct fs *fs, struct node *n, const struct fuse_file_info *fi, bool data)
{
	(void)fs;
	(void)n;
	return (data ? fdatasync(fd_of(fi)) : fsync(fd_of(fi))) < 0 ? -errno : 0;
}

/* Remove O_APPEND, and let file_write() append: the kernel may write pages of mappings through any
 * descriptor. */
static int flags_of(int flags)
{
	return (flags & ~(O_NOFOLLOW | O_CREAT | O_EXCL | O_DIRECT | O_APPEND)) | O_CLOEXEC |
	       O_NOCTTY;
}

/*
 * Return true if do_flush() would have no effect on a file: on these file systems close(2) never
 * fails, because they have no flush operation.  Files in the kernel's cache are flushed, because
 * that also writes back pages of mappings.
 */
static bool needs_no_flush(const struct node *n, int fd)
{
	struct statfs st;

	if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
		return true;
	if (!n->backing || fstatfs(fd, &st) < 0)
		return false;
	switch (st.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case TMPFS_MAGIC:
		return true;
	default:
		return false;
	}
}

/*
 * Fill in the answer to the kernel for an open file that was counted.  Return 0; -errno: the file
 * is closed.
 */
static int opened(struct fs *fs, uid_t uid, struct node *n, int fd, struct fuse_open_out *ret)
{
	struct open_file *f = new_open(fs, uid, fd);
	int err;

	if (!f)
		return -ENOMEM;
	*ret = (struct fuse_open_out){ .fh = (uintptr_t)f };
	backing_open(fs, n, fd, ret);
	/* Let the kernel send no FUSE_FLUSH at close(2); kernels before Linux 5.16 still send
	 * it. */
	if (needs_no_flush(n, fd))
		ret->open_flags |= FOPEN_NOFLUSH;
	err = file_announce(fs, uid, n, f);
	if (err < 0)
		close_file(fs, n, f);
	return err;
}

int file_open(struct fs *fs, struct node *n, int flags)
{
	int fd = openat(fs->proc, fd_name(n->fd).s, flags | O_NONBLOCK);

	if (fd < 0 || flags & O_NONBLOCK || fcntl(fd, F_SETFL, flags) == 0)
		return fd < 0 ? -errno : fd;
	(void)close(fd);
	return -EIO;
}

static void mount_file_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *n = fs_node(req, ino);
	_cleanup_(fs_op_end) struct op op = { 0 };
	int err = n->type == S_IFREG ? op_begin_as(&op, req, ino, 0) : -EINVAL, fd = -1;
	uid_t uid = fuse_req_ctx(req)->uid;
	struct fuse_open_out out;

	if (err == 0)
		err = fds_take(uid, 1);
	if (err == 0) {
		err = fd = op.fs->source->open_file(op.fs, n, flags_of(fi->flags));
		if (err < 0)
			fds_give(uid, 1);
	}
	if (err == -EWOULDBLOCK && !(fi->flags & O_NONBLOCK)) {
		loop_again(req);
		return;
	}
	if (err >= 0)
		err = opened(fs_of(req), uid, n, fd, &out);
	if (err == 0)
		broker_tell(fs_of(req)->broker, uid);
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else if (fuse_reply_buf(req, (const char *)&out, sizeof(out)) < 0)
		close_file(fs_of(req), n, (struct open_file *)(uintptr_t)out.fh);
}

/* ------------------------------------------------------------------ create */

/* Fill in the entry of a regular file that was created or existed.  Return 0 or -errno. */
static int mount_file_created(struct fs *fs, int fd, struct node *dir, const char *name,
			      struct fuse_entry_param *e)
{
	int flags = fcntl(fd, F_GETFL);
	struct stat st;

	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EEXIST;
	return fs->source->created(fs, fd, dir, name, e);
}

static void fill_attr(struct fuse_attr *a, const struct stat *st)
{
	*a = (struct fuse_attr){
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.atime = (uint64_t)st->st_atim.tv_sec,
		.mtime = (uint64_t)st->st_mtim.tv_sec,
		.ctime = (uint64_t)st->st_ctim.tv_sec,
		.atimensec = (uint32_t)st->st_atim.tv_nsec,
		.mtimensec = (uint32_t)st->st_mtim.tv_nsec,
		.ctimensec = (uint32_t)st->st_ctim.tv_nsec,
		.mode = st->st_mode,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.blksize = (uint32_t)st->st_blksize,
	};
}

int file_created_plain(struct fs *fs, int fd, struct node *dir, const char *name,
		       struct fuse_entry_param *ret)
{
	int path = openat(fs->proc, fd_name(fd).s, O_PATH | O_CLOEXEC);

	(void)dir;
	(void)name;
	return path < 0 ? -errno : fs_entry(fs, path, node_mount(path), ret);
}

int file_create_plain(struct fs *fs, const struct node *dir, const struct new_file *f)
{
	int err = caller_begin(&f->caller), fd;

	(void)fs;
	if (err < 0)
		return err;
	/* O_NONBLOCK: the name may be a FIFO. */
	fd = openat(dir->fd, f->name, flags_of(f->flags) | f->how | O_NOFOLLOW | O_NONBLOCK,
		    f->mode);
	return fd < 0 ? -errno : fd;
}

int file_create(struct fs *fs, struct node *dir, const struct new_file *f, struct file_created *ret)
{
	struct fuse_entry_param e;
	struct node *n;
	int fd = -1, err = fs->source->create ? fds_take(f->caller.uid, 1) : -EOPNOTSUPP;

	if (err < 0)
		return err;
	err = fd = fs->source->create(fs, dir, f);
	if (err >= 0)
		err = mount_file_created(fs, fd, dir, f->name, &e);
	if (err < 0) {
		closep(&fd);
		fds_give(f->caller.uid, 1);
		return err;
	}
	n = (struct node *)(uintptr_t)e.ino;
	err = node_hold(&fs->nodes, n);
	if (err < 0) {
		(void)close(fd);
		fds_give(f->caller.uid, 1);
	} else {
		err = opened(fs, f->caller.uid, n, fd, &ret->open);
		node_release(&fs->nodes, n);
	}
	if (err < 0) {
		fs_unlook(fs, &e);
		return err;
	}
	ret->entry = (struct fuse_entry_out){
		.nodeid = e.ino,
		.entry_valid = fs->opts->timeout_s,
		/* Do not let the kernel cache attributes if rings may write to the file. */
		.attr_valid = (uint64_t)fs_attr_timeout(fs, n),
	};
	fill_attr(&ret->entry.attr, &e.attr);
	node_tell(n, &e.attr);
	return 0;
}

void file_uncreate(struct fs *fs, const struct file_created *c)
{
	struct node *n = (struct node *)(uintptr_t)c->entry.nodeid;

	close_file(fs, n, (struct open_file *)(uintptr_t)c->open.fh);
	node_put(&fs->nodes, n, 1);
}

static void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	const struct new_file f = {
		.caller = { ctx->uid, ctx->gid, ctx->pid, ctx->umask },
		.name = name,
		.flags = fi->flags,
		.how = O_CREAT | (fi->flags & O_EXCL),
		.mode = mode,
	};
	_cleanup_(fs_op_end) struct op op;
	struct file_created c;
	int err = op_begin(&op, req, parent, 0);

	if (err == 0)
		err = file_create(op.fs, op.n, &f, &c);
	/* Tell the worker now: a ring may use the file as soon as the program has it. */
	if (err == 0)
		broker_tell(op.fs->broker, f.caller.uid);
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else if (fuse_reply_buf(req, (const char *)&c, sizeof(c)) < 0)
		file_uncreate(op.fs, &c);
}

/* -------------------------------------------------------------- open files */

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	close_file(fs_of(req), fs_node(req, ino), file_of(fi));
	(void)fuse_reply_err(req, 0);
}

/* Close a duplicate descriptor: at this, file systems report failed writes. */
static void do_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int fd = fcntl(fd_of(fi), F_DUPFD_CLOEXEC, 0);

	(void)ino;
	(void)fuse_reply_err(req, fd < 0 || close(fd) < 0 ? errno : 0);
}

static void do_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)fuse_reply_err(req, -file_sync_plain(fs_of(req), fs_node(req, ino), fi, datasync));
}

static void file_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		      struct fuse_file_info *fi)
{
	struct fuse_bufvec buf = FUSE_BUFVEC_INIT(size);

	(void)ino;
	buf.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	buf.buf[0].fd = fd_of(fi);
	buf.buf[0].pos = off;
	(void)fuse_reply_data(req, &buf, FUSE_BUF_SPLICE_MOVE);
}

/* Write with the caller's rights, so that a write clears the set-user-ID bit of another user's
 * file. */
static void file_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	union {
		const char *from;
		void *to; /* struct iovec lacks const */
	} bytes = { buf };
	struct iovec iov = { bytes.to, size };
	/* Append here: others may write to the source, so the kernel may not know the file's
	 * end. */
	bool append = fi->flags & O_APPEND && !fi->writepage;
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, ino, 0);
	ssize_t n = 0;

	if (err == 0) {
		n = pwritev2(fd_of(fi), &iov, 1, off, append ? RWF_APPEND : 0);
		err = n < 0 ? -errno : 0;
	}
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		(void)fuse_reply_write(req, (size_t)n);
}

static void do_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, ino, 0);

	if (err == 0 && fallocate(fd_of(fi), mode, off, len) < 0)
		err = -errno;
	(void)fuse_reply_err(req, -err);
}

static void do_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		     struct fuse_file_info *fi)
{
	off_t at = lseek(fd_of(fi), off, whence);

	(void)ino;
	if (at < 0)
		(void)fuse_reply_err(req, errno);
	else
		(void)fuse_reply_lseek(req, at);
}

static void do_copy(fuse_req_t req, fuse_ino_t ino_in, off_t off_in, struct fuse_file_info *fi_in,
		    fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
		    int flags)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, ino_out, 0);
	ssize_t n = 0;

	(void)ino_in;
	if (err == 0) {
		n = copy_file_range(fd_of(fi_in), &off_in, fd_of(fi_out), &off_out, len,
				    (unsigned)flags);
		err = n < 0 ? -errno : 0;
	}
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		(void)fuse_reply_write(req, (size_t)n);
}

void file_ops(struct fuse_lowlevel_ops *ops)
{
	ops->open = mount_file_open;
	ops->create = do_create;
	ops->release = do_release;
	ops->flush = do_flush;
	ops->fsync = do_fsync;
	ops->read = file_read;
	ops->write = file_write;
	ops->fallocate = do_fallocate;
	ops->lseek = do_lseek;
	ops->copy_file_range = do_copy;
}
