/* SPDX-License-Identifier: MIT */
/*
 * Moves to and from an object store, which is a directory (store.c).  For each n, the nth call of a
 * move, to the file system, to the catalogue or to the store, fails, or its answer is lost, or the
 * mover is killed there, or another process changes the file.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "calls.h"
#include "move_rig.h"
#include "store.h"

#include "base/err.h"
#include "tier/change.h"
#include "tier/epoch.h"
#include "tier/lookup.h"
#include "tier/move.h"
#include "tier/object.h"
#include "tier/plan.h"
#include "tier/scan.h"
#include "tier/scrub.h"

#define PREFIX "bucket%cold%"
#define HDD_ROOT 2u
#define OBJECT_ROOT 3u

static unsigned at, calls; /* at: call to disturb; calls: calls so far */
static pid_t mover;        /* process whose calls are hooked */

static void begin_store(void)
{
	store_begin(base);
	store_down = store_corrupts = false;
	objects_use(&store_table);
}

/* Make the set, with the file as an object if asked. */
static void set_up_object(bool as_object)
{
	struct recover_counts counts;
	struct move_done done;
	struct tier_set *set;

	wrote = false;
	set_up();
	if (!as_object)
		return;
	set = open_set(&counts);
	T_OK(move_file(set, NAME, OBJECT_ROOT, &done));
	T_CHECK(!set_close(set));
}

static int move_to(unsigned root)
{
	struct recover_counts counts;
	struct tier_set *set = open_set(&counts);
	struct move_done done;
	int r = move_file(set, NAME, root, &done);

	T_CHECK(!set_close(set));
	return r;
}

/* Return the content's length, after comparing the first SIZE bytes. */
static size_t check_bytes(const char *buf, ssize_t n)
{
	T_CHECK(n >= (ssize_t)SIZE);
	T_EQ(t_differs(buf, 1, 0, SIZE), SIZE);
	if (n > (ssize_t)SIZE)
		T_EQ(buf[SIZE], '!');
	return (size_t)n;
}

static struct tier_set *known_by;

static void check_known(const char *key)
{
	int r = catalog_object_known(known_by->catalog, key);

	if (r != 1)
		T_FAIL("the catalogue does not know the object %s", key);
}

/*
 * Check that the set has the file exactly once, whole and readable where the catalogue says, that
 * nothing of a move is left, and that the catalogue knows each object.  Return the file's root.
 */
static unsigned check_once(void)
{
	struct recover_counts counts;
	struct tier_set *set = open_set(&counts);
	char buf[SIZE + 16], key[OBJECT_KEY_SIZE];
	struct object_facts facts;
	struct tier_object o;
	struct tier_file f;
	unsigned nr;

	T_EQ(counts.waiting, 0);
	T_EQ(counts.conflicts, 0);
	T_OK(catalog_find(set->catalog, NAME, &f));
	T_EQ((access(path_of(TIER_NVME, NAME), F_OK) == 0) +
		     (access(path_of(TIER_HDD, NAME), F_OK) == 0),
	     f.root != OBJECT_ROOT);
	if (f.root == OBJECT_ROOT) {
		T_OK(catalog_object(set->catalog, f.id, &o));
		T_OK(object_same(&set->roots[f.root], &o, SIZE + wrote, &facts));
		T_OK(object_get(&set->roots[f.root], o.key, &facts, buf, SIZE + wrote, 0));
		(void)check_bytes(buf, (ssize_t)SIZE + wrote);
	} else {
		int fd = lookup_open(set, NAME, O_RDONLY, &f);

		T_CHECK(fd >= 0);
		T_EQ(check_bytes(buf, read(fd, buf, sizeof(buf))), SIZE + wrote);
		(void)close(fd);
		T_EQ(catalog_object(set->catalog, f.id, &o), -ENOENT);
	}
	for (unsigned i = 0; i < TIER_DISK_CLASSES; i++)
		T_EQ(files_in(path_of((enum tier_class)i, TIER_TMP)), 0);
	known_by = set;
	(void)store_each(PREFIX, check_known);
	/* After the grace only the file's own object is there. */
	T_OK(object_collect(set, object_due() + 1, &nr));
	T_EQ(store_each(PREFIX, NULL), f.root == OBJECT_ROOT);
	T_EQ(catalog_garbage_first(set->catalog, INT64_MAX, key), -ENOENT);
	T_CHECK(!set_close(set));
	return f.root;
}

