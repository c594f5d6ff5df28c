/* SPDX-License-Identifier: MIT */
/* Open files of a storage service, and changes of their attributes. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "usrbio/mount/fds.h"
#include "usrbio/mount/file.h"
#include "usrbio/mount/link.h"
#include "usrbio/mount/service.h"

static struct service_file *service_file_of(const struct fuse_file_info *fi)
{
	return (struct service_file *)(uintptr_t)fi->fh;
}

/* ------------------------------------------------------------------ writes */

void service_changed(struct node *n, uint64_t boot)
{
	(void)pthread_mutex_lock(&n->lock);
	if (n->remote)
		remote_writes_add(&n->remote->writes, boot);
	(void)pthread_mutex_unlock(&n->lock);
}

/*
 * Record the server's boot id for a ring's write.  The worker has its own connection, so the mount
 * gets the current boot id before the write.  The write then has that id or a later one, so a sync
 * after a restart fails, as it must.  A write that ended during a sync is recorded with the boot id
 * that the sync returned.
 */
void service_ring_writes(struct fs *fs, struct node *n, bool ends)
{
	char path[WIRE_NAME_MAX + 1];
	struct wire_attr a;
	uint64_t boot = 0;
	bool clean;

	(void)pthread_mutex_lock(&n->lock);
	clean = n->remote && !n->remote->writes.dirty;
	if (n->remote && ends) {
		n->remote->writes.dirty = true;
		n->remote->writes.nr++;
	}
	(void)pthread_mutex_unlock(&n->lock);
	if (!clean || ends)
		return;
	/* If the server does not answer, record boot id 0, which makes every sync fail. */
	if (service_path(n, path) < 0 ||
	    service_stat(fs->service, fs_caller(), path, &a, &boot) < 0)
		boot = 0;
	service_changed(n, boot);
}

/* ----------------------------------------------------------------- handles */

/* A request on an open file. */
struct file_op {
	struct node *n;
	struct service_file *f;
	struct wire_request q;
	struct wire_reply rep;
	const void *bytes;
	size_t len;
	void *payload;
	uint32_t room;
};

static bool service_is_same(const struct wire_attr *a, const struct wire_attr *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->btime_ns == b->btime_ns;
}

/* Open a name on a line. */
static int service_open_on(struct service_line *l, const char *path, uint32_t how, uint32_t mode,
			   struct wire_attr *ret, uint32_t *ret_handle)
{
	struct wire_request q = { .op = WIRE_OPEN, .how = how, .mode = mode };
	uint8_t payload[WIRE_ATTR_LEN];
	struct wire_reply rep;
	int err = remote_talk_ask(l->talk, &q, path, strlen(path), &rep, payload, sizeof(payload));

	if (err == 0)
		err = remote_get_attr(payload, &rep, ret);
	*ret_handle = rep.count;
	return err;
}

static int service_close_on(struct service_line *l, uint32_t handle)
{
	struct wire_request q = { .op = WIRE_CLOSE, .handle = handle };
	struct wire_reply rep;

	return remote_talk_ask(l->talk, &q, "", 0, &rep, NULL, 0);
}

/* Get a handle of the file on the line; open it there if needed. */
static int file_on(struct service_line *l, struct node *n, struct service_file *f,
		   uint32_t *ret_handle)
{
	char path[WIRE_NAME_MAX + 1];
	struct wire_attr a;
	uint32_t handle;
	int err;

	*ret_handle = f->on[l->idx].handle;
	if (atomic_load(&f->on[l->idx].epoch) == l->epoch)
		return 0;
	err = service_path(n, path);
	if (err == 0)
		err = service_open_on(l, path, f->how, 0, &a, &handle);
	if (err < 0)
		return err;
	/* The attributes of the first open identify the file. */
	if (f->attr.kind && !service_is_same(&a, &f->attr)) {
		err = service_close_on(l, handle);
		return err < 0 ? err : -ESTALE;
	}
	if (!f->attr.kind)
		f->attr = a;
	f->on[l->idx].handle = *ret_handle = handle;
	atomic_store(&f->on[l->idx].epoch, l->epoch);
	return 0;
}

