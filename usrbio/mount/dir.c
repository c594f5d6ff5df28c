/* SPDX-License-Identifier: MIT */
/* Read directories. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "usrbio/mount/fds.h"
#include "usrbio/mount/source.h"
#include "usrbio/proto/plain.h"

struct open_dir {
	struct list link;          /* on fs->dirs */
	uid_t uid;                 /* user who is charged for its descriptor */
	DIR *dir;                  /* open directory; NULL: the source has no descriptors */
	struct dirent *entry;      /* entry that was read but did not fit into the last answer */
	struct source_entry *list; /* all entries, from source_ops.list(); NULL: read dir */
	size_t nr, next;
	struct dirent one; /* the current entry of list */
	off_t at;          /* the kernel's offset of the next entry */
};

static struct open_dir *mount_dir_of(const struct fuse_file_info *fi)
{
	return (struct open_dir *)(uintptr_t)fi->fh;
}

static void dir_add_open(struct fs *fs, struct open_dir *d)
{
	(void)pthread_mutex_lock(&fs->lock);
	list_add_tail(&fs->dirs, &d->link);
	(void)pthread_mutex_unlock(&fs->lock);
}

static int dir_open_dir(struct fs *fs, uid_t uid, const struct node *n, struct open_dir **ret)
{
	struct open_dir *d = calloc(1, sizeof(*d));
	int fd, err = d ? fds_take(uid, 1) : -ENOMEM;

	if (err < 0) {
		free(d);
		return err;
	}
	d->uid = uid;
	if (!fs->source->has_fds) {
		dir_add_open(fs, d);
		*ret = d;
		return 0;
	}
	fd = openat(fs->proc, fd_name(n->fd).s, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		d->dir = fdopendir(fd);
	if (!d->dir) {
		err = -errno;
		closep(&fd);
		fds_give(uid, 1);
		free(d);
		return err;
	}
	dir_add_open(fs, d);
	*ret = d;
	return 0;
}

static void close_dir(struct fs *fs, struct open_dir *d)
{
	(void)pthread_mutex_lock(&fs->lock);
	list_del(&d->link);
	(void)pthread_mutex_unlock(&fs->lock);
	if (d->dir)
		(void)closedir(d->dir);
	free(d->list);
	fds_give(d->uid, 1);
	free(d);
}

void dirs_done(struct fs *fs)
{
	while (!list_empty(&fs->dirs))
		close_dir(fs, list_first(&fs->dirs, struct open_dir, link));
}

static void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	_cleanup_(fs_op_end) struct op op;
	struct open_dir *d = NULL;
	int err = op_begin_as(&op, req, ino, 0);

	if (err == 0)
		err = dir_open_dir(op.fs, fuse_req_ctx(req)->uid, op.n, &d);
	if (err == 0 && op.fs->source->list) {
		err = op.fs->source->list(op.fs, op.n, &d->list, &d->nr);
		if (err < 0)
			close_dir(op.fs, d);
	}
	fi->fh = (uintptr_t)d;
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else if (fuse_reply_open(req, fi) < 0)
		close_dir(fs_of(req), d);
}

static void do_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	close_dir(fs_of(req), mount_dir_of(fi));
	(void)fuse_reply_err(req, 0);
}

static void do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	DIR *dir = mount_dir_of(fi)->dir;
	int fd = dir ? dirfd(dir) : -1;

	(void)ino;
	(void)fuse_reply_err(req, dir && (datasync ? fdatasync(fd) : fsync(fd)) < 0 ? errno : 0);
}

/* Return true for 3fs-virt of a source that is a plain directory: the mount hides it. */
static bool dir_is_hidden(const struct fs *fs, const struct node *dir, const char *name)
{
	return dir == &fs->nodes.root && !strcmp(name, USRBIO_VIRT);
}

static bool dir_is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* Return the next entry of an open directory, or NULL. */
static struct dirent *next_entry(struct open_dir *d)
{
	const struct source_entry *e = d->list + d->next;

