/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/session.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "usrbio/mount/abi.h"
#include "usrbio/mount/backing.h"
#include "usrbio/mount/counts.h"
#include "usrbio/mount/file.h"
#include "usrbio/mount/log.h"
#include "usrbio/mount/loop.h"
#include "usrbio/mount/source.h"

/* -------------------------------------------------------------- in between */

/* Record the kernel's features from FUSE_INIT. */
static void saw_init(struct fs *fs, const struct fuse_in_header *in, const void *arg, size_t len)
{
	const struct fuse_init_in *init = arg;

	if (len < offsetof(struct fuse_init_in, flags2))
		return;
	fs->init = in->unique;
	fs->flags[0] = init->flags;
	fs->cause = CAUSE_KERNEL;
	if (len >= sizeof(*init) && init->flags & FUSE_INIT_EXT)
		fs->flags[1] = init->flags2;
}

/* Add features to libfuse's answer to FUSE_INIT. */
static void extend_init(struct fs *fs, struct fuse_init_out *out)
{
	out->flags |= fs->flags[0] & FUSE_HANDLE_KILLPRIV_V2;
	/* The kernel allows passthrough only to root. */
	if (fs->opts->kernel_cache)
		fs->cause = CAUSE_OPTION;
	else if (geteuid() != 0)
		fs->cause = CAUSE_USER;
	else
		fs->passes = fs->flags[1] & ABI_PASSTHROUGH;
	if (!fs->passes) {
		log_info("the bytes of files go through the kernel's cache", "reason=%s",
			 counts_cause_name(fs->cause));
		return;
	}
	out->flags |= FUSE_INIT_EXT;
	out->flags2 |= ABI_PASSTHROUGH;
	ABI_DEPTH(out) = fs->depth;
}

static ssize_t session_reply(int fd, uint64_t unique, int err, void *arg, size_t len)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + len),
		.error = err,
		.unique = unique,
	};
	struct iovec iov[] = { { &out, sizeof(out) }, { arg, len } };
	ssize_t n = writev(fd, iov, len ? 2 : 1);

	counts_end(err, 0);
	return n;
}

/* Answer FUSE_TMPFILE: open(2) with O_TMPFILE. */
static void make_tmpfile(struct fs *fs, int fd, const struct fuse_in_header *in, const void *arg,
			 size_t len)
{
	const struct fuse_create_in *create = arg;
	fuse_ino_t ino = in->nodeid;
	struct node *dir = ino == FUSE_ROOT_ID ? &fs->nodes.root : (struct node *)(uintptr_t)ino;
	struct new_file f = { .name = "." };
	struct file_created c;
	int err;

	if (len < sizeof(*create) || virt_is(ino)) {
		(void)session_reply(fd, in->unique, virt_is(ino) ? -EPERM : -EIO, NULL, 0);
		return;
	}
	f.caller = (struct caller){ in->uid, in->gid, (pid_t)in->pid, create->umask };
	f.flags = (int)create->flags;
	f.how = O_TMPFILE | ((int)create->flags & O_EXCL);
	f.mode = create->mode;
	err = node_hold(&fs->nodes, dir);
	if (err == 0) {
		err = file_create(fs, dir, &f, &c);
		node_release(&fs->nodes, dir);
	}
	/* Tell the worker now: a ring may use the file as soon as the program has it. */
	if (err == 0)
		broker_tell(fs->broker, f.caller.uid);
	if (err < 0)
		(void)session_reply(fd, in->unique, err, NULL, 0);
	else if (session_reply(fd, in->unique, 0, &c, sizeof(c)) < 0)
		file_uncreate(fs, &c);
}

static ssize_t io_read(int fd, void *buf, size_t size, void *userdata)
{
	(void)userdata;
	return read(fd, buf, size);
}

/*
 * Return true if the thread may begin the operation with its current rights: the operation then
 * takes the caller's rights (op_begin_as()), or needs none.
 */