static int file_ask(struct service *s, struct service_line *l, void *arg)
{
	struct file_op *o = arg;
	int err = file_on(l, o->n, o->f, &o->q.handle);

	(void)s;
	return err < 0 ? err
		       : remote_talk_ask(l->talk, &o->q, o->bytes, o->len, &o->rep, o->payload,
					 o->room);
}

static unsigned home_of(const struct node *n)
{
	return service_home(n->ino);
}

/* Return a line that has a handle of a file whose name was removed; SERVICE_LINES if there is
 * none. */
static unsigned line_with(struct service *s, const struct service_file *f)
{
	unsigned i;

	(void)pthread_mutex_lock(&s->lock);
	for (i = 0; i < SERVICE_LINES; i++)
		if (atomic_load(&f->on[i].epoch) && s->lines[i].talk &&
		    atomic_load(&f->on[i].epoch) == s->lines[i].epoch)
			break;
	(void)pthread_mutex_unlock(&s->lock);
	return i;
}

/* Change the file, on its home line. */
static int file_change(struct fs *fs, uid_t uid, struct file_op *o)
{
	int err = service_run(fs->service, uid, home_of(o->n), false, file_ask, o);

	return err == -ENOENT ? -ESTALE : err;
}

/* Read from the file, on any line. */
static int file_get(struct fs *fs, uid_t uid, struct file_op *o)
{
	int err = service_run_near(fs->service, uid, home_of(o->n), file_ask, o);
	unsigned line;

	if (err != -ENOENT && err != -ESTALE && err != -EMFILE)
		return err;
	line = line_with(fs->service, o->f);
	if (line < SERVICE_LINES)
		err = service_run(fs->service, uid, line, false, file_ask, o);
	return err == -ENOENT ? -ESTALE : err;
}

/* -------------------------------------------------------------------- open */

static struct service_file *service_file_new(uid_t uid, uint32_t how)
{
	struct service_file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->uid = uid;
	f->how = how;
	list_init(&f->link);
	(void)pthread_mutex_init(&f->lock, NULL);
	return f;
}

static void service_file_free(struct fs *fs, struct service_file *f)
{
	struct service *s = fs->service;

	broker_file_remove(fs->broker, &f->rings);
	(void)pthread_mutex_lock(&s->lock);
	list_del(&f->link);
	(void)pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < SERVICE_LINES; i++) {
		uint64_t epoch = atomic_load(&f->on[i].epoch);

		if (epoch)
			service_drop(s, i, epoch, f->on[i].handle);
	}
	fds_give(f->uid, 1);
	(void)pthread_mutex_destroy(&f->lock);
	free(f);
}

void service_files_done(struct fs *fs)
{
	while (!list_empty(&fs->service->files))
		service_file_free(fs, list_first(&fs->service->files, struct service_file, link));
}

static uint32_t service_how(int flags)
{
	switch (flags & O_ACCMODE) {
	case O_RDONLY:
		return WIRE_O_READ;
	case O_WRONLY:
		/* Open it for reading too: before a mapping writes part of a page, the kernel reads
		 * the page. */
		return WIRE_O_WRITE;
	default:
		return WIRE_O_READ | WIRE_O_WRITE;
	}
}

/* Let rings of the user name the file. */
static int service_tell_rings(struct fs *fs, uid_t uid, struct node *n, struct service_file *f)
{
	char path[WIRE_NAME_MAX + 1], name[LINK_NAME_MAX];
	const struct broker_open o = {
		.number = n->number,
		.cached = f->how & WIRE_O_WRITE ? fs_ino(fs, n) : 0,
		.fd = -1,
		.name = name,
		.how = (f->how & WIRE_O_READ ? LINK_FILE_READ : 0) |
		       (f->how & WIRE_O_WRITE ? LINK_FILE_WRITE : 0),
	};
	int err = service_path(n, path);

	if (err < 0)
		return err;
	if (snprintf(name, sizeof(name), "%s%s", fs->service->prefix, path) >= (int)sizeof(name))
		return -ENAMETOOLONG;
	(void)pthread_mutex_lock(&f->lock);
	err = broker_file_add(fs->broker, uid, &f->rings, &o);
	(void)pthread_mutex_unlock(&f->lock);
	return err;
}