	if (!d->list)
		return readdir(d->dir);
	if (d->next == d->nr)
		return NULL;
	d->one.d_ino = e->number;
	d->one.d_off = (off_t)++d->next;
	d->one.d_type = (unsigned char)IFTODT(e->type);
	memcpy(d->one.d_name, e->name, sizeof(e->name));
	return &d->one;
}

static void seek_entry(struct fs *fs, struct node *n, struct open_dir *d, off_t off)
{
	if (!d->list) {
		seekdir(d->dir, off);
		return;
	}
	/* At offset 0 the program starts again: read the directory's current content. */
	if (off == 0) {
		struct source_entry *list;
		size_t nr;

		if (fs->source->list(fs, n, &list, &nr) == 0) {
			free(d->list);
			d->list = list;
			d->nr = nr;
		}
	}
	d->next = MIN((size_t)off, d->nr);
}

/* Return the entry's type and inode number, which need no look-up. */
static struct stat entry_stat(struct fs *fs, const struct node *dir, const struct dirent *e)
{
	return (struct stat){
		.st_ino = fs->source->list ? e->d_ino : node_number(&fs->nodes, dir->dev, e->d_ino),
		.st_mode = (mode_t)DTTOIF(e->d_type),
	};
}

struct answer {
	char *buf;
	size_t size, len;
};

/* Add an entry, with its attributes if the kernel wants them.  Return false if there is no room. */
static bool dir_add(fuse_req_t req, struct answer *a, struct node *dir, const struct dirent *e,
		    bool plus)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param p = { .attr = entry_stat(fs, dir, e) };
	size_t len, left = a->size - a->len;

	if (!plus) {
		len = fuse_add_direntry(req, a->buf + a->len, left, e->d_name, &p.attr, e->d_off);
	} else {
		/* If the entry has disappeared, add it without attributes. */
		if (!dir_is_dots(e->d_name) && fs_lookup(fs, dir, e->d_name, &p) < 0)
			p = (struct fuse_entry_param){ .attr = entry_stat(fs, dir, e) };
		len = fuse_add_direntry_plus(req, a->buf + a->len, left, e->d_name, &p, e->d_off);
		if (len > left && p.ino)
			fs_unlook(fs, &p);
		else if (p.ino)
			node_tell(fs_node(req, p.ino), &p.attr);
	}
	if (len > left)
		return false;
	a->len += len;
	return true;
}

/* Fill in as many entries as fit.  Return 0, or -errno if no entry could be added. */
static int dir_fill(fuse_req_t req, struct answer *a, struct node *n, struct open_dir *d, bool plus)
{
	for (;;) {
		errno = 0;
		if (!d->entry)
			d->entry = next_entry(d);
		if (!d->entry)
			return a->len ? 0 : -errno;
		if (!dir_is_hidden(fs_of(req), n, d->entry->d_name) &&
		    !dir_add(req, a, n, d->entry, plus))
			return 0;
		d->at = TAKE_PTR(d->entry)->d_off;
	}
}

static void read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     struct fuse_file_info *fi, bool plus)
{
	_cleanup_(freep) char *buf = malloc(size);
	_cleanup_(fs_op_end) struct op op = { 0 };
	struct answer a = { .buf = buf, .size = size };
	struct open_dir *d = mount_dir_of(fi);
	int err = buf ? op_begin_as(&op, req, ino, 0) : -ENOMEM;

	if (err == 0 && off != d->at) {
		seek_entry(op.fs, op.n, d, off);
		d->entry = NULL;
		d->at = off;
	}
	if (err == 0)
		err = dir_fill(req, &a, op.n, d, plus);
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		(void)fuse_reply_buf(req, buf, a.len);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, false);
}

static void do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, true);
}

void dir_ops(struct fuse_lowlevel_ops *ops)
{
	ops->opendir = do_opendir;
	ops->releasedir = do_releasedir;
	ops->fsyncdir = do_fsyncdir;
	ops->readdir = do_readdir;
	ops->readdirplus = do_readdirplus;
}
