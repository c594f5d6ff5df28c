/* SPDX-License-Identifier: MIT */
/*
 * Poll memory for a short time before sleeping.
 *
 * Waking a sleeping thread takes longer than a small request.  So each side of a ring polls for
 * some microseconds while the other side answers that fast.  If polls find nothing, later waits
 * skip polling, at most SPIN_SKIP_MAX in a row.  Nobody polls while more threads run than the
 * machine has CPUs.
 */
#ifndef PST_USRBIO_SPIN_H
#define PST_USRBIO_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_SKIP_MAX 255u

/* Recent results of polling; all zero at first.  Used by one thread at a time. */
struct spin {
	/* approximate number of consecutive polls that found nothing; the same number of polls is
	 * skipped next */
	uint32_t in_vain;
	uint32_t skip;      /* polls still to be skipped */
	uint64_t looked_ns; /* time of the last measurement of contention, ns */
	bool contended;     /* result of that measurement */
};

/* Poll at least once and for at most ns nanoseconds.  Return true if came() did. */
bool spin_until(struct spin *s, uint64_t ns, bool (*came)(const void *), const void *arg);

/* Return true if more threads run than there are CPUs; false if unknown. */
bool spin_is_contended(void);

#endif