int service_announce(struct fs *fs, uid_t uid, struct node *n, const struct fuse_file_info *fi)
{
	return service_tell_rings(fs, uid, n, service_file_of(fi));
}

/* Fill in the kernel's answer for an open file that was counted. */
static void tell_open(struct fs *fs, struct node *n, struct service_file *f,
		      struct fuse_open_out *ret)
{
	const struct timespec written = { .tv_sec = (time_t)(f->attr.mtime_ns / NSEC_PER_SEC),
					  .tv_nsec = (long)(f->attr.mtime_ns % NSEC_PER_SEC) };
	struct stat st = service_attr(fs, &f->attr);

	*ret = (struct fuse_open_out){ .fh = (uintptr_t)f };
	if (f->how & WIRE_O_WRITE)
		(void)atomic_fetch_add(&n->nr_writers, 1);
	st.st_ino = n->number;
	if (node_untell(n, f->how & WIRE_O_WRITE ? NULL : &st))
		(void)fuse_lowlevel_notify_inval_inode(fs->se, fs_ino(fs, n), -1, 0);
	(void)pthread_mutex_lock(&n->lock);
	n->nr_open++;
	count_add(&counts.cached[fs->cause], 1);
	/* Keep the kernel's cache if the file has not changed since it was last opened. */
	if (n->size == (off_t)f->attr.size && n->written.tv_sec == written.tv_sec &&
	    n->written.tv_nsec == written.tv_nsec)
		ret->open_flags |= FOPEN_KEEP_CACHE;
	n->size = (off_t)f->attr.size;
	n->written = written;
	(void)pthread_mutex_unlock(&n->lock);
}

static void service_forget_open(struct node *n, const struct service_file *f)
{
	if (f->how & WIRE_O_WRITE)
		(void)atomic_fetch_sub(&n->nr_writers, 1);
	(void)pthread_mutex_lock(&n->lock);
	n->nr_open--;
	/* The file's mtime after its writes is unknown, so drop the cache at the next open. */
	if (f->how & WIRE_O_WRITE)
		n->size = -1;
	(void)pthread_mutex_unlock(&n->lock);
}

static void service_file_close(struct fs *fs, struct node *n, struct service_file *f)
{
	service_forget_open(n, f);
	service_file_free(fs, f);
}

struct opening {
	struct node *n;
	struct service_file *f;
};

static int open_home(struct service *s, struct service_line *l, void *arg)
{
	struct opening *o = arg;
	uint32_t handle;

	(void)s;
	return file_on(l, o->n, o->f, &handle);
}

static int file_truncate(struct fs *fs, uid_t uid, struct node *n, struct service_file *f,
			 uint64_t size)
{
	struct file_op o = {
		.n = n, .f = f, .q = { .op = WIRE_TRUNCATE, .off = size }, .bytes = ""
	};
	int err = file_change(fs, uid, &o);

	if (err == 0)
		service_changed(n, o.rep.boot);
	return err;
}

/* Open the node's file on its home line.  Return 0; -errno with *ret unchanged. */
static int service_open_node(struct fs *fs, uid_t uid, struct node *n, int flags,
			     struct service_file **ret)
{
	struct opening o = { .n = n };
	uint32_t how = service_how(flags);
	int err;

	if (how & WIRE_O_WRITE && fs->service->read_only)
		return -EROFS;
	err = fds_take(uid, 1);
	if (err < 0)
		return err;
	o.f = service_file_new(uid, how);
	if (!o.f) {
		fds_give(uid, 1);
		return -ENOMEM;
	}
	err = service_run(fs->service, uid, home_of(n), false, open_home, &o);
	if (err == 0 && ((dev_t)o.f->attr.dev != n->dev || (ino_t)o.f->attr.ino != n->ino))
		err = -ESTALE;
	if (err == 0 && flags & O_TRUNC && how & WIRE_O_WRITE) {
		err = file_truncate(fs, uid, n, o.f, 0);
		o.f->attr.size = 0;
	}
	if (err < 0) {
		service_file_free(fs, o.f);
		return err;
	}
	(void)pthread_mutex_lock(&fs->service->lock);
	list_add_tail(&fs->service->files, &o.f->link);
	(void)pthread_mutex_unlock(&fs->service->lock);
	*ret = o.f;
	return 0;
}

