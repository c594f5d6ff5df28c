/* SPDX-License-Identifier: MIT */
/*
 * A ring in shared memory, N = entries + 1:
 *
 * 0		int32 sq_head	written by the client: position of the next entry
 * 4		int32 sq_tail	written by the server: entries before it were taken
 * 8		int32 cq_head	written by the server: position of the next completion
 * 12		int32 cq_tail	written by the client: completions before it were taken
 * 16		N requests of 56 bytes, by slot
 * 16 + 56 N	N completions of 24 bytes
 * 16 + 80 N	N entries of 16 bytes, each naming a slot
 * 16 + 96 N	sem_t, initialised by the server, posted when there are completions
 * ...		at least 4096 bytes
 *
 * Positions count modulo N. A queue is full if head + 1 is tail, so it holds at most N - 1. The
 * four markers are accessed with sequential consistency.  All other bytes are accessed plainly:
 * their writer stores them before it advances a marker, and the other side reads them only after it
 * has read that marker.  Both sides compute N from the size of the memory.
 */
#ifndef PST_USRBIO_RING_H
#define PST_USRBIO_RING_H

#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "usrbio/proto/id.h"

struct usrbio_args {
	uint8_t buf_id[USRBIO_ID_LEN];
	uint64_t buf_off;
	uint64_t file; /* inode number, or a number that both sides agreed on */
	uint64_t file_off;
	uint64_t len;
	uint64_t user_data;
};

struct usrbio_cqe {
	int32_t index; /* slot of the request */
	int32_t reserved;
	int64_t result;
	uint64_t user_data;
};

struct usrbio_sqe {
	int32_t index; /* slot of the request */
	int32_t reserved;
	uint64_t user_data;
};

_Static_assert(sizeof(struct usrbio_args) == 56, "usrbio: request");
_Static_assert(sizeof(struct usrbio_cqe) == 24, "usrbio: completion");
_Static_assert(sizeof(struct usrbio_sqe) == 16, "usrbio: entry");
_Static_assert(sizeof(sem_t) == 32, "usrbio: semaphore");

#define USRBIO_RING_SLACK 4096u
#define USRBIO_RING_FIXED (16u + sizeof(sem_t) + USRBIO_RING_SLACK)
#define USRBIO_RING_PER_SLOT 96u
/* Limit of entries: N and every size computed from it fit into int32_t. */
#define USRBIO_RING_ENTRIES_MAX (INT32_MAX / (int)USRBIO_RING_PER_SLOT - 64)

/* The parts of a ring, as pointers into one process' mapping. */
struct usrbio_ring {
	int32_t *sq_head, *sq_tail, *cq_head, *cq_tail;
	struct usrbio_args *args;
	struct usrbio_cqe *cqes;
	struct usrbio_sqe *sqes;
	sem_t *sem;
	uint32_t slots; /* slots of each queue: N */
};

/* Return the bytes of a ring with that many entries; 0 below 1 or above USRBIO_RING_ENTRIES_MAX. */
size_t usrbio_ring_size(int entries);

/* Return the entries of a ring of that many bytes; 0 if it is too small or too large. */
int usrbio_ring_entries(size_t size);

/*
 * Compute the parts of a ring; reads no byte of it.  Return 0; -EINVAL if base is not aligned to 8
 * bytes, or no ring has that size.
 */
int usrbio_ring_at(void *base, size_t size, struct usrbio_ring *ret);

static inline int32_t usrbio_marker(const int32_t *marker)
{
	return __atomic_load_n(marker, __ATOMIC_SEQ_CST);
}

static inline void usrbio_marker_set(int32_t *marker, uint32_t value)
{
	__atomic_store_n(marker, (int32_t)value, __ATOMIC_SEQ_CST);
}

/* Return the number of entries between two positions below N. */
static inline uint32_t usrbio_ring_held(const struct usrbio_ring *r, uint32_t head, uint32_t tail)
{
	return head >= tail ? head - tail : head + r->slots - tail;
}

static inline uint32_t usrbio_ring_next(const struct usrbio_ring *r, uint32_t pos)
{
	return pos + 1 == r->slots ? 0 : pos + 1;
}

#endif
