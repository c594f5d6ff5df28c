/* SPDX-License-Identifier: MIT */
/* Counters and bounds; manual page: pst_stats(3). */
#ifndef PENSTOCK_STATS_H
#define PENSTOCK_STATS_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pst_stats {
	size_t sz;                        /* sizeof(struct pst_stats) */
	uint64_t requests;                /* completed */
	uint64_t errors;                  /* of these with res < 0 */
	uint64_t timeouts;                /* of these with -ETIMEDOUT */
	uint64_t canceled;                /* of these with -ECANCELED */
	uint64_t fallbacks;               /* of these with a reason why */
	uint64_t inflight;                /* requests not yet completed */
	uint64_t busy;                    /* completed, but not quiet yet */
	uint64_t bytes[PST_PATH_MAX + 1]; /* by path; a byte counts on every hop it took */
	uint64_t why[PST_WHY_MAX + 1];    /* requests by reason */
	uint64_t pool_bytes;              /* staging memory held now, all devices; above
					       * pool_limit only for some time after that
					       * was lowered */
	uint64_t pool_limit;              /* most that it may become, see pst_limits_set() */
	uint64_t pages_bytes;             /* page cache pinned now for devices to read */
	uint64_t pages_ns;                /* time that pinning it took so far, nanoseconds */
	uint64_t pages_limit;             /* most of it that may be pinned */
	uint64_t pages_waiting;           /* page cache that the library is about to pin in the
					       * background, or is pinning there */
};

/**
 * pst_stats() - counters
 * @queue: a queue, or NULL for the whole process since it started
 * @ret:   filled in
 *
 * Any thread.
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_stats(struct pst_queue *queue, struct pst_stats *ret);

/* How much memory this process may pin for devices. */
struct pst_limits {
	size_t sz;            /* sizeof(struct pst_limits) */
	uint64_t pool_bytes;  /* staging memory, all devices together; 0: what PST_POOL says,
			       * else 256 MiB for each device in use */
	uint64_t pages_bytes; /* page cache of files opened with PST_FILE_STABLE; 0: what
			       * PST_PAGES says, else half of the machine's memory */
};

/**
 * pst_limits_set() - bound the memory that may be pinned
 * @limits: bounds for the whole process; NULL for the defaults
 *
 * Lowering breaks nothing that is under way.  PST_POOL and PST_PAGES in the environment
 * ("64G", "512M") are the most that a program may set.  Any thread.
 *
 * Return: 0; -EPERM for more than the environment allows; -EBUSY when queues have reserved
 * more staging memory than @limits would allow; -EINVAL, -E2BIG for a bad sz.  Nothing is
 * changed then.
 */
PST_API int pst_limits_set(const struct pst_limits *limits);

/**
 * pst_limits_get() - the bounds that the program set
 * @ret: filled in, with 0 where it set none; pst_stats() tells the bounds in force
 *
 * Any thread.
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_limits_get(struct pst_limits *ret);

#ifdef __cplusplus
}
#endif
#endif
