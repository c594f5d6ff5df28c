/* SPDX-License-Identifier: MIT */
/*
 * Mount points of all kinds, in a mount namespace of this test in which any file system type is
 * accepted (HF3FS_USRBIO_DONT_CHECKFS_FOR_MP); link targets of a daemon; and environment variables.
 * A tmpfs plays the daemon: it stores links and ignores them.
 */
#include <semaphore.h>

#include "api_rig.h"
#include "own_mnt.h"

static const char *exe = "/proc/self/exe";

static bool have_mnt;

static void need_mnt(void)
{
	if (!have_mnt)
		T_SKIP(OWN_MNT_LACKS);
}

static void mounted(const char *dir)
{
	T_EQ(mkdir(dir, 0755), 0);
	T_EQ(mount("tmpfs", dir, "tmpfs", 0, NULL), 0);
}

/* ------------------------------------------------------------- mount points */

static void is_at(const char *path, const char *want)
{
	char buf[256] = "";
	int n = hf3fs_extract_mount_point(buf, sizeof(buf), path);

	T_EQ(n, want ? (int)strlen(want) + 1 : -1);
	T_CHECK(!want || !strcmp(buf, want));
}

static void U4_names_with_anything_in_them(void)
{
	const char *dir = "/mnt/a b\t\\c\nd\\040";
	char path[64];

	need_mnt();
	mounted(dir);
	(void)snprintf(path, sizeof(path), "%s/3fs-virt", dir);
	T_EQ(mkdir(path, 0755), 0);
	is_at(dir, dir);
	is_at(path, dir);
	T_EQ(umount(dir), 0);
	is_at(dir, NULL);
	T_EQ(rmdir(dir), 0);
}

/* A mount without 3fs-virt does not count, and the deepest of several is used. */
static void U4_the_deepest_mount(void)
{
	need_mnt();
	mounted("/mnt/fs");
	T_EQ(mkdir("/mnt/fs/3fs-virt", 0755), 0);
	mounted("/mnt/fs/other");
	T_EQ(mkdir("/mnt/fs/other/dir", 0755), 0);
	is_at("/mnt/fs/other/dir", "/mnt/fs");
	T_EQ(mkdir("/mnt/fs/other/3fs-virt", 0755), 0);
	is_at("/mnt/fs/other/dir", "/mnt/fs/other");
	is_at("/mnt/fs", "/mnt/fs");
	T_EQ(mkdir("/mnt/fs/otherwise", 0755), 0);
	is_at("/mnt/fs/otherwise", "/mnt/fs");
	T_EQ(umount("/mnt/fs/other"), 0);
	T_EQ(umount("/mnt/fs"), 0);
	is_at("/mnt", NULL);
	T_EQ(rmdir("/mnt/fs"), 0);
}

/* If directories of the file system are mounted separately, 3fs-virt is one of these mounts. */
static void U4_directories_that_are_mounted_alone(void)
{
	need_mnt();
	T_EQ(mkdir("/mnt/parts", 0755), 0);
	mounted("/mnt/parts/data");
	mounted("/mnt/parts/3fs-virt");
	is_at("/mnt/parts/data", "/mnt/parts");
	is_at("/mnt", NULL);
	T_EQ(umount("/mnt/parts/3fs-virt"), 0);
	is_at("/mnt/parts/data", NULL);
	T_EQ(umount("/mnt/parts/data"), 0);
	T_EQ(rmdir("/mnt/parts/data"), 0);
	T_EQ(rmdir("/mnt/parts/3fs-virt"), 0);
	T_EQ(rmdir("/mnt/parts"), 0);
}

/* ------------------------------------------------------- a daemon's links */

#define FAKE "/mnt/fake"
#define SUBMIT FAKE "/3fs-virt/iovs/submit-ios"

static void fake_begin(void)
{
	need_mnt();
	mounted(FAKE);
	T_EQ(mkdir(FAKE "/3fs-virt", 0755), 0);
	T_EQ(mkdir(FAKE "/3fs-virt/iovs", 0777), 0);
	mnt = FAKE;
}

static void fake_end(void)
{
	T_EQ(api_links(""), 0);
	T_EQ(api_shm(), 0);
	T_EQ(umount2(FAKE, MNT_DETACH), 0);
	T_EQ(rmdir(FAKE), 0);
}

static void points_to(const char *target)
{
	(void)unlink(SUBMIT);
	T_EQ(symlink(target, SUBMIT), 0);
}

