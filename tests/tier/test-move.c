/* SPDX-License-Identifier: MIT */
/*
 * A move of which the n-th call fails, before whose n-th call somebody writes to the file, or that
 * is killed there, for each n.  Whatever happens, the set has the file once, with all bytes that
 * somebody wrote.
 */
#include "calls.h"
#include "child.h"
#include "scratch.h"
#include "t.h"
#undef T_ERROR_TEXT
#define T_ERROR_TEXT() err_text()

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "base/err.h"
#include "tier/lookup.h"
#include "tier/move.h"
#include "tier/scan.h"
#include "tier/scrub.h"

#define SIZE 5000u
#define NAME "d/file"

static char base[256];
static unsigned at, calls; /* the call that is meant, and calls so far */
static int fails_with;     /* errno */
static bool no_lease, young;
static bool wrote; /* somebody did, and was told so */
static bool early; /* before the copy had its name */
static unsigned nr_renames, nr_writes;
static pid_t mover; /* who has a hook */

/* ----------------------------------------------------------------- a set */

static const char *path_of(enum tier_class class, const char *name)
{
	static char path[512];

	(void)snprintf(path, sizeof(path), "%s/%s/%s", base, tier_class_name(class), name);
	return path;
}

static void put(const char *path, size_t size)
{
	char buf[SIZE];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);

	T_CHECK(fd >= 0);
	t_fill(buf, 1, 0, size);
	T_EQ(write(fd, buf, size), size);
	(void)close(fd);
}

/* A set of three directories with one file on hdd. */
static void set_up(void)
{
	struct tier_set *set = calloc(1, sizeof(*set));
	char state[300];

	T_CHECK(set);
	T_EQ(scratch_new(NULL, base, sizeof(base)), 0);
	(void)snprintf(state, sizeof(state), "%s/state", base);
	(void)setenv("PST_TIER_DIR", state, 1);
	(void)snprintf(set->name, sizeof(set->name), "m");
	set->policy = tier_policy_find(TIER_POLICY_DEFAULT);
	set->same_fs = true;
	for (unsigned i = 0; i < TIER_CLASSES; i++) {
		struct tier_root *root = &set->roots[set->nr_roots++];

		set->limits[i] = (struct tier_limits){ .low = 80, .high = 90 };
		root->class = (enum tier_class)i;
		root->fd = -1;
		(void)snprintf(root->path, sizeof(root->path), "%s/%s", base,
			       tier_class_name(root->class));
		T_EQ(mkdir(root->path, 0755), 0);
	}
	T_OK(set_init(set));
	for (unsigned i = 0; i < TIER_CLASSES; i++)
		(void)close(set->roots[i].fd);
	free(set);
	T_EQ(mkdir(path_of(TIER_HDD, "d"), 0750), 0);
	put(path_of(TIER_HDD, NAME), SIZE);
}

static void tear_down(void)
{
	T_EQ(scratch_remove(base), 0);
}

static struct tier_set *open_set(struct recover_counts *counts)
{
	struct tier_set *set = NULL;
	struct scan_counts scanned;

	T_OK(set_open("m", &set));
	T_OK(set_whole(set));
	T_OK(set_lock(set));
	T_OK(recover_set(set, counts));
	T_OK(scan_set(set, &scanned));
	T_EQ(scanned.twice, 0);
	return set;
}

static unsigned files_in(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned nr = 0;
	struct dirent *e;

	T_CHECK(d);
	while ((e = readdir(d)))
		nr += e->d_name[0] != '.';
	(void)closedir(d);
	return nr;
}

