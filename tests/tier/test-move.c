/* SPDX-License-Identifier: MIT */
/*
 * For each n, the nth call of a move fails, or another process writes to the file before it, or the
 * mover is killed there.  In every case the set must have the file once, with all bytes that were
 * written.
 */
#include "calls.h"
#include "child.h"
#include "move_rig.h"
#include "scratch.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/err.h"
#include "tier/change.h"
#include "tier/lookup.h"
#include "tier/move.h"
#include "tier/scan.h"

static unsigned at, calls; /* at: call to disturb; calls: calls so far */
static int fails_with;     /* errno of the failing call */
static bool early;         /* the write came before the copy had its name */
static unsigned nr_renames;
static pid_t mover; /* process whose calls are hooked */

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

/* For each n, run a move with a hook for its nth call. */
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

#define RENAME_BACK 3 /* renames of a move that is taken back: copy, source aside, source back */

static unsigned nr_back;     /* moves that gave the source its name back after the commit */
static unsigned nr_syncs;    /* calls of fsync() since the last rename */
static unsigned nr_unlinked; /* files unlinked since then */

/*
 * Check that the source's name is on the disk before the copy loses its own: both directories of
 * the rename back are synced before the next unlink.
 */
static void note_order(const char *call)
{
	if (!strcmp(call, "renameat2")) {
		nr_back += ++nr_renames == RENAME_BACK;
		nr_syncs = nr_unlinked = 0;
	} else if (!strcmp(call, "fsync")) {
		nr_syncs++;
	} else if (!strcmp(call, "unlinkat") && nr_renames == RENAME_BACK && !nr_unlinked++) {
		T_CHECK(nr_syncs >= 2);
	}
}

static int fail_it(const char *call)
{
	(void)call;
	return ++calls == at ? fails_with : 0;
}

/*
 * Write to the file by its path, unless that would wait for the mover's lease.  After a write
 * before the copy had its name, that name must not have the old bytes.
 */
static int write_it(const char *call)
{
	struct stat st;
	int fd;

	if (early && stat(path_of(TIER_NVME, NAME), &st) == 0)
		T_EQ(st.st_size, SIZE + 1);
	note_order(call);
	if (++calls != at)
		return 0;
	/* Wait for the file system's coarse clock to tick. */
	(void)usleep(20000);
	fd = open(path_of(TIER_HDD, NAME), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	wrote = write(fd, "!", 1) == 1;
	early = wrote && !nr_renames;
	(void)close(fd);
	return 0;
}

/*
 * A process with the file open since before the move changes a byte by its descriptor or by a
 * mapping, and restores the times.
 */
static int keeper = -1;
static volatile char *keeper_map;
static char keeper_last;

static int write_and_hide(const char *call)
{
	struct timespec times[2];
	struct stat st;

	note_order(call);
	/* After unlinkat() the write goes to a deleted file. */
	if (++calls != at || !strcmp(call, "unlinkat") || fstat(keeper, &st) < 0 || !st.st_nlink)
		return 0;
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	if (keeper_map)
		keeper_map[SIZE - 1] ^= 1;
	else
		T_EQ(pwrite(keeper, "!", 1, SIZE - 1), 1);
	wrote = true;
	T_EQ(futimens(keeper, times), 0);
	return 0;
}

static pid_t writer;
static int writer_says;

/* Return a process' state in /proc: R, S, Z and so on. */
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

/* Another process opens the file for writing, and waits for the mover's lease if there is one. */
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
		/* exec: the writer must not inherit the mover's descriptors with the lease. */
		(void)execl("/proc/self/exe", program_invocation_short_name, "--write", path,
			    (char *)NULL);
		_exit(127);
	}
	(void)close(says[1]);
	writer_says = says[0];
	T_EQ(read(says[0], &c, 1), 1);
	/* Wait until it sleeps in open(), or has ended. */
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

/* Another process makes a file of the same name on the target. */
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

static int count_calls(const char *call)
{
	calls += !strcmp(call, "pwrite64");
	return 0;
}

static int lock_fd;

/* A mount opens the file during the copy and keeps it open for long. */
static int lock_it(const char *call)
{
	if (!strcmp(call, "pwrite64") && lock_fd < 0) {
		lock_fd = open(path_of(TIER_HDD, NAME), O_RDONLY | O_CLOEXEC);
		T_EQ(flock(lock_fd, LOCK_SH), 0);
	}
	return 0;
}

static unsigned both_there;

/* While both files have the name, a mount must not be able to lock either: it would unlink or
 * rename one of them. */
