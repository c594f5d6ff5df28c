/* SPDX-License-Identifier: MIT */
/* U4, U5, U6, U9: each error that the header documents, and the state after it. */
#include <stddef.h>
#include <sys/resource.h>

#include "api_rig.h"
#include "usrbio/proto/ring.h"
#include "trip.h"

static const uint8_t some_id[16] = { 1, 2, 3 };

/* -------------------------------------------------------------- allocations */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLOCATES 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
	__has_feature(memory_sanitizer)
#define ALLOCATES 0
#endif
#endif
#ifndef ALLOCATES
#define ALLOCATES 1
#endif

#if ALLOCATES
static _Thread_local unsigned callocs_left; /* calls until the one that fails; 0: no call fails */

void *__libc_calloc(size_t nr, size_t size);

__attribute__((visibility("default"))) void *calloc(size_t nr, size_t size)
{
	if (callocs_left && --callocs_left == 0) {
		errno = ENOMEM;
		return NULL;
	}
	return __libc_calloc(nr, size);
}
#endif

/* --------------------------------------------------------------------- log */

/* Log lines are rate-limited by their text, and the next printed line counts the dropped ones. */
static void each_text_is_said_some_times(void)
{
	int log = memfd_create("log", MFD_CLOEXEC), was = dup(STDERR_FILENO);
	struct hf3fs_iov iov;
	unsigned lines = 0;
	char text[16384];
	ssize_t n;

	T_CHECK(log >= 0 && was >= 0);
	(void)fflush(stderr);
	T_EQ(dup2(log, STDERR_FILENO), STDERR_FILENO);
	for (unsigned i = 0; i < 1000; i++)
		(void)hf3fs_iovcreate(&iov, "/nowhere/at/all", 4096, 0, -1);
	(void)fflush(stderr);
	T_EQ(dup2(was, STDERR_FILENO), STDERR_FILENO);
	(void)close(was);
	n = pread(log, text, sizeof(text) - 1, 0);
	(void)close(log);
	T_CHECK(n > 0 && n < (ssize_t)sizeof(text) - 1);
	for (ssize_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	/* The calls take a minute at most, so there are at most seven windows of the limit. */
	T_CHECK(lines >= 1 && lines <= 20 * 7);
}

/* ------------------------------------------------------------- mount points */

static void U4_is_hf3fs(void)
{
	int fd = api_file("data", 1), dir = open(mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int outside = open(api_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ends[2];

	T_CHECK(dir >= 0 && outside >= 0 && pipe2(ends, O_CLOEXEC) == 0);
	T_CHECK(hf3fs_is_hf3fs(fd));
	T_CHECK(hf3fs_is_hf3fs(dir));
	T_CHECK(!hf3fs_is_hf3fs(outside));
	T_CHECK(!hf3fs_is_hf3fs(ends[0]));
	(void)close(ends[0]);
	(void)close(ends[1]);
	(void)close(fd);
	(void)close(dir);
	(void)close(outside);
	T_CHECK(!hf3fs_is_hf3fs(fd));
	T_CHECK(!hf3fs_is_hf3fs(-1));
}

static void U4_extract_mount_point(void)
{
	char buf[300] = "untouched", link[200];
	int len = (int)strlen(mnt) + 1;

	T_EQ(mkdir(api_path("a b"), 0755), 0);
	T_EQ(close(api_file("a b/data", 1)), 0);
	T_EQ(hf3fs_extract_mount_point(buf, len - 1, mnt), len);
	T_CHECK(!strcmp(buf, "untouched"));
	T_EQ(hf3fs_extract_mount_point(NULL, 0, mnt), len);
	T_EQ(hf3fs_extract_mount_point(buf, -1, mnt), len);
	T_CHECK(!strcmp(buf, "untouched"));
	T_EQ(hf3fs_extract_mount_point(buf, len, mnt), len);
	T_CHECK(!strcmp(buf, mnt));
	buf[0] = '\0';
	T_EQ(hf3fs_extract_mount_point(buf, sizeof(buf), api_path("a b/../a b/data")), len);
	T_CHECK(!strcmp(buf, mnt));
	/* Follow a link from outside the mount. */
	(void)snprintf(link, sizeof(link), "%s/link", api_dir);
	T_EQ(symlink(mnt, link), 0);
	T_EQ(hf3fs_extract_mount_point(buf, sizeof(buf), link), len);
	T_CHECK(!strcmp(buf, mnt));
	T_EQ(unlink(link), 0);

	errno = 0;
	T_EQ(hf3fs_extract_mount_point(buf, sizeof(buf), api_path("none")), -1);
	T_EQ(errno, ENOENT);
	T_EQ(hf3fs_extract_mount_point(buf, sizeof(buf), api_dir), -1);
	T_EQ(errno, ENODEV);
	T_EQ(hf3fs_extract_mount_point(buf, sizeof(buf), NULL), -1);
	T_EQ(errno, EINVAL);
	T_EQ(hf3fs_extract_mount_point(buf, sizeof(buf), ""), -1);
	T_CHECK(!strcmp(buf, mnt));
	(void)unlink(api_path("a b/data"));
	(void)rmdir(api_path("a b"));
}

/* The deepest mount point wins, and a path that merely has the same prefix does not count. */
static void U4_extract_mount_point_of_nested(void)
{
	char inner[200], beside[200], buf[256];

	(void)snprintf(inner, sizeof(inner), "%s/sub", mnt);
	(void)snprintf(beside, sizeof(beside), "%s/sub2", mnt);
	T_EQ(mkdir(inner, 0755), 0);
	T_EQ(mkdir(beside, 0755), 0);
	T_EQ(usrbio_plain_make(inner), 0);
	T_CHECK(hf3fs_extract_mount_point(buf, sizeof(buf), inner) > 0 && !strcmp(buf, inner));
	T_CHECK(hf3fs_extract_mount_point(buf, sizeof(buf), beside) > 0 && !strcmp(buf, mnt));
	T_EQ(usrbio_plain_remove(inner), 0);
	T_CHECK(hf3fs_extract_mount_point(buf, sizeof(buf), inner) > 0 && !strcmp(buf, mnt));
	T_EQ(rmdir(inner), 0);
	T_EQ(rmdir(beside), 0);
}

/* ------------------------------------------------------------------- causes */

static char said[8192]; /* standard error of hear() */

/* Collect in said[] what the call logs.  Before the call, set the thread's last error text to
 * another one. */
static int hear(int (*call)(int), int arg)
{
	struct pst_device none = { .sz = sizeof(none) };
	char path[200];
	int r, old = dup(STDERR_FILENO), fd;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/said", api_dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	T_CHECK(old >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
	T_CHECK(pst_device_find("cuda:99", &none) < 0);
	r = call(arg);
	T_CHECK(dup2(old, STDERR_FILENO) >= 0);
	n = pread(fd, said, sizeof(said) - 1, 0);
	said[n > 0 ? n : 0] = '\0';
	(void)close(old);
	(void)close(fd);
	(void)unlink(path);
	return r;
}

/* Register with a limit of descriptors slightly above those in use. */
static int reg_with_few(int fd)
{
	struct rlimit old, low;
	int r = 0;

	if (getrlimit(RLIMIT_NOFILE, &old) < 0)
		return -1;
	low = old;
	for (low.rlim_cur = 0; low.rlim_cur < (rlim_t)fd + 64; low.rlim_cur++) {
		if (setrlimit(RLIMIT_NOFILE, &low) < 0)
			return -1;
		r = hf3fs_reg_fd(fd, 0);
		(void)setrlimit(RLIMIT_NOFILE, &old);
		if (r <= 0)
			break;
	}
	return r;
}

/* Register twice: the second call must log the same text. */
static int reg_twice(int fd)
{
	return hf3fs_reg_fd(fd, 0) == EISDIR ? hf3fs_reg_fd(fd, 0) : -1;
}

static bool each_line_says(const char *what)
{
	unsigned lines = 0;

	for (char *save, *line = strtok_r(said, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save), lines++)
		if (!strstr(line, what))
			T_FAIL("%s", line);
	return lines > 0;
}

/* Let each of the needed descriptors in turn be unavailable. */
static void U4_a_lack_of_descriptors_is_named(void)
{
	int fd = api_file("data", 1);

	T_CHECK(hear(reg_with_few, fd) <= 0);
	T_CHECK(each_line_says("Too many open files"));
	api_close(fd);
}

/* An error of libpenstock is logged with its text only. */
static void U4_a_cause_that_libpenstock_found(void)
{
	int fd = open(mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	T_CHECK(fd >= 0);
	T_EQ(hear(reg_twice, fd), EISDIR);
	T_CHECK(each_line_says("is a directory, not a file"));
	(void)close(fd);
}

#if ALLOCATES
static unsigned nth_calloc;

static int reg_without_memory(int fd)
{
	int r;

	callocs_left = nth_calloc;
	r = hf3fs_reg_fd(fd, 0);
	if (callocs_left)
		r = 0; /* fewer calls than n were made */
	callocs_left = 0;
	return r;
}

enum { WENT_THROUGH, NAMED, NAMED_BY_WORKER, NOT_NAMED };

static int fail_nth_calloc(void)
{
	int fd;

	mnt = api_plain;
	fd = api_file("data", 1);
	if (hear(reg_without_memory, fd) <= 0)
		return WENT_THROUGH;
	if (strstr(said, "cannot make a worker: Cannot allocate memory"))
		return NAMED_BY_WORKER;
	/* Some failures log nothing. */
	return !said[0] || each_line_says("Cannot allocate memory") ? NAMED : NOT_NAMED;
}
#endif

/* Run in children of a process that has not used a plain directory. */
static void U4_a_lack_of_memory_is_named(void)
{
#if ALLOCATES
	bool worker = false;
	int r;

	do {
		nth_calloc++;
		r = api_child(fail_nth_calloc);
		T_CHECK(r <= NAMED_BY_WORKER);
		worker |= r == NAMED_BY_WORKER;
	} while (r != WENT_THROUGH);
	T_CHECK(worker);
#else
	T_SKIP("an allocator that is not a sanitizer's");
#endif
}

/* --------------------------------------------------------------------- files */

static void U4_reg_fd(void)
{
	int fd = api_file("data", 1), outside = open(api_dir, O_RDONLY | O_CLOEXEC), h;

	T_EQ(hf3fs_reg_fd(-1, 0), EBADF);
	T_EQ(hf3fs_reg_fd(1000000, 0), EBADF);
	T_EQ(hf3fs_reg_fd(outside, 0), EBADF);
	h = hf3fs_reg_fd(fd, 0);
	T_CHECK(h <= 0);
	T_EQ(hf3fs_reg_fd(fd, 0), EINVAL);
	T_EQ(hf3fs_reg_fd(-h, 0), EINVAL);
	hf3fs_dereg_fd(outside);
	hf3fs_dereg_fd(-1);
	hf3fs_dereg_fd(INT32_MIN);
	hf3fs_dereg_fd(INT32_MAX);
	(void)close(outside);
	api_close(fd);
}

static void U4_reg_fd_without_descriptors(void)
{
	int fd = api_file("data", 1), r;
	struct rlimit old, low;

	T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	/*
	 * Allow one descriptor more each time, until the call succeeds.  Begin with none: a number
	 * below the lowest free one may be in use in the background.
	 */
	for (low.rlim_cur = 0;; low.rlim_cur++) {
		T_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
		r = hf3fs_reg_fd(fd, 0);
		T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
		if (r <= 0)
			break;
		T_EQ(r, EMFILE);
	}
	T_CHECK(low.rlim_cur > 0);
	api_close(fd);
}

static void U4_hardlink(void)
{
	char longest[PATH_MAX], name[256];

	T_EQ(close(api_file("data", 4096)), 0);
	T_EQ(hf3fs_hardlink(NULL, api_path("link")), EINVAL);
	T_EQ(hf3fs_hardlink(api_path("data"), NULL), EINVAL);
	T_EQ(hf3fs_hardlink(api_path("none"), api_path("link")), ENOENT);
	T_EQ(hf3fs_hardlink(api_path("data"), api_path("none/link")), ENOENT);
	T_EQ(hf3fs_hardlink(api_path("data"), api_path("")), EINVAL);
	T_EQ(hf3fs_hardlink(api_path("data"), api_path("..")), EINVAL);
	T_EQ(hf3fs_hardlink(api_path("data"), "/tmp/link"), EXDEV);
	T_EQ(hf3fs_hardlink("/etc/passwd", api_path("link")), ENOTTY);
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	T_EQ(hf3fs_hardlink(api_path("data"), api_path(name)), ENAMETOOLONG);
	name[254] = '\0';
	(void)snprintf(longest, sizeof(longest), "%s", api_path(name));
	T_EQ(hf3fs_hardlink(api_path("data"), longest), 0);
	T_EQ(unlink(longest), 0);
	T_EQ(hf3fs_hardlink(api_path("data"), api_path("link")), 0);
	T_EQ(hf3fs_hardlink(api_path("data"), api_path("link")), EEXIST);
	T_EQ(access(api_path("link"), F_OK), 0);
	T_EQ(unlink(api_path("link")), 0);
}

static void U4_punchhole(void)
{
	size_t start[1001] = { API_CHUNK, API_CHUNK * 3 },
	       end[1001] = { API_CHUNK * 2, API_CHUNK * 4 };
	int fd = api_file("data", API_CHUNK * 4), ro = open(api_path("data"), O_RDONLY | O_CLOEXEC);
	int outside = open(api_dir, O_RDONLY | O_CLOEXEC);
	static char buf[API_CHUNK * 4];
	struct stat st;

	T_EQ(hf3fs_punchhole(fd, 0, start, end, 0), EINVAL);
	T_EQ(hf3fs_punchhole(fd, 1001, start, end, 0), EINVAL);
	T_EQ(hf3fs_punchhole(fd, -1, start, end, 0), EINVAL);
	T_EQ(hf3fs_punchhole(fd, 1, NULL, end, 0), EINVAL);
	T_EQ(hf3fs_punchhole(fd, 1, start, NULL, 0), EINVAL);
	T_EQ(hf3fs_punchhole(fd, 1, end, start, 0), EINVAL);
	end[1] = (size_t)INT64_MAX + 1;
	T_EQ(hf3fs_punchhole(fd, 2, start, end, 0), EINVAL);
	end[1] = API_CHUNK * 4;
	T_EQ(hf3fs_punchhole(-1, 1, start, end, 0), EBADF);
	T_EQ(hf3fs_punchhole(outside, 1, start, end, 0), ENOTTY);
	T_EQ(hf3fs_punchhole(ro, 1, start, end, 0), EBADF);
	T_EQ(pread(fd, buf, sizeof(buf), 0), sizeof(buf));
	T_EQ(t_differs(buf, API_SEED, 0, sizeof(buf)), sizeof(buf));

	T_EQ(hf3fs_punchhole(fd, 2, start, end, 0), 0);
	T_EQ(fstat(fd, &st), 0);
	T_EQ(st.st_size, API_CHUNK * 4);
	T_EQ(pread(fd, buf, sizeof(buf), 0), sizeof(buf));
	T_EQ(t_differs(buf, API_SEED, 0, API_CHUNK), API_CHUNK);
	T_EQ(t_differs(buf + API_CHUNK * 2, API_SEED, API_CHUNK * 2, API_CHUNK), API_CHUNK);
	for (size_t i = 0; i < API_CHUNK; i++)
		T_CHECK(!buf[API_CHUNK + i] && !buf[API_CHUNK * 3 + i]);
	(void)close(fd);
	(void)close(ro);
	(void)close(outside);
}

/* ------------------------------------------------------------- other users */

static int open_as_other_user(void)
{
	struct hf3fs_iov iov;

	if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
		return 100;
	return -hf3fs_iovcreate(&iov, api_plain, 4096, 0, -1);
}

static void U4_another_users_directory(void)
{
	if (getuid() != 0)
		T_SKIP("root, to be another user");
	T_EQ(chmod(api_dir, 0755), 0);
	T_EQ(api_child(open_as_other_user), EPERM);
}

static void U4_another_users_memory(void)
{
	uint8_t id[16] = { 0 };
	struct hf3fs_iov iov;
	char link[200];
	int fd;

	if (getuid() != 0)
		T_SKIP("root, to make memory of another user");
	fd = shm_open("/pst-test-other", O_RDWR | O_CREAT | O_EXCL, 0600);
	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, 8192), 0);
	T_EQ(fchown(fd, 65534, 65534), 0);
	(void)close(fd);
	(void)snprintf(link, sizeof(link),
		       "%s/" USRBIO_IOVS "/00000000-0000-0000-0000-000000000000", mnt);
	T_EQ(symlink("/dev/shm/pst-test-other", link), 0);
	T_EQ(hf3fs_iovopen(&iov, id, mnt, 8192, 0, -1), -EPERM);
	T_EQ(unlink(link), 0);
	T_EQ(shm_unlink("/pst-test-other"), 0);
}

/* -------------------------------------------------------- what failures leave */

/* Fail each system call of one creation in turn. */
static unsigned fail_each(int (*make)(void), int err)
{
	unsigned fds = t_count_fds(), nth = 0;
	int r;

	for (;;) {
		trip_arm(++nth, err);
		r = make();
		if (!trip_off())
			break;
		if (r != -err)
			T_FAIL("%s, call %u, gave %d and not %d", trip_name, nth, r, -err);
		T_EQ(api_shm(), 0);
		if (!on_daemon)
			T_EQ(api_links(""), 0);
		if (t_fds_left(fds) > fds)
			T_FAIL("%s, call %u, leaves %u descriptors", trip_name, nth,
			       t_count_fds() - fds);
	}
	T_EQ(r, 0);
	return nth - 1;
}

static int make_iov(void)
{
	struct hf3fs_iov iov;
	int r = hf3fs_iovcreate(&iov, mnt, 100000, 0, -1);

	if (r == 0)
		hf3fs_iovdestroy(&iov);
	return r;
}

static int make_ior(void)
{
	struct hf3fs_ior ior;
	int r = hf3fs_iorcreate4(&ior, mnt, 16, true, 0, 0, -1, HF3FS_IOR_FORBID_READ_HOLES);

	if (r == 0)
		hf3fs_iordestroy(&ior);
	return r;
}

static void U9_a_failed_iovcreate_leaves_nothing(void)
{
	/* Warm up: a first use allocates what stays. */
	T_EQ(make_iov(), 0);
	T_CHECK(fail_each(make_iov, EIO) >= 4);
	T_CHECK(fail_each(make_iov, EACCES) >= 4);
}

static void U9_a_failed_iorcreate_leaves_nothing(void)
{
	T_EQ(make_ior(), 0);
	T_CHECK(fail_each(make_ior, EIO) >= (on_daemon ? 6u : 4u));
	T_CHECK(fail_each(make_ior, EMFILE) >= (on_daemon ? 6u : 4u));
}

static void U9_errors_of_symlink_come_through(void)
{
	static const int errs[] = { EPERM, EACCES, EMFILE, EINVAL, EEXIST, ENOTCONN };
	struct hf3fs_iov iov;

	trip_only = "symlinkat";
	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		trip_arm(1, errs[i]);
		T_EQ(hf3fs_iovcreate(&iov, mnt, 4096, 0, -1), -errs[i]);
		T_CHECK(trip_off());
	}
	trip_only = NULL;
	T_EQ(api_shm(), 0);
}

/* A program that ignores results must still end: a wait for refused requests fails. */
static void U9_a_wait_for_what_was_refused(void)
{
	int fd = api_open("data", 4096);
	struct hf3fs_ior ior = api_ior(16, true);
	struct hf3fs_iov none = { 0 }, iov = api_iov(4096);
	struct hf3fs_cqe c[16];

	for (int i = 0; i < 16; i++)
		T_EQ(hf3fs_prep_io(&ior, &none, true, none.base, fd, 0, 4096, NULL), -EINVAL);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 16, 16, NULL), 0);
	/* Prepare refused requests together with an accepted one. */
	T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 4096, NULL) >= 0);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd + 1000, 0, 4096, NULL), -EBADF);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 16, 2, NULL), 1);
	T_EQ(c[0].result, 4096);
	hf3fs_iovdestroy(&iov);
	hf3fs_iordestroy(&ior);
	api_close(fd);
}

