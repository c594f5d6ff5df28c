/* SPDX-License-Identifier: MIT */
/* Counters and limits; manual page: pst_stats(3). */
#ifndef PENSTOCK_STATS_H
#define PENSTOCK_STATS_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pst_stats {
	size_t sz;          /* sizeof(struct pst_stats) */
	uint64_t requests;  /* completed requests */
	uint64_t errors;    /* completed requests with res < 0 */
	uint64_t timeouts;  /* completed requests with -ETIMEDOUT */
	uint64_t canceled;  /* completed requests with -ECANCELED */
	uint64_t fallbacks; /* completed requests with a reason (pst_done.why) */
	uint64_t inflight;  /* requests that have not completed */
	uint64_t busy;      /* PST_DONE_BUSY requests that may still touch data */
	uint64_t bytes[PST_PATH_MAX +
		       1];             /* bytes by path; a staged byte counts for both its paths */
	uint64_t why[PST_WHY_MAX + 1]; /* completed requests by reason */
	uint64_t pool_bytes;           /* staging memory of all devices, bytes; may exceed
					   * pool_limit for a while after that was lowered */
	uint64_t pool_limit;           /* limit of pool_bytes; see pst_limits_set() */
	uint64_t pages_bytes;          /* page cache pinned for devices, bytes */
	uint64_t pages_ns;             /* nanoseconds spent on pinning page cache */
	uint64_t pages_limit;          /* limit of pages_bytes */
	uint64_t pages_waiting;        /* page cache that waits to be pinned, bytes */
};

/**
 * pst_stats() - return counters
 * @queue: a queue, or NULL for the process since its start
 * @ret:   filled in
 *
 * Any thread.
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_stats(struct pst_queue *queue, struct pst_stats *ret);

/* Limits of the memory that this process pins for devices. */
struct pst_limits {
	size_t sz; /* sizeof(struct pst_limits) */
	/* Staging memory of all devices, bytes; 0: PST_POOL if set, else 256 MiB for each device in
	 * use. */
	uint64_t pool_bytes;
	/* Page cache of files opened with PST_FILE_STABLE, bytes; 0: PST_PAGES if set, else half of
	 * the machine's memory. */
	uint64_t pages_bytes;
};

/**
 * pst_limits_set() - limit the memory that may be pinned
 * @limits: limits for the whole process; NULL for the defaults
 *
 * A lower limit breaks no request in flight.  A program may set at most what the environment
 * variables PST_POOL and PST_PAGES ("64G", "512M") allow.  Any thread.
 *
 * Return: 0; -EPERM for more than the environment allows; -EBUSY if queues have reserved more
 * staging memory than @limits would allow; -EINVAL, -E2BIG for a bad sz.  An error changes
 * nothing.
 */
PST_API int pst_limits_set(const struct pst_limits *limits);

/**
 * pst_limits_get() - return the limits that the program set
 * @ret: filled in, with 0 for a limit that was not set; pst_stats() has the limits that apply
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
