/* SPDX-License-Identifier: MIT */
/* Plain directories: make, remove, open and find them, also at the same time, and those of other
 * users. */
#include <sched.h>

#include "usrbio_rig.h"

#include "base/base.h"

#define TEXT "usrbio plain directory 1\n"

static char dir[PATH_MAX];

/* Called right before a name is removed. */
static void (*before_unlink)(const char *name);

int __real_unlinkat(int at, const char *name, int flags);
int __wrap_unlinkat(int at, const char *name, int flags);
int __wrap_unlinkat(int at, const char *name, int flags)
{
	if (before_unlink)
		before_unlink(name);
	return __real_unlinkat(at, name, flags);
}

static void make_file(const char *name, const char *text)
{
	char path[PATH_MAX];
	FILE *f;

	rig_path(path, dir, name);
	f = fopen(path, "we");
	T_CHECK(f);
	T_CHECK(fputs(text, f) >= 0);
	T_EQ(fclose(f), 0);
}

static void make_folder(const char *name, mode_t mode)
{
	char path[PATH_MAX];

	rig_path(path, dir, name);
	T_EQ(mkdir(path, mode), 0);
	T_EQ(chmod(path, mode), 0);
}

static mode_t mode_of(const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	rig_path(path, dir, name);
	T_EQ(lstat(path, &st), 0);
	T_EQ(st.st_uid, geteuid());
	return st.st_mode;
}

static void must_open(void)
{
	int fd = usrbio_plain_open(dir);

	T_CHECK(fd >= 0);
	T_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	(void)close(fd);
}

/* ---------------------------------------------------------------------- make */

static void made_and_removed(void)
{
	char path[PATH_MAX], text[64];
	FILE *f;

	rig_dir(dir);
	T_EQ(usrbio_plain_open(dir), -ENOENT);
	T_EQ(usrbio_plain_remove(dir), -ENOENT);
	T_OK(usrbio_plain_make(dir));
	T_EQ(mode_of("3fs-virt"), S_IFDIR | 0755);
	T_EQ(mode_of("3fs-virt/iovs"), S_IFDIR | 0700);
	T_EQ(mode_of("3fs-virt/plain"), S_IFREG | 0644);
	rig_path(path, dir, USRBIO_PLAIN_MARKER);
	f = fopen(path, "re");
	T_CHECK(f && fgets(text, sizeof(text), f) && fgetc(f) == EOF);
	(void)fclose(f);
	T_CHECK(!strcmp(text, TEXT));
	must_open();
	T_OK(usrbio_plain_make(dir));
	must_open();
	T_OK(usrbio_plain_remove(dir));
	T_EQ(rig_count(dir), 0);
	T_EQ(usrbio_plain_open(dir), -ENOENT);
	rig_remove(dir);
}

static void umask_takes_from_it(void)
{
	mode_t old;

	rig_dir(dir);
	old = umask(0);
	T_OK(usrbio_plain_make(dir));
	T_EQ(mode_of("3fs-virt"), S_IFDIR | 0755);
	T_EQ(mode_of("3fs-virt/iovs"), S_IFDIR | 0700);
	T_OK(usrbio_plain_remove(dir));
	(void)umask(077);
	T_OK(usrbio_plain_make(dir));
	(void)umask(old);
	must_open();
	T_EQ(mode_of("3fs-virt"), S_IFDIR | 0700);
	rig_remove(dir);
}

/* A process is killed while it makes or removes the directory: the next process finishes that. */
static void killed_halfway(void)
{
	for (int done = 1; done < 6; done++) {
		for (int make = 0; make < 2; make++) {
			rig_dir(dir);
			make_folder("3fs-virt", 0755);
			if (done == 2 || done == 3)
				make_folder("3fs-virt/iovs", 0700);
			if (done >= 3)
				make_file("3fs-virt/plain", done == 5 ? TEXT : "");
			T_EQ(usrbio_plain_open(dir), -ENOENT);
			T_OK(make ? usrbio_plain_make(dir) : usrbio_plain_remove(dir));
			if (make)
				must_open();
			else
				T_EQ(rig_count(dir), 0);
			rig_remove(dir);
		}
	}
}

