/* SPDX-License-Identifier: MIT */
#include "tier/move.h"

#include <signal.h>
#include <stdio.h>
#include <sys/file.h>

#include "base/err.h"
#include "tier/move_private.h"
#include "tier/object.h"
#include "tier/progress.h"
#include "tier/stamp.h"
#include "tier/watch.h"

/*
 * Nanoseconds for which a file must be unchanged before it is moved without a lease: a write within
 * the same tick of the file system's clock would not change the stamp.
 */
#define SETTLED_NS INT64_C(100000000)

/*
 * Milliseconds to wait for a file that is open through a mount of the set: such users hold
 * flock(LOCK_SH).
 */
#define LOCK_MS 1000u
#define LOCK_PAUSE_MS 10u

/* Most milliseconds that a background move waits for other I/O before each chunk.  Bounded, so that
 * the move ends at some time. */
#define YIELD_MS 10u
#define YIELD_PAUSE_MS 1u

static void moving_done(struct moving *v)
{
	closep(&v->src);
	closep(&v->dst);
	closep(&v->src_dir);
	closep(&v->dst_dir);
	closep(&v->src_tmp);
	closep(&v->dst_tmp);
	closep(&v->watch);
	yield_end(&v->yield);
}

int move_fail(const struct moving *v, int err, const char *what)
{
	return err_set(err, "%s: %s: %s", v->m.name, what, strerror(err < 0 ? -err : err));
}

/* Prefix the error text with the file's name. */
int move_fail_named(const struct moving *v, int err)
{
	return err_set(err, "%s: %s", v->m.name, err_text());
}

/* ---------------------------------------------------------------- checks */

int move_take_lease(struct moving *v)
{
	struct timespec now;
	int64_t age;

	/* Choose SIGURG, which is ignored by default.  SIGIO, the usual signal for a lease, would
	 * end the process. */
	(void)fcntl(v->src, F_SETSIG, SIGURG);
	if (fcntl(v->src, F_SETLEASE, F_RDLCK) == 0) {
		v->leased = true;
		return 0;
	}
	if (errno == EAGAIN)
		return err_set(EBUSY, "%s is open for writing: move it later", v->m.name);
	/* Leases need ownership or CAP_LEASE, and some file systems have none: use a watch and
	 * stamps instead. */
	v->watch = watch_begin(v->src);
	/* Clean the dirty pages of mappings: the kernel stamps a file only at the first write to a
	 * clean page, so later writes to a dirty page would not change the stamp. */
	if (fsync(v->src) != 0)
		return move_fail(v, errno, "cannot sync it");
	if (fstat(v->src, &v->st) < 0 || clock_gettime(CLOCK_REALTIME, &now) < 0)
		return move_fail(v, errno, "cannot ask for the file's times");
	age = stamp_ns(&now) - stamp_ns(&v->st.st_ctim);
	if (age >= 0 && age < SETTLED_NS)
		return err_set(EAGAIN, "%s was changed a moment ago: move it later", v->m.name);
	return 0;
}

static int err_locked(const struct moving *v)
{
	return err_set(EBUSY,
		       "%s is open through a mount, or a program holds a lock of it: move it later",
		       v->m.name);
}

/* Refuse a file that could not be locked after the copy. */
int move_check_lock(const struct moving *v)
{
	if (flock(v->src, LOCK_EX | LOCK_NB) == 0)
		return flock(v->src, LOCK_UN) < 0 ? move_fail(v, errno, "cannot unlock it") : 0;
	return errno == EWOULDBLOCK ? err_locked(v) : move_fail(v, errno, "cannot lock it");
}

/* Return true if somebody has written to the source, or waits to open it for writing. */
bool move_disturbed(struct moving *v)
{
	v->written |= watch_written(v->watch);
	return v->written || (v->leased && fcntl(v->src, F_GETLEASE) != F_RDLCK);
}

static void give_way(struct moving *v)
{
	const struct timespec pause = { .tv_nsec = YIELD_PAUSE_MS * (long)NSEC_PER_MSEC };
	uint64_t began = now_ns();

	for (unsigned ms = 0; ms < YIELD_MS && yield_busy(&v->yield) && !move_disturbed(v);
	     ms += YIELD_PAUSE_MS) {
		(void)nanosleep(&pause, NULL);
		v->waited_ns += now_ns() - began;
		began = now_ns();
	}
	if (v->set->background)
		v->job->chunk = yield_chunk(&v->yield);
}

