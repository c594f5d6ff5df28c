/* SPDX-License-Identifier: MIT */
#ifndef PST_NOW_H
#define PST_NOW_H

#include <penstock.h>

/* Under the queue's lock: how many of the reads could be done at once.  The others have -EAGAIN in
 * their ret[]. */
unsigned queue_try(struct pst_queue *q, const struct pst_io *ios, unsigned nr,
		   struct pst_done *ret);

#endif
