/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "usrbio/mount/fds.h"
#include "usrbio/proto/plain.h"

#define DEPTH_MAX 2048u /* maximum nested directories; each open level uses a descriptor */

/* A removal of a tree. */
struct removal {
	fuse_req_t req;
	dev_t dev; /* device of the tree; other file systems are not entered */
	unsigned depth;
};

int remover_begin(struct fs *fs, uid_t uid)
{
	unsigned of_user = 0, free = MOUNT_REMOVERS;

	(void)pthread_mutex_lock(&fs->lock);
	for (unsigned i = 0; i < MOUNT_REMOVERS; i++) {
		of_user += fs->removers[i].busy && fs->removers[i].uid == uid;
		if (!fs->removers[i].busy)
			free = i;
	}
	if (free < MOUNT_REMOVERS && of_user < MOUNT_REMOVERS_USER)
		fs->removers[free] = (struct remover){ true, uid };
	else
		free = MOUNT_REMOVERS;
	(void)pthread_mutex_unlock(&fs->lock);
	return free < MOUNT_REMOVERS ? 0 : -EBUSY;
}

void remover_end(struct fs *fs, uid_t uid)
{
	(void)pthread_mutex_lock(&fs->lock);
	for (unsigned i = 0; i < MOUNT_REMOVERS; i++)
		if (fs->removers[i].busy && fs->removers[i].uid == uid) {
			fs->removers[i].busy = false;
			break;
		}
	(void)pthread_mutex_unlock(&fs->lock);
}

static int rmtree_remove_at(struct removal *r, int at, const char *name);

static void rmtree_closedirp(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}

/*
 * Remove entries until there are none.  Other programs may create and remove entries at the same
 * time, and the caller may interrupt the removal.
 */
static int empty(struct removal *r, DIR *d)
{
	for (bool any = true; any;) {
		const struct dirent *e;

		any = false;
		rewinddir(d);
		while ((e = readdir(d))) {
			int err;

			if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
				continue;
			if (fuse_req_interrupted(r->req))
				return -EINTR;
			err = rmtree_remove_at(r, dirfd(d), e->d_name);
			if (err < 0 && err != -ENOENT)
				return err;
			any |= err == 0;
		}
	}
	return 0;
}

static int remove_open_dir(struct removal *r, int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), err;
	_cleanup_(rmtree_closedirp) DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct stat st;

	if (!d) {
		err = -errno;
		closep(&fd);
		return err;
	}
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != r->dev)
		return -EXDEV;
	err = empty(r, d);
	if (err == 0 && unlinkat(at, name, AT_REMOVEDIR) < 0)
		err = -errno;
	return err;
}

/* Remove a directory, and keep it open until it is removed. */
static int remove_dir(struct removal *r, int at, const char *name)
{
	uid_t uid = fuse_req_ctx(r->req)->uid;
	int err = r->depth < DEPTH_MAX ? fds_take(uid, 1) : -ELOOP;

	if (err < 0)
		return err;
	r->depth++;
	err = remove_open_dir(r, at, name);
	r->depth--;
	fds_give(uid, 1);
	return err;
}

static int rmtree_remove_at(struct removal *r, int at, const char *name)
{
	int err;

	if (unlinkat(at, name, 0) == 0)
		return 0;
	err = -errno;
	/* For a directory, POSIX specifies EPERM and Linux returns EISDIR, or EPERM if it must not
	 * be removed. */
	if (err == -EISDIR || err == -EPERM) {
		int why = remove_dir(r, at, name);

		if (why != -ENOTDIR)
			err = why;
	}
	return err;
}

/* Open the directory that holds a name, from the root of the source. */
static int rmtree_open_parent(const struct fs *fs, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	int fd = (int)syscall(SYS_openat2, fs->nodes.root.fd, *path ? path : ".", &how,
			      sizeof(how));

	return fd < 0 ? -errno : fd;
}

/* Return the path relative to the mount, without slashes at its ends; NULL if it is not below the
 * mount. */
static char *rmtree_beneath(const struct fs *fs, const char *path)
{
	size_t len = strlen(fs->opts->dir);
	char *ret;

	if (strncmp(path, fs->opts->dir, len) != 0 || path[len] != '/')
		return NULL;
	path += len + strspn(path + len, "/");
	ret = strdup(path);
	for (size_t n = ret ? strlen(ret) : 0; n && ret[n - 1] == '/'; n--)
		ret[n - 1] = '\0';
	return ret;
}

