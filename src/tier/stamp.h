/* SPDX-License-Identifier: MIT */
/* Detect writes to a file by its size, times and inode. */
#ifndef PST_TIER_STAMP_H
#define PST_TIER_STAMP_H

#include <sys/stat.h>

#include "tier/catalog.h"

static inline int64_t stamp_ns(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

static inline struct tier_stamp stamp_of(const struct stat *st)
{
	return (struct tier_stamp){ (uint64_t)st->st_size, stamp_ns(&st->st_mtim),
				    stamp_ns(&st->st_ctim), (uint64_t)st->st_ino };
}

static inline bool stamp_same(const struct tier_stamp *a, const struct tier_stamp *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
	       a->ino == b->ino;
}

/* Compare as stamp_same() after a rename, which changes only ctime. */
static inline bool stamp_same_content(const struct tier_stamp *a, const struct tier_stamp *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ino == b->ino;
}

#endif