/* -------------------------------------------------------------- the hooks */

static int fail_it(const char *call)
{
	(void)call;
	return ++calls == at ? EIO : 0;
}

static int die_here(const char *call)
{
	(void)call;
	if (++calls == at && getpid() != mover)
		_exit(0);
	return 0;
}

static int write_it(const char *call)
{
	int fd;

	(void)call;
	if (++calls != at)
		return 0;
	/* Wait for the file system's coarse clock to tick. */
	(void)usleep(20000);
	fd = open(path_of(TIER_HDD, NAME), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	wrote = write(fd, "!", 1) == 1;
	(void)close(fd);
	return 0;
}

static int unlinked;

/* Another process removes the file by its name in the set. */
static int unlink_it(const char *call)
{
	struct tier_set *other;
	struct tier_file f;

	(void)call;
	if (++calls != at)
		return 0;
	calls_hook = NULL;
	T_OK(set_open("m", &other));
	/* Within a transaction of the mover this fails. */
	catalog_hurry(other->catalog);
	unlinked = change_unlink(other, NAME, &f);
	T_CHECK(!set_close(other));
	calls_hook = unlink_it;
	return 0;
}

static int create_it(const char *call)
{
	int fd;

	(void)call;
	if (++calls != at || (mkdir(path_of(TIER_HDD, "d"), 0755) < 0 && errno != EEXIST))
		return 0;
	fd = open(path_of(TIER_HDD, NAME), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	wrote = fd >= 0 && write(fd, "theirs", 6) == 6;
	if (fd >= 0)
		(void)close(fd);
	return 0;
}

/* For each n, run a move to a root with a hook for its nth call. */
static void each_call(unsigned to, int (*fn)(const char *call), unsigned at_least)
{
	unsigned nr = 0, moved = 0;
	bool more = true;

	for (at = 1; more; at++) {
		struct recover_counts counts;
		struct move_done done;
		struct tier_set *set;
		int r;

		set_up_object(to != OBJECT_ROOT);
		set = open_set(&counts);
		calls = 0;
		calls_hook = fn;
		r = move_file(set, NAME, to, &done);
		calls_hook = NULL;
		T_CHECK(!set_close(set));
		more = calls >= at;
		nr += more;
		if (!more)
			T_OK(r);
		/* After an error the move may have been complete, but not the other way around. */
		if (check_once() == to)
			moved++;
		else
			T_CHECK(r < 0);
		tear_down();
	}
	T_CHECK(nr >= at_least);
	T_CHECK(moved > 0);
	printf("# %u calls, %u moved\n", nr, moved);
}

/* -------------------------------------------------------------- the cases */

static void down_every_call_fails(void)
{
	each_call(OBJECT_ROOT, fail_it, 25);
}

static void up_every_call_fails(void)
{
	each_call(HDD_ROOT, fail_it, 25);
}

static void down_somebody_writes(void)
{
	each_call(OBJECT_ROOT, write_it, 25);
	no_lease = true;
	each_call(OBJECT_ROOT, write_it, 25);
	no_lease = false;
}

static void killed(unsigned to)
{
	unsigned nr = 0, undone = 0, completed = 0;
	int status = 0;

	mover = getpid();
	for (at = 1;; at++, nr++) {
		pid_t pid;

		set_up_object(to != OBJECT_ROOT);
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			struct recover_counts counts;
			struct tier_set *set = open_set(&counts);
			struct move_done done;

			calls = 0;
			calls_hook = die_here;
			(void)move_file(set, NAME, to, &done);
			_exit(1);
		}
		T_EQ(waitpid(pid, &status, 0), pid);
		T_CHECK(WIFEXITED(status));
		if (check_once() == to)
			completed++;
		else
			undone++;
		/* A second recovery changes nothing. */
		(void)check_once();
		/* The name is free for another move. */
		T_OK(move_to(0));
		T_EQ(check_once(), 0);
		tear_down();
		if (WEXITSTATUS(status))
			break;
	}
	T_CHECK(nr >= 25);
	T_CHECK(undone && completed);
	printf("# %u calls, %u undone, %u completed\n", nr, undone, completed);
}

static void down_killed_at_every_call(void)
{
	killed(OBJECT_ROOT);
}

static void up_killed_at_every_call(void)
{
	killed(HDD_ROOT);
}

/* Remove the file of a mover that was killed at a call, and make a file with the same bytes: the
 * bytes of a copy do not tell whose it is. */
static void made_after_killed(unsigned to)
{
	unsigned nr = 0;
	int status = 0;

	mover = getpid();
	for (at = 1; !status; at++) {
		struct recover_counts counts;
		struct tier_set *set;
		struct tier_file f;
		pid_t pid;

		set_up_object(to != OBJECT_ROOT);
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			struct move_done done;

			set = open_set(&counts);
			calls = 0;
			calls_hook = die_here;
			(void)move_file(set, NAME, to, &done);
			_exit(1);
		}
		T_EQ(waitpid(pid, &status, 0), pid);
		T_OK(set_open("m", &set));
		/* The name may be missing until recovery. */
		if (change_unlink(set, NAME, &f) == 0) {
			(void)mkdir(path_of(TIER_HDD, "d"), 0755);
			put(path_of(TIER_HDD, NAME), SIZE);
			nr++;
		}
		T_CHECK(!set_close(set));
		T_CHECK(check_once() != OBJECT_ROOT);
		tear_down();
	}
	T_CHECK(nr >= 25);
}

