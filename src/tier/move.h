/* SPDX-License-Identifier: MIT */
/*
 * Move a file from one root to another, so that at each moment, also after a power loss, the set
 * has the whole file.
 *
 *	step						after a crash there
 *	1 check: regular, one name, not pinned, room	nothing happened
 *	2 take a read lease of the source, note its stamp
 *	3 journal the intent				the intent is dropped
 *	4 copy to dst/.tier/tmp/ID.new, sync it and the source, journal its CRC-32C
 *							the copy is deleted
 *	5 lock the source against opens through a mount; check its stamp and lease again
 *	6 lock the copy as well, rename it to dst/NAME, sync the directory
 *							both are there and equal: dst's is deleted
 *	7 journal the commit: dst is the file's root	both are there and equal: src's is deleted
 *	8 rename the source to src/.tier/tmp/ID.old, check its stamp and lease,
 *	  unlink it, sync both directories		as 7
 *	9 end the journal's record
 *
 * A program that opens the source for writing breaks the lease or changes the stamp; the move is
 * then undone, and the source stays.  Recovery deletes a copy only if it equals the other one byte
 * by byte, or if it is what the mover copied (by size and CRC-32C) and the other one was written
 * since.  If both were written, both stay.
 */
#ifndef PST_TIER_MOVE_H
#define PST_TIER_MOVE_H

#include "tier/set.h"

struct move_done {
	uint64_t bytes; /* bytes of data, without holes */
	uint64_t ns;
	uint64_t waited_ns; /* part of ns that was spent waiting for other programs' I/O */
};

/*
 * Move a file, with the set locked.  Return 0, or with a sentence: -ENOENT, -EPERM (pinned),
 * -EMLINK (hard links), -EINVAL (not a regular file), -EBUSY (open for writing), -EAGAIN (written
 * during the move), -EEXIST (dst has a file of that name), -ENOSPC, -EROFS, -EBADMSG (the content
 * does not match its checksum) or another error.  After an error the file is where it was.
 */
int move_file(struct tier_set *set, const char *name, unsigned dst, struct move_done *ret);

/* Return the root of a class with the most room for a file; -ENOSPC or -ENODEV with a sentence. */
int move_target(const struct tier_set *set, enum tier_class class, uint64_t bytes);

struct recover_counts {
	unsigned undone, completed; /* moves undone; moves completed */
	unsigned conflicts;         /* both copies are kept: they differ, or cannot be read */
	unsigned waiting;           /* moves whose copies cannot be opened, read or removed now */
	char why[512];              /* why the last waiting move waits */
};

/* End moves that a crash interrupted, with the set locked. */
int recover_set(struct tier_set *set, struct recover_counts *ret);

#endif
