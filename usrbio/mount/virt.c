/* SPDX-License-Identifier: MIT */
/*
 * The virtual tree of 3FS: directories by which programs talk to the server.
 *
 * 3fs-virt/		found by name in the root, not listed there
 * 3fs-virt/iovs/		publications, each a link to shared memory, and links to the
 *			semaphores by which clients tell the server about requests
 * 3fs-virt/rm-rf/		making a link here removes the link's target, recursively
 * 3fs-virt/get-conf/	settings, each a link to its value
 * 3fs-virt/set-conf/	making a link here sets the setting of that name
 *
 * Any other change of the virtual tree gives EPERM.  Inode numbers are 3FS's, which are negative,
 * except those of settings: 3FS's numbers for these could collide with the growing numbers of
 * publications.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "usrbio/mount/broker.h"
#include "usrbio/mount/caller.h"
#include "usrbio/mount/conf.h"
#include "usrbio/mount/fs.h"
#include "usrbio/mount/rmtree.h"
#include "usrbio/mount/source.h"
#include "usrbio/proto/link.h"
#include "usrbio/proto/plain.h"

#define VIRT ((fuse_ino_t)-2)
#define RMRF ((fuse_ino_t)-3)
#define DONE ((fuse_ino_t)-4) /* inode of a link in rm-rf or set-conf, which does not persist */
#define GET_CONF ((fuse_ino_t)-5)
#define SET_CONF ((fuse_ino_t)-6)
#define CONF(index) ((fuse_ino_t)-16 - (index))
#define IOVS (-((fuse_ino_t)1 << 31))
#define SEM(priority) (IOVS - 1 - (fuse_ino_t)(priority))
#define LINKS (IOVS - 65535)
#define LINK(index) (LINKS - (index))

/*
 * Flag of the inode numbers of per-user directories: each user has a separate inode of the
 * directories in user_dirs.  The kernel locks a directory while a link is made in it, which may
 * take long there, because a worker starts or a tree is removed.  With separate inodes, users do
 * not wait for each other.  The kernel does not cache these names, so each lookup gives the inode
 * of the user who asks.
 */
#define USER_DIRS (UINT64_C(1) << 63)
static const fuse_ino_t user_dirs[] = { IOVS, RMRF };

static const char *const sems[] = USRBIO_SEM_NAMES;

/* The directories in 3fs-virt. */
static const struct {
	const char *name;
	fuse_ino_t ino;
} dirs[] = {
	{ "iovs", IOVS },
	{ "rm-rf", RMRF },
	{ "get-conf", GET_CONF },
	{ "set-conf", SET_CONF },
};

/* The operations for all other inodes. */
static struct fuse_lowlevel_ops real;

static struct caller caller_of(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct caller){ ctx->uid, ctx->gid, ctx->pid, ctx->umask };
}

static uid_t uid_of(fuse_req_t req)
{
	return fuse_req_ctx(req)->uid;
}

/* Return the user's inode of a directory, or the inode that all users share. */
static fuse_ino_t inode_for(fuse_ino_t ino, uid_t uid)
{
	for (fuse_ino_t i = 0; i < ARRAY_SIZE(user_dirs); i++)
		if (user_dirs[i] == ino)
			return USER_DIRS | i << 32 | uid;
	return ino;
}

/* Return the shared inode of a user's directory; any other inode is returned unchanged. */
static fuse_ino_t common(fuse_ino_t ino)
{
	fuse_ino_t i = (ino ^ USER_DIRS) >> 32;

	return i < ARRAY_SIZE(user_dirs) ? user_dirs[i] : ino;
}

/* -------------------------------------------------------------- attributes */

static struct stat virt_dir_stat(fuse_ino_t ino)
{
	return (struct stat){
		.st_ino = ino,
		.st_mode = S_IFDIR | (ino == VIRT || ino == GET_CONF ? 0555 : 0777),
		.st_nlink = 2,
	};
}

static struct stat sem_stat(fuse_ino_t ino)
{
	return (struct stat){ .st_ino = ino, .st_mode = S_IFLNK | 0666, .st_nlink = 1 };
}