static void down_killed_and_made_again(void)
{
	made_after_killed(OBJECT_ROOT);
}

static void up_killed_and_made_again(void)
{
	made_after_killed(HDD_ROOT);
}

/* A mover that dies before it tells readers of the file's new place leaves that to recovery. */
static void recovery_tells_readers(unsigned to)
{
	unsigned nr = 0;
	int status = 0;

	mover = getpid();
	for (at = 1; !status; at++) {
		struct recover_counts counts;
		struct tier_set *set;
		struct tier_move m;
		uint64_t seen;
		bool left;
		pid_t pid;

		set_up_object(to != OBJECT_ROOT);
		T_OK(set_open("m", &set));
		seen = atomic_load(epochs_of(set->epochs, NAME));
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			struct tier_set *own = open_set(&counts);
			struct move_done done;

			own->epochs = NULL; /* so that the mover tells nobody */
			calls = 0;
			calls_hook = die_here;
			(void)move_file(own, NAME, to, &done);
			_exit(1);
		}
		T_EQ(waitpid(pid, &status, 0), pid);
		left = catalog_move_first(set->catalog, 0, &m) == 0;
		if (check_once() == to && left) {
			nr++;
			T_CHECK(atomic_load(epochs_of(set->epochs, NAME)) != seen);
		}
		T_CHECK(!set_close(set));
		tear_down();
	}
	T_CHECK(nr > 0);
}

static void down_recovery_tells_readers(void)
{
	recovery_tells_readers(OBJECT_ROOT);
}

static void up_recovery_tells_readers(void)
{
	recovery_tells_readers(HDD_ROOT);
}

/* A file that is removed during a move is gone, and no copy comes back. */
static void removed_during(unsigned to)
{
	unsigned nr_removed = 0;
	bool more = true;

	for (at = 1; more; at++) {
		struct recover_counts counts;
		struct move_done done;
		struct tier_set *set;
		struct tier_file f;
		int r;

		set_up_object(to != OBJECT_ROOT);
		set = open_set(&counts);
		calls = 0;
		unlinked = -EBUSY;
		calls_hook = unlink_it;
		r = move_file(set, NAME, to, &done);
		calls_hook = NULL;
		T_CHECK(!set_close(set));
		more = calls >= at;
		if (unlinked == 0) {
			unsigned nr;

			nr_removed++;
			set = open_set(&counts);
			T_EQ(catalog_find(set->catalog, NAME, &f), -ENOENT);
			T_CHECK(access(path_of(TIER_NVME, NAME), F_OK) < 0);
			T_CHECK(access(path_of(TIER_HDD, NAME), F_OK) < 0);
			for (unsigned i = 0; i < TIER_DISK_CLASSES; i++)
				T_EQ(files_in(path_of((enum tier_class)i, TIER_TMP)), 0);
			T_OK(object_collect(set, object_due() + 1, &nr));
			T_EQ(store_each(PREFIX, NULL), 0);
			T_CHECK(!set_close(set));
		} else if (check_once() != to) {
			T_CHECK(r < 0);
		}
		tear_down();
	}
	T_CHECK(nr_removed > 5);
	printf("# removed %u times\n", nr_removed);
}

