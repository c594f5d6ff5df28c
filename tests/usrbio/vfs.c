/* SPDX-License-Identifier: MIT */
/* The file system of vfs.h: mounting, names, directories. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "vfs_int.h"

/* An open directory of a client. */
struct dir {
	uint64_t ino, id;
	struct vfs_caller opener;
	struct vfs_list list;
};

/* Return true if name in that directory does not belong to the backing directory. */
static bool is_virtual(const struct vfs *v, uint64_t parent, const char *name)
{
	return parent == v->config.outer_ino || parent == v->config.inner_ino ||
	       (parent == FUSE_ROOT_ID && strcmp(name, v->config.outer) == 0);
}

/* Return the descriptor of a directory in which name may be made or removed, or -errno. */
static int backing_parent(struct vfs *v, uint64_t parent, const char *name)
{
	return is_virtual(v, parent, name) ? -EPERM : vfs_inode_fd(v, parent);
}

static void fill_virtual_dir(const struct vfs *v, bool inner, struct stat *st)
{
	*st = (struct stat){ .st_nlink = 2, .st_uid = geteuid(), .st_gid = getegid() };
	st->st_ino = inner ? v->config.inner_ino : v->config.outer_ino;
	st->st_mode = S_IFDIR | (inner ? v->config.inner_mode : v->config.outer_mode);
}

static void fill_link(const struct vfs_link *l, struct stat *st)
{
	*st = (struct stat){ .st_nlink = 1, .st_uid = l->uid, .st_gid = l->gid };
	st->st_ino = l->ino;
	st->st_mode = S_IFLNK | l->mode;
	st->st_size = (off_t)l->size;
}

static void reply_link(fuse_req_t req, const struct vfs_link *l)
{
	struct fuse_entry_param e = { .ino = l->ino, .generation = l->generation };

	e.attr_timeout = e.entry_timeout = l->timeout;
	fill_link(l, &e.attr);
	(void)fuse_reply_entry(req, &e);
}

/* ----------------------------------------------------------------- names */

static void lookup_virtual(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct vfs *v = vfs_of(req);
	struct fuse_entry_param e = { .attr_timeout = v->config.timeout,
				      .entry_timeout = v->config.timeout };
	struct vfs_caller who = vfs_caller_of(req);
	struct vfs_link link;
	int r;

	if (parent == v->config.inner_ino) {
		r = v->ops->lookup ? v->ops->lookup(v->owner, &who, name, &link) : -EPERM;
		if (r < 0)
			vfs_reply(req, r);
		else
			reply_link(req, &link);
		return;
	}
	if (parent == v->config.outer_ino && strcmp(name, v->config.inner) != 0) {
		vfs_reply(req, -ENOENT);
		return;
	}
	fill_virtual_dir(v, parent == v->config.outer_ino, &e.attr);
	e.ino = e.attr.st_ino;
	(void)fuse_reply_entry(req, &e);
}

/* Look up name and reply with it; the kernel then knows it. */
static int reply_backing(fuse_req_t req, int parent_fd, const char *name)
{
	struct vfs *v = vfs_of(req);
	struct fuse_entry_param e = { .attr_timeout = v->config.timeout,
				      .entry_timeout = v->config.timeout };
	int r = vfs_inode_lookup(v, parent_fd, name, &e.attr);

	if (r < 0)
		return r;
	e.ino = e.attr.st_ino;
	if (fuse_reply_entry(req, &e) < 0)
		vfs_inode_forget(v, e.ino, 1);
	return 0;
}

static void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct vfs *v = vfs_of(req);
	int r;

	if (is_virtual(v, parent, name)) {
		lookup_virtual(req, parent, name);
		return;
	}
	r = vfs_inode_fd(v, parent);
	if (r >= 0)
		r = reply_backing(req, r, name);
	if (r < 0)
		vfs_reply(req, r);
}

static void fs_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nr_lookups)
{
	vfs_inode_forget(vfs_of(req), ino, nr_lookups);
	fuse_reply_none(req);
}

static void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct vfs *v = vfs_of(req);
	struct vfs_caller who = vfs_caller_of(req);
	double timeout = v->config.timeout;
	int r = 0, fd = vfs_inode_fd(v, ino);
	struct vfs_link link;
	struct stat st;

	(void)fi;
	if (fd >= 0) {
		r = vfs_inode_stat(v, fd, &st);
	} else if (ino == v->config.outer_ino || ino == v->config.inner_ino) {
		fill_virtual_dir(v, ino == v->config.inner_ino, &st);
	} else {
		r = v->ops->getattr ? v->ops->getattr(v->owner, &who, ino, &link) : -EPERM;
		if (r == 0) {
			fill_link(&link, &st);
			timeout = link.timeout;
		}
	}
	if (r < 0)
		vfs_reply(req, r);
	else
		(void)fuse_reply_attr(req, &st, timeout);
}

