/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/plain.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/user.h"

#define IOVS "iovs"
#define MARKER "plain"
#define MARKER_TEXT "usrbio plain directory 1\n"
#define MARKER_LEN (sizeof(MARKER_TEXT) - 1)

/* attempts to make a directory that other processes keep removing */
#define MAKE_TRIES 64

/* ------------------------------------------------------------------ checks */

/* Open by O_PATH: the owner can then be checked even if the directory is not readable. */
static int open_any(int at, const char *name)
{
	int fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 ? fd : errno == ELOOP ? -ENOTDIR : -errno;
}

/* Check that the directory belongs to this user and grants others none of these rights.  Return
 * 0, -EPERM or -errno. */
static int check_own(int fd, mode_t forbidden)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return user_is_own(st.st_uid) && !(st.st_mode & forbidden) ? 0 : -EPERM;
}

/*
 * Open a directory of this user that grants others none of these rights.  Return the descriptor;
 * -ENOENT; -ENOTDIR, also for a symbolic link; -EPERM.
 */
static int plain_open_own(int at, const char *name, mode_t forbidden)
{
	_cleanup_(closep) int fd = open_any(at, name);
	int err = fd < 0 ? fd : check_own(fd, forbidden);

	return err < 0 ? err : TAKE_FD(fd);
}

#define VIRT_FORBIDDEN 022

static int open_virt(int dir)
{
	int r = plain_open_own(dir, USRBIO_VIRT, VIRT_FORBIDDEN);

	return r == -ENOTDIR ? -EEXIST : r;
}