/* The set has the file once, whole, and nothing of the move is left. */
static void check_set(int result)
{
	struct recover_counts counts;
	struct tier_set *set = open_set(&counts);
	char buf[SIZE + 16];
	struct tier_file f;
	size_t want = SIZE + wrote;
	ssize_t n;
	int fd;

	T_EQ(counts.waiting, 0);
	T_EQ(counts.conflicts, 0);
	T_OK(catalog_find(set->catalog, NAME, &f));
	if (result == 0)
		T_EQ(set->roots[f.root].class, TIER_NVME);
	T_CHECK((access(path_of(TIER_NVME, NAME), F_OK) == 0) !=
		(access(path_of(TIER_HDD, NAME), F_OK) == 0));
	fd = name_open(set->roots[f.root].fd, NAME, O_RDONLY, 0);
	T_CHECK(fd >= 0);
	n = read(fd, buf, sizeof(buf));
	T_EQ(n, want);
	T_EQ(t_differs(buf, 1, 0, SIZE), SIZE);
	if (wrote)
		T_EQ(buf[SIZE], '!');
	(void)close(fd);
	for (unsigned i = 0; i < TIER_CLASSES; i++)
		T_EQ(files_in(path_of((enum tier_class)i, TIER_TMP)), 0);
	T_CHECK(!set_close(set));
}

static int try_move(int (*hook)(const char *call))
{
	struct recover_counts counts;
	struct tier_set *set = open_set(&counts);
	struct move_done done;
	int r;

	calls = 0;
	wrote = false;
	calls_hook = hook;
	r = move_file(set, NAME, 0, &done);
	calls_hook = NULL;
	T_CHECK(!set_close(set));
	return r;
}

static void writer_ends(void);

/* Run a move with a hook for its n-th call, for each n. */
static void each_call(int (*fn)(const char *call), unsigned at_least)
{
	bool more = true;
	unsigned nr = 0;

	for (at = 1; more; at++) {
		struct recover_counts counts;
		struct tier_set *set;
		struct move_done done;
		int r;

		set_up();
		set = open_set(&counts);
		calls = 0;
		wrote = early = false;
		nr_renames = 0;
		calls_hook = fn;
		r = move_file(set, NAME, 0, &done);
		calls_hook = NULL;
		T_CHECK(!set_close(set));
		writer_ends();
		more = calls >= at;
		nr += more;
		if (!more)
			T_OK(r);
		check_set(r);
		tear_down();
	}
	T_CHECK(nr >= at_least);
	printf("# %u calls\n", nr);
}

/* -------------------------------------------------------------- the hooks */

/* Leases are not to be had on every file system. */
int __real_fcntl64(int fd, int cmd, long arg);
int __wrap_fcntl64(int fd, int cmd, long arg);
int __wrap_fcntl64(int fd, int cmd, long arg)
{
	if (cmd == F_SETLEASE && no_lease) {
		errno = EINVAL;
		return -1;
	}
	return __real_fcntl64(fd, cmd, arg);
}

/* A file that was made just now is as if it was a second old. */
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = __real_clock_gettime(clock, ret);

	ret->tv_sec += clock == CLOCK_REALTIME && !young;
	return r;
}

static int fail_it(const char *call)
{
	(void)call;
	return ++calls == at ? fails_with : 0;
}

/*
 * Somebody writes by the path that he knows, unless he would have to wait for the mover's lease.
 * Who wrote before the copy had its name must not find an old copy under it.
 */