static void fs_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct vfs *v = vfs_of(req);
	struct vfs_caller who = vfs_caller_of(req);
	char target[4096];
	int r = -EPERM;

	if (vfs_inode_fd(v, ino) < 0 && v->ops->readlink)
		r = v->ops->readlink(v->owner, &who, ino, target, sizeof(target));
	if (r < 0)
		vfs_reply(req, r);
	else
		(void)fuse_reply_readlink(req, target);
}

static void fs_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct vfs *v = vfs_of(req);
	struct vfs_caller who = vfs_caller_of(req);
	struct vfs_link link;
	int r = -EPERM;

	if (parent == v->config.inner_ino && v->ops->symlink)
		r = v->ops->symlink(v->owner, &who, target, name, &link);
	if (r < 0)
		vfs_reply(req, r);
	else
		reply_link(req, &link);
}

static void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct vfs *v = vfs_of(req);
	struct vfs_caller who = vfs_caller_of(req);
	int r;

	if (parent == v->config.inner_ino) {
		vfs_reply(req, v->ops->unlink ? v->ops->unlink(v->owner, &who, name) : -EPERM);
		return;
	}
	r = backing_parent(v, parent, name);
	if (r >= 0)
		r = unlinkat(r, name, 0) < 0 ? -errno : 0;
	vfs_reply(req, r);
}

static void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int r = backing_parent(vfs_of(req), parent, name);

	if (r >= 0)
		r = unlinkat(r, name, AT_REMOVEDIR) < 0 ? -errno : 0;
	vfs_reply(req, r);
}

static void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		      const char *to_name, unsigned flags)
{
	struct vfs *v = vfs_of(req);
	int from = backing_parent(v, parent, name);
	int to = backing_parent(v, to_parent, to_name);
	int r = from < 0 ? from : to;

	if (r >= 0)
		r = renameat2(from, name, to, to_name, flags) < 0 ? -errno : 0;
	vfs_reply(req, r);
}

static void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	int r, fd = backing_parent(vfs_of(req), parent, name);

	if (fd < 0) {
		vfs_reply(req, fd);
		return;
	}
	if (mkdirat(fd, name, mode) < 0 ||
	    fchownat(fd, name, ctx->uid, ctx->gid, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	else
		r = reply_backing(req, fd, name);
	if (r < 0)
		vfs_reply(req, r);
}

/* Create and open a file.  Return it in ret_e and *ret_o on success. */
static int create(fuse_req_t req, int parent_fd, const char *name, mode_t mode, int flags,
		  struct fuse_entry_param *ret_e, struct vfs_opened **ret_o)
{
	struct vfs_caller who = vfs_caller_of(req);
	struct vfs *v = vfs_of(req);
	int r, fd;

	fd = openat(parent_fd, name,
		    (flags & ~(O_APPEND | O_DIRECT)) | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	r = fchown(fd, who.uid, who.gid) < 0 ? -errno : 0;
	if (r == 0)
		r = vfs_inode_lookup(v, parent_fd, name, &ret_e->attr);
	if (r == 0) {
		ret_e->ino = ret_e->attr.st_ino;
		*ret_o = vfs_opened_new(v, ret_e->ino, fd, flags, &who);
		if (*ret_o)
			return 0;
		vfs_inode_forget(v, ret_e->ino, 1);
		r = -ENOMEM;
	}
	(void)close(fd);
	return r;
}

static void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	struct vfs *v = vfs_of(req);
	struct fuse_entry_param e = { .attr_timeout = v->config.timeout,
				      .entry_timeout = v->config.timeout };
	struct vfs_opened *o = NULL;
	int r = backing_parent(v, parent, name);

	if (r >= 0)
		r = create(req, r, name, mode, fi->flags, &e, &o);
	if (r < 0) {
		vfs_reply(req, r);
		return;
	}
	fi->fh = (uintptr_t)o;
	if (fuse_reply_create(req, &e, fi) < 0) {
		vfs_opened_free(v, o);
		vfs_inode_forget(v, e.ino, 1);
	}
}

static void fs_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;

	(void)ino;
	if (fstatvfs(vfs_of(req)->root_fd, &st) < 0)
		vfs_reply(req, -errno);
	else
		(void)fuse_reply_statfs(req, &st);
}