static void down_somebody_removes(void)
{
	removed_during(OBJECT_ROOT);
}

static void up_somebody_removes(void)
{
	removed_during(HDD_ROOT);
}

/* A file that another program makes on the target stays, and so does the object. */
static void up_somebody_creates(void)
{
	unsigned nr = 0;
	bool more = true;

	for (at = 1; more; at++) {
		struct recover_counts counts;
		struct move_done done;
		struct tier_set *set;
		int r;

		set_up_object(true);
		set = open_set(&counts);
		calls = 0;
		calls_hook = create_it;
		r = move_file(set, NAME, HDD_ROOT, &done);
		calls_hook = NULL;
		T_CHECK(!set_close(set));
		more = calls >= at;
		if (wrote) {
			char buf[16];
			int fd = open(path_of(TIER_HDD, NAME), O_RDONLY | O_CLOEXEC);

			nr++;
			T_EQ(r, -EEXIST);
			T_EQ(read(fd, buf, sizeof(buf)), 6);
			T_CHECK(!memcmp(buf, "theirs", 6));
			(void)close(fd);
			T_EQ(unlink(path_of(TIER_HDD, NAME)), 0);
			wrote = false;
			T_EQ(check_once(), OBJECT_ROOT);
		} else {
			(void)check_once();
		}
		tear_down();
	}
	T_CHECK(nr > 10);
}

static char order[200]; /* one letter for each call of a kind */

static int note_order(const char *call)
{
	static const char *const names[] = { "pwrite64", "fsync", "renameat2", "sqlite3_exec" };
	size_t len = strlen(order);

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(call, names[i]) && len < sizeof(order) - 1)
			order[len] = "wsrc"[i];
	return 0;
}

/* Before the object may be deleted, the copy is on the disk: its bytes, then its name. */
static void up_is_durable_before_the_commit(void)
{
	struct recover_counts counts;
	struct move_done done;
	struct tier_set *set;
	const char *named, *synced;

	set_up_object(true);
	set = open_set(&counts);
	memset(order, 0, sizeof(order));
	calls_hook = note_order;
	T_OK(move_file(set, NAME, HDD_ROOT, &done));
	calls_hook = NULL;
	T_CHECK(!set_close(set));
	printf("# %s\n", order);
	named = strchr(order, 'r');
	T_CHECK(named);
	synced = strrchr(order, 'w');
	T_CHECK(synced && strchr(synced, 's') && strchr(synced, 's') < named);
	T_CHECK(named[1] == 's' && strchr(named, 'c'));
	tear_down();
}

static void keeps_attributes_in_metadata(void)
{
	const struct timespec times[2] = { { 1000, 1 }, { 1600000000, 123456789 } };
	const char *path;
	struct stat st;
	char value[16];
	bool xattr;

	set_up_object(false);
	path = path_of(TIER_HDD, NAME);
	xattr = setxattr(path, "user.kind", "a,b:\n\0z", 7, 0) == 0;
	T_EQ(chmod(path, 0604), 0);
	T_EQ(utimensat(AT_FDCWD, path, times, 0), 0);
	T_OK(move_to(OBJECT_ROOT));
	T_OK(move_to(0));
	path = path_of(TIER_NVME, NAME);
	T_EQ(stat(path, &st), 0);
	T_EQ(st.st_mode & 07777, 0604);
	T_EQ(st.st_mtim.tv_sec, 1600000000);
	T_EQ(st.st_mtim.tv_nsec, 123456789);
	if (xattr) {
		T_EQ(getxattr(path, "user.kind", value, sizeof(value)), 7);
		T_CHECK(!memcmp(value, "a,b:\n\0z", 7));
	}
	T_EQ(check_once(), 0);
	tear_down();
}