void rmtree_forget(struct fs *fs, int parent, const char *name)
{
	struct node *n;
	struct stat st;

	if (fstat(parent, &st) < 0)
		return;
	n = node_by_number(&fs->nodes, node_number(&fs->nodes, st.st_dev, st.st_ino));
	if (!n)
		return;
	(void)fuse_lowlevel_notify_inval_entry(fs->se, fs_ino(fs, n), name, strlen(name));
	node_put(&fs->nodes, n, 1);
}

static struct removal removal(fuse_req_t req, const struct stat *st)
{
	return (struct removal){ .req = req, .dev = st->st_dev };
}

int rmtree(fuse_req_t req, const char *path)
{
	struct fs *fs = fs_of(req);
	_cleanup_(freep) char *rest = rmtree_beneath(fs, path);
	_cleanup_(closep) int parent = -1;
	char *name = rest ? strrchr(rest, '/') : NULL;
	struct removal r;
	struct stat st;
	int err;

	if (name)
		*name++ = '\0';
	else
		name = rest;
	if (!name || !*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EINVAL;
	if (!strcmp(name == rest ? name : rest, USRBIO_VIRT) ||
	    !strncmp(rest, USRBIO_VIRT "/", sizeof(USRBIO_VIRT)))
		return -EPERM;
	parent = rmtree_open_parent(fs, name == rest ? "" : rest);
	if (parent < 0)
		return parent;
	if (fstat(parent, &st) < 0)
		return -errno;
	r = removal(req, &st);
	err = rmtree_remove_at(&r, parent, name);
	rmtree_forget(fs, parent, name);
	return err;
}

int rmtree_at(fuse_req_t req, int dir, const char *name, bool tree)
{
	struct removal r;
	struct stat st;
	int err = 0;

	if (fstat(dir, &st) < 0)
		return -errno;
	r = removal(req, &st);
	if (tree)
		err = rmtree_remove_at(&r, dir, name);
	else if (unlinkat(dir, name, 0) < 0 &&
		 (errno != EISDIR || unlinkat(dir, name, AT_REMOVEDIR) < 0))
		err = -errno;
	rmtree_forget(fs_of(req), dir, name);
	return err;
}

/* Look up the directory's current name; it must still be the same file. path holds PATH_MAX
 * bytes. */
static int rmtree_find_name(int fd, int parent, const struct stat *st, char *path, const char **ret)
{
	struct stat there;
	char link[32];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX);
	if (n < 0 || n == PATH_MAX)
		return n < 0 ? -errno : -ENAMETOOLONG;
	path[n] = '\0';
	*ret = strrchr(path, '/');
	if (!*ret || !*++*ret)
		return -ENOENT;
	if (fstatat(parent, *ret, &there, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return there.st_dev == st->st_dev && there.st_ino == st->st_ino ? 0 : -ENOENT;
}

int rmtree_node(fuse_req_t req, const struct node *n)
{
	struct fs *fs = fs_of(req);
	_cleanup_(closep) int parent = -1;
	_cleanup_(rmtree_closedirp) DIR *d = NULL;
	char path[PATH_MAX];
	const char *name;
	struct removal r;
	struct stat st, up;
	int fd, err;

	if (n == &fs->nodes.root)
		return -EPERM;
	fd = openat(n->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		err = -errno;
		closep(&fd);
		return err;
	}
	parent = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0 || fstat(fd, &st) < 0 || fstat(parent, &up) < 0)
		return -errno;
	if (st.st_dev != up.st_dev)
		return -EXDEV;
	err = rmtree_find_name(fd, parent, &st, path, &name);
	r = removal(req, &st);
	if (err == 0)
		err = empty(&r, d);
	/* If another program has moved the directory, leave it in place, empty. */
	if (err == 0)
		err = rmtree_find_name(fd, parent, &st, path, &name);
	if (err < 0)
		return err;
	if (unlinkat(parent, name, AT_REMOVEDIR) < 0)
		err = -errno;
	rmtree_forget(fs, parent, name);
	return err;
}