static void no_directory(void)
{
	rig_dir(dir);
	make_file("file", "");
	strcat(dir, "/file");
	T_EQ(usrbio_plain_make(dir), -ENOTDIR);
	T_EQ(usrbio_plain_remove(dir), -ENOTDIR);
	T_EQ(usrbio_plain_open(dir), -ENOTDIR);
	*strrchr(dir, '/') = '\0';
	strcat(dir, "/nothing");
	T_EQ(usrbio_plain_make(dir), -ENOENT);
	T_EQ(usrbio_plain_remove(dir), -ENOENT);
	T_EQ(usrbio_plain_open(dir), -ENOENT);
	*strrchr(dir, '/') = '\0';
	T_EQ(usrbio_plain_make(""), -ENOENT);
	rig_remove(dir);
}

/* --------------------------------------------------------------- something else */

/* Check that each call gives its error, and that the folder does not change. */
static void must_be_refused(int make, int open_, int remove_)
{
	unsigned n;
	char path[PATH_MAX];

	rig_path(path, dir, "3fs-virt");
	n = access(path, R_OK) == 0 && mode_of("3fs-virt") >> 12 == 4 ? rig_count(path) : 0;
	T_EQ(usrbio_plain_make(dir), make);
	T_EQ(usrbio_plain_open(dir), open_);
	T_EQ(usrbio_plain_remove(dir), remove_);
	T_CHECK(n == 0 || rig_count(path) == n);
	rig_remove(dir);
}

static void something_else_is_refused(void)
{
	char path[PATH_MAX];

	rig_dir(dir);
	make_file("3fs-virt", "");
	must_be_refused(-EEXIST, -ENOENT, -ENOENT);

	/* A read-only folder, as a daemon's mount has. */
	rig_dir(dir);
	make_folder("3fs-virt", 0555);
	T_EQ(chmod((rig_path(path, dir, "3fs-virt"), path), 0755), 0);
	make_folder("3fs-virt/iovs", 0777);
	make_folder("3fs-virt/get-conf", 0555);
	make_folder("3fs-virt/rm-rf", 0777);
	must_be_refused(-EEXIST, -ENOENT, -ENOENT);

	/* Markers of another version, and nonsense. */
	for (int i = 0; i < 4; i++) {
		static const char *const texts[] = { "usrbio plain directory 2\n", TEXT "x",
						     "usrbio plain directory 1", "\n" };

		rig_dir(dir);
		make_folder("3fs-virt", 0755);
		make_folder("3fs-virt/iovs", 0700);
		make_file("3fs-virt/plain", texts[i]);
		must_be_refused(-EEXIST, -ENOENT, -ENOENT);
	}

	/* A FIFO or a folder instead of the marker must not block. */
	rig_dir(dir);
	make_folder("3fs-virt", 0755);
	T_EQ(mkfifo((rig_path(path, dir, USRBIO_PLAIN_MARKER), path), 0644), 0);
	must_be_refused(-EEXIST, -ENOENT, -ENOENT);
	rig_dir(dir);
	make_folder("3fs-virt", 0755);
	make_folder("3fs-virt/plain", 0755);
	must_be_refused(-EEXIST, -ENOENT, -ENOENT);

	/* A file instead of iovs. */
	rig_dir(dir);
	make_folder("3fs-virt", 0755);
	make_file("3fs-virt/iovs", "");
	make_file("3fs-virt/plain", TEXT);
	must_be_refused(-EEXIST, -ENOENT, -ENOENT);

	/* Another file in the folder. */
	rig_dir(dir);
	T_OK(usrbio_plain_make(dir));
	make_file("3fs-virt/notes", "");
	T_EQ(usrbio_plain_remove(dir), -ENOTEMPTY);
	must_open();
	rig_remove(dir);
}