static int try_ring(void)
{
	struct hf3fs_ior ior;
	int r = hf3fs_iorcreate(&ior, mnt, 4, true, 0, -1);

	if (r == 0)
		hf3fs_iordestroy(&ior);
	return r;
}

static void U9_links_that_lead_to_no_semaphore(void)
{
	static const char *const bad[] = { "/etc/passwd",          "/dev/shm/",
					   "/dev/shm/sem.",        "sem.x",
					   "/dev/shm/pst-test",    "/dev/shm/sem.a/b",
					   "/dev/shm/../shm/sem.x" };
	sem_t *sem;
	int fd;

	fake_begin();
	T_EQ(try_ring(), -ENOENT);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		points_to(bad[i]);
		T_EQ(try_ring(), -EIO);
	}
	points_to("/dev/shm/sem.pst-test-none");
	T_EQ(try_ring(), -ENOENT);
	/* A file too small for a semaphore, and a missing one. */
	fd = open("/dev/shm/sem.pst-test", O_RDWR | O_CREAT | O_EXCL, 0600);
	T_CHECK(fd >= 0 && write(fd, "1234567", 7) == 7 && close(fd) == 0);
	points_to("/dev/shm/sem.pst-test");
	T_EQ(try_ring(), -EIO);
	T_EQ(unlink("/dev/shm/sem.pst-test"), 0);
	T_EQ(symlink("/etc/passwd", "/dev/shm/sem.pst-test"), 0);
	T_EQ(try_ring(), -EIO);
	T_EQ(unlink("/dev/shm/sem.pst-test"), 0);
	/* A valid semaphore. */
	sem = sem_open("/pst-test", O_CREAT | O_EXCL, 0600, 0);
	T_CHECK(sem != SEM_FAILED);
	T_EQ(try_ring(), 0);
	T_EQ(sem_close(sem), 0);
	T_EQ(sem_unlink("/pst-test"), 0);
	fake_end();
}

/* Submitting posts the semaphore that belongs to the ring's priority. */
static void P5_the_semaphore_of_the_priority(void)
{
	static const char *const names[] = { "/pst-test-h", "/pst-test-n", "/pst-test-l" };
	static const char *const links[] = { SUBMIT ".ph", SUBMIT, SUBMIT ".pl" };
	struct hf3fs_ior ior;
	sem_t *sem[3];
	char target[64];
	int value;

	fake_begin();
	for (int i = 0; i < 3; i++) {
		sem[i] = sem_open(names[i], O_CREAT | O_EXCL, 0600, 0);
		T_CHECK(sem[i] != SEM_FAILED);
		(void)snprintf(target, sizeof(target), "/dev/shm/sem.%s", names[i] + 1);
		T_EQ(symlink(target, links[i]), 0);
	}
	for (int i = 0; i < 3; i++) {
		T_EQ(hf3fs_iorcreate2(&ior, mnt, 4, true, 0, (i - 1) * 5, -1), 0);
		T_EQ(hf3fs_submit_ios(&ior), 0);
		hf3fs_iordestroy(&ior);
		for (int k = 0; k < 3; k++) {
			T_EQ(sem_getvalue(sem[k], &value), 0);
			T_EQ(value, k == i);
		}
		T_EQ(sem_trywait(sem[i]), 0);
	}
	for (int i = 0; i < 3; i++) {
		T_EQ(sem_close(sem[i]), 0);
		T_EQ(sem_unlink(names[i]), 0);
		T_EQ(unlink(links[i]), 0);
	}
	fake_end();
}

/* A restarted daemon on the same mount has other semaphores. */
static void P12_the_link_leads_elsewhere(void)
{
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
	struct hf3fs_cqe c;
	uint64_t began;
	sem_t *sem;
	int fd;

	need_mnt();
	/* The daemon provides a file with an inode number; the tmpfs provides the rings. */
	api_daemon();
	mnt = api_rig.mnt;
	fd = api_open("data", 4096);
	fake_begin();
	sem = sem_open("/pst-test", O_CREAT | O_EXCL, 0600, 0);
	T_CHECK(sem != SEM_FAILED);
	points_to("/dev/shm/sem.pst-test");
	iov = api_iov(4096);
	ior = api_ior(4, true);
	T_EQ(sem_init((sem_t *)(void *)(ior.iov.base + 16 + 96 * 5), 1, 0), 0);
	T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 4096, &c) >= 0);
	T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, &(struct timespec){ 0 }), 0);
	points_to("/dev/shm/sem.pst-test-2");
	began = t_now();
	T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL), 1);
	T_CHECK(c.result == -EREMOTEIO && c.userdata == &c);
	T_CHECK(t_now() - began < T_HANG_NS);
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	api_close(fd);
	T_EQ(unlink(SUBMIT), 0);
	T_EQ(sem_close(sem), 0);
	T_EQ(sem_unlink("/pst-test"), 0);
	fake_end();
}

