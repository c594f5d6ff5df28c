/* SPDX-License-Identifier: MIT */
/*
 * Moves between a directory and the object store.
 *
 * Down: a file becomes an object.
 *	step						after a crash there
 *	1 check as move.h does; metadata and key fit	nothing happened
 *	2 journal the intent and the key		the key is noted for deletion
 *	3 PUT the object; HEAD it: size, metadata	the same
 *	4 read it back, compare the CRC-32C; journal CRC-32C and ETag
 *							the same
 *	5 lock the source, check its stamp and lease	the same
 *	6 journal the commit: the object is the file	both are there and equal: the source is
 *							deleted
 *	7 remove the source as move.h does		as 6
 *
 * Up: an object becomes a file.
 *	1 HEAD the object: ETag, size, metadata		nothing happened
 *	2 journal the intent				the intent is dropped
 *	3 GET into dst/.tier/tmp/ID.new, compare the CRC-32C, sync it, read it back
 *							the copy is deleted
 *	4 begin a transaction: the object must still be the file; rename the copy to dst/NAME, sync
 *	  the directory					the copy at dst/NAME is deleted
 *	5 end the transaction: dst is the file's root, the key is noted for deletion, the move is
 *	  committed					the file is at dst
 *	6 tell readers, end the journal's record	the same
 *
 * Removing the file takes a transaction too, and removes dst/NAME.  So if the catalogue does not
 * have the file any more, dst/NAME is no copy of a mover.
 *
 * A key is written by one move only, and deleted by object_collect() later, so that neither a
 * request of a killed mover nor a reader's request in flight meets another object.
 */
#include <stdio.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "tier/move.h"
#include "tier/move_private.h"
#include "tier/object.h"
#include "tier/place.h"
#include "tier/progress.h"
#include "tier/stamp.h"

/* A transfer between the source, or the copy, and the store. */
struct transfer {
	struct moving *v;
	struct copy_job job;
	uint64_t due; /* for copy_pace() */
	struct object_facts facts;
	char meta[OBJECT_META_SIZE];
};

static void transfer_begin(struct transfer *t, struct moving *v)
{
	const struct tier_limits *l = v->set->limits;

	t->v = v;
	t->due = now_ns();
	t->job = (struct copy_job){
		.src = v->src,
		.dst = v->dst,
		.size = v->stamp.size,
		.chunk = v->set->background ? YIELD_CHUNK : COPY_CHUNK_MAX,
		.rate = move_slower_rate(l[v->from->class].rate, l[v->to->class].rate),
		.go_on = move_go_on,
		.arg = v,
	};
	v->job = &t->job;
}

/* ------------------------------------------------------------------- down */

/* Read a part of the source for the object, in chunks. */
static int down_read(void *arg, void *buf, size_t len, uint64_t off)
{
	struct transfer *t = arg;
	uint64_t began = now_ns();

	for (size_t done = 0; done < len;) {
		/* The chunk changes between two chunks. */
		size_t n = MIN(t->job.chunk, len - done);
		int r = move_go_on(t->v);
		ssize_t got;

		if (r < 0)
			return r;
		got = copy_read(t->job.src, (char *)buf + done, n, off + done);
		if (got < 0)
			return err_set((int)got, "cannot read the file at %llu: %s",
				       (unsigned long long)(off + done), strerror((int)-got));
		if ((size_t)got < n)
			return err_set(EAGAIN, "the file became shorter while it was copied");
		t->job.crc = crc32c(t->job.crc, (char *)buf + done, n);
		t->job.src_measured.read_bytes += n;
		t->job.dst_measured.write_bytes += n;
		done += n;
		copy_pace(t->job.rate, n, &t->due);
	}
	t->job.src_measured.read_ns += now_ns() - began;
	return 0;
}

/* The metadata have the checksum, so it must be known before the object is written. */
static int down_crc(struct transfer *t, uint32_t *ret)
{
	struct moving *v = t->v;
	struct copy_job job = t->job;
	int r;

	if (v->file.has_crc && stamp_same(&v->file.stamp, &v->stamp)) {
		*ret = v->file.crc;
		return 0;
	}
	job.dst = v->src;
	r = copy_read_back(&job, ret);
	return r < 0 ? move_fail_named(v, r) : 0;
}