static void links_are_not_followed(void)
{
	char real[PATH_MAX], path[PATH_MAX], target[PATH_MAX];

	rig_dir(real);
	T_OK(usrbio_plain_make(real));
	for (int i = 0; i < 3; i++) {
		static const char *const parts[] = { "3fs-virt", "3fs-virt/iovs",
						     "3fs-virt/plain" };

		rig_dir(dir);
		if (i) {
			T_OK(usrbio_plain_make(dir));
			rig_path(path, dir, parts[i]);
			T_EQ(remove(path), 0);
		}
		rig_path(path, dir, parts[i]);
		rig_path(target, real, parts[i]);
		T_EQ(symlink(target, path), 0);
		T_EQ(usrbio_plain_find(dir, path), i == 1 ? 0 : -ENOENT);
		must_be_refused(-EEXIST, -ENOENT, -ENOENT);
		rig_path(path, real, parts[i]);
		T_EQ(access(path, F_OK), 0);
	}
	/* The directory itself may be named by a symbolic link. */
	rig_dir(dir);
	rig_path(path, dir, "link");
	T_EQ(symlink(real, path), 0);
	T_OK(usrbio_plain_make(path));
	T_OK(usrbio_plain_remove(path));
	T_EQ(rig_count(real), 0);
	rig_remove(dir);
	rig_remove(real);
}

static void must_find(const char *path, const char *want)
{
	char found[PATH_MAX] = "as it was";
	int r = usrbio_plain_find(path, found);

	if (want && (r != 0 || strcmp(found, want) != 0))
		T_FAIL("%s: %d, %s", path, r, found);
	if (!want && (r != -ENOENT || strcmp(found, "as it was") != 0))
		T_FAIL("%s: %d, %s", path, r, found);
}

/* ---------------------------------------------------------------- other users */

static void P9_what_others_may_write_to_is_refused(void)
{
	static const struct {
		const char *name;
		mode_t mode;
	} rows[] = {
		{ "3fs-virt", 0775 },      { "3fs-virt", 0757 },      { "3fs-virt", 01777 },
		{ "3fs-virt/iovs", 0701 }, { "3fs-virt/iovs", 0710 }, { "3fs-virt/iovs", 0770 },
		{ "3fs-virt/iovs", 0755 }, { "3fs-virt/iovs", 0777 },
	};
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rig_dir(dir);
		T_OK(usrbio_plain_make(dir));
		rig_path(path, dir, rows[i].name);
		T_EQ(chmod(path, rows[i].mode), 0);
		must_be_refused(-EPERM, -EPERM, -EPERM);
	}
}

static int refused_as_nobody(void *arg)
{
	char found[PATH_MAX];

	(void)arg;
	RIG_MUST(rig_become_nobody() == 0);
	RIG_MUST(usrbio_plain_open(dir) == -EPERM);
	RIG_MUST(usrbio_plain_make(dir) == -EPERM);
	RIG_MUST(usrbio_plain_remove(dir) == -EPERM);
	/* The search finds it, because root may be trusted. */
	RIG_MUST(usrbio_plain_find(dir, found) == 0 && !strcmp(found, dir));
	return 0;
}

static int make_as_nobody(void *arg)
{
	(void)arg;
	RIG_MUST(rig_become_nobody() == 0);
	RIG_MUST(usrbio_plain_make(dir) == 0);
	return 0;
}

static void P9_another_users_is_refused(void)
{
	char path[PATH_MAX];

	if (geteuid() != 0)
		T_SKIP("root, to become another user");
	rig_dir(dir);
	T_EQ(chmod(dir, 0777), 0);
	T_OK(usrbio_plain_make(dir));
	T_EQ(rig_wait(rig_fork(refused_as_nobody, NULL)), 0);
	T_OK(usrbio_plain_remove(dir));
	/* Root must not use another user's directory, either. */
	T_EQ(rig_wait(rig_fork(make_as_nobody, NULL)), 0);
	T_EQ(usrbio_plain_open(dir), -EPERM);
	T_EQ(usrbio_plain_make(dir), -EPERM);
	T_EQ(usrbio_plain_remove(dir), -EPERM);
	T_EQ(usrbio_plain_find(dir, path), -EPERM);
	T_CHECK(!strcmp(path, dir));
	/* The owners of all three folders count. */
	T_EQ(chown((rig_path(path, dir, "3fs-virt"), path), 0, 0), 0);
	T_EQ(usrbio_plain_open(dir), -EPERM);
	T_EQ(usrbio_plain_make(dir), -EPERM);
	rig_remove(dir);
}

