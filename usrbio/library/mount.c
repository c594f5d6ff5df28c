/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <hf3fs_usrbio.h>
#include "keep.h"
#include "lock.h"
#include "log.h"
#include "mount.h"
#include "usrbio/proto/ioctl.h"
#include "usrbio/proto/plain.h"

#define SUBMIT_LINK "submit-ios" /* link to the semaphore of normal priority */

static struct mount *mounts; /* under LOCK_MOUNTS */

/* ---------------------------------------------------------------- opening */

static int open_daemon(const char *path, const char *iovs)
{
	_cleanup_(closep) int fd = open(iovs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct statfs fs;

	if (fd < 0)
		return log_fail(errno, "cannot open %s: %m", iovs);
	if (fstatfs(fd, &fs) < 0)
		return log_fail(errno, "%s: %m", iovs);
	if (fs.f_type != FUSE_SUPER_MAGIC && !mount_any_type())
		return log_fail(ENOENT,
				"%s is no mount of 3FS and no plain directory; "
				"'penstock mount --plain %s' makes it one",
				path, path);
	return TAKE_FD(fd);
}

static void note_submit(struct mount *m)
{
	ssize_t n = readlinkat(m->iovs, SUBMIT_LINK, m->submit, sizeof(m->submit) - 1);

	m->submit[n > 0 ? n : 0] = '\0';
}

static int open_iovs(struct mount *m)
{
	char iovs[MOUNT_PATH_MAX + sizeof("/" USRBIO_IOVS)];
	struct stat st;

	(void)snprintf(iovs, sizeof(iovs), "%s/" USRBIO_IOVS, m->path);
	m->kind = MOUNT_PLAIN;
	m->iovs = usrbio_plain_open(m->path);
	if (m->iovs == -ENOENT) {
		m->kind = MOUNT_DAEMON;
		m->iovs = open_daemon(m->path, iovs);
	} else if (m->iovs < 0) {
		return log_fail(m->iovs, "%s is not to be used by this user: %s", iovs,
				strerror(-m->iovs));
	}
	if (m->iovs < 0)
		return m->iovs;
	if (fstat(m->iovs, &st) < 0)
		return log_fail(errno, "%s: %m", iovs);
	m->dev = st.st_dev;
	m->ino = st.st_ino;
	m->forks = lock_forks();
	if (m->kind == MOUNT_DAEMON) {
		m->user = mount_user(m->dev);
		note_submit(m);
	}
	return 0;
}

static struct mount *mount_free(struct mount *m)
{
	if (m) {
		closep(&m->iovs);
		free(m);
	}
	return NULL;
}

static void mount_freep(struct mount **m)
{
	(void)mount_free(*m);
}

static void mount_sweep(const struct mount *m)
{
	int n = usrbio_plain_sweep(m->iovs);

	if (n < 0)
		log_line(LOG_WARN,
			 "cannot remove what dead processes left in %s/" USRBIO_IOVS
			 ": %s, ignoring",
			 m->path, strerror(-n));
	else if (n > 0)
		log_line(LOG_INFO, "removed %d links that dead processes left in %s/" USRBIO_IOVS,
			 n, m->path);
}

static int mount_new(const char *path, struct mount **ret)
{
	_cleanup_(mount_freep) struct mount *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->iovs = -1;
	(void)snprintf(m->path, sizeof(m->path), "%s", path);
	r = open_iovs(m);
	if (r < 0)
		return r;
	m->refs = 1;
	if (m->kind == MOUNT_PLAIN)
		mount_sweep(m);
	*ret = TAKE_PTR(m);
	return 0;
}

/* ------------------------------------------------------------------ table */

/* Get the attributes of a mount without opening it: to a daemon, closing it would mean that this
 * process ends. */
static int mount_look(const char *path, struct stat *ret)
{
	char iovs[MOUNT_PATH_MAX + sizeof("/" USRBIO_IOVS)];

	(void)snprintf(iovs, sizeof(iovs), "%s/" USRBIO_IOVS, path);
	if (stat(iovs, ret) == 0)
		return 0;
	if (errno == ENOENT || errno == ENOTDIR)
		return log_fail(ENOENT,
				"there is no %s: %s is no mount of 3FS and no plain directory; "
				"'penstock mount --plain %s' makes it one",
				iovs, path, path);
	return log_fail(errno, "%s: %m", iovs);
}

static bool mount_is_same(const struct mount *m, const struct stat *st)
{
	return m->dev == st->st_dev && m->ino == st->st_ino && m->forks == lock_forks() &&
	       !atomic_load(&m->gone);
}

/* Remove an unused mount from the list if its path now leads to another directory. */
static struct mount *take_stale(const char *path, const struct stat *st)
{
	struct mount *m;

	for (struct mount **p = &mounts; (m = *p); p = &m->next)
		if (!m->refs && !strcmp(m->path, path) && !mount_is_same(m, st)) {
			*p = m->next;
			return m;
		}
	return NULL;
}

static struct mount *known(const char *path, const struct stat *st)
{
	struct mount *m, *stale;

	lock_take(LOCK_MOUNTS);
	stale = take_stale(path, st);
	for (m = mounts; m; m = m->next)
		if (!strcmp(m->path, path) && mount_is_same(m, st))
			break;
	if (m)
		m->refs++;
	lock_drop(LOCK_MOUNTS);
	(void)mount_free(stale);
	return m;
}

int mount_get(const char *path, struct mount **ret)
{
	size_t len = path ? strlen(path) : 0;
	char dir[MOUNT_PATH_MAX];
	struct mount *m;
	struct stat st;
	int r;

	if (len == 0 || len >= sizeof(dir))
		return log_fail(EINVAL, "a mount point is a path of 1 to %zu bytes",
				sizeof(dir) - 1);
	while (len > 1 && path[len - 1] == '/')
		len--;
	(void)snprintf(dir, sizeof(dir), "%.*s", (int)len, path);
	r = mount_look(dir, &st);
	if (r < 0)
		return r;
	m = known(dir, &st);
	if (!m) {
		/* Open the mount without the lock, because a daemon may be slow.  Two threads may
		 * both open it, which is harmless. */
		r = mount_new(dir, &m);
		if (r < 0)
			return r;
		lock_take(LOCK_MOUNTS);
		m->next = mounts;
		mounts = m;
		lock_drop(LOCK_MOUNTS);
	}
	*ret = m;
	return 0;
}

struct mount *mount_put(struct mount *m)
{
	if (!m)
		return NULL;
	lock_take(LOCK_MOUNTS);
	m->refs--;
	lock_drop(LOCK_MOUNTS);
	return NULL;
}

/* --------------------------------------------------- is the daemon there? */

/* Return true for the errors of a file system whose daemon has ended. */
static bool mount_is_end(int err)
{
	return err == ENOTCONN || err == ECONNABORTED;
}

static bool find_gone(const struct mount *m)
{
	char target[PATH_MAX];
	struct statx sx;
	ssize_t n;

	/* Ask the daemon itself, not the kernel's cache of attributes. */
	if (statx(m->iovs, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_TYPE, &sx) < 0)
		return mount_is_end(errno);
	if (!m->submit[0])
		return false;
	n = readlinkat(m->iovs, SUBMIT_LINK, target, sizeof(target) - 1);
	if (n < 0)
		return mount_is_end(errno) || errno == ENOENT;
	target[n] = '\0';
	return strcmp(target, m->submit) != 0;
}

static void *library_mount_ask(void *arg)
{
	struct mount *m = arg;

	(void)pthread_setname_np(pthread_self(), "pst-ask");
	if (find_gone(m)) {
		log_line(LOG_ERROR,
			 "the daemon of %s has ended or was started anew: requests in flight end "
			 "with EREMOTEIO; make rings and shared memory again",
			 m->path);
		atomic_store(&m->gone, true);
	}
	atomic_store(&m->asking, 0);
	(void)mount_put(m);
	return NULL;
}

/* Start a detached thread with all signals blocked: no handler of the program runs on it. */
static int mount_start(void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	r = pthread_attr_init(&attr);
	if (r != 0)
		return -r;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, &attr, fn, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

void mount_ask(struct mount *m)
{
	unsigned me = lock_forks() + 1, was = atomic_load(&m->asking);

	/* Ask again in a forked child: the thread that asks exists only in the parent. */
	if (m->kind != MOUNT_DAEMON || atomic_load(&m->gone) || was == me ||
	    !atomic_compare_exchange_strong(&m->asking, &was, me))
		return;
	lock_take(LOCK_MOUNTS);
	m->refs++;
	lock_drop(LOCK_MOUNTS);
	if (mount_start(library_mount_ask, m) < 0) { /* no thread: the next call tries again */
		atomic_store(&m->asking, 0);
		(void)mount_put(m);
	}
}

/* ------------------------------------------------------------ open files */

/* Find the current path of an open file.  Return 0 for a file without a path in this mount
 * namespace. */
static int path_of_fd(int fd, char ret_path[PATH_MAX])
{
	char link[40];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, ret_path, PATH_MAX);
	if (n < 0)
		return -errno;
	if (n == PATH_MAX || ret_path[0] != '/')
		return 0;
	ret_path[n] = '\0';
	return 1;
}

int mount_of_fd(int fd, char ret_plain[PATH_MAX])
{
	char path[PATH_MAX];
	uint32_t magic = 0;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	/* The ioctl's number means something else to device drivers. */
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return 0;
	if (ioctl(fd, USRBIO_IOC_MAGIC, &magic) == 0)
		return magic == USRBIO_MAGIC ? MOUNT_DAEMON : 0;
	if (mount_is_end(errno))
		return -errno;
	r = path_of_fd(fd, path);
	if (r <= 0)
		return r;
	r = usrbio_plain_find(path, ret_plain);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : MOUNT_PLAIN;
}

int mount_refuse(const char *plain)
{
	return log_fail(EPERM,
			"%s/" USRBIO_VIRT " is not used: it belongs to another user, or others may "
			"write to it.  If nobody put anything there, 'chmod -R go-w' it; or take a "
			"directory of your own, 'penstock mount --plain DIR'",
			plain);
}

bool hf3fs_is_hf3fs(int fd)
{
	KEEP_ERRNO;
	char plain[PATH_MAX];

	return mount_of_fd(fd, plain) > 0;
}
