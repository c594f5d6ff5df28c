/* SPDX-License-Identifier: MIT */
#ifndef PST_NOW_H
#define PST_NOW_H

#include <penstock.h>

/* Try reads, under the queue's lock.  Return how many completed.  ret[] of the others has
 * -EAGAIN. */
unsigned queue_try(struct pst_queue *q, const struct pst_io *ios, unsigned nr,
		   struct pst_done *ret);

#endif
