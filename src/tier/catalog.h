/* SPDX-License-Identifier: MIT */
/*
 * The catalogue of a set: what is known of each file, and the journal of moves, in SQLite.
 *
 * The directories are the truth; the catalogue can be made again from them (scan.h).  What it alone
 * knows are checksums, pins, accesses and the moves in progress.  The database is in WAL mode with
 * synchronous=FULL: when a call that changes a move returns 0, the change survives a power loss.
 *
 * Calls return -errno with a sentence: -EUCLEAN for a damaged database, -ENOSPC for a full disk,
 * -EBUSY when another process holds it for long, or -EWOULDBLOCK after catalog_hurry().
 */
#ifndef PST_TIER_CATALOG_H
#define PST_TIER_CATALOG_H

#include "base/base.h"
#include "tier/name.h"

struct catalog;

/* What tells that a file's content was written. */
struct tier_stamp {
	uint64_t size;
	int64_t mtime_ns, ctime_ns;
	uint64_t ino;
};

struct tier_file {
	int64_t id; /* number of the file, never used for another one */
	char name[TIER_NAME_SIZE];
	unsigned root;  /* number of the root that contains it */
	uint64_t gen;   /* counts moves and changes of content */
	uint64_t bytes; /* bytes that it takes on the disk */
	struct tier_stamp stamp;
	bool has_crc;
	uint32_t crc; /* CRC-32C of the content with this stamp */
	bool pinned;
	uint64_t accesses;
	uint64_t last; /* virtual time of the last access: their total then */
};

/* A move that has begun and not ended. */
struct tier_move {
	int64_t id;
	char name[TIER_NAME_SIZE];
	unsigned src, dst; /* numbers of the two roots */
	bool committed;    /* the copy at dst is the file; what is at src is to be removed */
	bool copied;       /* the copy was complete, of this size and CRC-32C */
	uint64_t size;
	uint32_t crc;
};

/* What was measured on one root, by copies of the mover. */
struct tier_measured {
	uint64_t read_bytes, read_ns, write_bytes, write_ns;
};

/* dir is the set's directory of state. */
int catalog_open(const char *dir, struct catalog **ret);
struct catalog *catalog_close(struct catalog *c);

static inline void catalog_closep(struct catalog **c)
{
	(void)catalog_close(*c);
}

/*
 * Do not wait long for a change of another process: calls then return -EWOULDBLOCK, without a
 * sentence, and have changed nothing.  For callers that hold locks.
 */
void catalog_hurry(struct catalog *c);

/* Several changes as one; they are durable when catalog_commit() returned 0. */
int catalog_begin(struct catalog *c);
int catalog_commit(struct catalog *c);
void catalog_rollback(struct catalog *c);

/* ---------------------------------------------------------------- files */

/* 0, -ENOENT without a sentence. */
int catalog_find(struct catalog *c, const char *name, struct tier_file *ret);

/* Add a file, or change root, gen, bytes, stamp and CRC of one; sets file->id. */
int catalog_put(struct catalog *c, struct tier_file *file);
/*
 * Add a file that was found where the catalogue did not have it a moment ago.  A mover may have
 * told the catalogue since then: what it told of this root stays.  *file is what the catalogue has
 * then.  -ENOENT without a sentence if the file was dropped at this moment.
 */
int catalog_note(struct catalog *c, struct tier_file *file);
int catalog_drop(struct catalog *c, const char *name);
/*
 * Give a file another name, between catalog_begin() and catalog_commit(); a file that had that name
 * is dropped.  The file is renamed in between, too: a scan would take it for a new one.
 */
int catalog_rename(struct catalog *c, const char *name, const char *to);
int catalog_pin(struct catalog *c, const char *name, bool pinned);

/* Bytes that the files of a root take. */
int catalog_root_bytes(struct catalog *c, unsigned root, uint64_t *ret);

/* Call fn for each file in the order of names, until it returns anything but 0. */
int catalog_each(struct catalog *c, int (*fn)(const struct tier_file *file, void *arg), void *arg);
/* The same for the files of a directory, and of those in it. */
int catalog_each_below(struct catalog *c, const char *dir,
		       int (*fn)(const struct tier_file *file, void *arg), void *arg);

/*
 * Count accesses to a file, and keep their order for policies.  -ENOENT without a sentence.  May be
 * called between catalog_begin() and catalog_commit().
 */
int catalog_access(struct catalog *c, const char *name, uint64_t nr);

#define CATALOG_ACCESSES_MAX 1000000u /* latest accesses whose order is kept: some 20 MB */

/* The kept accesses in their order. */
int catalog_each_access(struct catalog *c, int (*fn)(int64_t file, uint64_t now, void *arg),
			void *arg);

/* ---------------------------------------------------------------- scans */

/* A scan marks the files that it finds, and looks for those that it did not find. */
int catalog_scan_begin(struct catalog *c);
int catalog_scan_seen(struct catalog *c, int64_t id);

/*
 * The next file of a root that the scan did not mark, with a number above after, or -ENOENT without
 * a sentence.
 */
int catalog_scan_unseen(struct catalog *c, unsigned root, int64_t after, struct tier_file *ret);

/* ---------------------------------------------------------------- moves */

/* Journal the intent; sets move->id.  -EALREADY: a move of that name has not ended. */
int catalog_move_begin(struct catalog *c, struct tier_move *move);

/* Journal what the copy is, before it gets its name: recovery knows by this who wrote later. */
int catalog_move_copied(struct catalog *c, struct tier_move *move, uint64_t size, uint32_t crc);

/* Make the copy the file, in one transaction for move and file. */
int catalog_move_commit(struct catalog *c, const struct tier_move *move, struct tier_file *file);

/* Undo the commit: file, with its earlier values, is the file again. */
int catalog_move_uncommit(struct catalog *c, const struct tier_move *move, struct tier_file *file);

int catalog_move_end(struct catalog *c, const struct tier_move *move);

/* The oldest move with a number above after, or -ENOENT without a sentence. */
int catalog_move_first(struct catalog *c, int64_t after, struct tier_move *ret);

/* ------------------------------------------------------------- measured */

int catalog_measured(struct catalog *c, unsigned root, struct tier_measured *ret);
int catalog_measured_add(struct catalog *c, unsigned root, const struct tier_measured *more);

#endif
