/* SPDX-License-Identifier: MIT */
/*
 * Notice writes to a file while it moves, by fanotify(7), if no lease can be taken.
 *
 * Size and times do not reveal every write: a program may reset the times, and the clock that
 * stamps files only ticks some hundred times a second.  Events report every write(2) and the like,
 * truncate(2) and fallocate(2), but no write through a mapping.
 */
#ifndef PST_TIER_WATCH_H
#define PST_TIER_WATCH_H

#include "base/base.h"

/* Begin to watch a file.  Return a descriptor; -errno if the kernel has no fanotify, or too many
 * watches exist. */
int watch_begin(int fd);

/* Return true if somebody wrote since watch_begin() or the previous call.  watch may be
 * negative. */
bool watch_written(int watch);

#endif
