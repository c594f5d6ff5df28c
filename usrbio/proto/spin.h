/* SPDX-License-Identifier: MIT */
/*
 * Polling memory for a while before sleeping.
 *
 * A sleeping thread answers later than a polling one, by more than a small request takes.  So each
 * side of a ring polls for a few microseconds if the other side has answered that fast recently.
 * After polls that found nothing, polling becomes rarer, down to one in SPIN_SKIP_MAX.  Nobody
 * polls while more threads run than the machine has CPUs.
 */
#ifndef PST_USRBIO_SPIN_H
#define PST_USRBIO_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_SKIP_MAX 255u

/* What a side remembers of its polls; all zero at first.  One thread at a time. */
struct spin {
	uint32_t in_vain;   /* about the number of consecutive polls that found nothing: this
			     * many are skipped next */
	uint32_t skip;      /* polls still to be skipped */
	uint64_t looked_ns; /* when contention was last measured */
	bool contended;     /* contention at that time */
};

/* Poll once, or for at most ns.  Return false if it has not come. */
bool spin_until(struct spin *s, uint64_t ns, bool (*came)(const void *), const void *arg);

/* Return true if more threads run than there are CPUs; false if unknown. */
bool spin_is_contended(void);

#endif
