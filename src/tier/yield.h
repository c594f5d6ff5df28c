/* SPDX-License-Identifier: MIT */
/*
 * Let other programs' I/O go first on the two disks of a move.
 *
 * Between two chunks the mover has no request in flight, so the kernel's counts of requests in
 * flight (/sys/dev/block/MAJOR:MINOR/inflight) are other programs'. File systems without a block
 * device, such as tmpfs, NFS and btrfs, have no such count: the mover never waits for them.
 */
#ifndef PST_TIER_YIELD_H
#define PST_TIER_YIELD_H

#include <sys/types.h>

#include "base/base.h"

#define YIELD_SYS "/sys/dev/block"

/*
 * A request of another program that arrives during a chunk waits until the chunk ends.  So chunks
 * are short while others use the disks.  Otherwise they are longer, because each chunk is a
 * separate write to the disk.
 */
#define YIELD_CHUNK ((size_t)256 << 10)
#define YIELD_CHUNK_BUSY ((size_t)64 << 10)
#define YIELD_BUSY_NS NSEC_PER_SEC /* chunks are short for this time after others' last request */

struct yield {
	int fd[2];        /* descriptors of the disks' counts; -1: none */
	uint64_t busy_ns; /* now_ns() when a disk was last busy; 0: never */
};

/* Open the counts of two disks; sys is YIELD_SYS. */
void yield_begin(struct yield *y, const char *sys, dev_t a, dev_t b);
void yield_end(struct yield *y);

/* Return true if one of the disks has requests in flight. */
bool yield_busy(struct yield *y);

/* Return the bytes of the next chunk. */
size_t yield_chunk(const struct yield *y);

#endif