/* A user who can write to a folder must not make it a mount point for other users. */
static void P9_what_was_planted_is_not_found(void)
{
	char path[PATH_MAX], found[PATH_MAX], outer[PATH_MAX];

	if (geteuid() != 0)
		T_SKIP("root, to become another user");
	rig_dir(outer);
	rig_path(dir, outer, "open");
	T_EQ(mkdir(dir, 0777), 0);
	T_EQ(chmod(dir, 0777), 0);
	T_EQ(rig_wait(rig_fork(make_as_nobody, NULL)), 0);
	rig_path(path, dir, "file");
	T_EQ(usrbio_plain_find(path, found), -EPERM);
	T_CHECK(!strcmp(found, dir));
	/* The planted directory does not hide a good one above it. */
	T_OK(usrbio_plain_make(outer));
	must_find(path, outer);
	T_OK(usrbio_plain_remove(outer));
	rig_remove(outer);
}

static void P9_what_others_could_have_written(void)
{
	static const struct {
		const char *name;
		mode_t mode;
	} rows[] = { { "3fs-virt", 0775 },
		     { "3fs-virt", 01777 },
		     { "3fs-virt/plain", 0646 },
		     { "3fs-virt/plain", 0664 } };
	char path[PATH_MAX], found[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rig_dir(dir);
		T_OK(usrbio_plain_make(dir));
		rig_path(path, dir, rows[i].name);
		T_EQ(chmod(path, rows[i].mode), 0);
		T_EQ(usrbio_plain_find(dir, found), -EPERM);
		T_EQ(usrbio_plain_open(dir), -EPERM);
		rig_remove(dir);
	}
}

/* In a user namespace, all unmapped users share one uid, also this process. */
static int refused_without_a_number(void *arg)
{
	char found[PATH_MAX];
	struct stat st;

	(void)arg;
	if (unshare(CLONE_NEWUSER) < 0)
		return 77;
	RIG_MUST(stat(dir, &st) == 0 && st.st_uid == geteuid());
	RIG_MUST(usrbio_plain_open(dir) == -EPERM);
	RIG_MUST(usrbio_plain_make(dir) == -EPERM);
	RIG_MUST(usrbio_plain_find(dir, found) == -EPERM);
	return 0;
}

static void P9_the_overflow_uid_is_nobodys(void)
{
	int status;

	rig_dir(dir);
	T_OK(usrbio_plain_make(dir));
	status = rig_wait(rig_fork(refused_without_a_number, NULL));
	rig_remove(dir);
	if (status == 77)
		T_SKIP("a user namespace");
	T_EQ(status, 0);
}

static int make_in_what_is_not_ours(void *arg)
{
	(void)arg;
	RIG_MUST(rig_become_nobody() == 0);
	RIG_MUST(usrbio_plain_make(dir) == -EACCES);
	return 0;
}

static void P9_a_directory_that_may_not_be_written(void)
{
	if (geteuid() != 0)
		T_SKIP("root, to become another user");
	rig_dir(dir);
	T_EQ(rig_wait(rig_fork(make_in_what_is_not_ours, NULL)), 0);
	T_EQ(rig_count(dir), 0);
	rig_remove(dir);
}

/* ---------------------------------------------------------------------- find */

