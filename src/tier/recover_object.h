/* SPDX-License-Identifier: MIT */
/* End moves from and to the object store that a crash interrupted. */
#ifndef PST_TIER_RECOVER_OBJECT_H
#define PST_TIER_RECOVER_OBJECT_H

#include "tier/move.h"

/*
 * End one move.  A move whose files or whose store cannot be used now is counted as waiting.  The
 * store is asked only if a source must be removed.  Return 0, or -errno with a sentence.
 */
int recover_down(struct tier_set *set, const struct tier_move *m, struct recover_counts *counts);
int recover_up(struct tier_set *set, const struct tier_move *m, struct recover_counts *counts);

#endif
