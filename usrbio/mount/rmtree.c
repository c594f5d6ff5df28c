/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>

#include "usrbio/proto/plain.h"

#define DEPTH_MAX 2048u /* each is a descriptor meanwhile */

static int remove_at(int at, const char *name, dev_t dev, unsigned depth);

static void closedirp(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}

/* Its entries, as long as there are some.  Others may make and remove some meanwhile. */
static int empty(DIR *d, dev_t dev, unsigned depth)
{
	for (bool any = true; any;) {
		const struct dirent *e;

		any = false;
		rewinddir(d);
		while ((e = readdir(d))) {
			int err;

			if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
				continue;
			err = remove_at(dirfd(d), e->d_name, dev, depth + 1);
			if (err < 0 && err != -ENOENT)
				return err;
			any |= err == 0;
		}
	}
	return 0;
}

static int remove_dir(int at, const char *name, dev_t dev, unsigned depth)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), err;
	_cleanup_(closedirp) DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct stat st;

	if (!d) {
		err = -errno;
		closep(&fd);
		return err;
	}
	if (depth > DEPTH_MAX)
		return -ELOOP;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != dev)
		return -EXDEV;
	err = empty(d, dev, depth);
	if (err == 0 && unlinkat(at, name, AT_REMOVEDIR) < 0)
		err = -errno;
	return err;
}

static int remove_at(int at, const char *name, dev_t dev, unsigned depth)
{
	if (unlinkat(at, name, 0) == 0)
		return 0;
	/* POSIX has EPERM for a directory, Linux EISDIR. */
	return errno == EISDIR || errno == EPERM ? remove_dir(at, name, dev, depth) : -errno;
}

/* The directory that holds the name, from the root of the source. */
static int open_parent(const struct fs *fs, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	int fd = (int)syscall(SYS_openat2, fs->nodes.root.fd, *path ? path : ".", &how,
			      sizeof(how));

	return fd < 0 ? -errno : fd;
}

/* The path from the mount on, without slashes at its ends, or NULL. */
static char *beneath(const struct fs *fs, const char *path)
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

/* The kernel forgets the name. */
static void forget(struct fs *fs, int parent, const char *name)
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

int rmtree(struct fs *fs, const char *path)
{
	_cleanup_(freep) char *rest = beneath(fs, path);
	_cleanup_(closep) int parent = -1;
	char *name = rest ? strrchr(rest, '/') : NULL;
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
	parent = open_parent(fs, name == rest ? "" : rest);
	if (parent < 0)
		return parent;
	if (fstat(parent, &st) < 0)
		return -errno;
	err = remove_at(parent, name, st.st_dev, 0);
	forget(fs, parent, name);
	return err;
}