static int write_it(const char *call)
{
	struct stat st;
	int fd;

	if (early && stat(path_of(TIER_NVME, NAME), &st) == 0)
		T_EQ(st.st_size, SIZE + 1);
	nr_renames += !strcmp(call, "renameat2");
	if (++calls != at)
		return 0;
	/* File systems stamp files by a clock that ticks some hundred times a second. */
	(void)usleep(20000);
	fd = open(path_of(TIER_HDD, NAME), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	wrote = write(fd, "!", 1) == 1;
	early = wrote && !nr_renames;
	(void)close(fd);
	return 0;
}

static pid_t writer;
static int writer_says;

/* R, S, Z and so on of a process. */
static char state_of(pid_t pid)
{
	char path[64], text[256] = "";
	FILE *f;
	char *paren;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (f) {
		(void)!fread(text, 1, sizeof(text) - 1, f);
		(void)fclose(f);
	}
	paren = strrchr(text, ')');
	return paren && paren[1] ? paren[2] : '?';
}

/* Another process opens the file to write, and waits for the mover's lease where there is one. */
static int wait_and_write(const char *call)
{
	const char *path = path_of(TIER_HDD, NAME);
	int says[2];
	char c = 0;

	(void)call;
	if (++calls != at)
		return 0;
	T_EQ(pipe2(says, O_CLOEXEC), 0);
	(void)fflush(stdout);
	writer = fork();
	if (writer == 0) {
		(void)dup2(says[1], STDOUT_FILENO);
		/* The mover's descriptors, and with them its lease, must not be the writer's. */
		(void)execl("/proc/self/exe", program_invocation_short_name, "--write", path,
			    (char *)NULL);
		_exit(127);
	}
	(void)close(says[1]);
	writer_says = says[0];
	T_EQ(read(says[0], &c, 1), 1);
	/* It sleeps in open(), or has ended. */
	for (uint64_t end = t_hang(); !strchr("SZ", state_of(writer)) && t_now() < end;)
		(void)usleep(1000);
	return 0;
}

static int be_writer(const char *path)
{
	char c = '-';
	int fd;

	(void)!write(STDOUT_FILENO, &c, 1);
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd >= 0 && write(fd, "!", 1) == 1)
		c = '!';
	(void)!write(STDOUT_FILENO, &c, 1);
	return 0;
}

static void writer_ends(void)
{
	char c = '-';

	if (!writer)
		return;
	(void)!read(writer_says, &c, 1);
	(void)close(writer_says);
	T_EQ(waitpid(writer, NULL, 0), writer);
	writer = 0;
	wrote = c == '!';
}

/* Somebody makes a file of the same name on the target. */
static int create_it(const char *call)
{
	(void)call;
	if (++calls != at)
		return 0;
	if (mkdir(path_of(TIER_NVME, "d"), 0755) == 0 || errno == EEXIST) {
		int fd = open(path_of(TIER_NVME, NAME), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
			      0644);

		wrote = fd >= 0 && write(fd, "theirs", 6) == 6;
		if (fd >= 0)
			(void)close(fd);
	}
	return 0;
}

static int count_writes(const char *call)
{
	/* Room is reserved before the first byte is written. */
	if (!strcmp(call, "fallocate64"))
		T_EQ(nr_writes, 0);
	calls += !strcmp(call, "fallocate64");
	nr_writes += !strcmp(call, "pwrite64");
	return 0;
}

static int die_here(const char *call)
{
	(void)call;
	if (++calls == at && getpid() != mover)
		_exit(0);
	return 0;
}

/* -------------------------------------------------------------- the cases */

static void every_call_fails(void)
{
	no_lease = false;
	fails_with = EIO;
	each_call(fail_it, 25);
	fails_with = ENOSPC;
	each_call(fail_it, 25);
}

static void somebody_writes(void)
{
	no_lease = false;
	each_call(write_it, 25);
}

static void somebody_writes_without_lease(void)
{
	no_lease = true;
	each_call(write_it, 25);
	no_lease = false;
}

static void somebody_waits_to_write(void)
{
	each_call(wait_and_write, 25);
}

/* What others make on the target is neither overwritten nor removed. */
static void somebody_creates(void)
{
	bool more = true;

	for (at = 1; more; at++) {
		struct recover_counts counts;
		struct tier_set *set;
		struct move_done done;
		char buf[SIZE];
		int r, fd;

		set_up();
		set = open_set(&counts);
		calls = 0;
		wrote = false;
		calls_hook = create_it;
		r = move_file(set, NAME, 0, &done);
		calls_hook = NULL;
		T_CHECK(!set_close(set));
		more = calls >= at;
		if (wrote) {
			T_EQ(r, -EEXIST);
			fd = open(path_of(TIER_NVME, NAME), O_RDONLY | O_CLOEXEC);
			T_EQ(read(fd, buf, SIZE), 6);
			T_CHECK(!memcmp(buf, "theirs", 6));
			(void)close(fd);
			T_EQ(unlink(path_of(TIER_NVME, NAME)), 0);
			wrote = false;
		}
		check_set(r);
		tear_down();
	}
}

static struct tier_set *reader;
static int held; /* a descriptor from before the move */