static void large_attributes_stay_on_disk(void)
{
	char value[1000] = { 1 };

	set_up_object(false);
	if (setxattr(path_of(TIER_HDD, NAME), "user.big", value, sizeof(value), 0) < 0)
		T_SKIP("extended attributes");
	T_EQ(move_to(OBJECT_ROOT), -E2BIG);
	T_EQ(store_each(PREFIX, NULL), 0);
	T_EQ(check_once(), HDD_ROOT);
	tear_down();
}

static void wrong_bytes_are_noticed(void)
{
	set_up_object(false);
	store_corrupts = true;
	T_EQ(move_to(OBJECT_ROOT), -EIO);
	store_corrupts = false;
	T_EQ(check_once(), HDD_ROOT);
	T_OK(move_to(OBJECT_ROOT));
	store_corrupts = true;
	T_EQ(move_to(HDD_ROOT), -EBADMSG);
	store_corrupts = false;
	T_EQ(check_once(), OBJECT_ROOT);
	tear_down();
}

static unsigned nr_bad;

static void note_bad(const char *name, const char *why, void *arg)
{
	(void)name;
	(void)why;
	(void)arg;
	nr_bad++;
}

/* Another program replaces or removes the object. */
static void foreign_writers_are_noticed(void)
{
	char other[SIZE + 1] = { 0 };

	/* Only the ETag differs. */
	memset(other, 'o', SIZE);
	for (unsigned i = 0; i < 2; i++) {
		struct recover_counts counts;
		struct scrub_counts scrubbed;
		char url[OBJECT_URL_SIZE];
		struct tier_object o;
		struct move_done done;
		struct tier_set *set;
		struct tier_file f;

		set_up_object(true);
		set = open_set(&counts);
		T_OK(catalog_find(set->catalog, NAME, &f));
		T_OK(catalog_object(set->catalog, f.id, &o));
		object_url(&set->roots[OBJECT_ROOT], o.key, url);
		store_replace(url, i ? other : NULL);
		T_EQ(move_file(set, NAME, HDD_ROOT, &done), -ESTALE);
		T_CHECK(access(path_of(TIER_HDD, NAME), F_OK) < 0);
		T_OK(scrub_set(set, note_bad, NULL, &scrubbed));
		T_EQ(scrubbed.bad, 1);
		T_EQ(nr_bad, i + 1);
		T_CHECK(!set_close(set));
		tear_down();
	}
}

/* Kill a move before its nth call of a kind, in a child. */
static const char *kill_call;
static unsigned kill_nr;

static int die_at_call(const char *call)
{
	if (getpid() != mover && !strcmp(call, kill_call) && !--kill_nr)
		_exit(0);
	return 0;
}

static void kill_move(unsigned to, const char *call, unsigned nr)
{
	int status;
	pid_t pid;

	mover = getpid();
	kill_call = call;
	kill_nr = nr;
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct recover_counts counts;
		struct tier_set *set = open_set(&counts);
		struct move_done done;

		calls_hook = die_at_call;
		(void)move_file(set, NAME, to, &done);
		_exit(1);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(WEXITSTATUS(status), 0);
}

/* The source is the last copy if somebody removes the object before recovery. */
static void lost_object_keeps_the_source(void)
{
	for (unsigned i = 1; i <= 2; i++) {
		struct tier_object o;
		struct tier_set *set;
		struct tier_file f;
		char url[OBJECT_URL_SIZE];

		set_up_object(false);
		/* The rename of the source, and its removal, come after the commit. */
		kill_move(OBJECT_ROOT, i == 1 ? "renameat2" : "unlinkat", 1);
		T_OK(set_open("m", &set));
		T_OK(catalog_find(set->catalog, NAME, &f));
		T_EQ(f.root, OBJECT_ROOT);
		T_OK(catalog_object(set->catalog, f.id, &o));
		object_url(&set->roots[OBJECT_ROOT], o.key, url);
		T_CHECK(!set_close(set));
		store_replace(url, NULL);
		T_EQ(check_once(), HDD_ROOT);
		tear_down();
	}
}

/* A program writes to the source between the crash and recovery. */
static void source_written_after_the_commit(void)
{
	int fd;

	set_up_object(false);
	kill_move(OBJECT_ROOT, "renameat2", 1);
	fd = open(path_of(TIER_HDD, NAME), O_WRONLY | O_APPEND | O_CLOEXEC);
	T_EQ(write(fd, "!", 1), 1);
	(void)close(fd);
	wrote = true;
	T_EQ(check_once(), HDD_ROOT);
	wrote = false;
	tear_down();
}