static void the_deepest_is_found(void)
{
	char inner[PATH_MAX], path[PATH_MAX];

	rig_dir(dir);
	make_folder("a", 0755);
	make_folder("a/b", 0755);
	make_folder("a/bc", 0755);
	make_file("a/b/file", "");
	rig_path(inner, dir, "a/b");
	rig_path(path, dir, "a/b/file");
	must_find(path, NULL);
	T_OK(usrbio_plain_make(dir));
	must_find(path, dir);
	must_find(dir, dir);
	T_OK(usrbio_plain_make(inner));
	must_find(path, inner);
	must_find(inner, inner);
	must_find((rig_path(path, dir, "a"), path), dir);
	must_find((rig_path(path, dir, "a/bc"), path), dir);
	must_find((rig_path(path, dir, "a/nothing/at all"), path), dir);
	must_find((rig_path(path, dir, USRBIO_IOVS "/x"), path), dir);
	T_OK(usrbio_plain_remove(inner));
	must_find((rig_path(path, dir, "a/b/file"), path), dir);
	rig_remove(dir);
}

static void paths_that_have_none(void)
{
	char path[PATH_MAX + 10], found[PATH_MAX];

	T_EQ(usrbio_plain_find("", found), -EINVAL);
	T_EQ(usrbio_plain_find("relative/path", found), -EINVAL);
	must_find("/", NULL);
	must_find("/proc", NULL);
	memset(path, 'a', sizeof(path));
	path[0] = '/';
	path[PATH_MAX] = '\0';
	T_EQ(usrbio_plain_find(path, found), -ENAMETOOLONG);
	path[PATH_MAX - 1] = '\0';
	T_EQ(usrbio_plain_find(path, found), -ENOENT);
}

/* ---------------------------------------------------------------------- in use */

static void P11_in_use_it_stays(void)
{
	struct usrbio_owner self;
	struct rig_pub p;
	int iovs;

	rig_dir(dir);
	T_OK(usrbio_plain_make(dir));
	iovs = usrbio_plain_open(dir);
	T_CHECK(iovs >= 0);
	T_OK(usrbio_owner_self(&self));
	rig_pub_make(&p, iovs, &self);
	T_EQ(usrbio_plain_remove(dir), -EBUSY);
	must_open();
	T_CHECK(rig_has(iovs, p.name));
	T_EQ(unlinkat(iovs, p.name, 0), 0);
	T_EQ(unlink(p.path), 0);
	T_EQ(symlinkat("/dev/shm/of another program", iovs, "link"), 0);
	T_EQ(usrbio_plain_remove(dir), -EBUSY);
	T_EQ(unlinkat(iovs, "link", 0), 0);
	T_OK(usrbio_plain_remove(dir));
	/* A process that still has the directory open cannot publish any more. */
	T_EQ(symlinkat("/dev/shm/x", iovs, "link"), -1);
	T_EQ(errno, ENOENT);
	(void)close(iovs);
	T_EQ(rig_count(dir), 0);
	rig_remove(dir);
}

static int publish_and_die(void *arg)
{
	int iovs = usrbio_plain_open(dir);
	struct usrbio_owner self;
	struct rig_pub p;

	(void)arg;
	RIG_MUST(iovs >= 0 && usrbio_owner_self(&self) == 0);
	rig_pub_make(&p, iovs, &self);
	return 0;
}

static void P11_the_dead_keep_nobody_from_removing_it(void)
{
	pid_t pid;

	rig_dir(dir);
	T_OK(usrbio_plain_make(dir));
	pid = rig_fork(publish_and_die, NULL);
	T_EQ(rig_wait(pid), 0);
	T_OK(usrbio_plain_remove(dir));
	T_EQ(rig_shm_of(pid, true), 0);
	T_EQ(rig_count(dir), 0);
	rig_remove(dir);
}

/* ---------------------------------------------------------------------- at once */

#define WORKERS 4
#define ROUNDS 150

/* A published name stays, whatever other processes do. */
static void publish_once(const struct usrbio_owner *self)
{
	int iovs = usrbio_plain_open(dir);
	struct rig_pub p;

	RIG_MUST(iovs >= 0 || iovs == -ENOENT);
	if (iovs < 0)
		return;
	rig_pub_init(&p, self);
	if (symlinkat(p.path, iovs, p.name) == 0) {
		RIG_MUST(usrbio_plain_sweep(iovs) >= 0);
		RIG_MUST(rig_has(iovs, p.name));
		RIG_MUST(unlinkat(iovs, p.name, 0) == 0);
	} else {
		RIG_MUST(errno == ENOENT);
	}
	(void)close(iovs);
}

