/* SPDX-License-Identifier: MIT */
/*
 * Counters of the server.  A process has one mount, so there is one set of counters.  Counting is a
 * relaxed addition, which does not order other memory accesses.
 */
#ifndef MOUNT_COUNTS_H
#define MOUNT_COUNTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "usrbio/mount/link.h"
#include "usrbio/proto/latency.h"

#define COUNTS_OPS 64u     /* number of FUSE opcodes; larger opcodes count as 0 */
#define COUNTS_ERRNOS 134u /* one more than Linux' largest errno */

struct counts_op {
	_Atomic uint64_t nr, ns;
	_Atomic uint64_t bytes; /* bytes of reads and writes */
	_Atomic uint64_t bucket[LATENCY_BUCKETS];
	_Atomic uint64_t error[COUNTS_ERRNOS];
};

/* Why bytes of an open file go through the mount's page cache. */
enum counts_cause {
	CAUSE_OPTION,  /* --kernel-cache */
	CAUSE_USER,    /* the server does not run as root */
	CAUSE_KERNEL,  /* no passthrough in this kernel */
	CAUSE_SHARED,  /* the inode was already open through the cache */
	CAUSE_REFUSED, /* the kernel refused passthrough for this file */
	NR_CAUSES,
};

struct counts {
	struct counts_op op[COUNTS_OPS];
	_Atomic uint64_t passed;            /* opens with passthrough */
	_Atomic uint64_t cached[NR_CAUSES]; /* opens without passthrough, by cause */
	_Atomic uint64_t refused[COUNTS_ERRNOS];
	_Atomic uint64_t asked[LINK_OPS]; /* messages sent to workers */
	_Atomic uint64_t failed[LINK_OPS];
	_Atomic uint64_t unanswered[LINK_OPS];
	/* clients of the metrics socket: served, refused, timed out */
	_Atomic uint64_t clients, turned_away, cut_off;
};

extern struct counts counts;

static inline void count_add(_Atomic uint64_t *to, uint64_t n)
{
	(void)atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

static inline uint64_t count_get(_Atomic uint64_t *from)
{
	return atomic_load_explicit(from, memory_order_relaxed);
}

/* Count an operation's result: 0 or -errno. */
static inline void count_error(_Atomic uint64_t table[COUNTS_ERRNOS], int err)
{
	unsigned e = (unsigned)-err;

	if (err)
		count_add(&table[e < COUNTS_ERRNOS ? e : 0], 1);
}

/*
 * Count and time a request of the kernel on this thread, from counts_begin() to counts_end(), when
 * it is answered.  counts_next() ends requests without an answer.
 */
struct fuse_in_header;
void counts_begin(const struct fuse_in_header *in);
void counts_end(int err, uint64_t bytes);
void counts_next(void);
/* Do not count this request now: it will be answered again later. */
void counts_drop(void);
/* Return the opcode of this thread's request; 0 for none. */
uint32_t counts_op(void);

/* Return a name such as "lookup"; NULL for an unknown opcode. */
const char *counts_op_name(unsigned op);

const char *counts_cause_name(enum counts_cause cause);
const char *counts_link_name(enum link_op op);

#endif