/* Without the store a move before its commit ends, and one after it waits. */
static void recovery_without_the_store(void)
{
	struct recover_counts counts;
	struct scan_counts scanned;
	struct tier_set *set;

	set_up_object(false);
	kill_move(OBJECT_ROOT, "store_get", 1);
	store_down = true;
	set = open_set(&counts);
	T_EQ(counts.waiting, 0);
	T_EQ(counts.undone, 1);
	T_CHECK(!set_close(set));
	store_down = false;
	T_EQ(check_once(), HDD_ROOT);
	kill_move(OBJECT_ROOT, "renameat2", 1);
	store_down = true;
	T_OK(set_open("m", &set));
	T_OK(set_lock(set));
	T_OK(recover_set(set, &counts));
	T_EQ(counts.waiting, 1);
	T_OK(scan_set(set, &scanned));
	T_CHECK(access(path_of(TIER_HDD, NAME), F_OK) == 0);
	T_CHECK(!set_close(set));
	store_down = false;
	T_EQ(check_once(), OBJECT_ROOT);
	tear_down();
}

static void quota_is_the_room(void)
{
	struct recover_counts counts;
	struct tier_space space;
	struct tier_set *set;

	set_up_object(true);
	put(path_of(TIER_HDD, "a"), SIZE);
	set = open_set(&counts);
	T_OK(class_space(set, TIER_OBJECT, &space));
	T_EQ(space.size, 10 * SIZE);
	T_EQ(space.used, SIZE);
	T_EQ(space.avail, 9 * SIZE);
	T_EQ(move_target(set, TIER_OBJECT, 9 * SIZE), OBJECT_ROOT);
	T_EQ(move_target(set, TIER_OBJECT, 9 * SIZE + 1), -ENOSPC);
	set->limits[TIER_OBJECT].quota = SIZE;
	{
		struct move_done done;

		T_EQ(move_file(set, "a", OBJECT_ROOT, &done), -ENOSPC);
	}
	T_CHECK(!set_close(set));
	/* An object that waits to be deleted takes room, too. */
	T_OK(move_to(HDD_ROOT));
	set = open_set(&counts);
	T_OK(class_space(set, TIER_OBJECT, &space));
	T_EQ(space.used, SIZE);
	T_CHECK(!set_close(set));
	T_EQ(check_once(), HDD_ROOT);
	tear_down();
}

static void objects_wait_for_readers(void)
{
	struct recover_counts counts;
	struct tier_set *set;
	unsigned nr;

	set_up_object(true);
	T_OK(move_to(HDD_ROOT));
	set = open_set(&counts);
	T_OK(object_collect(set, (int64_t)time(NULL) + OBJECT_GRACE_S / 2, &nr));
	T_EQ(nr, 0);
	T_EQ(store_each(PREFIX, NULL), 1);
	store_down = true;
	T_EQ(object_collect(set, object_due() + 1, &nr), -ECONNREFUSED);
	store_down = false;
	T_OK(object_collect(set, object_due() + 1, &nr));
	T_EQ(nr, 1);
	T_CHECK(!set_close(set));
	T_EQ(check_once(), HDD_ROOT);
	tear_down();
}

static void opens_tell_the_cure(void)
{
	struct recover_counts counts;
	struct tier_file f, old;
	struct tier_set *set;

	set_up_object(true);
	set = open_set(&counts);
	T_EQ(lookup_open(set, NAME, O_WRONLY, &f), -EREMOTE);
	T_CHECK(strstr(err_text(), "penstock tier migrate m " NAME " --to"));
	T_EQ(f.root, OBJECT_ROOT);
	T_EQ(lookup_open(set, "d/none", O_RDONLY, &f), -ENOENT);
	T_EQ(change_rename(set, NAME, "d/other", 0, &f, &old), -EREMOTE);
	put(path_of(TIER_NVME, "x"), 10);
	T_EQ(change_rename(set, "x", NAME, 0, &f, &old), -EREMOTE);
	T_OK(change_unlink(set, NAME, &f));
	T_EQ(lookup_open(set, NAME, O_RDONLY, &f), -ENOENT);
	T_CHECK(!set_close(set));
	tear_down();
}