/* A full /dev/shm is an error when memory is made, not a signal when it is used. */
static void U9_no_room_in_shared_memory(void)
{
	struct hf3fs_iov iov;

	trip_only = "fallocate";
	trip_arm(1, ENOSPC);
	T_EQ(hf3fs_iovcreate(&iov, mnt, (size_t)200 << 20, 0, -1), -ENOSPC);
	T_CHECK(trip_off());
	/* The disk becomes full in the middle of the allocation. */
	trip_arm(3, ENOSPC);
	T_EQ(hf3fs_iovcreate(&iov, mnt, (size_t)200 << 20, 0, -1), -ENOSPC);
	T_CHECK(trip_off());
	/* A signal during the allocation does no harm. */
	trip_arm(2, EINTR);
	T_EQ(hf3fs_iovcreate(&iov, mnt, (size_t)200 << 20, 0, -1), 0);
	T_CHECK(trip_off());
	trip_only = NULL;
	hf3fs_iovdestroy(&iov);
	T_EQ(api_shm(), 0);
}

/* ----------------------------------------------------------------- errno */

static void errno_stays_as_it_was(void)
{
	struct timespec past = api_in_ms(-1000);
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
	struct hf3fs_cqe cqe;
	char buf[256];
	int fd;

#define SAME(call)                  \
	do {                        \
		errno = 12345;      \
		(void)(call);       \
		T_EQ(errno, 12345); \
	} while (0)
	fd = api_file("data", 4096);
	SAME(hf3fs_is_hf3fs(-1));
	SAME(hf3fs_extract_mount_point(buf, sizeof(buf), mnt));
	SAME(hf3fs_iovcreate(&iov, api_dir, 4096, 0, -1));
	SAME(hf3fs_iovopen(&iov, some_id, mnt, 4096, 0, -1));
	SAME(hf3fs_iorcreate(&ior, api_dir, 8, true, 0, -1));
	SAME(hf3fs_reg_fd(-1, 0));
	SAME(hf3fs_hardlink(api_path("none"), api_path("link")));
	SAME(hf3fs_punchhole(-1, 1, (size_t[]){ 0 }, (size_t[]){ 1 }, 0));
	SAME(hf3fs_iovcreate(&iov, mnt, 4096, 0, -1));
	SAME(hf3fs_iorcreate(&ior, mnt, 8, true, 0, -1));
	SAME(hf3fs_prep_io(&ior, &iov, true, iov.base, 1000, 0, 1, NULL));
	SAME(hf3fs_reg_fd(fd, 0));
	SAME(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 1, NULL));
	SAME(hf3fs_submit_ios(&ior));
	SAME(hf3fs_wait_for_ios(&ior, &cqe, 1, 1, &past));
	SAME(hf3fs_wait_for_ios(&ior, &cqe, 1, 0, NULL));
	SAME(hf3fs_iordestroy(&ior));
	SAME(hf3fs_iovunlink(&iov));
	SAME(hf3fs_iovdestroy(&iov));
	SAME(hf3fs_dereg_fd(fd));
	(void)close(fd);
}

int main(void)
{
	api_init();
	T_RUN(U4_a_lack_of_memory_is_named);
	T_RUN(each_text_is_said_some_times);
	API_RUN(U4_is_hf3fs);
	API_RUN(U4_extract_mount_point);
	API_PLAIN(U4_extract_mount_point_of_nested);
	API_RUN(U4_reg_fd);
	API_RUN(U4_reg_fd_without_descriptors);
	API_RUN(U4_a_lack_of_descriptors_is_named);
	API_PLAIN(U4_a_cause_that_libpenstock_found);
	API_RUN(U4_hardlink);
	API_RUN(U4_punchhole);
	API_PLAIN(U4_another_users_directory);
	API_PLAIN(U4_another_users_memory);
	API_RUN(U9_a_failed_iovcreate_leaves_nothing);
	API_RUN(U9_a_failed_iorcreate_leaves_nothing);
	API_RUN(U9_errors_of_symlink_come_through);
	API_RUN(U9_a_wait_for_what_was_refused);
	API_RUN(U9_no_room_in_shared_memory);
	API_RUN(errno_stays_as_it_was);
	return api_done();
}
