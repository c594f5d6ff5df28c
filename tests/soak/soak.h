/* SPDX-License-Identifier: MIT */
/*
 * A random driver of everything that the public header offers, from one seed.
 *
 * soak.c runs rounds, a process each.  A round chooses its faults, starts actors and neighbours,
 * watches their progress, and counts the resources left at the end.  actor.c is a thread with a
 * queue, files and memory of many kinds; slot.c is one request of it.  ground.c knows the files
 * and the bytes that they may hold at any time.
 *
 * Any error ends the round by soak_fail(), which prints the seed.
 */
#ifndef PST_SOAK_H
#define PST_SOAK_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "rig.h"

/* ------------------------------------------------------------------- dice */

/* A random stream of decisions, one per thread, derived from the seed. */
struct dice {
	uint64_t state;
};

static inline struct dice dice_new(uint64_t seed, uint64_t who)
{
	return (struct dice){ (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
			      (who + 1) * UINT64_C(0xbf58476d1ce4e5b9) };
}

/* Return a number from 0 to n - 1. */
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

/* Return a size from 1 to 2^bits; each power of two is the bound equally often. */
static inline uint64_t any_size(struct dice *d, unsigned bits)
{
	return 1 + below(d, UINT64_C(1) << below(d, bits + 1));
}

/* ------------------------------------------------------------------ round */

extern bool soak_faults; /* PST_FAULT is set: calls and requests may fail */

/* Return the longest time in which an expected event must occur; generous for slow machines and
 * sanitizers. */
uint64_t soak_patience_ns(void);

/* Print the failure, the seed and the state of every actor; then abort. */
_Noreturn void soak_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Print the stacks of all threads if gdb is installed; call it before soak_fail() if something
 * hangs. */
void soak_show_stacks(void);

/* Import memory granted by the lender process; return 0 or the library's -errno. */
int soak_borrow(struct dice *d, struct pst_mem **ret, bool *ret_read_only);

/* ----------------------------------------------------------------- ground */

#define GROUND_LEN ((1u << 20) + 777u) /* length of a file; no write goes beyond it */

enum ground_kind {
	GROUND_LIVE,    /* empty at first; actors and the neighbour write to it */
	GROUND_STILL,   /* never changes */
	GROUND_SHRINKS, /* the neighbour truncates and rewrites it */
};

struct ground_state;

struct ground {
	enum ground_kind kind;
	char path[PATH_MAX];
	int fd;                  /* descriptor for I/O without the library */
	const uint8_t *base;     /* pattern, without the generations */
	struct ground_state *st; /* shared with the neighbour process */
};

/* Generations noted before a read begins. */
struct ground_past {
	uint64_t end;      /* smallest possible length of the file */
	uint16_t oldest[]; /* oldest possible generation of each byte to read, in order */
};

/* Make a file in dir, or in memory if dir is NULL.  ground_done() frees it. */
void ground_init(struct ground *g, enum ground_kind kind, const char *dir, uint64_t seed);
void ground_done(struct ground *g);

/*
 * Concurrent writes must not overlap: claim [off, off + len).  Return a number for
 * ground_release(), or -EBUSY.  Within the claim ground_begin() returns the bytes to write, and
 * ground_end() notes that they were written.  Bytes that were begun but not ended may be old or
 * new from then on.
 */
int ground_claim(struct ground *g, uint64_t off, uint64_t len);
void ground_release(struct ground *g, int claim);
void ground_begin(struct ground *g, uint64_t off, uint64_t len, uint8_t *ret);
void ground_end(struct ground *g, uint64_t off, uint64_t len);

/* Get the oldest possible generation of each byte in [off, off + len); return the smallest
 * possible length of the file. */
uint64_t ground_oldest(struct ground *g, uint64_t off, uint64_t len, uint16_t *ret);

/* Bytes were read at off: return the index of the first that the file never held since @oldest was
 * noted; len if none. */
uint64_t ground_differs(struct ground *g, uint64_t off, uint64_t len, const uint8_t *bytes,
			const uint16_t *oldest);

/* Return true if a read can have met the file's end at off, given the smallest length @end noted
 * before it.  @within: bytes were read before off. */
bool ground_may_end(struct ground *g, uint64_t off, uint64_t end, bool within);

/* Play another program until *stop: read, write and truncate the files without the library. */
void ground_neighbour(struct ground *v, unsigned nr, struct dice d, atomic_bool *stop);

/* ------------------------------------------------------------------ actor */

struct actor;

struct actor_plan {
	unsigned nr;
	uint64_t seed;
	struct ground *grounds;
	unsigned nr_grounds;
	uint64_t deeds; /* number of deeds; 0: until end_ns */
	uint64_t end_ns;
	const char *const *devices; /* devices to allocate memory from */
	unsigned nr_devices;
};

struct actor *actor_new(const struct actor_plan *plan);
void *actor_main(void *actor); /* thread function */
void actor_free(struct actor *a);

/* May be called from any thread. */
uint64_t actor_deeds(const struct actor *a);
uint64_t actor_requests(const struct actor *a);
void actor_show(const struct actor *a);

#endif
