/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/listen.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/base.h"
#include "usrbio/proto/place.h"

#define BACKLOG 64
#define SWEEP_MAX 1000u /* maximum names of dead servers to check */
#define LOCK_TRIES 200
#define LOCK_PAUSE_US 10000

/* Make an address below the directory's descriptor: so long paths fit, and nobody can exchange the
 * directory. */
static bool address(const struct listen *l, const char *name, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return (size_t)snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", l->dir,
				name) < sizeof(ret->sun_path);
}

/* Try to connect to a name.  Return -ECONNREFUSED if no server listens there. */
static int listen_ask(const struct listen *l, const char *name)
{
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;

	if (fd < 0)
		return -errno;
	if (!address(l, name, &a))
		return -ENAMETOOLONG;
	return connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
}

/* Remove the socket that a dead server of this user left under a name.  Return 0 if the name is
 * free. */
static int listen_make_room(const struct listen *l, const char *name)
{
	struct stat st;
	int err;

	if (fstatat(l->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
		return -EEXIST;
	err = listen_ask(l, name);
	if (err != -ECONNREFUSED)
		return err == 0 || err == -EAGAIN ? -EADDRINUSE : err;
	return unlinkat(l->dir, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static void listen_sweep(const struct listen *l)
{
	int fd = openat(l->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	unsigned seen = 0;
	struct dirent *e;

	if (!d) {
		closep(&fd);
		return;
	}
	while (seen++ < SWEEP_MAX && (e = readdir(d)))
		if (strlen(e->d_name) == USRBIO_PLACE_NAME - 1 &&
		    strstr(e->d_name, USRBIO_PLACE_SUFFIX))
			(void)listen_make_room(l, e->d_name);
	(void)closedir(d);
}

/* Lock the directory.  Any user who may read it can lock it too, so the wait is limited. */
static int listen_lock(const struct listen *l)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (flock(l->dir, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		(void)usleep(LOCK_PAUSE_US);
	}
	return -EBUSY;
}

/* Check that only this user and root can rename or remove names in the directory. */
static int check_dir(int dir)
{
	struct stat st;

	if (fstat(dir, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return -EPERM;
	return st.st_mode & 022 && !(st.st_mode & S_ISVTX) ? -EPERM : 0;
}

static int find_place(struct listen *l, const char *path, const char *mount)
{
	char dir[PATH_MAX], *slash;
	int err;

	if (path) {
		if (strlen(path) >= sizeof(dir))
			return -ENAMETOOLONG;
		(void)strcpy(dir, path);
		(void)strcpy(l->path, path);
		slash = strrchr(dir, '/');
		if (!slash || !slash[1] || strlen(slash + 1) >= sizeof(l->name))
			return -EINVAL;
		(void)strcpy(l->name, slash + 1);
		slash[slash == dir] = '\0';
	} else {
		err = usrbio_place_dir(geteuid(), dir, sizeof(dir) - USRBIO_PLACE_NAME);
		if (err < 0)
			return err;
		usrbio_place_name(mount, l->name);
		(void)snprintf(l->path, sizeof(l->path), "%s/%.30s", dir, l->name);
		if (mkdir(dir, 0700) < 0 && errno != EEXIST)
			return -errno;
	}
	l->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (path ? 0 : O_NOFOLLOW));
	return l->dir < 0 ? -errno : check_dir(l->dir);
}

/* Bind the name, with the directory's lock held. */
static int listen_bind_name(struct listen *l)
{
	struct sockaddr_un a;
	struct stat st;

	if (!address(l, l->name, &a))
		return -ENAMETOOLONG;
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* The name gets the mode of the socket. */
	if (l->fd < 0 || fchmod(l->fd, 0600) < 0 ||
	    bind(l->fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	if (fstatat(l->dir, l->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	if (st.st_mode & 0177 || st.st_uid != geteuid())
		return -EPERM;
	return listen(l->fd, BACKLOG) < 0 ? -errno : 0;
}

/* Write the actual address: the kernel chooses a port if it was 0. */
static int write_address(struct listen *l)
{
	char host[INET6_ADDRSTRLEN];
	union {
		struct sockaddr any;
		struct sockaddr_in ip;
		struct sockaddr_in6 ip6;
	} a;
	socklen_t len = sizeof(a);

	if (getsockname(l->fd, &a.any, &len) < 0)
		return -errno;
	if (a.any.sa_family == AF_INET)
		(void)snprintf(l->path, sizeof(l->path), "%s:%u",
			       inet_ntop(AF_INET, &a.ip.sin_addr, host, sizeof(host)),
			       ntohs(a.ip.sin_port));
	else
		(void)snprintf(l->path, sizeof(l->path), "[%s]:%u",
			       inet_ntop(AF_INET6, &a.ip6.sin6_addr, host, sizeof(host)),
			       ntohs(a.ip6.sin6_port));
	return 0;
}

/* Listen on a port.  SO_REUSEADDR: connections of an ended server occupy the port for a minute. */
static int open_port(struct listen *l, const struct sockaddr_storage *a, int len)
{
	const int one = 1;

	l->fd = socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0 || setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(l->fd, (const struct sockaddr *)a, (socklen_t)len) < 0 ||
	    listen(l->fd, BACKLOG) < 0)
		return -errno;
	return write_address(l);
}

/* Listen on the port that path names.  Return 1 if path is a file name. */
static int try_port(struct listen *l, const char *path)
{
	struct sockaddr_storage a;
	int len = path ? usrbio_place_tcp(path, &a) : 0;

	if (len <= 0)
		return len < 0 ? len : 1;
	return open_port(l, &a, len);
}

int listen_open(struct listen *l, const char *path, const char *mount)
{
	int err;

	*l = (struct listen){ .fd = -1, .dir = -1 };
	err = try_port(l, path);
	if (err <= 0) {
		if (err < 0)
			listen_close(l);
		return err;
	}
	err = find_place(l, path, mount);
	if (err == 0)
		err = listen_lock(l);
	if (err == 0) {
		if (!path)
			listen_sweep(l);
		err = listen_make_room(l, l->name);
		if (err == 0)
			err = listen_bind_name(l);
		(void)flock(l->dir, LOCK_UN);
	}
	if (err < 0)
		listen_close(l);
	return err;
}

void listen_close(struct listen *l)
{
	struct stat st;

	if (l->ino && listen_lock(l) == 0) {
		if (fstatat(l->dir, l->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    st.st_dev == l->dev && st.st_ino == l->ino)
			(void)unlinkat(l->dir, l->name, 0);
		(void)flock(l->dir, LOCK_UN);
	}
	closep(&l->fd);
	closep(&l->dir);
	l->fd = l->dir = -1;
}