static bool virt_is_dir(fuse_ino_t ino)
{
	for (unsigned i = 0; i < ARRAY_SIZE(dirs); i++)
		if (dirs[i].ino == ino)
			return true;
	return ino == VIRT;
}

/* Return true for a setting's inode, with the setting's index. */
static bool conf_of(fuse_ino_t ino, uint64_t *ret_index)
{
	*ret_index = CONF(0) - ino;
	return ino <= CONF(0) && conf_name(*ret_index);
}

static struct stat conf_stat(const struct fs *fs, uint64_t index)
{
	char value[CONF_VALUE_MAX];

	conf_value(fs, index, value);
	return (struct stat){
		.st_ino = CONF(index),
		.st_mode = S_IFLNK | 0444,
		.st_nlink = 1,
		.st_size = (off_t)strlen(value),
	};
}

static struct stat link_stat(const struct broker_link *l)
{
	return (struct stat){
		.st_ino = LINK(l->index),
		.st_mode = S_IFLNK | 0400,
		.st_nlink = 1,
		.st_uid = l->uid,
		.st_gid = l->gid,
		.st_size = (off_t)strlen(l->target),
	};
}

static int stat_of(fuse_req_t req, fuse_ino_t ino, struct stat *ret)
{
	struct broker_link l;
	uint64_t index;
	int err;

	ino = common(ino);
	if (virt_is_dir(ino)) {
		*ret = virt_dir_stat(ino);
		return 0;
	}
	if (conf_of(ino, &index)) {
		*ret = conf_stat(fs_of(req), index);
		return 0;
	}
	if (ino == DONE)
		return -ENOENT;
	if (ino > LINKS) {
		*ret = sem_stat(ino);
		return 0;
	}
	err = broker_find_index(fs_of(req)->broker, uid_of(req), LINKS - ino, &l);
	if (err == 0)
		*ret = link_stat(&l);
	return err;
}

static void virt_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;
	int err;

	if (!virt_is(ino)) {
		real.getattr(req, ino, fi);
		return;
	}
	err = stat_of(req, ino, &st);
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		(void)fuse_reply_attr(req, &st, 0);
}

/* ------------------------------------------------------------------- names */

/* Reply with an entry.  The kernel must not cache it, because users see different links. */
static void reply_entry(fuse_req_t req, int err, const struct stat *st)
{
	struct fuse_entry_param e = { .ino = inode_for(st->st_ino, uid_of(req)), .attr = *st };

	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		(void)fuse_reply_entry(req, &e);
}

static int virt_find(fuse_req_t req, fuse_ino_t parent, const char *name, struct stat *ret)
{
	struct broker_link l;
	uint64_t index;
	int err;

	if (parent == FUSE_ROOT_ID) {
		*ret = virt_dir_stat(VIRT);
		return 0;
	}
	for (unsigned i = 0; parent == VIRT && i < ARRAY_SIZE(dirs); i++)
		if (!strcmp(name, dirs[i].name)) {
			*ret = virt_dir_stat(dirs[i].ino);
			return 0;
		}
	if (parent == GET_CONF && conf_find(name, &index) == 0) {
		*ret = conf_stat(fs_of(req), index);
		return 0;
	}
	if (parent != IOVS)
		return -ENOENT;
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		if (!strcmp(name, sems[p])) {
			*ret = sem_stat(SEM(p));
			return 0;
		}
	err = broker_find(fs_of(req)->broker, uid_of(req), name, &l);
	if (err == 0)
		*ret = link_stat(&l);
	return err;
}

/* Return true for 3fs-virt in the root. */
static bool virt_is_ours(fuse_ino_t parent, const char *name)
{
	return parent == FUSE_ROOT_ID && !strcmp(name, USRBIO_VIRT);
}

static void virt_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct stat st = { 0 };
	int err;

	if (!virt_is(parent) && !virt_is_ours(parent, name)) {
		real.lookup(req, parent, name);
		return;
	}
	err = virt_find(req, common(parent), name, &st);
	reply_entry(req, err, &st);
}

