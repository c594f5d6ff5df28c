/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of libhf3fs_api_shared: a mount of each kind, files with a pattern, a ring,
 * and checks at the end of each case that nothing is left over.
 *
 * 	static void reads(void)
 * 	{
 * 		int fd = api_file("data", 4096);
 * 		...
 * 	}
 * 	int main(void)
 * 	{
 * 		api_init();
 * 		API_RUN(reads);		// reads_plain and reads_daemon
 * 		return api_done();
 * 	}
 *
 * The plain directory is made by usrbio_plain_make(); the daemon is usrbio-foreign-daemon, if it
 * can mount.
 */
#ifndef PST_TESTS_API_RIG_H
#define PST_TESTS_API_RIG_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hf3fs_usrbio.h>
#include <penstock.h>

#include "usrbio/proto/plain.h"

#define T_ERROR_TEXT() pst_error_text()
#include "mount_rig.h"
#include "scratch.h"
#include "t.h"

#if defined(__SANITIZE_THREAD__)
#define API_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define API_TSAN 1
#endif
#endif
#ifndef API_TSAN
#define API_TSAN 0
#endif

#define API_DAEMON "usrbio-foreign-daemon"
#define API_CHUNK 65536u /* bytes; chunk of the daemon's files, the unit of holes */
#define API_SEED 7

static char api_dir[100];        /* scratch directory */
static char api_plain[120];      /* the plain directory in api_dir */
static struct mount_rig api_rig; /* mount of the daemon */

/* Objects of the current case. */
static const char *mnt;
static bool on_daemon;

/* ------------------------------------------------------------ environment */

static inline void api_init(void)
{
	int r = scratch_new(NULL, api_dir, sizeof(api_dir));

	if (r < 0) {
		printf("Bail out! no scratch directory %s: %s\n", api_dir, strerror(-r));
		exit(1);
	}
	(void)setenv("XDG_CACHE_HOME", api_dir, 1);
	(void)snprintf(api_plain, sizeof(api_plain), "%s/plain", api_dir);
	if (mkdir(api_plain, 0755) < 0 || usrbio_plain_make(api_plain) < 0) {
		printf("Bail out! no plain directory %s\n", api_plain);
		exit(1);
	}
}

/* Start the daemon once; T_SKIP if it cannot mount. */
static inline void api_daemon(void)
{
	static const char *const options[] = { "--chunk", "65536", NULL };

	if (!api_rig.pid && !api_rig.why[0])
		(void)mount_rig_start(&api_rig, API_DAEMON, options);
	if (!api_rig.pid)
		T_SKIP("%s", api_rig.why);
}

/*
 * Count descriptors that stay open between rings: those that the threads of plain directories sleep
 * on, and 3fs-virt/iovs of each mount, once.
 */
static inline unsigned api_fds_that_stay(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	static const char gone[] = " (deleted)";
	unsigned n = 0, plain = 0;

	while (d && (e = readdir(d))) {
		char to[PATH_MAX];
		ssize_t len = readlinkat(dirfd(d), e->d_name, to, sizeof(to) - 1);
		size_t tail = strlen(USRBIO_IOVS);

		if (len <= 0)
			continue;
		to[len] = '\0';
		if (!strncmp(to, "anon_inode:", 11))
			n++;
		/* A directory of another user's mount is shown as deleted. */
		if (len > (ssize_t)strlen(gone) && !strcmp(to + len - strlen(gone), gone))
			to[len -= (ssize_t)strlen(gone)] = '\0';
		if (len <= (ssize_t)tail || strcmp(to + len - tail, USRBIO_IOVS) != 0)
			continue;
		/* Count each descriptor of a daemon's 3fs-virt/iovs: a test may have several
		 * mounts. */
		if (strncmp(to, api_plain, strlen(api_plain)) != 0)
			n++;
		else
			plain = 1;
	}
	if (d)
		(void)closedir(d);
	return n + plain;
}

static inline int api_done(void)
{
	int status;

	if (api_rig.pid)
		(void)mount_rig_stop(&api_rig);
	t_fds_at_start += api_fds_that_stay();
	status = t_done();
	(void)scratch_remove(api_dir);
	return status;
}

/* ---------------------------------------------------------- what is left */

/* Count entries of a directory whose names begin with one text and contain the other. */
static inline unsigned api_count(const char *dir, const char *begins, const char *holds)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.' && !strncmp(e->d_name, begins, strlen(begins)) &&
		     strstr(e->d_name, holds) && strncmp(e->d_name, "submit-ios", 10) != 0;
	if (d)
		(void)closedir(d);
	return n;
}

/* Count this process' shared memory in /dev/shm. */
static inline unsigned api_shm(void)
{
	char pid[32];

	(void)snprintf(pid, sizeof(pid), ".p%d.", (int)getpid());
	return api_count("/dev/shm", "hf3fs-iov-", pid);
}

struct api_listing {
	const char *begins;
	unsigned nr;
};

static void *api_list(void *arg)
{
	struct api_listing *l = arg;
	char dir[PATH_MAX];

	(void)snprintf(dir, sizeof(dir), "%s/" USRBIO_IOVS, mnt);
	l->nr = api_count(dir, l->begins, "");
	return NULL;
}

