/* SPDX-License-Identifier: MIT */
/*
 * Checksums of the bytes that a request has left in device memory.
 *
 * Some paths move bytes that no CPU sees, but a caller may want to verify them.  So once all bytes
 * of such a request have moved, a worker lets the device compute the checksums of its pieces.  Then
 * the request is returned to its queue.
 */
#ifndef PST_CHECK_H
#define PST_CHECK_H

#include "core/sched/engine.h"

/* Begin, continue and end checks.  Return true if there was progress. */
bool checks_progress(struct worker *w);
/* Return true if the device is computing checksums for the worker, which must poll for their
 * end. */
static inline bool checks_run(const struct worker *w)
{
	return unlikely(w->check != NULL) && w->check_runs;
}
/* Combine the request's checksum from those that jobs computed over their slots.  Return false if
 * some bytes have no checksum. */
bool check_jobs_crc(struct req *r, uint32_t *ret);
/* Free the check of a worker that ends.  The check has no request. */
void checks_done(struct worker *w);

#endif
