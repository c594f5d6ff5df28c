/* SPDX-License-Identifier: MIT */
#include "base/trust.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/err.h"

#define LINKS_MAX 40       /* maximum symbolic links in a path: the kernel's limit */
#define UID_UNKNOWN 65534u /* the uid that a user namespace shows for unknown users */

struct walk {
	int fd; /* descriptor of the folder, O_PATH */
	dev_t dev;
	bool sticky; /* users other than the owner may create entries in the folder */
	unsigned links;
	char at[PATH_MAX]; /* path of the folder; "" for the root */
	char todo[PATH_MAX];
};

static int trust_refuse(const char *at, const char *name, const struct stat *st)
{
	return err_set(EPERM,
		       "%s%s may be changed by others than root and the caller (owner %u, mode "
		       "%04o)",
		       at, name, (unsigned)st->st_uid, (unsigned)(st->st_mode & 07777));
}

static bool owner_is_good(const struct stat *st)
{
	return st->st_uid == 0 || (st->st_uid == geteuid() && st->st_uid != UID_UNKNOWN);
}

/* Refuse FUSE mounts.  A file may also be a mount point. */
static int check_mount(const struct walk *w, int fd, const char *name, const struct stat *st)
{
	struct statfs fs;

	if (st->st_dev == w->dev)
		return 0;
	/* This call fails if the mount's server does not answer. */
	if (fstatfs(fd, &fs) < 0)
		return err_set(EPERM, "%s%s is a mount that does not say what it is: %s", w->at,
			       name, err_name(errno));
	if (fs.f_type == FUSE_SUPER_MAGIC)
		return err_set(EPERM, "%s%s is a FUSE mount, whose server says who owns what",
			       w->at, name);
	return 0;
}

/* Enter a folder.  Takes over fd. */
static int enter(struct walk *w, int fd, const char *name, const struct stat *st)
{
	bool writable = st->st_mode & (S_IWGRP | S_IWOTH);
	int r;

	if (w->fd >= 0)
		(void)close(w->fd);
	w->fd = fd;
	if (!owner_is_good(st) || (writable && !(st->st_mode & S_ISVTX)))
		return trust_refuse(w->at, name, st);
	r = check_mount(w, fd, name, st);
	if (r < 0)
		return r;
	w->dev = st->st_dev;
	w->sticky = writable;
	return 0;
}

static int enter_root(struct walk *w)
{
	int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		closep(&fd);
		return err_set(EIO, "the root directory cannot be opened");
	}
	w->at[0] = '\0';
	w->dev = st.st_dev; /* trust the root's file system: an unprivileged user cannot choose
			     * it */
	return enter(w, fd, "/", &st);
}

/* Insert the link's target before the rest of the path. */
static int trust_follow(struct walk *w, int fd, const char *rest)
{
	char text[PATH_MAX], more[2 * PATH_MAX];
	ssize_t n = readlinkat(fd, "", text, sizeof(text));

	if (n <= 0 || (size_t)n == sizeof(text) || ++w->links > LINKS_MAX)
		return err_set(ELOOP, "symbolic links at %s lead too far", w->at);
	(void)snprintf(more, sizeof(more), "%.*s%s", (int)n, text, rest);
	if (strlen(more) >= sizeof(w->todo))
		return err_set(ENAMETOOLONG, "symbolic links at %s lead too far", w->at);
	memcpy(w->todo, more, strlen(more) + 1);
	return text[0] == '/' ? enter_root(w) : 0;
}

/* Resolve one component of the path.  Return 1 if the component was the file, 0 for a folder or a
 * link. */
static int step(struct walk *w, const char *name, const char *rest)
{
	_cleanup_(closep) int fd = openat(w->fd, name + 1, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	bool up = !strcmp(name, "/..");
	struct stat st;
	char *slash;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(errno, "%s%s: %s", w->at, name, err_name(errno));
	if (S_ISLNK(st.st_mode))
		return owner_is_good(&st) && !w->sticky ? trust_follow(w, fd, rest)
							: trust_refuse(w->at, name, &st);
	if (S_ISDIR(st.st_mode)) {
		r = enter(w, TAKE_FD(fd), name, &st);
		slash = up ? strrchr(w->at, '/') : NULL;
		if (slash)
			*slash = '\0';
		if (r == 0 && !up && strlen(w->at) + strlen(name) >= sizeof(w->at))
			r = err_set(ENAMETOOLONG, "%s%s is too long", w->at, name);
		if (r == 0 && !up)
			memcpy(w->at + strlen(w->at), name, strlen(name) + 1);
		return r;
	}
	if (!S_ISREG(st.st_mode) || *rest)
		return err_set(EINVAL, "%s%s is no regular file", w->at, name);
	if (w->sticky || !owner_is_good(&st) || st.st_mode & (S_IWGRP | S_IWOTH))
		return trust_refuse(w->at, name, &st);
	r = check_mount(w, fd, name, &st);
	return r < 0 ? r : 1;
}

static int trust_walk(struct walk *w, const char *path, char ret[PATH_MAX])
{
	char name[NAME_MAX + 2];
	size_t len, skip;
	int r = enter_root(w);

	(void)snprintf(w->todo, sizeof(w->todo), "%s", path);
	while (r == 0) {
		char rest[PATH_MAX];

		skip = strspn(w->todo, "/");
		len = strcspn(w->todo + skip, "/");
		if (!len)
			return err_set(EISDIR, "%s is a directory", path);
		if (len > NAME_MAX)
			return err_set(ENAMETOOLONG, "%s has a name that is too long", path);
		(void)snprintf(name, sizeof(name), "/%.*s", (int)len, w->todo + skip);
		memcpy(rest, w->todo + skip + len, strlen(w->todo + skip + len) + 1);
		memcpy(w->todo, rest, strlen(rest) + 1);
		if (strcmp(name, "/.") != 0)
			r = step(w, name, rest);
	}
	if (r < 0)
		return r;
	if (strlen(w->at) + strlen(name) >= PATH_MAX)
		return err_set(ENAMETOOLONG, "%s is too long", path);
	(void)snprintf(ret, PATH_MAX, "%s%s", w->at, name);
	return 0;
}

int trust_path(const char *path, char ret[PATH_MAX])
{
	struct walk w = { .fd = -1 };
	int r;

	if (path[0] != '/')
		return err_set(EINVAL, "%s is no absolute path", path);
	if (strlen(path) >= PATH_MAX)
		return err_set(ENAMETOOLONG, "the path is too long");
	r = trust_walk(&w, path, ret);
	closep(&w.fd);
	return r;
}