static void read_all(int fd)
{
	char buf[SIZE + 1];

	T_EQ(pread(fd, buf, sizeof(buf), 0), SIZE);
	T_EQ(t_differs(buf, 1, 0, SIZE), SIZE);
}

/* Whoever opens the file now has all of it, and so has who opened it before. */
static int look_up(const char *call)
{
	struct tier_file f;
	int fd;

	(void)call;
	calls++;
	calls_hook = NULL;
	fd = lookup_open(reader, NAME, O_RDONLY, &f);
	if (fd < 0)
		T_FAIL("at call %u: %s", calls, err_text());
	read_all(fd);
	read_all(held);
	(void)close(fd);
	calls_hook = look_up;
	return 0;
}

static void readers_find_no_gap(void)
{
	struct recover_counts counts;
	struct tier_set *set;
	struct move_done done;
	struct tier_file f;

	set_up();
	set = open_set(&counts);
	T_OK(set_open("m", &reader));
	held = lookup_open(reader, NAME, O_RDONLY, &f);
	T_CHECK(held >= 0);
	T_CHECK(f.id > 0);
	for (int to = 0; to <= TIER_HDD; to += TIER_HDD) {
		calls = 0;
		calls_hook = look_up;
		T_OK(move_file(set, NAME, (unsigned)to, &done));
		calls_hook = NULL;
		T_CHECK(calls > 25);
	}
	T_EQ(lookup_open(reader, "none", O_RDONLY, &f), -ENOENT);
	T_EQ(lookup_open(reader, "../x", O_RDONLY, &f), -EINVAL);
	(void)close(held);
	T_CHECK(!set_close(reader));
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(-1);
	tear_down();
}

static bool is_committed(void)
{
	struct tier_move m = { .committed = false };
	struct tier_set *set;

	T_OK(set_open("m", &set));
	(void)catalog_move_first(set->catalog, 0, &m);
	T_CHECK(!set_close(set));
	return m.committed;
}

static void killed_at_every_call(void)
{
	int status = 0;

	mover = getpid();
	for (at = 1; at < 1000; at++) {
		pid_t pid;

		set_up();
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			(void)try_move(die_here);
			/* It was not killed. */
			_exit(1);
		}
		T_EQ(waitpid(pid, &status, 0), pid);
		T_CHECK(WIFEXITED(status));
		wrote = false;
		/* Once the commit is journaled, the file is on the target. */
		check_set(WEXITSTATUS(status) || is_committed() ? 0 : -EINTR);
		tear_down();
		if (WEXITSTATUS(status))
			break;
	}
	T_CHECK(at > 25 && at < 1000);
}

/* A move is killed, somebody writes to the source, and recovery finds two that differ. */
static void written_after_a_crash(void)
{
	int status = 0;

	mover = getpid();
	for (at = 1; at < 1000; at++) {
		struct recover_counts counts;
		struct tier_set *set;
		struct scan_counts scanned;
		struct tier_file f;
		struct stat st;
		pid_t pid;
		int fd;

		set_up();
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			(void)try_move(die_here);
			_exit(1);
		}
		T_EQ(waitpid(pid, &status, 0), pid);
		fd = open(path_of(TIER_HDD, NAME), O_WRONLY | O_APPEND | O_CLOEXEC);
		wrote = fd >= 0 && write(fd, "!", 1) == 1;
		if (fd >= 0)
			(void)close(fd);
		T_OK(set_open("m", &set));
		T_OK(set_lock(set));
		T_OK(recover_set(set, &counts));
		T_OK(scan_set(set, &scanned));
		T_EQ(counts.waiting, 0);
		T_EQ(counts.conflicts, scanned.twice);
		T_OK(catalog_find(set->catalog, NAME, &f));
		/* His file is the set's. */
		if (wrote)
			T_EQ(set->roots[f.root].class, TIER_HDD);
		T_EQ(fstatat(set->roots[f.root].fd, NAME, &st, 0), 0);
		T_EQ(st.st_size, SIZE + wrote);
		T_CHECK(!set_close(set));
		tear_down();
		if (WEXITSTATUS(status))
			break;
	}
	T_CHECK(at > 25 && at < 1000);
}

