/* SPDX-License-Identifier: MIT */
/*
 * Looking at memory for a while before sleeping.
 *
 * A thread that sleeps and is woken answers later than one that looks, by more than a small
 * request takes.  So each side of a ring looks for a few microseconds when the other one has
 * answered so fast lately.  Looks in vain become rarer, up to one in SPIN_SKIP_MAX, and there are
 * none while more threads run than the machine has CPUs.
 */
#ifndef PST_USRBIO_SPIN_H
#define PST_USRBIO_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_SKIP_MAX 255u

/* A side's memory of its looks: zeros at first.  One thread's at a time. */
struct spin {
	uint32_t in_vain;   /* looks in a row, by and large: so many are skipped */
	uint32_t skip;      /* of these, still to come */
	uint64_t looked_ns; /* when the CPUs were counted */
	bool contended;     /* what came of it */
};

/* Look once, or for so long at most.  False: it has not come. */
bool spin_until(struct spin *s, uint64_t ns, bool (*came)(const void *), const void *arg);

/* Do more threads run than there are CPUs for?  False where nobody can tell. */
bool spin_is_contended(void);

#endif