static int lock_copy(const char *call)
{
	int fd = open(path_of(TIER_NVME, NAME), O_RDONLY | O_CLOEXEC);

	(void)call;
	if (fd >= 0 && access(path_of(TIER_HDD, NAME), F_OK) == 0) {
		both_there++;
		T_EQ(flock(fd, LOCK_SH | LOCK_NB), -1);
		T_EQ(errno, EWOULDBLOCK);
	}
	if (fd >= 0)
		(void)close(fd);
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
	T_CHECK(nr_back > 0);
	printf("# %u moves taken back\n", nr_back);
	no_lease = false;
}

/* Only the stamps, size and times, reveal the write. */
static void somebody_writes_without_watch(void)
{
	nr_back = 0;
	no_lease = no_watch = true;
	each_call(write_it, 25);
	T_CHECK(nr_back > 0);
	no_lease = no_watch = false;
}

/*
 * Without leases, a write by a descriptor from before the move is noticed while the source has a
 * name, even if size and mtime are restored.  A write by a mapping may go unnoticed; if all are
 * noticed here, update docs/TIERS.md.
 */
static unsigned lost_writes(bool mapped)
{
	unsigned nr = 0, lost = 0;

	no_lease = true;
	for (at = 1; nr == at - 1; at++) {
		struct recover_counts counts;
		struct tier_set *set;
		struct move_done done;
		char last = 0;
		volatile char *map;
		int r, fd;

		set_up();
		set = open_set(&counts);
		keeper = open(path_of(TIER_HDD, NAME), O_RDWR | O_CLOEXEC);
		map = mapped ? mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, keeper, 0)
			     : NULL;
		T_CHECK(map != MAP_FAILED);
		/* Make the page writable: then the next write by the mapping does not change the
		 * file's times. */
		if (map)
			map[SIZE - 1] ^= 0;
		keeper_map = map;
		calls = 0;
		wrote = false;
		calls_hook = write_and_hide;
		r = move_file(set, NAME, 0, &done);
		calls_hook = NULL;
		nr += calls >= at;
		fd = open(path_of(r == 0 ? TIER_NVME : TIER_HDD, NAME), O_RDONLY | O_CLOEXEC);
		T_CHECK(fd >= 0);
		T_EQ(pread(fd, &last, 1, SIZE - 1), 1);
		(void)close(fd);
		T_EQ(pread(keeper, &keeper_last, 1, SIZE - 1), 1);
		lost += wrote && last != keeper_last;
		if (map)
			(void)munmap((void *)map, SIZE);
		keeper_map = NULL;
		(void)close(keeper);
		T_CHECK(!set_close(set));
		tear_down();
	}
	no_lease = false;
	T_CHECK(nr >= 25);
	printf("# %u calls, %u writes lost\n", nr, lost);
	return lost;
}

static void hidden_writes_are_seen(void)
{
	T_EQ(lost_writes(false), 0);
}

static void hidden_writes_by_mappings_are_not(void)
{
	T_CHECK(lost_writes(true) > 0);
}

/* Return true if the kernel stamps a file at the first write to a clean page of a mapping. */
static bool stamps_mapped_writes(volatile char *map, int fd)
{
	struct stat a, b;

	map[SIZE - 1] ^= 0;
	T_EQ(fsync(fd), 0);
	T_EQ(fstat(fd, &a), 0);
	(void)usleep(20000);
	map[SIZE - 1] ^= 0;
	T_EQ(fstat(fd, &b), 0);
	return a.st_mtim.tv_sec != b.st_mtim.tv_sec || a.st_mtim.tv_nsec != b.st_mtim.tv_nsec;
}

/* Once the bytes are copied, change one by a mapping whose page was dirty before the move. */
static int write_by_mapping(const char *call)
{
	if (strcmp(call, "pwrite64") != 0 || wrote)
		return 0;
	keeper_map[SIZE - 1] ^= 1;
	wrote = true;
	return 0;
}

static void late_writes_by_mappings_are_seen(void)
{
	struct recover_counts counts;
	struct tier_set *set;
	struct move_done done;
	bool stamps;
	int r;

	set_up();
	set = open_set(&counts);
	keeper = open(path_of(TIER_HDD, NAME), O_RDWR | O_CLOEXEC);
	keeper_map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, keeper, 0);
	T_CHECK(keeper_map != MAP_FAILED);
	stamps = stamps_mapped_writes(keeper_map, keeper);
	(void)usleep(20000);
	wrote = false;
	no_lease = true;
	calls_hook = write_by_mapping;
	r = move_file(set, NAME, 0, &done);
	calls_hook = NULL;
	no_lease = false;
	(void)munmap((void *)keeper_map, SIZE);
	keeper_map = NULL;
	(void)close(keeper);
	T_CHECK(!set_close(set));
	T_CHECK(wrote);
	wrote = false;
	tear_down();
	if (!stamps)
		T_SKIP("a file system that stamps files when mappings write to them");
	T_EQ(r, -EAGAIN);
}