/*
 * A mover is killed while the source is aside, and somebody makes a file of that name anew: his
 * file is not replaced, and the other ones stay.
 */
static void new_file_where_the_source_was(void)
{
	unsigned met = 0;

	mover = getpid();
	for (at = 1; at < 1000; at++) {
		struct recover_counts counts;
		struct tier_set *set;
		char text[8] = "";
		int status = 0, fd;
		pid_t pid;

		set_up();
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			(void)try_move(die_here);
			_exit(1);
		}
		T_EQ(waitpid(pid, &status, 0), pid);
		if (files_in(path_of(TIER_HDD, TIER_TMP)) == 1) {
			met++;
			fd = open(path_of(TIER_HDD, NAME), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
				  0600);
			T_EQ(write(fd, "theirs", 6), 6);
			(void)close(fd);
			T_OK(set_open("m", &set));
			T_OK(set_lock(set));
			T_OK(recover_set(set, &counts));
			T_EQ(counts.waiting, 1);
			T_CHECK(!set_close(set));
			fd = open(path_of(TIER_HDD, NAME), O_RDONLY | O_CLOEXEC);
			T_EQ(read(fd, text, sizeof(text)), 6);
			T_CHECK(!strcmp(text, "theirs"));
			(void)close(fd);
			T_EQ(access(path_of(TIER_NVME, NAME), F_OK), 0);
			T_EQ(files_in(path_of(TIER_HDD, TIER_TMP)), 1);
			/* Without it, the move ends. */
			T_EQ(unlink(path_of(TIER_HDD, NAME)), 0);
			wrote = false;
			check_set(0);
		}
		tear_down();
		if (WEXITSTATUS(status))
			break;
	}
	T_CHECK(met > 0);
}

/* Whose bytes the disk does not keep. */
static void copy_is_read_back(void)
{
	struct recover_counts counts;
	struct tier_set *set;
	struct move_done done;

	set_up();
	set = open_set(&counts);
	calls_corrupt = true;
	T_EQ(move_file(set, NAME, 0, &done), -EIO);
	calls_corrupt = false;
	/* A copy that is no use takes no room until the next recovery. */
	T_EQ(files_in(path_of(TIER_NVME, TIER_TMP)), 0);
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(-1);
	tear_down();
}

static void room_is_reserved_first(void)
{
	struct recover_counts counts;
	struct tier_set *set;
	struct move_done done;

	set_up();
	set = open_set(&counts);
	calls = nr_writes = 0;
	calls_hook = count_writes;
	T_OK(move_file(set, NAME, 0, &done));
	calls_hook = NULL;
	T_EQ(calls, 1);
	T_EQ(nr_writes, 1);
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(0);
	tear_down();
}

/* A root that is not what the set knows is not used. */
static void roots_are_checked(void)
{
	char marker[512], kept[512], other[512];
	struct tier_set *set;
	FILE *f;

	set_up();
	(void)snprintf(marker, sizeof(marker), "%s", path_of(TIER_NVME, TIER_DIR "/id"));
	(void)snprintf(kept, sizeof(kept), "%s.kept", marker);
	(void)snprintf(other, sizeof(other), "%s", path_of(TIER_SSD, TIER_DIR "/id"));
	T_EQ(rename(marker, kept), 0);
	T_OK(set_open("m", &set));
	T_EQ(set_whole(set), -ENODEV);
	T_CHECK(strstr(err_text(), "mounted"));
	T_CHECK(!set_close(set));
	/* Two disks in each other's place. */
	T_EQ(link(other, marker), 0);
	T_OK(set_open("m", &set));
	T_EQ(set_whole(set), -ENODEV);
	T_CHECK(strstr(err_text(), "another root"));
	T_CHECK(!set_close(set));
	T_EQ(unlink(marker), 0);
	f = fopen(marker, "we");
	T_CHECK(f);
	(void)fputs("penstock tier 1\nset 0123\nroot 4567\n", f);
	(void)fclose(f);
	T_OK(set_open("m", &set));
	T_EQ(set_whole(set), -ENODEV);
	T_CHECK(strstr(err_text(), "another set"));
	T_CHECK(!set_close(set));
	T_EQ(rename(kept, marker), 0);
	/* On one file system, which this set allows and another one does not. */
	(void)snprintf(other, sizeof(other), "sed -i /same-filesystem/d '%s/state/m/set.conf'",
		       base);
	T_EQ(system(other), 0);
	T_OK(set_open("m", &set));
	T_EQ(set_whole(set), -ENODEV);
	T_CHECK(strstr(err_text(), "one file system"));
	T_CHECK(!set_close(set));
	tear_down();
}

