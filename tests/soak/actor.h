/* SPDX-License-Identifier: MIT */
/*
 * Shared by actor.c and slot.c: an actor's memory and the requests on it.
 *
 * An actor has banks of memory, cut into slots.  A slot has one request at a time.  Its memory
 * is first filled with a canary, to detect writes outside the request's pieces.  After the
 * request has completed and its memory is quiet, the slot must not change until its next
 * request.
 */
#ifndef PST_SOAK_ACTOR_H
#define PST_SOAK_ACTOR_H

#include "soak.h"

#define NR_SLOTS 16u
#define NR_BANKS 5u
#define NR_FILES 4u
#define NR_SEGS 4u
#define REPS_MAX 12u
/* Small under the thread sanitizer, which checks every byte filled, copied or compared. */
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
	void *host;   /* wrapped memory, to unmap; else NULL */
	int fd;       /* BANK_SHRINKS: memfd with its pages */
	bool windows; /* the memory supports windows */
	bool read_only;
	unsigned life; /* counts replacements; slots of an earlier life are not checked */
};

enum slot_state {
	SLOT_FREE,
	SLOT_FLYING, /* prepared, not completed */
	SLOT_BUSY,   /* completed, but the device or the kernel may still access the memory */
};

struct slot {
	enum slot_state state;
	struct pst_io io;
	struct pst_seg segs[NR_SEGS];
	struct bank *bank; /* bank of the memory; NULL: a sync */
	unsigned life;     /* the bank's life when the request was made */
	bool shrinks;
	struct ground *ground;
	int claim; /* claim of a write; -1: none */
	bool cancelled;
	uint64_t serial, since, total;
	bool orphan; /* the slot's queue was freed */
	struct ground_past *past;
	uint64_t filled; /* checksum of the slot when its request was made */
	uint64_t sum;    /* checksum of the slot since it is quiet; 0: unknown */
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

/* End the round if a call failed for another reason than an injected fault. */
void must(const struct actor *a, int r, const char *what);

static inline uint64_t slot_off(const struct actor *a, const struct slot *sl)
{
	return (uint64_t)(sl - a->slots) * SLOT_LEN;
}

/* Call slots_init() before the actor's thread starts, and slots_done() after it has ended. */
void slots_init(struct actor *a);
void slots_done(struct actor *a);

/* Prepare a random request for a free slot on the actor's queue. */
void slot_prepare(struct actor *a, struct slot *sl);

/* Check a completion. */
void slot_done(struct actor *a, const struct pst_done *d);

/* Check slots whose memory has become quiet.  End the round if one stays in flight or busy too
 * long. */
void slots_look(struct actor *a);

/* Check that a free slot has not changed since its last request; forget the checksum. */
void slot_check_sum(struct actor *a, struct slot *sl);

#endif