static int do_anything(void *arg)
{
	unsigned seed = *(unsigned *)arg;
	struct usrbio_owner self;
	int r;

	RIG_MUST(usrbio_owner_self(&self) == 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		switch (rand_r(&seed) % 4) {
		case 0:
			RIG_MUST(usrbio_plain_make(dir) == 0);
			break;
		case 1:
			r = usrbio_plain_remove(dir);
			RIG_MUST(r == 0 || r == -ENOENT || r == -EBUSY);
			break;
		default:
			publish_once(&self);
		}
	}
	return 0;
}

static void P11_everything_at_once(void)
{
	pid_t pids[WORKERS];
	unsigned seeds[WORKERS];

	rig_dir(dir);
	for (unsigned i = 0; i < WORKERS; i++) {
		seeds[i] = i + 1;
		pids[i] = rig_fork(do_anything, &seeds[i]);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		T_EQ(rig_wait(pids[i]), 0);
	T_OK(usrbio_plain_make(dir));
	must_open();
	T_OK(usrbio_plain_remove(dir));
	T_EQ(rig_count(dir), 0);
	rig_remove(dir);
}

/* Make the directory again before the marker is removed: the maker finds everything in place. */
static void make_before_marker(const char *name)
{
	if (strcmp(name, "plain") != 0)
		return;
	before_unlink = NULL;
	RIG_MUST(usrbio_plain_make(dir) == 0);
}

static void made_while_it_is_removed(void)
{
	rig_dir(dir);
	T_OK(usrbio_plain_make(dir));
	before_unlink = make_before_marker;
	T_OK(usrbio_plain_remove(dir));
	T_CHECK(!before_unlink);
	must_open();
	T_OK(usrbio_plain_remove(dir));
	T_EQ(rig_count(dir), 0);
	rig_remove(dir);
}

static int make_and_remove_forever(void *arg)
{
	(void)arg;
	for (;;) {
		RIG_MUST(usrbio_plain_make(dir) == 0);
		RIG_MUST(usrbio_plain_remove(dir) == 0);
	}
}

static void P11_killed_while_making(void)
{
	for (unsigned i = 0; i < 60; i++) {
		unsigned left;
		pid_t pid;

		rig_dir(dir);
		pid = rig_fork(make_and_remove_forever, NULL);
		(void)usleep(500 + 31 * i);
		rig_kill(pid);
		if (i % 2) {
			T_OK(usrbio_plain_make(dir));
			must_open();
		}
		left = rig_count(dir);
		T_EQ(usrbio_plain_remove(dir), left ? 0 : -ENOENT);
		T_EQ(rig_count(dir), 0);
		rig_remove(dir);
	}
}

int main(void)
{
	T_RUN(made_and_removed);
	T_RUN(umask_takes_from_it);
	T_RUN(killed_halfway);
	T_RUN(no_directory);
	T_RUN(something_else_is_refused);
	T_RUN(links_are_not_followed);
	T_RUN(P9_what_others_may_write_to_is_refused);
	T_RUN(P9_another_users_is_refused);
	T_RUN(P9_what_was_planted_is_not_found);
	T_RUN(P9_what_others_could_have_written);
	T_RUN(P9_the_overflow_uid_is_nobodys);
	T_RUN(P9_a_directory_that_may_not_be_written);
	T_RUN(the_deepest_is_found);
	T_RUN(paths_that_have_none);
	T_RUN(P11_in_use_it_stays);
	T_RUN(P11_the_dead_keep_nobody_from_removing_it);
	T_RUN(P11_everything_at_once);
	T_RUN(made_while_it_is_removed);
	T_RUN(P11_killed_while_making);
	return t_done();
}
