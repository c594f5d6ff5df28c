/* SPDX-License-Identifier: MIT */
/*
 * Shared by actor.c and slot.c: an actor's memory, and the requests on it.
 *
 * An actor has banks of memory, cut into slots.  A slot has one request at a time.  Its
 * memory is filled with a canary first, so that what the request may not touch is known
 * afterwards; and once a request is over and quiet, all of the slot must stay as it is until
 * the next one.
 */
#ifndef PST_SOAK_ACTOR_H
#define PST_SOAK_ACTOR_H

#include "soak.h"

#define NR_SLOTS 16u
#define NR_BANKS 5u
#define NR_FILES 4u
#define NR_SEGS 4u
#define REPS_MAX 12u
/* The thread sanitizer looks at every byte that is filled, copied or compared. */
#define PIECE_BITS (RIG_TSAN ? 15u : 17u)
#define SLOT_LEN (3u << (PIECE_BITS - 1))
#define BANK_LEN ((uint64_t)NR_SLOTS * SLOT_LEN)
#define CANARY 0xc5
#define POOL_MIN (128u << 20)
#define MS UINT64_C(1000000)

enum bank_kind { BANK_ALLOC, BANK_WRAP, BANK_PINNED, BANK_BORROWED, BANK_SHRINKS, BANK_KINDS };

struct bank {
	enum bank_kind kind;
	struct pst_mem *mem;
	void *host;   /* what is wrapped: ours to unmap */
	int fd;       /* BANK_SHRINKS: of its pages */
	bool windows; /* are to be had */
	bool read_only;
	unsigned life; /* slots of an earlier one are not looked at */
};

enum slot_state {
	SLOT_FREE,
	SLOT_FLYING, /* prepared, and not completed */
	SLOT_BUSY,   /* over, and not quiet */
};

struct slot {
	enum slot_state state;
	struct pst_io io;
	struct pst_seg segs[NR_SEGS];
	struct bank *bank; /* NULL for a sync */
	unsigned life;     /* of the bank at that time: later it may be another */
	bool shrinks;
	struct ground *ground;
	int claim; /* of a write, or -1 */
	bool cancelled;
	uint64_t serial, since, total;
	bool orphan; /* its queue is gone */
	struct ground_past *past;
	uint64_t filled; /* the sum of its memory at the beginning */
	uint64_t sum;    /* since it was quiet; 0: not known */
};

struct actor {
	struct actor_plan plan;
	struct dice dice;
	struct pst_queue *q;
	struct pst_file *files[NR_FILES];
	struct bank banks[NR_BANKS];
	struct slot slots[NR_SLOTS];
	unsigned flying;
	uint64_t serial;
	uint8_t *buf;
	_Atomic uint64_t deeds, requests;
	_Atomic(const char *) doing;
};

/* A call of the library may fail by an injected fault only. */
void must(const struct actor *a, int r, const char *what);

static inline uint64_t slot_off(const struct actor *a, const struct slot *sl)
{
	return (uint64_t)(sl - a->slots) * SLOT_LEN;
}

/* Before any thread, and after all. */
void slots_init(struct actor *a);
void slots_done(struct actor *a);

/* Put a random request into a free slot and the queue. */
void slot_prepare(struct actor *a, struct slot *sl);

/* A completion came. */
void slot_done(struct actor *a, const struct pst_done *d);

/* Which slots have become quiet?  None may stay in flight or busy for too long. */
void slots_look(struct actor *a);

/* Has the memory of a free slot changed since its request?  From now on it may. */
void slot_check_sum(struct actor *a, struct slot *sl);

#endif
