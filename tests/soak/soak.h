/* SPDX-License-Identifier: MIT */
/*
 * A random driver: everything that the public header offers, at once, from one seed.
 *
 * soak.c runs rounds, a process each: it throws the round's faults, starts its actors and
 * neighbours, watches that all of them get on, and counts what is left at the end.
 * actor.c is a thread with a queue, files and memory of many kinds, slot.c one request of it.
 * ground.c knows the files and what bytes they may hold at any time.
 *
 * Any fault ends the round by soak_fail(), which names its seed.
 */
#ifndef PST_SOAK_H
#define PST_SOAK_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "rig.h"

/* ------------------------------------------------------------------- dice */

/* A stream of decisions; each thread has its own, made from the seed. */
struct dice {
	uint64_t state;
};

static inline struct dice dice_new(uint64_t seed, uint64_t who)
{
	return (struct dice){ (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
			      (who + 1) * UINT64_C(0xbf58476d1ce4e5b9) };
}

/* 0 .. n - 1 */
static inline uint64_t below(struct dice *d, uint64_t n)
{
	uint64_t x = d->state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) % n;
}

static inline bool one_in(struct dice *d, uint64_t n)
{
	return below(d, n) == 0;
}

/* 1 .. 2^bits, each size as likely as its double. */
static inline uint64_t any_size(struct dice *d, unsigned bits)
{
	return 1 + below(d, UINT64_C(1) << below(d, bits + 1));
}

/* ------------------------------------------------------------------ round */

extern bool soak_faults; /* PST_FAULT is set: calls and requests may fail */

/* Longest time in which something must happen: machines are slow, sanitizers slower. */
uint64_t soak_patience_ns(void);

/* Print what is wrong, the seed, and what every actor does; end the process. */
_Noreturn void soak_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The stacks of all threads, where there is a gdb: before soak_fail() where something hangs. */
void soak_show_stacks(void);

/* Memory of another process, lent by a grant; -errno as the library's calls give it. */
int soak_borrow(struct dice *d, struct pst_mem **ret, bool *ret_read_only);

/* ----------------------------------------------------------------- ground */

#define GROUND_LEN ((1u << 20) + 777u) /* no write goes beyond it */

enum ground_kind {
	GROUND_LIVE,    /* begins empty; actors and the neighbour write to it */
	GROUND_STILL,   /* never changes */
	GROUND_SHRINKS, /* the neighbour cuts it and makes it whole again */
};

struct ground_state;

struct ground {
	enum ground_kind kind;
	char path[PATH_MAX];
	int fd;                  /* of ours, without the library */
	const uint8_t *base;     /* the pattern, to which a byte's generation is added */
	struct ground_state *st; /* shared with the neighbour */
};

/* The values that a byte may have are noted before the read begins. */
struct ground_past {
	uint64_t end;      /* where the file ended at least */
	uint16_t oldest[]; /* for each byte wanted, in order; at most GROUND_LEN */
};

/* A file in dir, or in memory with NULL.  ground_done() takes its memory back. */
void ground_init(struct ground *g, enum ground_kind kind, const char *dir, uint64_t seed);
void ground_done(struct ground *g);

/*
 * Writes under way must not overlap: claim off..off+len, as a number to release it by, or
 * -EBUSY.  Within the claim ground_begin() gives the bytes to write; ground_end() says that
 * they arrived.  Bytes that were begun and not ended may be old or new from then on.
 */
int ground_claim(struct ground *g, uint64_t off, uint64_t len);
void ground_release(struct ground *g, int claim);
void ground_begin(struct ground *g, uint64_t off, uint64_t len, uint8_t *ret);
void ground_end(struct ground *g, uint64_t off, uint64_t len);

/* The oldest that bytes off..off+len may be now, and where the file ends at least. */
uint64_t ground_oldest(struct ground *g, uint64_t off, uint64_t len, uint16_t *ret);

/* The first of len bytes read at off that cannot have been there since, or len. */
uint64_t ground_differs(struct ground *g, uint64_t off, uint64_t len, const uint8_t *bytes,
			const uint16_t *oldest);

/* May a read have met the file's end at off, when it ended at least at end before? */
bool ground_may_end(struct ground *g, uint64_t off, uint64_t end, bool within);

/* Readers, a writer and a pair of scissors without the library, until *stop. */
void ground_neighbour(struct ground *v, unsigned nr, struct dice d, atomic_bool *stop);

/* ------------------------------------------------------------------ actor */

struct actor;

struct actor_plan {
	unsigned nr;
	uint64_t seed;
	struct ground *grounds;
	unsigned nr_grounds;
	uint64_t deeds; /* how many; 0: until end_ns */
	uint64_t end_ns;
	const char *const *devices; /* where memory can be had */
	unsigned nr_devices;
};

struct actor *actor_new(const struct actor_plan *plan);
void *actor_main(void *actor); /* a thread's */
void actor_free(struct actor *a);

/* Safe from any thread. */
uint64_t actor_deeds(const struct actor *a);
uint64_t actor_requests(const struct actor *a);
void actor_show(const struct actor *a);

#endif