/* -------------------------------------------------------------- environment */

/* Run this program again as MODE with a variable set.  Return its standard error. */
static const char *again(const char *mode, const char *name, const char *value)
{
	static char said[4096];
	size_t have = 0;
	int ends[2], status = -1;
	ssize_t n;
	pid_t pid;

	T_EQ(pipe2(ends, O_CLOEXEC), 0);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)dup2(ends[1], STDERR_FILENO);
		(void)unsetenv("HF3FS_USRBIO_LIB_LOG");
		(void)unsetenv("HF3FS_USRBIO_DONT_CHECKFS_FOR_MP");
		(void)setenv(name, value, 1);
		(void)execl(exe, exe, mode, api_plain, (char *)NULL);
		_exit(127);
	}
	(void)close(ends[1]);
	while (have < sizeof(said) - 1 &&
	       (n = read(ends[0], said + have, sizeof(said) - 1 - have)) > 0)
		have += (size_t)n;
	said[have] = '\0';
	(void)close(ends[0]);
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (status)
		T_FAIL("%s with %s=%s: status %d, %s", mode, name, value, status, said);
	return said;
}

/* Make a read, a failing request and a wait that ends by its deadline. */
static int use(const char *where)
{
	struct timespec soon;
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
	struct hf3fs_cqe c;
	char buf[256];
	int fd;

	mnt = where;
	if (hf3fs_extract_mount_point(buf, sizeof(buf), where) < 0 || strcmp(buf, where) != 0)
		return 4;
	fd = open(api_path("data"), O_RDONLY | O_CLOEXEC);
	if (hf3fs_reg_fd(fd, 0) > 0 || hf3fs_iovcreate(&iov, mnt, 4096, 0, -1) != 0 ||
	    hf3fs_iorcreate(&ior, mnt, 4, true, 0, -1) != 0)
		return 1;
	if (hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 4096, NULL) < 0 ||
	    hf3fs_submit_ios(&ior) != 0 || hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL) != 1 ||
	    c.result != 4096)
		return 2;
	soon = api_in_ms(30);
	if (hf3fs_wait_for_ios(&ior, &c, 1, 1, &soon) != 0 ||
	    hf3fs_iorcreate(&ior, "/", 4, true, 0, -1) != -ENOENT)
		return 3;
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	hf3fs_dereg_fd(fd);
	return 0;
}

/* Return whether this program finds a mount of any type. */
static int finds(const char *where)
{
	char buf[256];

	(void)where;
	return hf3fs_extract_mount_point(buf, sizeof(buf), "/mnt/any") > 0 ? 0 : 1;
}

static bool says(const char *said, const char *what)
{
	return strstr(said, what) != NULL;
}

static void levels_of_the_log(void)
{
	static const char *const info[] = { "INFO", "info", "DBG", "DBG3", "debug" };
	static const char *const warn[] = { "WARN", "warning", "" };
	static const char *const silent[] = { "OFF", "ERR", "error", "FATAL" };
	const char *said;

	mnt = api_plain;
	T_EQ(close(api_file("data", 4096)), 0);
	for (size_t i = 0; i < sizeof(info) / sizeof(info[0]); i++) {
		said = again("use", "HF3FS_USRBIO_LIB_LOG", info[i]);
		T_CHECK(says(said, "usrbio INFO: ring that reads at ") && says(said, api_plain));
		T_CHECK(says(said, "1 requests, 0 of them failed, 4096 bytes by "));
		/* The path has libpenstock's name. */
		T_CHECK(says(said, pst_path_name(PST_PATH_CACHED)) ||
			says(said, pst_path_name(PST_PATH_DIRECT)) ||
			says(said, pst_path_name(PST_PATH_BUFFERED)));
		T_CHECK(says(said, "usrbio WARN: there is no //3fs-virt/iovs"));
	}
	for (size_t i = 0; i < sizeof(warn) / sizeof(warn[0]); i++) {
		said = again("use", "HF3FS_USRBIO_LIB_LOG", warn[i]);
		T_CHECK(says(said, "usrbio WARN: ") && !says(said, "INFO"));
	}
	for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++)
		T_CHECK(!*again("use", "HF3FS_USRBIO_LIB_LOG", silent[i]));
}