static int down_put(struct transfer *t)
{
	const struct object_source src = { .size = t->job.size, .read = down_read, .arg = t };
	struct moving *v = t->v;
	uint64_t began;
	uint32_t crc;
	int r = down_crc(t, &crc);

	if (r == 0)
		r = object_meta(v->set, v->src, &v->st, crc, t->meta);
	if (r < 0)
		return move_fail_named(v, r);
	began = now_ns();
	t->due = began;
	r = object_put(v->to, v->object.key, &src, t->meta);
	progress_step(v->set->progress, t->job.dst_measured.write_bytes, v->waited_ns);
	if (r < 0)
		return move_fail_named(v, r);
	t->job.dst_measured.write_ns = now_ns() - began - t->job.src_measured.read_ns;
	if (fsync(v->src) < 0)
		return move_fail(v, errno, "cannot sync it");
	if (t->job.crc != crc)
		return err_set(EBADMSG,
			       "%s does not match its checksum: its disk gave wrong bytes, or it "
			       "was written; it stays where it is",
			       v->m.name);
	return 0;
}

/* Read the object back, and compare the checksum. */
static int down_verify(struct transfer *t)
{
	_cleanup_(freep) char *buf = malloc(OBJECT_PIECE);
	struct moving *v = t->v;
	uint32_t crc = 0;
	int r;

	if (!buf)
		return err_set(ENOMEM, "out of memory");
	r = object_head(v->to, v->object.key, &t->facts);
	if (r < 0)
		return move_fail_named(v, r);
	if (t->facts.size != t->job.size || strcmp(t->facts.meta, t->meta) != 0)
		return err_set(EIO,
			       "%s: the object has another size or other metadata than were "
			       "sent; the file stays where it is",
			       v->m.name);
	for (uint64_t off = 0; off < t->job.size;) {
		size_t n = (size_t)MIN(OBJECT_PIECE, t->job.size - off);

		r = move_go_on(v);
		if (r == 0)
			r = object_get(v->to, v->object.key, &t->facts, buf, n, off);
		if (r < 0)
			return move_fail_named(v, r);
		crc = crc32c(crc, buf, n);
		off += n;
		copy_pace(t->job.rate, n, &t->due);
	}
	if (crc != t->job.crc)
		return err_set(EIO,
			       "%s: the object reads back differently; the file stays where "
			       "it is",
			       v->m.name);
	(void)snprintf(v->object.etag, sizeof(v->object.etag), "%s", t->facts.etag);
	(void)snprintf(v->object.meta, sizeof(v->object.meta), "%s", t->facts.meta);
	v->file.crc = crc;
	v->file.has_crc = true;
	return 0;
}

/* Record size, CRC-32C and ETag of the object, and the speeds. */
static int down_note(struct transfer *t)
{
	struct moving *v = t->v;
	struct catalog *c = v->set->catalog;
	int r = catalog_begin(c);

	if (r < 0)
		return r;
	r = catalog_measured_add(c, v->m.src, &t->job.src_measured);
	if (r == 0)
		r = catalog_measured_add(c, v->m.dst, &t->job.dst_measured);
	if (r == 0)
		r = catalog_move_copied(c, &v->m, v->stamp.size, t->job.crc);
	if (r == 0)
		r = catalog_sent_put(c, &v->m, &v->object);
	if (r == 0)
		return catalog_commit(c);
	catalog_rollback(c);
	return r;
}

/* Journal the intent and the key in one transaction. */
static int down_begin(struct moving *v)
{
	struct catalog *c = v->set->catalog;
	int r = catalog_begin(c);

	if (r < 0)
		return r;
	r = catalog_move_begin(c, &v->m);
	if (r == 0)
		r = catalog_sent_put(c, &v->m, &v->object);
	if (r == 0)
		return catalog_commit(c);
	catalog_rollback(c);
	return r;
}

static int down_end(struct moving *v)
{
	struct catalog *c = v->set->catalog;
	int r = catalog_begin(c);

	if (r < 0)
		return r;
	r = catalog_sent_end(c, &v->m);
	if (r == 0)
		r = catalog_move_end(c, &v->m);
	if (r == 0)
		return catalog_commit(c);
	catalog_rollback(c);
	return r;
}

/* If this fails, recovery ends the move. */
void move_undo_to_store(struct moving *v)
{
	struct catalog *c = v->set->catalog;
	int r = catalog_begin(c);

	if (r < 0)
		return;
	r = catalog_object_release(c, &v->file, object_due());
	if (r == 0)
		r = catalog_garbage_put(c, v->object.key, v->stamp.size, object_due());
	if (r == 0)
		r = catalog_sent_end(c, &v->m);
	if (r == 0)
		r = catalog_move_end(c, &v->m);
	if (r == 0)
		(void)catalog_commit(c);
	else
		catalog_rollback(c);
}

