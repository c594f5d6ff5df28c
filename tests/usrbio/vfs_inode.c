/* SPDX-License-Identifier: MIT */
/* Two tables: the inodes that the kernel has looked up, and the files that clients have open. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "vfs_int.h"

struct vfs_path vfs_path(int fd)
{
	struct vfs_path path;

	(void)snprintf(path.text, sizeof(path.text), "/proc/self/fd/%d", fd);
	return path;
}

static struct vfs_inodes *bucket(struct vfs *v, uint64_t ino)
{
	return &v->inodes[ino % VFS_BUCKETS];
}

/* Find an inode.  Call it with the lock held. */
static struct vfs_inode *find(struct vfs *v, uint64_t ino)
{
	struct vfs_inode *i;

	LIST_FOREACH(i, bucket(v, ino), link)
	if (i->ino == ino)
		return i;
	return NULL;
}

int vfs_inode_stat(struct vfs *v, int fd, struct stat *ret_st)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev == v->root.st_dev && st.st_ino == v->root.st_ino)
		st.st_ino = FUSE_ROOT_ID;
	else if (st.st_ino == FUSE_ROOT_ID)
		return -EIO; /* root of a file system mounted below */
	*ret_st = st;
	return 0;
}

/* Count a lookup of the inode of fd, O_PATH, which is taken over on success. */
static int know(struct vfs *v, int fd, const struct stat *st)
{
	struct vfs_inode *i = find(v, st->st_ino);

	if (i) {
		if (i->dev != st->st_dev)
			return -EIO; /* two files with one number */
		i->nr_lookups++;
		(void)close(fd);
		return 0;
	}
	i = calloc(1, sizeof(*i));
	if (!i)
		return -ENOMEM;
	*i = (struct vfs_inode){ .ino = st->st_ino, .dev = st->st_dev, .fd = fd, .nr_lookups = 1 };
	LIST_INSERT_HEAD(bucket(v, i->ino), i, link);
	return 0;
}

int vfs_inode_lookup(struct vfs *v, int parent_fd, const char *name, struct stat *ret_st)
{
	int fd = openat(parent_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0)
		return -errno;
	r = vfs_inode_stat(v, fd, &st);
	if (r == 0) {
		(void)pthread_mutex_lock(&v->lock);
		r = know(v, fd, &st);
		(void)pthread_mutex_unlock(&v->lock);
	}
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	*ret_st = st;
	return 0;
}

void vfs_inode_forget(struct vfs *v, uint64_t ino, uint64_t nr_lookups)
{
	struct vfs_inode *i;

	(void)pthread_mutex_lock(&v->lock);
	i = find(v, ino);
	if (i) {
		i->nr_lookups -= nr_lookups < i->nr_lookups ? nr_lookups : i->nr_lookups;
		if (!i->nr_lookups) {
			LIST_REMOVE(i, link);
			(void)close(i->fd);
			free(i);
		}
	}
	(void)pthread_mutex_unlock(&v->lock);
}

int vfs_inode_fd(struct vfs *v, uint64_t ino)
{
	struct vfs_inode *i;
	int fd;

	if (ino == FUSE_ROOT_ID)
		return v->root_fd;
	(void)pthread_mutex_lock(&v->lock);
	i = find(v, ino);
	fd = i ? i->fd : -ENOENT;
	(void)pthread_mutex_unlock(&v->lock);
	return fd;
}

void vfs_inodes_free(struct vfs *v)
{
	struct vfs_inode *i;

	for (size_t n = 0; n < VFS_BUCKETS; n++) {
		while ((i = LIST_FIRST(&v->inodes[n]))) {
			LIST_REMOVE(i, link);
			(void)close(i->fd);
			free(i);
		}
	}
	while (!LIST_EMPTY(&v->opened))
		vfs_opened_free(v, LIST_FIRST(&v->opened));
}

int vfs_reopen(struct vfs *v, uint64_t ino, int flags)
{
	struct vfs_inode *i;
	int fd = -ENOENT;

	/* Hold the lock, so that the kernel's FORGET cannot close the descriptor now. */
	(void)pthread_mutex_lock(&v->lock);
	i = find(v, ino);
	if (i || ino == FUSE_ROOT_ID) {
		fd = open(vfs_path(i ? i->fd : v->root_fd).text, flags | O_CLOEXEC);
		if (fd < 0)
			fd = -errno;
	}
	(void)pthread_mutex_unlock(&v->lock);
	return fd;
}

struct vfs_opened *vfs_opened_new(struct vfs *v, uint64_t ino, int fd, int flags,
				  const struct vfs_caller *who)
{
	struct vfs_opened *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	*o = (struct vfs_opened){ .ino = ino, .fd = fd, .accmode = flags & O_ACCMODE };
	o->uid = who->uid;
	(void)pthread_mutex_lock(&v->lock);
	LIST_INSERT_HEAD(&v->opened, o, link);
	(void)pthread_mutex_unlock(&v->lock);
	if (v->ops->open)
		v->ops->open(v->owner, who, &(struct vfs_file){ ino, fd }, o);
	return o;
}

void vfs_opened_free(struct vfs *v, struct vfs_opened *o)
{
	if (v->ops->release)
		v->ops->release(v->owner, o);
	(void)pthread_mutex_lock(&v->lock);
	LIST_REMOVE(o, link);
	(void)pthread_mutex_unlock(&v->lock);
	(void)close(o->fd);
	free(o);
}

int vfs_dup_opened(struct vfs *v, uint64_t ino, uid_t uid, int accmode)
{
	struct vfs_opened *o;
	int r = -EBADF;

	(void)pthread_mutex_lock(&v->lock);
	LIST_FOREACH(o, &v->opened, link)
	{
		if (o->ino != ino || o->uid != uid)
			continue;
		if (o->accmode == accmode || o->accmode == O_RDWR) {
			r = fcntl(o->fd, F_DUPFD_CLOEXEC, 0);
			if (r < 0)
				r = -errno;
			break;
		}
		r = -EACCES;
	}
	(void)pthread_mutex_unlock(&v->lock);
	return r;
}