/* Lock the source: until the move ends, no mount can open it. */
int move_lock_source(struct moving *v)
{
	const struct timespec pause = { .tv_nsec = LOCK_PAUSE_MS * (long)NSEC_PER_MSEC };

	for (unsigned ms = 0; flock(v->src, LOCK_EX | LOCK_NB) < 0; ms += LOCK_PAUSE_MS) {
		if (errno != EWOULDBLOCK)
			return move_fail(v, errno, "cannot lock it");
		if (ms >= LOCK_MS || move_disturbed(v))
			return err_locked(v);
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

/* Report progress between chunks, and stop if somebody waits to write. */
int move_go_on(void *arg)
{
	struct moving *v = arg;

	progress_step(v->set->progress, v->job->dst_measured.write_bytes, v->waited_ns);
	give_way(v);
	return move_disturbed(v) ? err_set(EAGAIN, "somebody opened it for writing") : 0;
}

/* Check that the source is unchanged and still has its name. */
int move_check_source(struct moving *v)
{
	_cleanup_(closep) int again = name_open(v->from->fd, v->m.name, O_PATH | O_NOFOLLOW, 0);
	struct tier_stamp stamp;
	struct stat st, named;

	if (again < 0 || fstat(again, &named) < 0 || named.st_ino != v->st.st_ino)
		return err_set(EAGAIN, "%s was renamed or replaced while it was copied", v->m.name);
	/* Check the stamp last, just before the copy is renamed. */
	if (fstat(v->src, &st) < 0)
		return move_fail(v, errno, "cannot ask for the file's times");
	stamp = stamp_of(&st);
	if (!stamp_same(&stamp, &v->stamp) || move_disturbed(v))
		return err_set(EAGAIN, "%s was written while it was copied; it stays where it was",
			       v->m.name);
	return 0;
}

int move_check_kind(const struct moving *v)
{
	if (!S_ISREG(v->st.st_mode))
		return err_set(EINVAL, "%s is not a regular file", v->m.name);
	if (v->st.st_nlink > 1)
		return err_set(EMLINK, "%s has %lu names; hard links cannot be moved", v->m.name,
			       (unsigned long)v->st.st_nlink);
	return 0;
}

int move_check_room(const struct moving *v)
{
	/* The store keeps no holes. */
	uint64_t need = root_is_object(v->to) ? (uint64_t)v->st.st_size
					      : (uint64_t)v->st.st_blocks * 512;
	struct tier_space class, root;
	int r = class_space(v->set, v->to->class, &class);

	if (r == 0)
		r = root_space(v->set, v->to, &root);
	if (r < 0)
		return r;
	if (need > class.avail || need > root.avail)
		return err_set(ENOSPC, "%s takes %llu bytes, and %s has %llu left", v->m.name,
			       (unsigned long long)need, v->to->path,
			       (unsigned long long)MIN(class.avail, root.avail));
	return 0;
}

int move_check_target(const struct moving *v)
{
	_cleanup_(closep) int there = -1;

	/* The key of an object is new. */
	if (root_is_object(v->to))
		return 0;
	there = name_open(v->to->fd, v->m.name, O_PATH | O_NOFOLLOW, 0);

	if (there == -ENOENT)
		return 0;
	if (there < 0)
		return move_fail(v, there, "cannot look at the target");
	return err_set(EEXIST,
		       "%s has a file %s already: see which one is right and remove the other",
		       v->to->path, v->m.name);
}

int move_open_source(struct moving *v)
{
	v->src_tmp = name_open(v->from->fd, TIER_TMP, O_RDONLY | O_DIRECTORY, 0);
	if (!root_is_object(v->to))
		v->dst_tmp = name_open(v->to->fd, TIER_TMP, O_RDONLY | O_DIRECTORY, 0);
	if (v->src_tmp < 0 || (v->dst_tmp < 0 && !root_is_object(v->to)))
		return move_fail(v, v->src_tmp < 0 ? v->src_tmp : v->dst_tmp,
				 "cannot open the roots' " TIER_TMP);
	v->src_dir = name_parent(v->from->fd, v->m.name, &v->src_base);
	if (v->src_dir < 0)
		return move_fail(v, v->src_dir, "cannot open its directory");
	v->src = name_open(v->from->fd, v->m.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (v->src < 0)
		return move_fail(v, v->src, "cannot open it");
	if (fstat(v->src, &v->st) < 0)
		return move_fail(v, errno, "cannot ask for the file's size");
	return 0;
}

int move_check_all(struct moving *v)
{
	int r;

	if (v->file.pinned)
		return err_set(EPERM, "%s is pinned: penstock tier unpin", v->m.name);
	if (!root_usable(v->from) || !root_usable(v->to))
		return err_set(ENODEV, "%s", !root_usable(v->from) ? v->from->why : v->to->why);
	if (v->from->read_only || v->to->read_only)
		return err_set(EROFS, "%s cannot be written",
			       v->from->read_only ? v->from->path : v->to->path);
	r = move_open_source(v);
	if (r == 0)
		r = move_check_kind(v);
	if (r == 0)
		r = move_take_lease(v);
	if (r == 0)
		r = move_check_lock(v);
	/* A write after this point breaks the lease or changes this stamp. */
	if (r == 0 && fstat(v->src, &v->st) < 0)
		r = move_fail(v, errno, "cannot ask for the file's size");
	if (r == 0)
		r = move_check_kind(v);
	if (r == 0)
		r = move_check_room(v);
	if (r == 0)
		r = move_check_target(v);
	v->stamp = stamp_of(&v->st);
	return r;
}

/* ------------------------------------------------------------------ copy */

int move_make_copy(struct moving *v)
{
	int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

	(void)snprintf(v->new_name, sizeof(v->new_name), "%lld.new", (long long)v->m.id);
	(void)snprintf(v->old_name, sizeof(v->old_name), "%lld.old", (long long)v->m.id);
	v->dst = openat(v->dst_tmp, v->new_name, flags, 0600);
	if (v->dst < 0 && errno == EEXIST) {
		/* Remove a file that an earlier move of this number left, if the catalogue was lost
		 * and rebuilt. */
		(void)unlinkat(v->dst_tmp, v->new_name, 0);
		v->dst = openat(v->dst_tmp, v->new_name, flags, 0600);
	}
	return v->dst < 0 ? move_fail(v, errno, "cannot make a copy") : 0;
}

/* Read the copy from the disk, not from the page cache, and compare its CRC. */
int move_verify(const struct moving *v, const struct copy_job *job)
{
	uint32_t there;
	int r;

	copy_uncache(v->dst);
	r = copy_read_back(job, &there);
	if (r < 0)
		return move_fail_named(v, r);
	if (there != job->crc)
		return err_set(EIO, "%s: the copy on %s reads back differently", v->m.name,
			       v->to->path);
	return 0;
}

uint64_t move_slower_rate(uint64_t a, uint64_t b)
{
	return a && b ? MIN(a, b) : MAX(a, b);
}

/* Record the copy in one transaction, which costs one sync. */
int move_note_copy(struct moving *v, const struct copy_job *job)
{
	struct catalog *c = v->set->catalog;
	int r = catalog_begin(c);

	if (r < 0)
		return r;
	r = catalog_measured_add(c, v->m.src, &job->src_measured);
	if (r == 0)
		r = catalog_measured_add(c, v->m.dst, &job->dst_measured);
	if (r == 0)
		r = catalog_move_copied(c, &v->m, v->stamp.size, job->crc);
	if (r == 0)
		return catalog_commit(c);
	catalog_rollback(c);
	return r;
}

static int move_copy(struct moving *v, struct move_done *done)
{
	const struct tier_limits *l = v->set->limits;
	struct copy_job job = {
		.src = v->src,
		.dst = v->dst,
		.size = v->stamp.size,
		.chunk = v->set->background ? YIELD_CHUNK : COPY_CHUNK_MAX,
		.rate = move_slower_rate(l[v->from->class].rate, l[v->to->class].rate),
		.go_on = move_go_on,
		.arg = v,
	};
	int r;

	v->job = &job;
	r = copy_data(&job);
	progress_step(v->set->progress, job.dst_measured.write_bytes, v->waited_ns);
	if (r == 0)
		r = copy_attrs(v->src, v->dst, &v->st);
	if (r == 0)
		r = copy_sync(&job);
	if (r < 0)
		return move_fail_named(v, r);
	/* Recovery may then assume that the source holds what was copied, or newer bytes. */
	if (fsync(v->src) < 0)
		return move_fail(v, errno, "cannot sync it");
	if (v->file.has_crc && stamp_same(&v->file.stamp, &v->stamp) && v->file.crc != job.crc)
		return err_set(EBADMSG,
			       "%s does not match its checksum: its disk gave wrong bytes; it "
			       "stays where it is",
			       v->m.name);
	r = move_verify(v, &job);
	v->file.crc = job.crc;
	v->file.has_crc = true;
	done->bytes = job.dst_measured.write_bytes;
	return r < 0 ? r : move_note_copy(v, &job);
}

static int make_parent(struct moving *v)
{
	v->dst_dir = name_make_parent(v->to->fd, v->from->fd, v->m.name, &v->dst_base);
	if (v->dst_dir < 0)
		return move_fail(v, v->dst_dir, "cannot make its directory on the target");
	return 0;
}

/* Rename the copy to the file's name; commit() makes the rename durable.  A mount that opens the
 * copy waits for its lock. */
int move_name_copy(struct moving *v)
{
	if (flock(v->dst, LOCK_EX | LOCK_NB) < 0)
		return move_fail(v, errno, "cannot lock the copy");
	if (renameat2(v->dst_tmp, v->new_name, v->dst_dir, v->dst_base, RENAME_NOREPLACE) < 0)
		return move_fail(v, errno, "cannot give the copy its name");
	return 0;
}

/* --------------------------------------------------------------- the end */

/* Return true if the target's name refers to the copy, unchanged. */
static bool is_copy(const struct moving *v)
{
	struct stat named, st;

	return fstatat(v->dst_dir, v->dst_base, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstat(v->dst, &st) == 0 && named.st_ino == st.st_ino &&
	       named.st_size == v->st.st_size && stamp_ns(&named.st_mtim) == v->stamp.mtime_ns;
}

/* Before the commit: remove the copy, from its temporary or its final name. */
void move_undo(struct moving *v, bool named)
{
	struct err_kept kept;

	err_keep(&kept);
	if (root_is_object(v->to)) {
		move_undo_to_store(v);
		err_put_back(&kept);
		return;
	}
	if (named) {
		/* Leave a changed target to recovery, which compares. */
		if (!is_copy(v)) {
			err_put_back(&kept);
			return;
		}
		(void)unlinkat(v->dst_dir, v->dst_base, 0);
		(void)fsync(v->dst_dir);
	} else if (v->dst >= 0) {
		(void)unlinkat(v->dst_tmp, v->new_name, 0);
	}
	/* If this fails, recovery ends the move. */
	(void)catalog_move_end(v->set->catalog, &v->m);
	err_put_back(&kept);
}

/*
 * After the commit, if the source was written: make it the file again.  Change the catalogue before
 * the source gets its name back, so that recovery after a crash knows which copy is right.
 */
static int undo_commit(struct moving *v)
{
	int r = catalog_move_uncommit(v->set->catalog, &v->m, &v->file);

	if (r < 0)
		return r;
	set_moved(v->set, v->m.name);
	if (renameat2(v->src_tmp, v->old_name, v->src_dir, v->src_base, RENAME_NOREPLACE) < 0)
		return move_fail(v, errno, "cannot give the written file its name back");
	if (fsync(v->src_dir) < 0 || fsync(v->src_tmp) < 0)
		return move_fail(v, errno, "cannot sync the written file's directory");
	move_undo(v, true);
	return err_set(EAGAIN, "%s was written while it was moved; it stays where it was",
		       v->m.name);
}

int move_remove_source(struct moving *v)
{
	struct tier_stamp stamp;
	struct stat st;

	/* Rename the source first, so that a program which opens the name from now on cannot write
	 * to the file that is about to be removed. */
	if (renameat2(v->src_dir, v->src_base, v->src_tmp, v->old_name, RENAME_NOREPLACE) < 0)
		return move_fail(v, errno, "it is moved, but its old copy cannot be removed");
	if (fstat(v->src, &st) < 0)
		return move_fail(v, errno, "it is moved, but its old copy cannot be looked at");
	stamp = stamp_of(&st);
	if (!stamp_same_content(&stamp, &v->stamp) || st.st_nlink != 1 || move_disturbed(v))
		return undo_commit(v);
	if (unlinkat(v->src_tmp, v->old_name, 0) < 0 || fsync(v->src_dir) < 0 ||
	    fsync(v->src_tmp) < 0)
		return move_fail(v, errno, "it is moved, but its old copy cannot be removed");
	return 0;
}

static int commit(struct moving *v)
{
	struct tier_file moved = v->file;
	struct stat st;
	int r;

	if (fsync(v->dst_dir) < 0)
		return move_fail(v, errno, "cannot sync the copy's directory");
	if (fstat(v->dst, &st) < 0)
		return move_fail(v, errno, "cannot ask for the copy's size");
	moved.root = v->m.dst;
	moved.gen++;
	moved.stamp = stamp_of(&st);
	moved.bytes = (uint64_t)st.st_blocks * 512;
	r = catalog_move_commit(v->set->catalog, &v->m, &moved);
	if (r == 0)
		set_moved(v->set, v->m.name);
	return r;
}

static int move_run(struct moving *v, struct move_done *done)
{
	bool named = false;
	int r = move_check_all(v);

	if (r < 0)
		return r;
	r = catalog_move_begin(v->set->catalog, &v->m);
	if (r < 0)
		return r;
	r = move_make_copy(v);
	if (r == 0)
		r = move_copy(v, done);
	if (r == 0)
		r = move_lock_source(v);
	/* While this lock is held, a file that has its name keeps the name and the directory.  So
	 * check the source before a directory is made at the target: for a file that is gone, the
	 * new directory would stay. */
	if (r == 0)
		r = move_check_source(v);
	if (r == 0)
		r = make_parent(v);
	if (r == 0)
		r = move_check_source(v);
	if (r == 0)
		r = move_name_copy(v);
	named = r == 0;
	if (r == 0)
		r = commit(v);
	if (r < 0) {
		move_undo(v, named);
		return r;
	}
	r = move_remove_source(v);
	return r < 0 ? r : catalog_move_end(v->set->catalog, &v->m);
}

int move_file(struct tier_set *set, const char *name, unsigned dst, struct move_done *ret)
{
	_cleanup_(moving_done) struct moving v = {
		.set = set,
		.src = -1,
		.dst = -1,
		.src_dir = -1,
		.dst_dir = -1,
		.src_tmp = -1,
		.dst_tmp = -1,
		.watch = -1,
		.yield = { .fd = { -1, -1 } },
	};
	struct move_done done = { 0 };
	uint64_t began = now_ns();
	int r = name_check(name);

	if (r < 0)
		return r;
	r = catalog_find(set->catalog, name, &v.file);
	if (r == -ENOENT)
		return err_set(ENOENT, "there is no file %s in the set %s", name, set->name);
	if (r < 0)
		return r;
	if (v.file.root >= set->nr_roots || dst >= set->nr_roots)
		return err_set(EUCLEAN, "the catalogue names a root that set.conf does not have");
	memcpy(v.m.name, v.file.name, TIER_NAME_SIZE);
	v.m.src = v.file.root;
	v.m.dst = dst;
	v.from = &set->roots[v.m.src];
	v.to = &set->roots[dst];
	if (v.m.src == dst)
		return 0;
	if (set->background)
		yield_begin(&v.yield, YIELD_SYS, v.from->dev, v.to->dev);
	progress_begin(set->progress, name, v.m.src, dst, MIN(v.file.bytes, v.file.stamp.size));
	r = root_is_object(v.to)     ? move_to_store(&v, &done)
	    : root_is_object(v.from) ? move_from_store(&v, &done)
				     : move_run(&v, &done);
	progress_end(set->progress, r);
	done.ns = now_ns() - began;
	done.waited_ns = v.waited_ns;
	if (r == 0)
		*ret = done;
	return r;
}

int move_target(const struct tier_set *set, enum tier_class class, uint64_t bytes)
{
	struct tier_space space;
	uint64_t most = 0;
	int best = -1;

	for (unsigned i = 0; i < set->nr_roots; i++) {
		const struct tier_root *root = &set->roots[i];

		if (root->class != class || !root_usable(root) || root->read_only ||
		    root_space(set, root, &space) < 0)
			continue;
		if (space.avail < bytes || (best >= 0 && space.avail <= most))
			continue;
		best = (int)i;
		most = space.avail;
	}
	if (best >= 0)
		return best;
	for (unsigned i = 0; i < set->nr_roots; i++)
		if (set->roots[i].class == class)
			return err_set(ENOSPC, "no root of class %s has %llu bytes left",
				       tier_class_name(class), (unsigned long long)bytes);
	return err_set(ENODEV, "the set %s has no root of class %s", set->name,
		       tier_class_name(class));
}