/* ----------------------------------------------------------- directories */

int vfs_list_add(struct vfs_list *list, const char *name, uint64_t ino, mode_t type)
{
	struct vfs_dirent *e;

	if (strlen(name) >= sizeof(e->name))
		return -ENAMETOOLONG;
	if (list->nr == list->room) {
		size_t room = list->room ? 2 * list->room : 16;

		e = realloc(list->ents, room * sizeof(*e));
		if (!e)
			return -ENOMEM;
		list->ents = e;
		list->room = room;
	}
	e = &list->ents[list->nr++];
	e->ino = ino;
	e->type = type;
	(void)snprintf(e->name, sizeof(e->name), "%s", name);
	return 0;
}

static int list_backing(struct vfs *v, uint64_t ino, struct vfs_list *list)
{
	int r = 0, fd = vfs_reopen(v, ino, O_RDONLY | O_DIRECTORY);
	struct dirent *e;
	DIR *d;

	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		r = -errno;
		(void)close(fd);
		return r;
	}
	while (r == 0 && (e = readdir(d)))
		r = vfs_list_add(list, e->d_name, e->d_ino, DTTOIF(e->d_type));
	(void)closedir(d);
	return r;
}

static int list_virtual(struct vfs *v, const struct dir *d, const struct vfs_caller *who,
			struct vfs_list *list)
{
	bool inner = d->ino == v->config.inner_ino;
	int r = vfs_list_add(list, ".", d->ino, S_IFDIR);

	if (r == 0)
		r = vfs_list_add(list, "..", inner ? v->config.outer_ino : FUSE_ROOT_ID, S_IFDIR);
	if (r < 0)
		return r;
	if (!inner)
		return vfs_list_add(list, v->config.inner, v->config.inner_ino, S_IFDIR);
	return v->ops->list ? v->ops->list(v->owner, who, d->id, list) : 0;
}

static void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct vfs *v = vfs_of(req);
	struct dir *d = calloc(1, sizeof(*d));

	if (!d) {
		vfs_reply(req, -ENOMEM);
		return;
	}
	*d = (struct dir){ .ino = ino, .opener = vfs_caller_of(req) };
	d->id = atomic_fetch_add(&v->next_dir, 1);
	fi->fh = (uintptr_t)d;
	if (ino == v->config.inner_ino && v->ops->opendir)
		v->ops->opendir(v->owner, &d->opener, d->id);
	if (fuse_reply_open(req, fi) < 0) {
		if (ino == v->config.inner_ino && v->ops->releasedir)
			v->ops->releasedir(v->owner, &d->opener, d->id);
		free(d);
	}
}

static void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	struct dir *d = (struct dir *)(uintptr_t)fi->fh;
	struct vfs *v = vfs_of(req);
	struct vfs_caller who = vfs_caller_of(req);
	char *buf = malloc(size);
	size_t used = 0;
	int r = buf ? 0 : -ENOMEM;

	if (r == 0 && off == 0) {
		d->list.nr = 0;
		r = vfs_inode_fd(v, ino) >= 0 ? list_backing(v, ino, &d->list)
					      : list_virtual(v, d, &who, &d->list);
	}
	for (size_t i = (size_t)off; r == 0 && i < d->list.nr; i++) {
		const struct vfs_dirent *e = &d->list.ents[i];
		struct stat st = { .st_ino = e->ino, .st_mode = e->type };
		size_t n;

		n = fuse_add_direntry(req, buf + used, size - used, e->name, &st, (off_t)i + 1);
		if (n > size - used)
			break;
		used += n;
	}
	if (r < 0)
		vfs_reply(req, r);
	else
		(void)fuse_reply_buf(req, buf, used);
	free(buf);
}

static void fs_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct dir *d = (struct dir *)(uintptr_t)fi->fh;
	struct vfs *v = vfs_of(req);

	if (ino == v->config.inner_ino && v->ops->releasedir)
		v->ops->releasedir(v->owner, &d->opener, d->id);
	free(d->list.ents);
	free(d);
	vfs_reply(req, 0);
}

