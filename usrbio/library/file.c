/* SPDX-License-Identifier: MIT */
/*
 * The file calls of the API that are not ring requests: by ioctl(2) on a daemon's mount, by the
 * system's own calls in a plain directory.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <hf3fs_usrbio.h>
#include "keep.h"
#include "log.h"
#include "mount.h"
#include "usrbio/proto/ioctl.h"

/* ---------------------------------------------------------------- hard links */

/* The place of a new name.  dir: the open parent directory; last: the last part of the path. */
struct new_name {
	int dir;
	const char *last;
};

static int file_open_parent(const char *link_name, struct new_name *ret)
{
	const char *slash = strrchr(link_name, '/');
	size_t len = slash ? (size_t)(slash - link_name) + 1 : 0;
	char dir[PATH_MAX];

	ret->last = link_name + len;
	if (strlen(ret->last) >= USRBIO_LINK_NAME_MAX)
		return log_fail(ENAMETOOLONG, "%s: the last part has more than %d bytes", link_name,
				USRBIO_LINK_NAME_MAX - 1);
	if (!*ret->last || !strcmp(ret->last, ".") || !strcmp(ret->last, ".."))
		return log_fail(EINVAL, "'%s' does not end in a new name", link_name);
	if (len >= sizeof(dir))
		return log_fail(ENAMETOOLONG, "%s", link_name);
	(void)snprintf(dir, sizeof(dir), "%.*s", len ? (int)len : 1, len ? link_name : ".");
	ret->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ret->dir < 0 ? log_fail(errno, "%s: %m", dir) : 0;
}

static int link_by_daemon(int fd, const struct new_name *to)
{
	struct usrbio_hardlink arg = { 0 };
	struct stat st, dir;

	if (fstat(fd, &st) < 0 || fstat(to->dir, &dir) < 0)
		return -errno;
	if (st.st_dev != dir.st_dev)
		return -EXDEV;
	arg.parent = dir.st_ino;
	(void)snprintf(arg.name, sizeof(arg.name), "%s", to->last);
	return ioctl(fd, USRBIO_IOC_HARDLINK, &arg) < 0 ? -errno : 0;
}

static int link_here(int fd, const char *plain, const struct new_name *to)
{
	char other[PATH_MAX], self[40];
	int kind = mount_of_fd(to->dir, other);

	if (kind < 0)
		return kind;
	if (kind != MOUNT_PLAIN || strcmp(plain, other) != 0)
		return -EXDEV;
	/* Link the open descriptor: its name may refer to another file by now. */
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, self, to->dir, to->last, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int link_file(int fd, const struct new_name *to)
{
	char plain[PATH_MAX];
	int kind = mount_of_fd(fd, plain);

	if (kind == MOUNT_DAEMON)
		return link_by_daemon(fd, to);
	if (kind == MOUNT_PLAIN)
		return link_here(fd, plain, to);
	return kind < 0 ? kind : -ENOTTY;
}

int hf3fs_hardlink(const char *target, const char *link_name)
{
	KEEP_ERRNO;
	_cleanup_(closep) int fd = -1;
	_cleanup_(closep) int dir = -1;
	struct new_name to;
	int r;

	if (!target || !link_name)
		return EINVAL;
	/* Do not block on a FIFO or a device. */
	fd = open(target, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -log_fail(errno, "%s: %m", target);
	r = file_open_parent(link_name, &to);
	if (r < 0)
		return -r;
	dir = to.dir;
	r = link_file(fd, &to);
	return r < 0 ? -log_fail(r, "cannot give %s the name %s: %s", target, link_name,
				 strerror(-r))
		     : 0;
}

/* --------------------------------------------------------------------- holes */

static int punch_by_daemon(int fd, int n, const size_t *start, const size_t *end, size_t flags)
{
	struct usrbio_punch arg = { .n = n, .flags = flags };

	for (int i = 0; i < n; i++) {
		arg.start[i] = start[i];
		arg.end[i] = end[i];
	}
	return ioctl(fd, USRBIO_IOC_PUNCH, &arg) < 0 ? -errno : 0;
}

static int punch_one(int fd, size_t start, size_t end)
{
	int r;

	if (start == end)
		return 0;
	do
		r = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
			      (off_t)(end - start));
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

static int file_punch(int fd, int n, const size_t *start, const size_t *end, size_t flags)
{
	char plain[PATH_MAX];
	int kind = mount_of_fd(fd, plain), r = 0;

	if (kind == MOUNT_DAEMON)
		return punch_by_daemon(fd, n, start, end, flags);
	if (kind != MOUNT_PLAIN)
		return kind < 0 ? kind : -ENOTTY;
	for (int i = 0; i < n && r == 0; i++)
		r = punch_one(fd, start[i], end[i]);
	return r;
}

int hf3fs_punchhole(int fd, int n, const size_t *start, const size_t *end, size_t flags)
{
	KEEP_ERRNO;
	int r;

	if (n < 1 || n > USRBIO_PUNCH_RANGES || !start || !end)
		return EINVAL;
	/* Check every range before freeing the first. */
	for (int i = 0; i < n; i++)
		if (start[i] > end[i] || end[i] > INT64_MAX)
			return -log_fail(EINVAL, "range %d of a hole is from %zu to %zu", i,
					 start[i], end[i]);
	r = file_punch(fd, n, start, end, flags);
	return r < 0 ? -log_fail(r, "cannot free ranges of descriptor %d: %s", fd, strerror(-r))
		     : 0;
}
