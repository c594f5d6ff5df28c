/* SPDX-License-Identifier: MIT */
/*
 * A ring's memory.  Its client may write to any byte of it at any time, and take it away:
 * this is the only place that touches it.  Each call reads once and gives a copy; nobody may trust
 * anything else of it.  Positions given to these calls are ours, and below N.
 *
 * bool results are false when the memory is gone, which only a guard notices.
 */
#ifndef SERVER_SHM_H
#define SERVER_SHM_H

#include "base/base.h"
#include "usrbio/proto/ring.h"

struct shm {
	struct usrbio_ring at;
	const char *base;
	size_t size;
	bool guard; /* survive SIGBUS; see shm_guard() */
};

/* Where the client stands, unchecked. */
struct shm_markers {
	int32_t sq_head, cq_tail;
};

/* An entry: the index is unchecked, and args are zeros when it names no slot. */
struct shm_entry {
	struct usrbio_sqe sqe;
	struct usrbio_args args;
};

/* Our own markers as they stand there now, for a ring that is not new, and the semaphore made. */
bool shm_begin(const struct shm *s, int32_t *ret_sq_tail, int32_t *ret_cq_head);

bool shm_look(const struct shm *s, struct shm_markers *ret);

/* Where client and server stand by the memory, unchecked: for hints. */
struct shm_entries {
	int32_t sq_head, sq_tail;
};

bool shm_entries(const struct shm *s, struct shm_entries *ret);

/* Copy nr entries from a position on, and tell the client that there is room for as many. */
bool shm_take(const struct shm *s, uint32_t pos, unsigned nr, struct shm_entry *ret);

/* Fill in a completion.  Nobody sees it before shm_publish(). */
bool shm_put(const struct shm *s, uint32_t pos, const struct usrbio_cqe *cqe);

/* Completions before that position are the client's; wake it. */
bool shm_publish(const struct shm *s, uint32_t cq_head);

/*
 * From now on, a fault in the memory of a ring with a guard is an error and not the end.  The
 * handler of SIGBUS is the process': faults elsewhere go to the one that was there before.
 * Calls nest.
 */
void shm_guard(void);
void shm_unguard(void);

#endif