static void fs_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
		     struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_len,
		     size_t out_len)
{
	struct vfs *v = vfs_of(req);
	struct vfs_caller who = vfs_caller_of(req);
	struct vfs_file file = { .ino = ino, .fd = -1 };
	void *out = calloc(1, out_len ? out_len : 1);
	int r = -ENOTTY;

	(void)arg;
	if (!(flags & FUSE_IOCTL_DIR))
		file.fd = vfs_opened_of(fi)->fd;
	if (!out)
		r = -ENOMEM;
	else if (v->ops->ioctl && !(flags & FUSE_IOCTL_COMPAT))
		r = v->ops->ioctl(v->owner, &who, &file, cmd, in, in_len, out, out_len);
	if (r < 0)
		vfs_reply(req, r);
	else
		(void)fuse_reply_ioctl(req, 0, out, out_len);
	free(out);
}

/* ------------------------------------------------------------------ life */

static const struct fuse_lowlevel_ops fs_ops = {
	.lookup = fs_lookup,
	.forget = fs_forget,
	.getattr = fs_getattr,
	.setattr = vfs_file_setattr,
	.readlink = fs_readlink,
	.symlink = fs_symlink,
	.unlink = fs_unlink,
	.mkdir = fs_mkdir,
	.rmdir = fs_rmdir,
	.rename = fs_rename,
	.create = fs_create,
	.open = vfs_file_open,
	.read = vfs_file_read,
	.write = vfs_file_write,
	.fsync = vfs_file_fsync,
	.release = vfs_file_release,
	.opendir = fs_opendir,
	.readdir = fs_readdir,
	.releasedir = fs_releasedir,
	.statfs = fs_statfs,
	.ioctl = fs_ioctl,
};

static int mount_session(struct vfs *v)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	char opts[512];
	int r = -EIO;

	/* Only root may use allow_other. */
	(void)snprintf(opts, sizeof(opts), "-odefault_permissions,fsname=%s,subtype=%s%s",
		       v->config.fsname, v->config.subtype, geteuid() == 0 ? ",allow_other" : "");
	if (fuse_opt_add_arg(&args, v->config.fsname) == 0 && fuse_opt_add_arg(&args, opts) == 0)
		v->se = fuse_session_new(&args, &fs_ops, sizeof(fs_ops), v);
	if (v->se && fuse_set_signal_handlers(v->se) == 0) {
		v->has_signals = true;
		if (fuse_session_mount(v->se, v->config.mountpoint) == 0) {
			v->mounted = true;
			r = 0;
		}
	}
	fuse_opt_free_args(&args);
	return r;
}

int vfs_mount(const struct vfs_config *config, const struct vfs_ops *ops, void *owner,
	      struct vfs **ret_vfs)
{
	struct vfs *v = calloc(1, sizeof(*v));
	int r = 0;

	if (!v)
		return -ENOMEM;
	v->config = *config;
	v->ops = ops;
	v->owner = owner;
	(void)pthread_mutex_init(&v->lock, NULL);
	LIST_INIT(&v->opened);
	v->root_fd = open(config->backing, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (v->root_fd < 0 || fstat(v->root_fd, &v->root) < 0)
		r = -errno;
	if (r == 0)
		r = mount_session(v);
	if (r < 0) {
		(void)vfs_free(v);
		return r;
	}
	(void)umask(0);
	*ret_vfs = v;
	return 0;
}

int vfs_serve(struct vfs *v)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r;

	if (!config)
		return -ENOMEM;
	fuse_loop_cfg_set_idle_threads(config, 16);
	/* The loop returns a signal's number if a signal ended it. */
	r = fuse_session_loop_mt(v->se, config);
	fuse_loop_cfg_destroy(config);
	fuse_session_unmount(v->se);
	v->mounted = false;
	return r < 0 ? r : 0;
}

struct vfs *vfs_free(struct vfs *v)
{
	if (!v)
		return NULL;
	if (v->mounted)
		fuse_session_unmount(v->se);
	if (v->has_signals)
		fuse_remove_signal_handlers(v->se);
	if (v->se)
		fuse_session_destroy(v->se);
	vfs_inodes_free(v);
	if (v->root_fd >= 0)
		(void)close(v->root_fd);
	(void)pthread_mutex_destroy(&v->lock);
	free(v);
	return NULL;
}

int vfs_invalidate(struct vfs *v, uint64_t ino, uint64_t off, uint64_t len)
{
	int r = fuse_lowlevel_notify_inval_inode(v->se, ino, (off_t)off, (off_t)len);

	return r == -ENOENT ? 0 : r;
}