static void virt_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	if (virt_is(ino))
		fuse_reply_none(req);
	else
		real.forget(req, ino, lookups);
}

static void virt_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		if (!virt_is(forgets[i].ino))
			node_put(&fs_of(req)->nodes, fs_node(req, forgets[i].ino),
				 forgets[i].nlookup);
	fuse_reply_none(req);
}

static void virt_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char name[USRBIO_SHM_NAME_MAX], target[sizeof(USRBIO_SHM_DIR) + sizeof("sem.") + 256];
	struct caller c = caller_of(req);
	struct broker_link l;
	uint64_t index;
	int err;

	if (!virt_is(ino)) {
		real.readlink(req, ino);
		return;
	}
	if (conf_of(ino, &index)) {
		conf_value(fs_of(req), index, target);
		(void)fuse_reply_readlink(req, target);
		return;
	}
	/* The inode is neither a semaphore nor a publication. */
	if (ino > LINKS && (ino > SEM(0) || ino <= SEM(USRBIO_PRIORITIES))) {
		(void)fuse_reply_err(req, ENOENT);
		return;
	}
	if (ino > LINKS) {
		err = broker_sem(fs_of(req)->broker, &c, (enum usrbio_priority)(SEM(0) - ino),
				 name);
		(void)snprintf(target, sizeof(target), USRBIO_SHM_DIR "sem.%s", name);
	} else {
		err = broker_find_index(fs_of(req)->broker, c.uid, LINKS - ino, &l);
	}
	if (err < 0)
		(void)fuse_reply_err(req, -err);
	else
		(void)fuse_reply_readlink(req, ino > LINKS ? target : l.target);
	/* A target of device memory contains a secret. */
	explicit_bzero(l.target, sizeof(l.target));
}

/* ----------------------------------------------------------------- publish */

/* Open the caller's shared memory by its name in /dev/shm, which must not be a link. */
static int open_shm(const struct caller *c, const char *name, struct stat *ret_st)
{
	struct open_how how = {
		.flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	int dir = open(USRBIO_SHM_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC), fd, err;

	if (dir < 0)
		return -errno;
	err = caller_begin(c);
	if (err < 0) {
		(void)close(dir);
		return err;
	}
	fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
	err = -errno;
	caller_end();
	(void)close(dir);
	/* Do not return ENOENT: clients would conclude that the mount is not 3FS's. */
	if (fd < 0)
		return err == -EACCES || err == -EMFILE || err == -ENFILE ? err : -EINVAL;
	if (fstat(fd, ret_st) < 0)
		err = -errno;
	else if (!S_ISREG(ret_st->st_mode) || ret_st->st_size <= 0)
		err = -EINVAL;
	else
		err = ret_st->st_uid == c->uid ? 0 : -EPERM;
	if (err == 0)
		return fd;
	(void)close(fd);
	return err;
}

static int virt_publish(fuse_req_t req, const char *target, const char *name, struct stat *ret)
{
	struct caller c = caller_of(req);
	char shm[USRBIO_SHM_NAME_MAX];
	struct broker_link l;
	struct stat st;
	int fd, err;

	if (usrbio_link_is_gdr(target)) {
		err = broker_publish_device(fs_of(req)->broker, &c, name, target, &l);
	} else {
		err = usrbio_link_shm(target, shm);
		if (err < 0)
			return err;
		fd = open_shm(&c, shm, &st);
		if (fd < 0)
			return fd;
		err = broker_publish(fs_of(req)->broker, &c, name, target, fd, (uint64_t)st.st_size,
				     &l);
		(void)close(fd);
	}
	if (err == 0)
		*ret = link_stat(&l);
	explicit_bzero(l.target, sizeof(l.target));
	return err;
}

static int remove_tree_as(fuse_req_t req, const char *target)
{
	_cleanup_(fs_op_end) struct op op;
	int err = op_begin_as(&op, req, FUSE_ROOT_ID, 0);

	return err < 0 ? err : rmtree(req, target);
}

static int virt_remove_tree(fuse_req_t req, const char *target)
{
	struct fs *fs = fs_of(req);
	uid_t uid = uid_of(req);
	int err = !fs->source->has_links ? -EOPNOTSUPP : remover_begin(fs, uid);

	if (err < 0)
		return err;
	err = remove_tree_as(req, target);
	remover_end(fs, uid);
	return err;
}

static void virt_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	/* The kernel needs an entry for the new link, but a command leaves no link: return one that
	 * does not persist. */
	struct stat st = { .st_ino = DONE, .st_mode = S_IFLNK | 0777, .st_nlink = 1 };

	parent = common(parent);
	if (!virt_is(parent) && !virt_is_ours(parent, name))
		real.symlink(req, target, parent, name);
	else if (parent == RMRF)
		reply_entry(req, virt_remove_tree(req, target), &st);
	else if (parent == SET_CONF)
		reply_entry(req, conf_set(fs_of(req), name, target), &st);
	else
		reply_entry(req, parent == IOVS ? virt_publish(req, target, name, &st) : -EPERM,
			    &st);
}

