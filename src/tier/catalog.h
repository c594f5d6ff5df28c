/* SPDX-License-Identifier: MIT */
/*
 * The catalogue of a set: facts about each file, and the journal of moves, in SQLite.
 *
 * The directories are authoritative; a scan can rebuild the catalogue from them (scan.h).  Only
 * checksums, pins, accesses and moves in progress exist nowhere else.  The database uses WAL mode
 * with synchronous=FULL: once a call that changes a move has returned 0, the change survives a
 * power loss.
 *
 * Calls return -errno with a sentence: -EUCLEAN for a damaged database, -ENOSPC for a full disk,
 * -EBUSY if another process keeps it locked for long, or -EWOULDBLOCK after catalog_hurry().
 */
#ifndef PST_TIER_CATALOG_H
#define PST_TIER_CATALOG_H

#include "base/base.h"
#include "tier/name.h"

struct catalog;

/* Values that change when a file's content is written. */
struct tier_stamp {
	uint64_t size;
	int64_t mtime_ns, ctime_ns;
	uint64_t ino;
};

struct tier_file {
	int64_t id; /* unique number, never reused */
	char name[TIER_NAME_SIZE];
	unsigned root;  /* index of the root that holds the file */
	uint64_t gen;   /* counts moves and changes of content */
	uint64_t bytes; /* bytes used on the disk */
	struct tier_stamp stamp;
	bool has_crc;
	uint32_t crc; /* CRC-32C of the content that stamp describes */
	bool pinned;
	uint64_t accesses;
	uint64_t last; /* virtual time of the last access: the set's number of accesses */
};

/* A move that has begun but not ended. */
struct tier_move {
	int64_t id;
	char name[TIER_NAME_SIZE];
	unsigned src, dst; /* indices of the two roots */
	bool committed;    /* the file is at dst now; the one at src must be removed */
	bool copied;       /* the copy is complete; size and crc describe it */
	uint64_t size;
	uint32_t crc;
};

/* Speeds of one root, measured by the mover's copies. */
struct tier_measured {
	uint64_t read_bytes, read_ns, write_bytes, write_ns;
};

/* Open the catalogue; dir is the set's state directory. */
int catalog_open(const char *dir, struct catalog **ret);
struct catalog *catalog_close(struct catalog *c);

static inline void catalog_closep(struct catalog **c)
{
	(void)catalog_close(*c);
}

/*
 * Limit the wait for other processes' transactions: calls then return -EWOULDBLOCK without a
 * sentence, and have changed nothing.  For callers that hold locks.
 */
void catalog_hurry(struct catalog *c);

/* Group several changes into one; they are durable once catalog_commit() has returned 0. */
int catalog_begin(struct catalog *c);
int catalog_commit(struct catalog *c);
void catalog_rollback(struct catalog *c);

/* ---------------------------------------------------------------- files */

/* Find a file by name.  Return 0; -ENOENT without a sentence. */
int catalog_find(struct catalog *c, const char *name, struct tier_file *ret);

/* Add a file, or update its root, gen, bytes, stamp and CRC.  Sets file->id. */
int catalog_put(struct catalog *c, struct tier_file *file);
/*
 * Add a file that was found on disk, although the catalogue did not have it a moment ago.  If a
 * mover has recorded the file in this root since then, keep that record.  Set *file to what the
 * catalogue has now.  Return -ENOENT without a sentence if the file was dropped in between.
 */
int catalog_note(struct catalog *c, struct tier_file *file);
int catalog_drop(struct catalog *c, const char *name);
/*
 * Rename a file in the catalogue, within a transaction; a file that had the new name is dropped.
 * The caller renames the file on disk within the same transaction: otherwise a scan would take it
 * for a new file.
 */
int catalog_rename(struct catalog *c, const char *name, const char *to);
int catalog_pin(struct catalog *c, const char *name, bool pinned);

/* Return the bytes that the files of a root use on disk. */
int catalog_root_bytes(struct catalog *c, unsigned root, uint64_t *ret);

/* Call fn for each file, in the order of names, until it returns nonzero. */
int catalog_each(struct catalog *c, int (*fn)(const struct tier_file *file, void *arg), void *arg);
/* Call fn for each file below a directory, in the order of names, until it returns nonzero. */
int catalog_each_below(struct catalog *c, const char *dir,
		       int (*fn)(const struct tier_file *file, void *arg), void *arg);

/*
 * Count accesses to a file, and record their order for policies.  Return 0; -ENOENT without a
 * sentence.  Allowed within a transaction.
 */
int catalog_access(struct catalog *c, const char *name, uint64_t nr);

#define CATALOG_ACCESSES_MAX 1000000u /* latest accesses whose order is kept; about 20 MB */

/* Call fn for each recorded access, in order. */
int catalog_each_access(struct catalog *c, int (*fn)(int64_t file, uint64_t now, void *arg),
			void *arg);

/* ---------------------------------------------------------------- scans */

/* Begin a scan, which marks the files that it finds, and then searches for unmarked ones. */
int catalog_scan_begin(struct catalog *c);
int catalog_scan_seen(struct catalog *c, int64_t id);

/*
 * Return the next file of a root, with a number above after, that the scan did not mark; -ENOENT
 * without a sentence.
 */
int catalog_scan_unseen(struct catalog *c, unsigned root, int64_t after, struct tier_file *ret);

/* ---------------------------------------------------------------- moves */

/* Record the intent to move; sets move->id.  Return 0; -EALREADY if a move of that name has not
 * ended. */
int catalog_move_begin(struct catalog *c, struct tier_move *move);

/* Record size and CRC of the complete copy, before it is renamed to the file's name.  Recovery
 * needs them to find out which file was written later. */
int catalog_move_copied(struct catalog *c, struct tier_move *move, uint64_t size, uint32_t crc);

/* Commit a move: in one transaction, mark its row as committed and write the row of the file, whose
 * values are now those of the copy. */
int catalog_move_commit(struct catalog *c, const struct tier_move *move, struct tier_file *file);

/* Undo the commit: restore the file's earlier values. */
int catalog_move_uncommit(struct catalog *c, const struct tier_move *move, struct tier_file *file);

int catalog_move_end(struct catalog *c, const struct tier_move *move);

/* Return the oldest move with a number above after; -ENOENT without a sentence. */
int catalog_move_first(struct catalog *c, int64_t after, struct tier_move *ret);

/* ------------------------------------------------------------- measured */

int catalog_measured(struct catalog *c, unsigned root, struct tier_measured *ret);
int catalog_measured_add(struct catalog *c, unsigned root, const struct tier_measured *more);

#endif