static int service_opened(struct fs *fs, struct node *n, struct service_file *f,
			  struct fuse_open_out *ret)
{
	int err;

	tell_open(fs, n, f, ret);
	err = service_tell_rings(fs, f->uid, n, f);
	if (err < 0)
		service_file_close(fs, n, f);
	return err;
}

static void service_do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	_cleanup_(fs_op_end) struct op op;
	uid_t uid = fuse_req_ctx(req)->uid;
	struct service_file *f = NULL;
	struct fuse_open_out out;
	int err = op_begin(&op, req, ino, 0);

	if (err == 0)
		err = service_open_node(op.fs, uid, op.n, fi->flags, &f);
	if (err == 0)
		err = service_opened(op.fs, op.n, f, &out);
	if (err == 0)
		broker_tell(op.fs->broker, uid);
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else if (fuse_reply_buf(req, (const char *)&out, sizeof(out)) < 0)
		service_file_close(op.fs, op.n, f);
}

/* ------------------------------------------------------------------ create */

struct creating {
	const char *path;
	uint32_t how, mode;
	struct wire_attr attr;
};

/* Create a file on any line, and open it again on its home line, which depends on its inode
 * number. */
static int create_on(struct service *s, struct service_line *l, void *arg)
{
	struct creating *c = arg;
	uint32_t handle;
	int err = service_open_on(l, c->path, c->how, c->mode, &c->attr, &handle);

	(void)s;
	return err < 0 ? err : service_close_on(l, handle);
}

static int service_create(struct fs *fs, uid_t uid, struct node *dir, const char *name, mode_t mode,
			  int flags, struct service_file **ret, struct fuse_entry_param *ret_entry)
{
	char path[WIRE_NAME_MAX + 1];
	struct creating c = { .path = path };
	int err = service_path_in(dir, name, path);

	if (err < 0)
		return err;
	if (fs->service->read_only)
		return -EROFS;
	c.how = WIRE_O_WRITE | WIRE_O_CREATE | (flags & O_EXCL ? WIRE_O_EXCL : 0);
	c.mode = mode & 0777;
	err = service_run(fs->service, uid, SERVICE_LINES, true, create_on, &c);
	if (err == 0)
		err = service_entry(fs, path, &c.attr, ret_entry);
	if (err < 0)
		return err;
	err = service_open_node(fs, uid, fs_node_of_entry(fs, ret_entry), flags, ret);
	if (err < 0)
		fs_unlook(fs, ret_entry);
	else
		ret_entry->attr.st_size = (off_t)(*ret)->attr.size;
	return err;
}

static void service_do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			      struct fuse_file_info *fi)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	_cleanup_(fs_op_end) struct op op;
	struct service_file *f = NULL;
	struct fuse_entry_param e;
	struct fuse_open_out out;
	struct node *n = NULL;
	int err = op_begin(&op, req, parent, 0);

	if (err == 0)
		err = service_create(op.fs, ctx->uid, op.n, name, mode & ~ctx->umask, fi->flags, &f,
				     &e);
	if (err == 0) {
		n = fs_node_of_entry(op.fs, &e);
		err = service_opened(op.fs, n, f, &out);
		if (err < 0)
			fs_unlook(op.fs, &e);
	}
	if (err < 0) {
		(void)fuse_reply_err(req, -err);
		return;
	}
	broker_tell(op.fs->broker, ctx->uid);
	fi->fh = out.fh;
	/* Do not let the kernel cache attributes if rings may write to the file. */
	e.attr_timeout = fs_attr_timeout(op.fs, n);
	node_tell(n, &e.attr);
	if (fuse_reply_create(req, &e, fi) < 0) {
		service_file_close(op.fs, n, f);
		fs_unlook(op.fs, &e);
	}
}

/* -------------------------------------------------------------- open files */

static void service_do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	service_file_close(fs_of(req), fs_node(req, ino), service_file_of(fi));
	(void)fuse_reply_err(req, 0);
}

/* Do nothing: the server has answered every write. */
static void service_do_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	(void)fuse_reply_err(req, 0);
}

