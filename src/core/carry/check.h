/* SPDX-License-Identifier: MIT */
/*
 * Checksums of what a request has left in device memory.
 *
 * Some paths move bytes that no CPU sees, and a caller may want to know what arrived.  So once all
 * bytes of such a request have moved, a worker lets the device compute the checksums of its pieces.
 * The request is returned to its queue after that.
 */
#ifndef PST_CHECK_H
#define PST_CHECK_H

#include "core/sched/engine.h"

/* Begin, continue and end checks.  Return true if there was progress. */
bool checks_progress(struct worker *w);
/* Return true if the worker has a check under way, which wakes nobody. */
static inline bool checks_run(const struct worker *w)
{
	return unlikely(w->check != NULL) && w->check_runs;
}
/* Compute the checksum of a request from those that jobs took of their slots.  Return false if some
 * bytes have none. */
bool check_jobs_crc(struct req *r, uint32_t *ret);
/* The worker ends, and has no check under way. */
void checks_done(struct worker *w);

#endif