static void rebuild_finds_objects(void)
{
	struct recover_counts counts;
	struct move_done done;
	struct tier_set *set;
	struct tier_file f;

	set_up_object(true);
	put(path_of(TIER_HDD, "a"), SIZE);
	/* An older object of the file, which waits to be deleted. */
	T_OK(move_to(HDD_ROOT));
	T_OK(move_to(OBJECT_ROOT));
	/* An object of a file that is on a disk again. */
	set = open_set(&counts);
	T_OK(move_file(set, "a", OBJECT_ROOT, &done));
	T_OK(move_file(set, "a", HDD_ROOT, &done));
	T_CHECK(!set_close(set));
	T_EQ(store_each(PREFIX, NULL), 3);
	store_down = true;
	T_EQ(set_rebuild("m"), -ECONNREFUSED);
	store_down = false;
	T_OK(set_rebuild("m"));
	set = open_set(&counts);
	T_OK(catalog_find(set->catalog, "a", &f));
	T_EQ(f.root, HDD_ROOT);
	T_OK(catalog_find(set->catalog, NAME, &f));
	T_EQ(f.root, OBJECT_ROOT);
	T_CHECK(f.has_crc);
	T_EQ(f.stamp.size, SIZE);
	T_CHECK(!set_close(set));
	T_OK(move_to(HDD_ROOT));
	set = open_set(&counts);
	T_CHECK(!set_close(set));
	T_CHECK(access(path_of(TIER_HDD, NAME), F_OK) == 0);
	tear_down();
}

/* The marker protects from another store with the same names. */
static void another_store_is_refused(void)
{
	char other[600];

	set_up_object(false);
	(void)snprintf(other, sizeof(other), "%s/other", base);
	T_EQ(mkdir(other, 0755), 0);
	store_begin(other);
	T_EQ(move_to(OBJECT_ROOT), -ENODEV);
	store_begin(base);
	T_EQ(check_once(), HDD_ROOT);
	store_replace("s3://bucket/cold/.tier/id", "other");
	T_EQ(move_to(OBJECT_ROOT), -ENODEV);
	tear_down();
}

/* Files leave hdd for the store above its watermark only. */
static void plans_reach_the_store(void)
{
	struct recover_counts counts;
	struct tier_set *set;
	struct plan plan;

	set_up_object(false);
	set = open_set(&counts);
	T_OK(plan_make(set, &plan));
	T_EQ(plan.nr, 0);
	plan_done(&plan);
	set->limits[TIER_NVME].quota = set->limits[TIER_SSD].quota = 1;
	set->limits[TIER_HDD].quota = SIZE;
	T_OK(plan_make(set, &plan));
	T_EQ(plan.nr, 1);
	T_EQ(plan.moves[0].to, TIER_OBJECT);
	plan_done(&plan);
	T_CHECK(!set_close(set));
	tear_down();
}

int main(void)
{
	object_begin = begin_store;
	T_RUN(down_every_call_fails);
	T_RUN(up_every_call_fails);
	T_RUN(down_somebody_writes);
	T_RUN(down_killed_at_every_call);
	T_RUN(up_killed_at_every_call);
	T_RUN(down_killed_and_made_again);
	T_RUN(up_killed_and_made_again);
	T_RUN(down_recovery_tells_readers);
	T_RUN(up_recovery_tells_readers);
	T_RUN(down_somebody_removes);
	T_RUN(up_somebody_removes);
	T_RUN(up_somebody_creates);
	T_RUN(up_is_durable_before_the_commit);
	T_RUN(keeps_attributes_in_metadata);
	T_RUN(large_attributes_stay_on_disk);
	T_RUN(wrong_bytes_are_noticed);
	T_RUN(foreign_writers_are_noticed);
	T_RUN(lost_object_keeps_the_source);
	T_RUN(source_written_after_the_commit);
	T_RUN(recovery_without_the_store);
	T_RUN(quota_is_the_room);
	T_RUN(objects_wait_for_readers);
	T_RUN(opens_tell_the_cure);
	T_RUN(rebuild_finds_objects);
	T_RUN(another_store_is_refused);
	T_RUN(plans_reach_the_store);
	return t_done();
}