static void somebody_waits_to_write(void)
{
	each_call(wait_and_write, 25);
}

/* Files that others make on the target are neither overwritten nor removed. */
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

/* Remove the file as a mount does, unless the mover has locked it, and the target's directory. */
static bool removed;

static int remove_it(const char *call)
{
	int fd;

	(void)call;
	if (++calls != at)
		return 0;
	fd = open(path_of(TIER_HDD, NAME), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
		T_EQ(unlink(path_of(TIER_HDD, NAME)), 0);
		T_CHECK(rmdir(path_of(TIER_NVME, "d")) == 0 || errno == ENOENT);
		removed = true;
	}
	(void)close(fd);
	return 0;
}

/* A mover makes no directory for a file that is gone: a mount could not remove the parent then. */
static void somebody_removes(void)
{
	unsigned nr_removed = 0;
	bool more = true;

	for (at = 1; more; at++) {
		set_up();
		removed = false;
		T_CHECK(try_move(remove_it) < 0 || !removed);
		more = calls >= at;
		if (removed) {
			nr_removed++;
			T_CHECK(access(path_of(TIER_NVME, "d"), F_OK) < 0);
			for (unsigned i = 0; i < TIER_DISK_CLASSES; i++)
				T_EQ(files_in(path_of((enum tier_class)i, TIER_TMP)), 0);
		}
		tear_down();
	}
	T_CHECK(nr_removed > 10);
}

static struct tier_set *reader;
static struct tier_file moved_row;

/* A mover tells the catalogue of its move before another process notes that it found the file. */
static int tell_of_move(const char *call)
{
	if (strcmp(call, "sqlite3_step") != 0)
		return 0;
	calls_hook = NULL;
	T_OK(catalog_put(reader->catalog, &moved_row));
	return 0;
}

static void lookups_keep_what_movers_told(void)
{
	struct recover_counts counts;
	struct tier_set *set;
	struct tier_file f;
	char from[512];
	int fd;

	set_up();
	set = open_set(&counts);
	T_OK(set_open("m", &reader));
	T_OK(catalog_find(set->catalog, NAME, &moved_row));
	moved_row.root = 0;
	moved_row.gen++;
	moved_row.has_crc = true;
	moved_row.crc = 7;
	(void)snprintf(from, sizeof(from), "%s", path_of(TIER_HDD, NAME));
	T_EQ(mkdir(path_of(TIER_NVME, "d"), 0750), 0);
	T_EQ(rename(from, path_of(TIER_NVME, NAME)), 0);
	calls_hook = tell_of_move;
	fd = change_find(set, NAME, &f);
	T_CHECK(!calls_hook);
	T_CHECK(fd >= 0);
	(void)close(fd);
	T_EQ(f.id, moved_row.id);
	T_EQ(f.root, 0);
	T_EQ(f.gen, moved_row.gen);
	T_CHECK(f.has_crc);
	T_EQ(f.crc, 7);
	/* If no mover records its move, the file counts as another file. */
	T_EQ(mkdir(path_of(TIER_SSD, "d"), 0750), 0);
	(void)snprintf(from, sizeof(from), "%s", path_of(TIER_NVME, NAME));
	T_EQ(rename(from, path_of(TIER_SSD, NAME)), 0);
	fd = change_find(set, NAME, &f);
	T_CHECK(fd >= 0);
	(void)close(fd);
	T_EQ(f.id, moved_row.id);
	T_EQ(f.root, 1);
	T_CHECK(!f.has_crc);
	T_CHECK(!set_close(reader));
	T_CHECK(!set_close(set));
	tear_down();
}

/* A database with other tables is no catalogue. */
static void foreign_tables_are_refused(void)
{
	struct tier_file f = { .name = NAME };
	struct catalog *c;
	char path[300];
	sqlite3 *db;

	T_EQ(scratch_new(NULL, base, sizeof(base)), 0);
	(void)snprintf(path, sizeof(path), "%s/catalog.db", base);
	T_EQ(sqlite3_open(path, &db), SQLITE_OK);
	T_EQ(sqlite3_exec(db, "CREATE TABLE file(id INTEGER PRIMARY KEY)", NULL, NULL, NULL),
	     SQLITE_OK);
	T_EQ(sqlite3_close(db), SQLITE_OK);
	T_OK(catalog_open(base, &c));
	T_EQ(catalog_find(c, NAME, &f), -EUCLEAN);
	T_EQ(catalog_put(c, &f), -EUCLEAN);
	T_EQ(catalog_note(c, &f), -EUCLEAN);
	T_EQ(catalog_scan_seen(c, 1), -EUCLEAN);
	T_CHECK(!catalog_close(c));
	tear_down();
}