/*
 * Count published links.  A daemon may take the closing of the directory for the end of a thread's
 * publications, and may learn of it after the thread has published again.  So a thread without
 * publications counts.
 */
static inline unsigned api_links(const char *begins)
{
	struct api_listing l = { .begins = begins };
	pthread_t thread;

	T_EQ(pthread_create(&thread, NULL, api_list, &l), 0);
	(void)pthread_join(thread, NULL);
	return l.nr;
}

static void (*api_case)(void);

static void api_on_plain(void)
{
	mnt = api_plain;
	on_daemon = false;
	api_case();
	T_EQ(api_links(""), 0);
	T_EQ(api_shm(), 0);
}

static void api_on_daemon(void)
{
	api_daemon();
	mnt = api_rig.mnt;
	on_daemon = true;
	api_case();
	T_EQ(api_links(""), 0);
	T_EQ(api_shm(), 0);
}

static inline void api_run(const char *name, void (*fn)(void), bool plain, bool daemon)
{
	char text[128];

	api_case = fn;
	if (plain) {
		(void)snprintf(text, sizeof(text), "%s_plain", name);
		t_run(text, api_on_plain);
	}
	if (daemon) {
		(void)snprintf(text, sizeof(text), "%s_daemon", name);
		t_run(text, api_on_daemon);
	}
}

#define API_RUN(fn) api_run(#fn, fn, true, true)
#define API_PLAIN(fn) api_run(#fn, fn, true, false)
#define API_ON_DAEMON(fn) api_run(#fn, fn, false, true)

/* ------------------------------------------------------------------- files */

static inline const char *api_path(const char *name)
{
	static _Thread_local char path[4][PATH_MAX];
	static _Thread_local unsigned next;
	char *p = path[next++ % 4];

	(void)snprintf(p, PATH_MAX, "%s/%s", mnt, name);
	return p;
}

/* Create a file of size bytes of t_fill(API_SEED), open for reading and writing. */
static inline int api_file(const char *name, size_t size)
{
	int fd = open(api_path(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	char *buf = malloc(size ? size : 1);

	T_CHECK(fd >= 0 && buf);
	t_fill(buf, API_SEED, 0, size);
	T_EQ(pwrite(fd, buf, size, 0), (ssize_t)size);
	/* Sync: a daemon that caches nothing, and direct reads, must see the bytes. */
	T_EQ(fsync(fd), 0);
	free(buf);
	return fd;
}

/* Create and register a file; api_close() ends both. */
static inline int api_open(const char *name, size_t size)
{
	int fd = api_file(name, size), r = hf3fs_reg_fd(fd, 0);

	if (r > 0)
		T_FAIL("hf3fs_reg_fd() gave %d", r);
	return fd;
}

static inline void api_close(int fd)
{
	hf3fs_dereg_fd(fd);
	T_EQ(close(fd), 0);
}

/* ------------------------------------------------------------------- rings */

static inline struct hf3fs_iov api_iov(size_t size)
{
	struct hf3fs_iov iov = { 0 };

	T_EQ(hf3fs_iovcreate(&iov, mnt, size, 0, -1), 0);
	return iov;
}

static inline struct hf3fs_ior api_ior(int entries, bool for_read)
{
	struct hf3fs_ior ior = { 0 };

	T_EQ(hf3fs_iorcreate4(&ior, mnt, entries, for_read, 0, 0, -1, 0), 0);
	return ior;
}

/* Return the time ms milliseconds from now, by CLOCK_REALTIME. */
static inline struct timespec api_in_ms(int ms)
{
	struct timespec ts;
	long long ns;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	ns = ts.tv_sec * 1000000000ll + ts.tv_nsec + ms * 1000000ll;
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000),
				  .tv_nsec = (long)(ns % 1000000000) };
}

#define API_WAIT_MS 60000

/* Wait for one completion, which must come. */
static inline struct hf3fs_cqe api_wait(const struct hf3fs_ior *ior)
{
	struct timespec until = api_in_ms(API_WAIT_MS);
	struct hf3fs_cqe cqe = { .index = -1 };

	T_EQ(hf3fs_wait_for_ios(ior, &cqe, 1, 1, &until), 1);
	T_EQ(cqe.reserved, 0);
	return cqe;
}

/* Execute one request and return its result. */
static inline int64_t api_io(const struct hf3fs_ior *ior, const struct hf3fs_iov *iov, size_t at,
			     int fd, size_t off, size_t len)
{
	const void *mark = iov->base + at;
	struct hf3fs_cqe cqe;
	int index = hf3fs_prep_io(ior, iov, ior->for_read, iov->base + at, fd, off, len, mark);

	if (index < 0)
		return index;
	T_EQ(hf3fs_submit_ios(ior), 0);
	cqe = api_wait(ior);
	T_EQ(cqe.index, index);
	T_CHECK(cqe.userdata == mark);
	return cqe.result;
}

/* Run fn in a child and return its result, at most 255. */
static inline int api_child(int (*fn)(void))
{
	int status = -1;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		/* A failed check in the child ends only the child. */
		if (setjmp(t_jump)) {
			(void)fprintf(stderr, "# in a child: %s\n", t_why);
			_exit(255);
		}
		_exit(fn());
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
}

#endif