static bool begins_with_any_rights(const struct fuse_in_header *in)
{
	if (virt_is(in->nodeid))
		return false;
	switch (in->opcode) {
	case FUSE_LOOKUP:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_GETATTR:
	case FUSE_SETATTR:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_LINK:
	case FUSE_OPEN:
	case FUSE_CREATE:
	case FUSE_RELEASE:
	case FUSE_OPENDIR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_RELEASEDIR:
		return true;
	default:
		return false;
	}
}

static void session_answer(struct fs *fs, const struct fuse_buf *request)
{
	const struct fuse_in_header *in = request->mem;
	const void *arg = in + 1;
	size_t len = request->size - sizeof(*in);

	counts_begin(in);
	/* The thread may still have the rights of the previous request's caller. */
	if (!begins_with_any_rights(in))
		caller_end();
	if (in->opcode == FUSE_INIT)
		saw_init(fs, in, arg, len);
	if (in->opcode == FUSE_TMPFILE)
		make_tmpfile(fs, fuse_session_fd(fs->se), in, arg, len);
	else
		fuse_session_process_buf(fs->se, request);
	counts_next();
}

/* Return the bytes of a file in an answer: bytes read, or the number of bytes written. */
static uint64_t bytes_of(const struct fuse_out_header *out, const struct iovec *iov, int count)
{
	const struct fuse_write_out *w = count > 1 ? iov[1].iov_base : NULL;

	switch (counts_op()) {
	case FUSE_READ:
		return out->len - sizeof(*out);
	case FUSE_WRITE:
	case FUSE_COPY_FILE_RANGE:
		return w && iov[1].iov_len >= sizeof(*w) ? w->size : 0;
	default:
		return 0;
	}
}

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct fs *fs = userdata;
	const struct fuse_out_header *out = iov[0].iov_base;
	int err = out->error;
	uint64_t bytes;
	ssize_t n;

	if (fs->init && out->unique == fs->init) {
		fs->init = 0;
		if (count > 1 && iov[1].iov_len >= sizeof(struct fuse_init_out) && !out->error)
			extend_init(fs, iov[1].iov_base);
	}
	/* Notifications have no request, so do not count them. */
	if (!out->unique)
		return writev(fd, iov, count);
	bytes = bytes_of(out, iov, count);
	n = writev(fd, iov, count);
	counts_end(err, bytes);
	return n;
}

static ssize_t io_splice_send(int fdin, off_t *offin, int fdout, off_t *offout, size_t len,
			      unsigned flags, void *userdata)
{
	ssize_t n = splice(fdin, offin, fdout, offout, len, flags);

	(void)userdata;
	/* Only successful answers come here; if this write fails, libfuse sends an error by the
	 * other function. */
	if (n > 0)
		counts_end(0, (uint64_t)n - sizeof(struct fuse_out_header));
	return n;
}

/* --------------------------------------------------------------- operations */

static void do_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	/*
	 * Allow many background requests of the kernel, such as read-ahead: the limit is for all
	 * users together, so one user's slow file could use up a low limit.
	 */
	conn->max_background = UINT16_MAX;
	conn->congestion_threshold = UINT16_MAX;
	/* Requests come through io_read(); the kernel handles locks. */
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_HANDLE_KILLPRIV);
	conn->want |= conn->capable &
		      (FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK | FUSE_CAP_SPLICE_WRITE |
		       FUSE_CAP_SPLICE_MOVE | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS |
		       FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_AUTO_INVAL_DATA |
		       FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_ASYNC_DIO);
}

/* Return the number of stacked file systems, with this one. */
static unsigned depth_of(int fd)
{
	struct statfs st;

	return fstatfs(fd, &st) == 0 && st.f_type == OVERLAYFS_SUPER_MAGIC ? 2 : 1;
}

static struct fuse_session *new_session(struct fs *fs)
{
	struct fuse_lowlevel_ops ops = { .init = do_init };
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_session *se = NULL;
	char name[2 * PATH_MAX + 16] = "fsname=", *to = name + strlen(name);