/* Return true unless TLS protects the bytes or they stay on the machine. */
static bool needs_crc(const struct service *s)
{
	return !s->server.tls && !net_addr_is_local(&s->server.addr);
}

static void service_do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			    struct fuse_file_info *fi)
{
	_cleanup_(freep) char *buf = malloc(size);
	_cleanup_(fs_op_end) struct op op = { 0 };
	int err = buf ? op_begin(&op, req, ino, 0) : -ENOMEM;
	size_t got = 0;
	bool more = true;

	while (err == 0 && more && got < size) {
		uint32_t len = (uint32_t)MIN(size - got, WIRE_DATA_MAX);
		bool crc = needs_crc(op.fs->service);
		struct file_op o = {
			.n = op.n,
			.f = service_file_of(fi),
			.q = { .op = WIRE_READ,
			       .off = (uint64_t)off + got,
			       .count = len,
			       .flags = crc ? WIRE_F_CRC : 0 },
			.bytes = "",
			.payload = buf + got,
			.room = len,
		};

		err = file_get(op.fs, fuse_req_ctx(req)->uid, &o);
		if (err == 0 && crc && o.rep.count &&
		    crc32c(0, buf + got, o.rep.count) != o.rep.crc)
			err = -EIO;
		more = err == 0 && o.rep.count == len;
		got += err == 0 ? o.rep.count : 0;
	}
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		(void)fuse_reply_buf(req, buf, got);
}

static void service_do_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
			     off_t off, struct fuse_file_info *fi)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin(&op, req, ino, 0);
	size_t put = 0;

	while (err == 0 && put < size) {
		uint32_t len = (uint32_t)MIN(size - put, WIRE_DATA_MAX);
		struct file_op o = {
			.n = op.n,
			.f = service_file_of(fi),
			.q = { .op = WIRE_WRITE, .off = (uint64_t)off + put, .count = len },
			.bytes = buf + put,
			.len = len,
		};

		if (needs_crc(op.fs->service)) {
			o.q.flags = WIRE_F_CRC;
			o.q.crc = crc32c(0, buf + put, len);
		}
		err = file_change(op.fs, fuse_req_ctx(req)->uid, &o);
		if (err == 0 && o.rep.count != len)
			err = -EIO;
		if (err == 0) {
			service_changed(op.n, o.rep.boot);
			put += len;
		}
	}
	if (err < 0 && !put)
		(void)fuse_reply_err(req, -err);
	else
		(void)fuse_reply_write(req, put);
}

int service_sync(struct fs *fs, struct node *n, const struct fuse_file_info *fi, bool data)
{
	struct file_op o = {
		.n = n,
		.f = service_file_of(fi),
		.q = { .op = WIRE_SYNC, .flags = data ? WIRE_F_DATA : 0 },
		.bytes = "",
	};
	uint64_t nr;
	int err;

	(void)pthread_mutex_lock(&n->lock);
	nr = n->remote->writes.nr;
	(void)pthread_mutex_unlock(&n->lock);
	err = file_change(fs, fs_caller(), &o);
	if (err < 0)
		return err;
	(void)pthread_mutex_lock(&n->lock);
	err = remote_writes_sync(&n->remote->writes, o.rep.boot, nr);
	(void)pthread_mutex_unlock(&n->lock);
	return err;
}

static void service_do_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
			     struct fuse_file_info *fi)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin(&op, req, ino, 0);

	if (err == 0)
		err = service_sync(op.fs, op.n, fi, datasync);
	(void)fuse_reply_err(req, -err);
}

int service_set_size(struct fs *fs, uid_t uid, struct node *n, uint64_t size,
		     struct service_file *open)
{
	struct service_file *f = open;
	int err = f ? 0 : service_open_node(fs, uid, n, O_WRONLY, &f);

	if (err == 0)
		err = file_truncate(fs, uid, n, f, size);
	if (f && f != open)
		service_file_free(fs, f);
	return err;
}

void service_file_ops(struct fuse_lowlevel_ops *ops)
{
	ops->open = service_do_open;
	ops->create = service_do_create;
	ops->release = service_do_release;
	ops->flush = service_do_flush;
	ops->fsync = service_do_fsync;
	ops->read = service_do_read;
	ops->write = service_do_write;
	service_attr_ops(ops);
}