static int held; /* a descriptor from before the move */

static void read_all(int fd)
{
	char buf[SIZE + 1];

	T_EQ(pread(fd, buf, sizeof(buf), 0), SIZE);
	T_EQ(t_differs(buf, 1, 0, SIZE), SIZE);
}

/* A program that opens the file now, or opened it before, reads all of it. */
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

static void mount_has_it_open(void)
{
	int r;

	set_up();
	lock_fd = -1;
	r = try_move(lock_it);
	T_EQ(r, -EBUSY);
	check_set(r);
	/* A lock before the copy also refuses the move. */
	r = try_move(count_calls);
	T_EQ(r, -EBUSY);
	T_EQ(calls, 0);
	(void)close(lock_fd);
	T_OK(try_move(NULL));
	check_set(0);
	tear_down();
}

static void mount_waits_for_the_copy(void)
{
	set_up();
	both_there = 0;
	T_OK(try_move(lock_copy));
	T_CHECK(both_there);
	check_set(0);
	tear_down();
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
			/* the process was not killed */
			_exit(1);
		}
		T_EQ(waitpid(pid, &status, 0), pid);
		T_CHECK(WIFEXITED(status));
		wrote = false;
		/* Once the commit is in the journal, the file is on the target. */
		check_set(WEXITSTATUS(status) || is_committed() ? 0 : -EINTR);
		tear_down();
		if (WEXITSTATUS(status))
			break;
	}
	T_CHECK(at > 25 && at < 1000);
}

/* A move is killed, then another process writes to the source: the written file is kept. */
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
		T_EQ(counts.conflicts, 0);
		T_EQ(scanned.twice, 0);
		T_OK(catalog_find(set->catalog, NAME, &f));
		/* The set must have the written file. */
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
 * A move is killed after its commit, and a program then writes to the copy: the source, which is
 * unchanged, is removed.
 */
static void copy_is_written_after_the_commit(void)
{
	unsigned met = 0;
	int status = 0;

	mover = getpid();
	for (at = 1; at < 1000; at++) {
		struct recover_counts counts;
		struct tier_set *set;
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
		if (is_committed()) {
			met++;
			fd = open(path_of(TIER_NVME, NAME), O_WRONLY | O_APPEND | O_CLOEXEC);
			T_EQ(write(fd, "!", 1), 1);
			(void)close(fd);
			T_OK(set_open("m", &set));
			T_OK(set_lock(set));
			T_OK(recover_set(set, &counts));
			T_EQ(counts.conflicts, 0);
			T_CHECK(!set_close(set));
			wrote = true;
			check_set(0);
			wrote = false;
		}
		tear_down();
		if (WEXITSTATUS(status))
			break;
	}
	T_CHECK(met > 3);
}

/*
 * A mover is killed while the source is renamed aside, and another process makes a file of that
 * name: neither that file nor the others are lost.
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
			/* When that file is removed, the move completes. */
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

int main(int argc, char *argv[])
{
	if (argc == 3 && !strcmp(argv[1], "--write"))
		return be_writer(argv[2]);
	T_RUN(every_call_fails);
	T_RUN(somebody_writes);
	T_RUN(somebody_writes_without_lease);
	T_RUN(somebody_writes_without_watch);
	T_RUN(hidden_writes_are_seen);
	T_RUN(hidden_writes_by_mappings_are_not);
	T_RUN(late_writes_by_mappings_are_seen);
	T_RUN(lookups_keep_what_movers_told);
	T_RUN(foreign_tables_are_refused);
	T_RUN(somebody_waits_to_write);
	T_RUN(somebody_creates);
	T_RUN(somebody_removes);
	T_RUN(mount_has_it_open);
	T_RUN(mount_waits_for_the_copy);
	T_RUN(readers_find_no_gap);
	T_RUN(killed_at_every_call);
	T_RUN(written_after_a_crash);
	T_RUN(copy_is_written_after_the_commit);
	T_RUN(new_file_where_the_source_was);
	T_RUN(copies_are_even);
	T_RUN(copy_is_read_back);
	T_RUN(room_is_reserved_first);
	T_RUN(roots_are_checked);
	T_RUN(keeps_attributes);
	T_RUN(refuses);
	T_RUN(stays_beneath);
	T_RUN(wrong_bytes);
	return t_done();
}
