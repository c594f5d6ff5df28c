/* SPDX-License-Identifier: MIT */
/*
 * What the server counts of itself.  There is one mount in a process, so there is one of these.
 * Counting is one relaxed addition: the numbers say how much, and order nothing.
 */
#ifndef MOUNT_COUNTS_H
#define MOUNT_COUNTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "usrbio/mount/link.h"
#include "usrbio/proto/latency.h"

#define COUNTS_OPS 64u     /* opcodes of FUSE; those beyond are counted as 0 */
#define COUNTS_ERRNOS 134u /* of Linux */

struct counts_op {
	_Atomic uint64_t nr, ns;
	_Atomic uint64_t bytes; /* that reads and writes moved */
	_Atomic uint64_t bucket[LATENCY_BUCKETS];
	_Atomic uint64_t error[COUNTS_ERRNOS];
};

/* Why bytes of an open file go through the kernel's cache of the mount. */
enum counts_cause {
	CAUSE_OPTION,  /* --kernel-cache */
	CAUSE_USER,    /* only root's server may ask the kernel to pass bytes on */
	CAUSE_KERNEL,  /* the kernel does not offer it */
	CAUSE_SHARED,  /* the inode was open already, by the cache */
	CAUSE_REFUSED, /* the kernel refused this file */
	NR_CAUSES,
};

struct counts {
	struct counts_op op[COUNTS_OPS];
	_Atomic uint64_t passed;            /* opens whose bytes the kernel passes on */
	_Atomic uint64_t cached[NR_CAUSES]; /* and others */
	_Atomic uint64_t refused[COUNTS_ERRNOS];
	_Atomic uint64_t asked[LINK_OPS]; /* messages to workers */
	_Atomic uint64_t failed[LINK_OPS];
	_Atomic uint64_t unanswered[LINK_OPS];
	_Atomic uint64_t clients, turned_away, cut_off; /* of the socket for numbers */
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

/* err: 0 or -errno, with which an operation ended. */
static inline void count_error(_Atomic uint64_t table[COUNTS_ERRNOS], int err)
{
	unsigned e = (unsigned)-err;

	if (err)
		count_add(&table[e < COUNTS_ERRNOS ? e : 0], 1);
}

/*
 * An operation of the kernel's begins on this thread, and ends when it is answered.  One that has
 * no answer ends with counts_next().
 */
struct fuse_in_header;
void counts_begin(const struct fuse_in_header *in);
void counts_end(int err, uint64_t bytes);
void counts_next(void);
/* It is not answered: it begins anew, later. */
void counts_drop(void);
/* Its opcode. */
uint32_t counts_op(void);

/* "lookup"; NULL for an opcode that is not known. */
const char *counts_op_name(unsigned op);

const char *counts_cause_name(enum counts_cause cause);
const char *counts_link_name(enum link_op op);

#endif