static void virt_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int err;

	if (!virt_is(parent) && !virt_is_ours(parent, name)) {
		real.unlink(req, parent, name);
		return;
	}
	parent = common(parent);
	err = parent == IOVS ? broker_unpublish(fs_of(req)->broker, uid_of(req), name) : -EPERM;
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		if (parent == IOVS && !strcmp(name, sems[p]))
			err = -EPERM;
	(void)fuse_reply_err(req, -err);
}

/* ------------------------------------------------------------- directories */

static void virt_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (virt_is(ino))
		(void)fuse_reply_open(req, fi);
	else
		real.opendir(req, ino, fi);
}

static void virt_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (virt_is(ino))
		(void)fuse_reply_err(req, 0);
	else
		real.releasedir(req, ino, fi);
}

static void virt_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	if (virt_is(ino))
		(void)fuse_reply_err(req, 0);
	else
		real.fsyncdir(req, ino, datasync, fi);
}

/* Get the entry at an offset and advance the offset.  Return false after the last entry. */
static bool virt_next_entry(fuse_req_t req, fuse_ino_t ino, off_t *off, char name[USRBIO_NAME_MAX],
			    struct stat *ret)
{
	static const char *const dots[] = { ".", ".." };
	uint64_t at = (uint64_t)*off, first = 2 + USRBIO_PRIORITIES;
	struct broker_link l;

	*off = (off_t)(at + 1);
	if (at < 2) {
		(void)strcpy(name, dots[at]);
		*ret = virt_dir_stat(ino);
		return true;
	}
	if (ino == VIRT) {
		if (at - 2 >= ARRAY_SIZE(dirs))
			return false;
		(void)strcpy(name, dirs[at - 2].name);
		*ret = virt_dir_stat(dirs[at - 2].ino);
		return true;
	}
	if (ino == GET_CONF && conf_name(at - 2)) {
		(void)strcpy(name, conf_name(at - 2));
		*ret = conf_stat(fs_of(req), at - 2);
		return true;
	}
	if (ino != IOVS)
		return false;
	if (at < first) {
		(void)strcpy(name, sems[at - 2]);
		*ret = sem_stat(SEM(at - 2));
		return true;
	}
	if (broker_next(fs_of(req)->broker, uid_of(req), at - first, &l) < 0)
		return false;
	(void)strcpy(name, l.name);
	*ret = link_stat(&l);
	*off = (off_t)(first + l.index + 1);
	return true;
}

static void virt_read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	_cleanup_(freep) char *buf = malloc(size);
	char name[USRBIO_NAME_MAX];
	struct fuse_entry_param e = { 0 };
	size_t len = 0;

	if (!buf) {
		(void)fuse_reply_err(req, ENOMEM);
		return;
	}
	ino = common(ino);
	while (virt_next_entry(req, ino, &off, name, &e.attr)) {
		size_t left = size - len, n;

		n = plus ? fuse_add_direntry_plus(req, buf + len, left, name, &e, off)
			 : fuse_add_direntry(req, buf + len, left, name, &e.attr, off);
		if (n > left)
			break;
		len += n;
	}
	(void)fuse_reply_buf(req, buf, len);
}

