/* SPDX-License-Identifier: MIT */
/*
 * How a request is going to run (plan.c).
 *
 * A queue has a plan made by ways_choose(), out of the table of paths (path.h).  ways_choose()
 * gives a request the queue's last plan if that was made for the same kind of request.  Then the
 * paths whose choose() the plan names look at the request itself: its size, its bytes in the page
 * cache, where reads before it ended.
 *
 * A plan changes later where a path does not work out.  restage() in caller.c stages a read that
 * was not resident.  give_up() in carry/transfer.c sends the rest to slots.  Which file hops are
 * left is each part's own (part.h).
 */
#ifndef PST_PLAN_H
#define PST_PLAN_H

#include "core/ways/way.h"

/* The plan that the queue keeps, if it is one for this read into host memory, wherever its bytes
 * lie; else NULL. */
const struct plan *plan_of_read(const struct pst_queue *q, const struct pst_io *io);

/* The first reason stays. */
void plan_reason(struct plan *p, uint32_t why, int detail);
/* Where the plain bytes of a proof can be read from, or NULL. */
struct file *plan_reader(const struct pst_file *f);

#endif
