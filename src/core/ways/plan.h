/* SPDX-License-Identifier: MIT */
/*
 * The plan of a request (plan.c).
 *
 * ways_choose() makes a queue's plan from the table of paths (path.h).  A request gets the queue's
 * last plan if that was made for the same kind of request.  Then choose() of the plan's paths looks
 * at the request itself: its size, which of its bytes are in the page cache, where earlier reads
 * ended.
 *
 * A plan changes later if a path fails.  restage() in caller.c stages a read that was not resident.
 * transfer_give_up() in carry/transfer.c stages the rest of a request.  Each part keeps the set of
 * file hops that it may still use (part.h).
 */
#ifndef PST_PLAN_H
#define PST_PLAN_H

#include "core/ways/way.h"

/* Return the queue's kept plan if it serves this read into host memory, whether or not the bytes
 * are cached; else NULL. */
const struct plan *plan_of_read(const struct pst_queue *q, const struct pst_io *io);

/* Set the plan's reason, unless the plan already has one. */
void plan_reason(struct plan *p, uint32_t why, int detail);
/* Let the CPU move a request whose memory cannot be staged, and is not reached by the device path
 * of the plan.  Return 0, or -EOPNOTSUPP with a sentence.  Defined in window.c. */
int window_instead(struct req *r);
/* Return the file from which a proof can read plain bytes, or NULL. */
struct file *plan_reader(const struct pst_file *f);

#endif