static void virt_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			 struct fuse_file_info *fi)
{
	if (virt_is(ino))
		virt_read_dir(req, ino, size, off, false);
	else
		real.readdir(req, ino, size, off, fi);
}

static void virt_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			     struct fuse_file_info *fi)
{
	if (virt_is(ino))
		virt_read_dir(req, ino, size, off, true);
	else
		real.readdirplus(req, ino, size, off, fi);
}

/* --------------------------------------------------- what is not done there */

#define REFUSE(virtual, call)                             \
	do {                                              \
		if (virtual)                              \
			(void)fuse_reply_err(req, EPERM); \
		else                                      \
			real.call;                        \
	} while (0)

static void virt_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set,
			 struct fuse_file_info *fi)
{
	REFUSE(virt_is(ino), setattr(req, ino, st, set, fi));
}

static void virt_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	REFUSE(virt_is(parent) || virt_is_ours(parent, name), mknod(req, parent, name, mode, rdev));
}

static void virt_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	REFUSE(virt_is(parent) || virt_is_ours(parent, name), mkdir(req, parent, name, mode));
}

static void virt_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	REFUSE(virt_is(parent) || virt_is_ours(parent, name), rmdir(req, parent, name));
}

static void virt_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to,
			const char *to_name, unsigned flags)
{
	REFUSE(virt_is(parent) || virt_is(to) || virt_is_ours(parent, name) ||
		       virt_is_ours(to, to_name),
	       rename(req, parent, name, to, to_name, flags));
}

static void virt_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	REFUSE(virt_is(ino) || virt_is(parent) || virt_is_ours(parent, name),
	       link(req, ino, parent, name));
}

static void virt_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			struct fuse_file_info *fi)
{
	REFUSE(virt_is(parent) || virt_is_ours(parent, name), create(req, parent, name, mode, fi));
}

static void virt_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	REFUSE(virt_is(ino), open(req, ino, fi));
}

static void virt_statfs(fuse_req_t req, fuse_ino_t ino)
{
	real.statfs(req, virt_is(ino) ? FUSE_ROOT_ID : ino);
}

static void virt_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			  size_t size, int flags)
{
	REFUSE(virt_is(ino), setxattr(req, ino, name, value, size, flags));
}

static void virt_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	REFUSE(virt_is(ino), removexattr(req, ino, name));
}

static void virt_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	if (virt_is(ino))
		(void)fuse_reply_err(req, ENODATA);
	else
		real.getxattr(req, ino, name, size);
}

static void virt_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	if (!virt_is(ino))
		real.listxattr(req, ino, size);
	else if (size)
		(void)fuse_reply_buf(req, "", 0);
	else
		(void)fuse_reply_xattr(req, 0);
}

void virt_ops(struct fuse_lowlevel_ops *ops)
{
	real = *ops;
	ops->lookup = virt_lookup;
	ops->forget = virt_forget;
	ops->forget_multi = virt_forget_multi;
	ops->getattr = virt_getattr;
	ops->setattr = virt_setattr;
	ops->readlink = virt_readlink;
	ops->mknod = virt_mknod;
	ops->mkdir = virt_mkdir;
	ops->unlink = virt_unlink;
	ops->rmdir = virt_rmdir;
	ops->symlink = virt_symlink;
	ops->rename = virt_rename;
	ops->link = virt_link;
	ops->open = virt_open;
	ops->create = virt_create;
	ops->opendir = virt_opendir;
	ops->readdir = virt_readdir;
	ops->readdirplus = virt_readdirplus;
	ops->releasedir = virt_releasedir;
	ops->fsyncdir = virt_fsyncdir;
	ops->statfs = virt_statfs;
	ops->setxattr = virt_setxattr;
	ops->getxattr = virt_getxattr;
	ops->listxattr = virt_listxattr;
	ops->removexattr = virt_removexattr;
}