static void keeps_attributes(void)
{
	const struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };
	struct recover_counts counts;
	struct tier_set *set;
	struct move_done done;
	struct stat st, dir;
	char value[8] = "";
	bool xattr;

	set_up();
	T_EQ(truncate(path_of(TIER_HDD, NAME), 50u << 20), 0);
	xattr = setxattr(path_of(TIER_HDD, NAME), "user.kind", "model", 5, 0) == 0;
	T_EQ(utimensat(AT_FDCWD, path_of(TIER_HDD, NAME), times, 0), 0);
	if (geteuid() == 0) {
		T_EQ(chown(path_of(TIER_HDD, NAME), 1234, 4321), 0);
		T_EQ(chmod(path_of(TIER_HDD, NAME), 0640), 0);
	}
	set = open_set(&counts);
	T_OK(move_file(set, NAME, 0, &done));
	T_EQ(stat(path_of(TIER_NVME, NAME), &st), 0);
	if (geteuid() == 0)
		T_CHECK(st.st_uid == 1234 && st.st_gid == 4321);
	T_EQ(st.st_size, 50u << 20);
	/* A hole stays one. */
	T_CHECK(st.st_blocks * 512 < 1 << 20);
	T_EQ(st.st_mode & 07777, 0640);
	T_EQ(st.st_mtim.tv_sec, 2000);
	T_EQ(st.st_mtim.tv_nsec, 7);
	T_EQ(stat(path_of(TIER_NVME, "d"), &dir), 0);
	T_EQ(dir.st_mode & 07777, 0750);
	if (xattr) {
		T_EQ(getxattr(path_of(TIER_NVME, NAME), "user.kind", value, sizeof(value)), 5);
		T_CHECK(!strcmp(value, "model"));
	}
	T_CHECK(!set_close(set));
	tear_down();
}

static void refuses(void)
{
	struct recover_counts counts;
	struct move_done done;
	struct tier_set *set;
	char other[512];
	int fd;

	set_up();
	set = open_set(&counts);
	calls_hook = count_writes;
	nr_writes = 0;
	T_EQ(move_file(set, "none", 0, &done), -ENOENT);
	T_EQ(move_file(set, "../x", 0, &done), -EINVAL);
	T_EQ(move_file(set, "/etc/passwd", 0, &done), -EINVAL);
	T_EQ(move_file(set, "", 0, &done), -EINVAL);
	T_EQ(move_file(set, "d//file", 0, &done), -EINVAL);
	T_EQ(move_file(set, ".tier/id", 0, &done), -EINVAL);
	T_OK(catalog_pin(set->catalog, NAME, true));
	T_EQ(move_file(set, NAME, 0, &done), -EPERM);
	T_OK(catalog_pin(set->catalog, NAME, false));
	(void)snprintf(other, sizeof(other), "%s", path_of(TIER_HDD, "link"));
	T_EQ(link(path_of(TIER_HDD, NAME), other), 0);
	T_EQ(move_file(set, NAME, 0, &done), -EMLINK);
	T_EQ(unlink(other), 0);
	fd = open(path_of(TIER_HDD, NAME), O_WRONLY | O_CLOEXEC);
	T_EQ(move_file(set, NAME, 0, &done), -EBUSY);
	(void)close(fd);
	T_EQ(mkdir(path_of(TIER_NVME, "d"), 0755), 0);
	put(path_of(TIER_NVME, NAME), 10);
	T_EQ(move_file(set, NAME, 0, &done), -EEXIST);
	T_EQ(unlink(path_of(TIER_NVME, NAME)), 0);
	set->limits[TIER_NVME].quota = SIZE / 2;
	T_EQ(move_file(set, NAME, 0, &done), -ENOSPC);
	set->limits[TIER_NVME].quota = 0;
	set->roots[0].read_only = true;
	T_EQ(move_file(set, NAME, 0, &done), -EROFS);
	set->roots[0].read_only = false;
	/* Changed just now, and without a lease nothing would tell of one more change. */
	no_lease = young = true;
	T_EQ(chmod(path_of(TIER_HDD, NAME), 0600), 0);
	T_EQ(move_file(set, NAME, 0, &done), -EAGAIN);
	no_lease = young = false;
	/* None of these copied a byte. */
	T_EQ(nr_writes, 0);
	calls_hook = NULL;
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(-1);
	tear_down();
}