static int down_check(struct moving *v)
{
	char meta[OBJECT_META_SIZE];
	int r = move_check_all(v);

	if (r < 0)
		return r;
	/* The checksum has a fixed length, so these metadata fit if the later ones do. */
	r = object_meta(v->set, v->src, &v->st, 0, meta);
	if (r == 0)
		r = object_key(v->to, v->m.name, v->object.key);
	if (r < 0)
		return move_fail_named(v, r);
	return object_marker(v->set, &v->set->roots[v->m.dst]);
}

static int down_commit(struct moving *v)
{
	struct tier_file moved = v->file;
	int r;

	moved.root = v->m.dst;
	moved.gen++;
	moved.bytes = v->stamp.size;
	moved.stamp = (struct tier_stamp){ v->stamp.size, v->stamp.mtime_ns, v->stamp.mtime_ns, 0 };
	r = catalog_move_commit_object(v->set->catalog, &v->m, &moved, &v->object);
	if (r == 0)
		set_moved(v->set, v->m.name);
	return r;
}

int move_to_store(struct moving *v, struct move_done *done)
{
	_cleanup_(freep) struct transfer *t = calloc(1, sizeof(*t));
	int r = t ? down_check(v) : err_set(ENOMEM, "out of memory");

	if (r == 0)
		r = down_begin(v);
	if (r < 0)
		return r;
	/* undo_commit() and recovery find the source by this name. */
	(void)snprintf(v->old_name, sizeof(v->old_name), "%lld.old", (long long)v->m.id);
	transfer_begin(t, v);
	r = down_put(t);
	if (r == 0)
		r = down_verify(t);
	if (r == 0)
		r = down_note(t);
	if (r == 0)
		r = move_lock_source(v);
	if (r == 0)
		r = move_check_source(v);
	if (r < 0) {
		move_undo_to_store(v);
		return r;
	}
	done->bytes = t->job.size;
	/* If the commit fails, only the database's file tells whether it took place: recovery reads
	 * it. */
	r = down_commit(v);
	if (r == 0)
		r = move_remove_source(v);
	return r < 0 ? r : down_end(v);
}

/* --------------------------------------------------------------------- up */

/* Look at the object, and at the target. */
static int up_check(struct moving *v, struct transfer *t, struct object_attrs *ret)
{
	int r;

	if (v->file.pinned)
		return err_set(EPERM, "%s is pinned: penstock tier unpin", v->m.name);
	if (v->to->fd < 0)
		return err_set(ENODEV, "%s", v->to->why);
	if (v->to->read_only)
		return err_set(EROFS, "%s cannot be written", v->to->path);
	r = catalog_object(v->set->catalog, v->file.id, &v->object);
	if (r == -ENOENT)
		return err_set(EUCLEAN,
			       "the catalogue does not know the object of %s: make it again with "
			       "'penstock tier scrub --rebuild'",
			       v->m.name);
	if (r < 0)
		return r;
	r = object_same(v->from, &v->object, v->file.stamp.size, &t->facts);
	if (r == 0)
		r = object_attrs(v->set, t->facts.meta, ret);
	if (r < 0)
		return move_fail_named(v, r);
	if (!v->file.has_crc)
		v->file.crc = ret->crc;
	if (v->file.crc != ret->crc)
		return err_set(EBADMSG, "%s: catalogue and object have different checksums",
			       v->m.name);
	v->stamp = v->file.stamp;
	v->stamp.mtime_ns = stamp_ns(&ret->mtime);
	v->st = (struct stat){
		.st_size = (off_t)v->stamp.size,
		.st_blocks = (blkcnt_t)((v->stamp.size + 511) / 512),
		.st_mtim = ret->mtime,
	};
	v->dst_tmp = name_open(v->to->fd, TIER_TMP, O_RDONLY | O_DIRECTORY, 0);
	if (v->dst_tmp < 0)
		return move_fail(v, v->dst_tmp, "cannot open the root's " TIER_TMP);
	r = move_check_room(v);
	return r < 0 ? r : move_check_target(v);
}

static int up_data(struct transfer *t)
{
	_cleanup_(freep) char *buf = malloc(OBJECT_PIECE);
	struct moving *v = t->v;

	if (!buf)
		return err_set(ENOMEM, "out of memory");
	if (t->job.size && fallocate(t->job.dst, 0, 0, (off_t)t->job.size) < 0 &&
	    errno != EOPNOTSUPP)
		return err_set(errno, "no room for the copy: %s", strerror(errno));
	for (uint64_t off = 0; off < t->job.size;) {
		size_t n = (size_t)MIN(OBJECT_PIECE, t->job.size - off);
		uint64_t began = now_ns();
		int r = object_get(v->from, v->object.key, &t->facts, buf, n, off);

		if (r < 0)
			return r;
		t->job.src_measured.read_bytes += n;
		t->job.src_measured.read_ns += now_ns() - began;
		t->job.crc = crc32c(t->job.crc, buf, n);
		for (size_t at = 0; at < n; at += COPY_CHUNK_MAX) {
			size_t len = MIN(n - at, (size_t)COPY_CHUNK_MAX);

			r = move_go_on(v);
			if (r == 0)
				r = copy_store(&t->job, buf + at, len, off + at);
			if (r < 0)
				return r;
			copy_pace(t->job.rate, len, &t->due);
		}
		off += n;
	}
	return 0;
}

