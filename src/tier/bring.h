/* SPDX-License-Identifier: MIT */
/* Make a file writable that is an object. */
#ifndef PST_TIER_BRING_H
#define PST_TIER_BRING_H

#include "tier/set.h"

#define BRING_MAX GIB(1) /* bytes; an open would take too long for larger files */

/*
 * Move a file to the disk where a new file of its size would be, if it is an object.  With the set
 * locked.  Return 0, also for a file on a disk or without a name; -EREMOTE with the cure for a file
 * of more than BRING_MAX bytes; errors of place_root() and move_file().
 */
int bring_up(struct tier_set *set, const char *name);

/* As bring_up(), with a lock of its own: wait at most some seconds for another mover, then fail
 * with -EBUSY. */
int bring_up_locked(const char *set_name, const char *name);

#endif
