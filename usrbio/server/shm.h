/* SPDX-License-Identifier: MIT */
/*
 * A ring's memory.  Its client may write to any byte at any time, and truncate it, so no other file
 * touches it.  Each call reads once and returns a copy.  Positions passed to these calls are the
 * server's and below N.
 *
 * bool results are false if the memory is gone, which is only detected with a guard.
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

/* The client's markers; not checked. */
struct shm_markers {
	int32_t sq_head, cq_tail;
};

/* A copied entry.  sqe.index is unchecked; args are zeros if it names no slot. */
struct shm_entry {
	struct usrbio_sqe sqe;
	struct usrbio_args args;
};

/* Read the server's own markers, which are not 0 in a ring that was used before, and initialise the
 * semaphore. */
bool shm_begin(const struct shm *s, int32_t *ret_sq_tail, int32_t *ret_cq_head);

bool shm_look(const struct shm *s, struct shm_markers *ret);

/* Both positions of the submission queue.  They are not checked, so use them only as hints. */
struct shm_entries {
	int32_t sq_head, sq_tail;
};

bool shm_entries(const struct shm *s, struct shm_entries *ret);

/* Copy nr entries from position pos on, and tell the client that their places are free. */
bool shm_take(const struct shm *s, uint32_t pos, unsigned nr, struct shm_entry *ret);

/* Fill in a completion.  The client sees it after shm_publish(). */
bool shm_put(const struct shm *s, uint32_t pos, const struct usrbio_cqe *cqe);

/* Hand completions before that position to the client, and wake it. */
bool shm_publish(const struct shm *s, uint32_t cq_head);

/*
 * Turn faults in the memory of guarded rings into errors.  Installs a process-wide SIGBUS handler;
 * faults elsewhere go to the previous handler.  Calls nest.
 */
void shm_guard(void);
void shm_unguard(void);

#endif
