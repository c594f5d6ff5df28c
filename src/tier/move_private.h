/* SPDX-License-Identifier: MIT */
/* The steps of a move, for the files that combine them. */
#ifndef PST_TIER_MOVE_PRIVATE_H
#define PST_TIER_MOVE_PRIVATE_H

#include "tier/copy.h"
#include "tier/catalog_object.h"
#include "tier/set.h"
#include "tier/yield.h"

struct move_done;

/* A move in progress.  Descriptors are -1 until they are open. */
struct moving {
	struct tier_set *set;
	const struct tier_root *from, *to;
	struct tier_move m;
	struct tier_file file;
	struct tier_stamp stamp; /* the source's, when the copy began */
	struct stat st;
	bool leased;
	int watch;    /* without a lease: descriptor of watch.h, or -errno */
	bool written; /* the watch has reported a write */
	struct yield yield;
	uint64_t waited_ns;   /* nanoseconds spent waiting for other I/O */
	struct copy_job *job; /* the running copy */
	int src, dst;         /* the file and its copy */
	int src_dir, dst_dir; /* directories of the name */
	int src_tmp, dst_tmp;
	const char *src_base, *dst_base; /* last part of the name */
	char new_name[32], old_name[32]; /* names in dst_tmp and src_tmp */
	struct tier_object object;       /* the file's object, if one root is of class object */
};

/* Set the sentence "NAME: what: cause".  Return -|err|. */
int move_fail(const struct moving *v, int err, const char *what);
/* Prefix the error text with the file's name. */
int move_fail_named(const struct moving *v, int err);

/* Open the source, its directory and the roots' temporary directories. */
int move_open_source(struct moving *v);
/* Refuse anything but a regular file with one name. */
int move_check_kind(const struct moving *v);
/* Take a lease of the source, or else watch it. */
int move_take_lease(struct moving *v);
/* Refuse a file that could not be locked after the copy. */
int move_check_lock(const struct moving *v);
/* Refuse a target without room. */
int move_check_room(const struct moving *v);
/* Check all that is wrong with moving a file of a directory, and open the source. */
int move_check_all(struct moving *v);
/* Refuse a target that has the name. */
int move_check_target(const struct moving *v);

/* Make an empty copy with a temporary name. */
int move_make_copy(struct moving *v);
/* Report progress between chunks, and stop if somebody waits to write.  For copy_job.go_on. */
int move_go_on(void *arg);
/* Read the copy from the disk, and compare its CRC. */
int move_verify(const struct moving *v, const struct copy_job *job);
/* Record the copy in one transaction. */
int move_note_copy(struct moving *v, const struct copy_job *job);
/* Return the slower one of two rates; 0 means no limit. */
uint64_t move_slower_rate(uint64_t a, uint64_t b);

/* Lock the source: until the move ends, no mount can open it. */
int move_lock_source(struct moving *v);
/* Return true if somebody has written to the source, or waits to open it for writing. */
bool move_disturbed(struct moving *v);
/* Check that the source is unchanged and still has its name. */
int move_check_source(struct moving *v);
/* Rename the copy to the file's name. */
int move_name_copy(struct moving *v);
/* Before the commit: remove the copy, from its temporary or its final name. */
void move_undo(struct moving *v, bool named);
/* After the commit: remove the source, or undo the commit if it was written. */
int move_remove_source(struct moving *v);

/* Move a file of a directory into the object store, and back; see move_object.c. */
int move_to_store(struct moving *v, struct move_done *done);
int move_from_store(struct moving *v, struct move_done *done);
/* Before the commit of move_to_store(), or after it was taken back: forget the object. */
void move_undo_to_store(struct moving *v);

#endif