	names_ops(&ops);
	attr_ops(&ops);
	dir_ops(&ops);
	file_ops(&ops);
	ioctl_ops(&ops);
	if (fs->source->replace)
		fs->source->replace(&ops);
	virt_ops(&ops);
	/* Escape commas, which separate mount options. */
	for (const char *s = fs->opts->source; *s; s++) {
		if (*s == ',' || *s == '\\')
			*to++ = '\\';
		*to++ = *s;
	}
	if (fuse_opt_add_arg(&args, "penstock-mount") == 0 &&
	    fuse_opt_add_arg(&args, "-osubtype=hf3fs,default_permissions,nosuid,nodev") == 0 &&
	    fuse_opt_add_arg(&args, "-o") == 0 && fuse_opt_add_arg(&args, name) == 0 &&
	    (!fs->opts->no_exec || fuse_opt_add_arg(&args, "-onoexec") == 0) &&
	    (geteuid() != 0 || fuse_opt_add_arg(&args, "-oallow_other") == 0))
		se = fuse_session_new(&args, &ops, sizeof(ops), fs);
	fuse_opt_free_args(&args);
	return se;
}

int session_open(struct fs *fs)
{
	static const struct fuse_custom_io io = {
		.read = io_read,
		.writev = io_writev,
		.splice_send = io_splice_send,
	};
	int err;

	fs->depth = depth_of(fs->nodes.root.fd);
	fs->se = new_session(fs);
	if (!fs->se)
		return -ENOMEM;
	if (fuse_session_mount(fs->se, fs->opts->dir) < 0) {
		fuse_session_destroy(fs->se);
		return -EIO;
	}
	err = fuse_session_custom_io(fs->se, &io, fuse_session_fd(fs->se));
	if (err == 0 && fuse_set_signal_handlers(fs->se) < 0)
		err = -EIO;
	if (err < 0) {
		fuse_session_unmount(fs->se);
		fuse_session_destroy(fs->se);
		return err;
	}
	fs->nodes.drop = backing_drop;
	fs->nodes.drop_arg = fs;
	return 0;
}

int session_run(struct fs *fs)
{
	return loop_run(fs, session_answer);
}

void session_forget(void *arg, uint64_t ino, uint64_t off, uint64_t len, bool written)
{
	struct fs *fs = arg;
	bool ends;

	(void)pthread_mutex_lock(&fs->lock);
	ends = fs->ends;
	fs->forgetting += !ends;
	(void)pthread_mutex_unlock(&fs->lock);
	if (ends)
		return;
	if (fs->source->written)
		fs->source->written(fs, (struct node *)(uintptr_t)ino, written);
	/* The kernel may first write back pages, by requests that other threads answer. */
	(void)fuse_lowlevel_notify_inval_inode(fs->se, ino, (off_t)off, (off_t)len);
	(void)pthread_mutex_lock(&fs->lock);
	fs->forgetting--;
	(void)pthread_mutex_unlock(&fs->lock);
}

static bool forgets(struct fs *fs)
{
	bool any;

	(void)pthread_mutex_lock(&fs->lock);
	fs->ends = true;
	any = fs->forgetting;
	(void)pthread_mutex_unlock(&fs->lock);
	return any;
}

/* Answer the kernel's requests until session_forget() has returned, because the other threads have
 * ended. */
static void end_forgetting(struct fs *fs)
{
	struct fuse_buf buf = { 0 };

	while (forgets(fs)) {
		struct pollfd fd = { fuse_session_fd(fs->se), POLLIN, 0 };

		if (poll(&fd, 1, 10) > 0 && fuse_session_receive_buf(fs->se, &buf) > 0)
			session_answer(fs, &buf);
	}
	free(buf.mem);
}

void session_close(struct fs *fs)
{
	end_forgetting(fs);
	/* The kernel drops all backing files with the session. */
	fs->nodes.drop = NULL;
	fuse_remove_signal_handlers(fs->se);
	fuse_session_unmount(fs->se);
	fuse_session_destroy(fs->se);
}
