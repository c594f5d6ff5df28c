/* SPDX-License-Identifier: MIT */
/*
 * Notice writes to a file while it moves, by fanotify(7), where no lease can be had.
 *
 * Size and times of a file do not tell all writes: a program may set the time back that it changed,
 * and the clock that stamps files ticks some hundred times a second.  Events tell each write of
 * write(2) and its kind, truncate(2) and fallocate(2); none tells a write through a mapping.
 */
#ifndef PST_TIER_WATCH_H
#define PST_TIER_WATCH_H

#include "base/base.h"

/* A descriptor, or -errno: the kernel has no fanotify, or too many watches. */
int watch_begin(int fd);

/* Return true if somebody wrote since watch_begin() or since the last call.  watch may be < 0. */
bool watch_written(int watch);

#endif