/* A directory that is swapped for a link must not lead out of the root. */
static void stays_beneath(void)
{
	struct recover_counts counts;
	struct move_done done;
	struct tier_set *set;
	char out[300], d[512];

	set_up();
	set = open_set(&counts);
	(void)snprintf(out, sizeof(out), "%s/out", base);
	(void)snprintf(d, sizeof(d), "%s", path_of(TIER_HDD, "d"));
	T_EQ(rename(d, out), 0);
	T_EQ(symlink(out, d), 0);
	T_EQ(move_file(set, NAME, 0, &done), -ELOOP);
	T_EQ(unlink(d), 0);
	T_EQ(rename(out, d), 0);
	T_EQ(symlink(base, path_of(TIER_NVME, "d")), 0);
	T_CHECK(move_file(set, NAME, 0, &done) < 0);
	T_EQ(unlink(path_of(TIER_NVME, "d")), 0);
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(-1);
	tear_down();
}

static unsigned nr_bad;

static void bad(const char *name, const char *why, void *arg)
{
	(void)arg;
	nr_bad++;
	T_CHECK(!strcmp(name, NAME));
	T_CHECK(strstr(why, "checksum"));
}

/*
 * Bytes that change without a write: scrub tells, and the mover does not make a second wrong
 * copy.
 */
static void wrong_bytes(void)
{
	struct recover_counts counts;
	struct scrub_counts scrubbed;
	struct move_done done;
	struct tier_set *set;
	struct tier_file f;

	set_up();
	set = open_set(&counts);
	T_OK(scrub_set(set, bad, NULL, &scrubbed));
	T_EQ(scrubbed.added, 1);
	T_OK(scrub_set(set, bad, NULL, &scrubbed));
	T_EQ(scrubbed.checked, 1);
	T_EQ(nr_bad, 0);
	/*
	 * The checksum is made wrong instead: the bytes of a disk cannot be changed without a
	 * stamp.
	 */
	T_OK(catalog_find(set->catalog, NAME, &f));
	f.crc ^= 1;
	T_OK(catalog_put(set->catalog, &f));
	T_OK(scrub_set(set, bad, NULL, &scrubbed));
	T_EQ(scrubbed.bad, 1);
	T_EQ(nr_bad, 1);
	T_EQ(move_file(set, NAME, 0, &done), -EBADMSG);
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(-1);
	tear_down();
}

int main(int argc, char *argv[])
{
	if (argc == 3 && !strcmp(argv[1], "--write"))
		return be_writer(argv[2]);
	T_RUN(every_call_fails);
	T_RUN(somebody_writes);
	T_RUN(somebody_writes_without_lease);
	T_RUN(somebody_waits_to_write);
	T_RUN(somebody_creates);
	T_RUN(readers_find_no_gap);
	T_RUN(killed_at_every_call);
	T_RUN(written_after_a_crash);
	T_RUN(new_file_where_the_source_was);
	T_RUN(copy_is_read_back);
	T_RUN(room_is_reserved_first);
	T_RUN(roots_are_checked);
	T_RUN(keeps_attributes);
	T_RUN(refuses);
	T_RUN(stays_beneath);
	T_RUN(wrong_bytes);
	return t_done();
}