static int up_copy(struct transfer *t, const struct object_attrs *attrs)
{
	struct moving *v = t->v;
	int r = up_data(t);

	progress_step(v->set->progress, t->job.dst_measured.write_bytes, v->waited_ns);
	if (r == 0 && t->job.crc != attrs->crc)
		r = err_set(EBADMSG, "the object does not match its checksum; it stays");
	if (r == 0)
		r = object_attrs_apply(v->dst, attrs);
	if (r == 0)
		r = copy_sync(&t->job);
	if (r < 0)
		return move_fail_named(v, r);
	r = move_verify(v, &t->job);
	v->file.crc = t->job.crc;
	v->file.has_crc = true;
	return r < 0 ? r : move_note_copy(v, &t->job);
}

static int up_parent(struct moving *v)
{
	v->dst_dir = place_dir(v->set, v->m.dst, v->m.name, &v->dst_base);
	if (v->dst_dir == -ENOENT)
		v->dst_dir = name_make_parent(v->to->fd, -1, v->m.name, &v->dst_base);
	if (v->dst_dir < 0)
		return move_fail(v, v->dst_dir, "cannot make its directory on the target");
	return 0;
}

/* What move_undo() has to undo. */
struct up_state {
	bool named; /* the copy has the file's name */
	bool undo;
};

/* Give the copy its name, and record it as the file, within a transaction. */
static int up_name(struct moving *v, struct up_state *state)
{
	struct catalog *c = v->set->catalog;
	struct tier_file now, moved = v->file;
	struct stat st;
	int r = catalog_find(c, v->m.name, &now);

	if (r == -ENOENT ||
	    (r == 0 && (now.id != v->file.id || now.root != v->m.src || now.gen != v->file.gen)))
		r = err_set(EAGAIN, "%s was removed or changed while it was moved", v->m.name);
	if (r == 0)
		r = move_name_copy(v);
	if (r < 0)
		return r;
	state->named = true;
	if (fsync(v->dst_dir) < 0)
		return move_fail(v, errno, "cannot sync the copy's directory");
	if (fstat(v->dst, &st) < 0)
		return move_fail(v, errno, "cannot ask for the copy's size");
	moved.root = v->m.dst;
	moved.gen++;
	moved.stamp = stamp_of(&st);
	moved.bytes = (uint64_t)st.st_blocks * 512;
	return catalog_move_commit_file(c, &v->m, &v->file, &moved, object_due());
}

/* Make the copy the file, unless the file was removed or changed. */
static int up_commit(struct moving *v, struct up_state *state)
{
	struct catalog *c = v->set->catalog;
	int r = catalog_begin(c);

	if (r < 0)
		return r;
	r = up_name(v, state);
	if (r < 0) {
		catalog_rollback(c);
		return r;
	}
	/* If this fails, only the database's file tells whether the commit took place: recovery
	 * reads it. */
	state->undo = false;
	r = catalog_commit(c);
	if (r < 0)
		return r;
	/* Until readers are told, the journal keeps the move: recovery would tell them. */
	set_moved(v->set, v->m.name);
	return catalog_move_end(c, &v->m);
}

int move_from_store(struct moving *v, struct move_done *done)
{
	_cleanup_(freep) struct transfer *t = calloc(1, sizeof(*t));
	struct object_attrs attrs; /* refers to t->facts */
	struct up_state state = { .undo = true };
	int r = t ? up_check(v, t, &attrs) : err_set(ENOMEM, "out of memory");

	if (r == 0)
		r = catalog_move_begin(v->set->catalog, &v->m);
	if (r < 0)
		return r;
	r = move_make_copy(v);
	if (r == 0) {
		transfer_begin(t, v);
		r = up_copy(t, &attrs);
	}
	if (r == 0)
		r = up_parent(v);
	if (r == 0)
		r = up_commit(v, &state);
	if (r < 0 && state.undo)
		move_undo(v, state.named);
	done->bytes = t->job.size;
	return r;
}