/* Open iovs for reading. */
static int plain_open_iovs(int virt)
{
	_cleanup_(closep) int path = plain_open_own(virt, IOVS, 077);
	int fd;

	if (path < 0)
		return path;
	fd = openat(path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int plain_open_dir(const char *dir)
{
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Return true if the marker's text can be trusted: the file belongs to root or this user, and
 * nobody else may write to it. */
static bool is_trusted(const struct stat *st)
{
	return (st->st_uid == 0 || user_is_own(st->st_uid)) && !(st->st_mode & 022);
}

/*
 * Check the marker.  Return 1; 0 if it is missing, or empty because the process that made it was
 * killed; -EEXIST for a file with another text; -EPERM for a file that others may have written;
 * -errno.
 */
static int has_marker(int virt)
{
	/* Do not wait for a writer if it is a pipe. */
	_cleanup_(closep) int fd =
		openat(virt, MARKER, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	char text[MARKER_LEN + 1];
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return errno == ENOENT ? 0 : errno == ELOOP || errno == ENXIO ? -EEXIST : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EEXIST;
	n = read(fd, text, sizeof(text));
	if (n < 0)
		return -errno;
	if (n == 0)
		return 0;
	if (n != MARKER_LEN || memcmp(text, MARKER_TEXT, MARKER_LEN) != 0)
		return -EEXIST;
	return is_trusted(&st) ? 1 : -EPERM;
}

/* Return 1 if the directory contains only files of a plain directory, 0 if not, or -errno. */
static int is_pure(int virt)
{
	int fd = openat(virt, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), pure = 1;
	const struct dirent *e;
	DIR *d;

	if (fd < 0)
		return -errno;
	d = fdopendir(fd);
	if (!d) {
		(void)close(fd);
		return -ENOMEM;
	}
	while (pure && (e = readdir(d)))
		pure = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		       !strcmp(e->d_name, IOVS) || !strcmp(e->d_name, MARKER);
	(void)closedir(d);
	return pure;
}

/*
 * Check 3fs-virt of a plain directory that is complete, half made or half removed.  Return 1 with
 * the marker, 0 without it; -EEXIST for anything else.
 */
static int check_virt(int virt)
{
	int marked = has_marker(virt), pure;

	if (marked)
		return marked;
	pure = is_pure(virt);
	return pure < 0 ? pure : pure ? 0 : -EEXIST;
}

/* Open 3fs-virt of a complete plain directory, else -ENOENT.  A daemon's 3fs-virt has no marker
 * and another owner. */
static int open_complete(int dir)
{
	_cleanup_(closep) int virt = open_any(dir, USRBIO_VIRT);
	int r = virt < 0 ? virt : has_marker(virt);

	if (r == 0)
		return -ENOENT;
	if (r < 0)
		return r == -EACCES ? -EPERM : r;
	r = check_own(virt, VIRT_FORBIDDEN);
	return r < 0 ? r : plain_open_iovs(virt);
}

int usrbio_plain_open(const char *dir)
{
	_cleanup_(closep) int fd = plain_open_dir(dir);
	int r;

	if (fd < 0)
		return fd;
	r = open_complete(fd);
	return r == -EEXIST || r == -ENOTDIR ? -ENOENT : r;
}

/* -------------------------------------------------------------------- make */

/*
 * Make a directory with its final mode.  A chmod(2) afterwards would be unsafe: if anybody may
 * write to DIR, it could change another directory of this user.
 */
static int plain_make_dir(int at, const char *name, mode_t mode)
{
	return mkdirat(at, name, mode) < 0 && errno != EEXIST ? -errno : 0;
}

/* Write the marker.  Several processes may do so at once, because all write the same text. */
static int make_marker(int virt)
{
	_cleanup_(closep) int fd = openat(
		virt, MARKER, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = pwrite(fd, MARKER_TEXT, MARKER_LEN, 0);
	return n == MARKER_LEN ? 0 : n < 0 ? -errno : -ENOSPC;
}

/* Make all parts once.  -ENOENT if another process removes them at the same time. */
static int make_once(int dir)
{
	_cleanup_(closep) int virt = -1, iovs = -1;
	int r = plain_make_dir(dir, USRBIO_VIRT, 0755);

	if (r < 0)
		return r;
	virt = open_virt(dir);
	if (virt < 0)
		return virt;
	r = check_virt(virt);
	if (r < 0)
		return r;
	r = plain_make_dir(virt, IOVS, 0700);
	if (r < 0)
		return r;
	r = make_marker(virt);
	if (r < 0)
		return r;
	iovs = open_complete(dir);
	return iovs < 0 ? iovs : 0;
}

static int make_at(int dir)
{
	int r = -ENOENT;

	for (unsigned i = 0; i < MAKE_TRIES && r == -ENOENT; i++)
		r = make_once(dir);
	return r == -ENOTDIR ? -EEXIST : r;
}

int usrbio_plain_make(const char *dir)
{
	_cleanup_(closep) int fd = plain_open_dir(dir), iovs = -1;

	if (fd < 0)
		return fd;
	iovs = open_complete(fd);
	return iovs >= 0 ? 0 : make_at(fd);
}

/* ------------------------------------------------------------------ remove */

static int remove_iovs(int virt)
{
	_cleanup_(closep) int iovs = plain_open_iovs(virt);
	int r;

	if (iovs < 0)
		return iovs == -ENOENT ? 0 : iovs;
	r = usrbio_plain_sweep(iovs);
	if (r < 0)
		return r;
	/* Once iovs is removed nobody can publish, because publishing needs a name in it. */
	if (unlinkat(virt, IOVS, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return errno == ENOTEMPTY || errno == EEXIST ? -EBUSY : -errno;
	return 0;
}

static int plain_remove_at(int dir)
{
	_cleanup_(closep) int virt = open_virt(dir);
	int r;

	if (virt < 0)
		return virt;
	r = check_virt(virt);
	if (r < 0)
		return r;
	r = is_pure(virt);
	if (r <= 0)
		return r < 0 ? r : -ENOTEMPTY;
	r = remove_iovs(virt);
	if (r < 0)
		return r;
	if (unlinkat(virt, MARKER, 0) < 0 && errno != ENOENT)
		return -errno;
	if (unlinkat(dir, USRBIO_VIRT, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	/* Another process is making it again, and may have seen the marker before it was
	 * removed. */
	return errno == ENOTEMPTY || errno == EEXIST ? make_at(dir) : -errno;
}

int usrbio_plain_remove(const char *dir)
{
	_cleanup_(closep) int fd = plain_open_dir(dir);
	int r;

	if (fd < 0)
		return fd;
	r = plain_remove_at(fd);
	return r == -EEXIST || r == -ENOTDIR ? -ENOENT : r;
}

/* -------------------------------------------------------------------- find */

/* Return true for errors that concern this process, such as a lack of memory, and not the
 * directory. */
static bool is_want(int r)
{
	return r == -EMFILE || r == -ENFILE || r == -ENOMEM;
}

/* Return 1 for a plain directory, 0 for any other, -EPERM if others may have made it, or -errno. */
static int plain_is_plain(const char *dir)
{
	_cleanup_(closep) int fd = plain_open_dir(dir), virt = -1;
	struct stat st;
	int r = fd;

	if (fd >= 0) {
		virt = openat(fd, USRBIO_VIRT, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = virt >= 0 ? has_marker(virt) : -errno;
	}
	if (r == 1 && (fstat(virt, &st) < 0 || !is_trusted(&st)))
		r = -EPERM;
	return r == 1 || r == -EPERM || is_want(r) ? r : 0;
}

int usrbio_plain_find(const char *path, char ret_dir[PATH_MAX])
{
	char dir[PATH_MAX], refused[PATH_MAX] = "", *slash;
	int r;

	if (path[0] != '/')
		return -EINVAL;
	if ((size_t)snprintf(dir, sizeof(dir), "%s", path) >= sizeof(dir))
		return -ENAMETOOLONG;
	while ((r = plain_is_plain(dir)) == 0 || r == -EPERM) {
		/* Continue the search: a directory planted by others must not hide a valid one
		 * above it. */
		if (r == -EPERM && !refused[0])
			strcpy(refused, dir);
		slash = strrchr(dir, '/');
		if (!slash[1]) /* stop: dir was the root */
			break;
		slash[slash == dir] = '\0';
	}
	if (r == 1)
		strcpy(ret_dir, dir);
	else if (refused[0])
		strcpy(ret_dir, refused);
	if (r == 0 || r == -EPERM)
		return refused[0] ? -EPERM : -ENOENT;
	return r < 0 ? r : 0;
}