/* Calls that cannot work, but return no error to the program.  Each is logged once. */
static int tries_in_vain(const char *where)
{
	struct hf3fs_iov iov = { 0 };
	struct hf3fs_ior ior;
	struct hf3fs_cqe c;
	int r = 0;

	if (hf3fs_iorcreate(&ior, where, 64, true, 0, -1) != 0)
		return 1;
	for (int i = 0; i < 64; i++) {
		r |= hf3fs_iovcreate(&iov, where, (size_t)INT64_MAX + 1, 0, -1) != -ENOSPC;
		r |= hf3fs_prep_io(&ior, &iov, true, iov.base, 0, 0, 1, NULL) != -EINVAL;
	}
	r |= hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL) != 0;
	hf3fs_iordestroy(&ior);
	return r;
}

static unsigned lines_with(const char *said, const char *what)
{
	unsigned n = 0;

	for (const char *p = said; (p = strstr(p, what)); p++)
		n++;
	return n;
}

static void what_fails_often_is_said_once(void)
{
	const char *said = again("in-vain", "HF3FS_USRBIO_LIB_LOG", "WARN");

	T_EQ(lines_with(said, "\n"), 2);
	T_EQ(lines_with(said, "--shm-size"), 1);
	T_EQ(lines_with(said, "did creating it fail"), 1);
}

/* Bad values are logged once, and the program continues. */
static void bad_values_are_not_fatal(void)
{
	const char *said;

	mnt = api_plain;
	T_EQ(close(api_file("data", 4096)), 0);
	said = again("use", "HF3FS_USRBIO_LIB_LOG", ".=INFO;bogus{{{");
	T_CHECK(says(said, "HF3FS_USRBIO_LIB_LOG is '.=INFO;bogus{{{'") && !says(said, "INFO:"));
	for (int i = 0; i < 6; i++) {
		static const char *const bad[] = { "0",    "-1", "x", "5x", "99999999999999999999",
						   "60001" };

		said = again("use", "HF3FS_USRBIO_WAIT_JITTER_MS", bad[i]);
		T_CHECK(says(said, "HF3FS_USRBIO_WAIT_JITTER_MS is '"));
	}
	T_CHECK(!says(again("use", "HF3FS_USRBIO_WAIT_JITTER_MS", "1"), "JITTER"));
	T_CHECK(!says(again("use", "HF3FS_USRBIO_WAIT_JITTER_MS", "60000"), "JITTER"));
	said = again("use", "HF3FS_USRBIO_DONT_CHECKFS_FOR_MP", "maybe");
	T_CHECK(says(said, "HF3FS_USRBIO_DONT_CHECKFS_FOR_MP is 'maybe'"));
}

static void any_type_is_asked_for(void)
{
	need_mnt();
	mounted("/mnt/any");
	T_EQ(mkdir("/mnt/any/3fs-virt", 0755), 0);
	T_CHECK(!*again("finds", "HF3FS_USRBIO_DONT_CHECKFS_FOR_MP", "yes"));
	T_CHECK(says(again("does-not-find", "HF3FS_USRBIO_DONT_CHECKFS_FOR_MP", "no"),
		     "usrbio WARN: /mnt/any is on no mount of 3FS and in no plain directory; "
		     "'penstock mount --plain DIR' prepares one\n"));
	T_CHECK(!*again("does-not-find", "HF3FS_USRBIO_LIB_LOG", "OFF"));
	T_EQ(umount("/mnt/any"), 0);
	T_EQ(rmdir("/mnt/any"), 0);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "use"))
		return use(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "in-vain"))
		return tries_in_vain(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "finds"))
		return finds(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "does-not-find"))
		return !finds(argv[2]);
	(void)setenv("HF3FS_USRBIO_DONT_CHECKFS_FOR_MP", "yes", 1);
	have_mnt = own_mnt();
	api_init();
	T_RUN(U4_names_with_anything_in_them);
	T_RUN(U4_the_deepest_mount);
	T_RUN(U4_directories_that_are_mounted_alone);
	T_RUN(U9_links_that_lead_to_no_semaphore);
	T_RUN(P5_the_semaphore_of_the_priority);
	T_RUN(P12_the_link_leads_elsewhere);
	T_RUN(levels_of_the_log);
	T_RUN(what_fails_often_is_said_once);
	T_RUN(bad_values_are_not_fatal);
	T_RUN(any_type_is_asked_for);
	return api_done();
}
