/* SPDX-License-Identifier: MIT */
/*
 * Sessions, pinned buffers, and the numbers by which programs know them (base/handle.h).
 *
 * A struct pin is reused and never freed.  So a thread that has found one may lock or enter it, and
 * must then check that it still is the same pin.
 */
#ifndef GDRAPI_PIN_H
#define GDRAPI_PIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "range.h"

#define SHARDS 8u
#define CACHE_LINE 64

struct pst_window;

/* A pinned buffer. */
struct pin {
	pthread_mutex_t lock;  /* covers the members below, up to mapped */
	unsigned long handle;  /* 0: the pin is not in use */
	unsigned long session; /* session of the pin */
	struct range range;

	/* The mapping; constant while mapped is not 0. */
	struct pst_window *window;
	char *bytes;       /* start of the window */
	char *va;          /* address given to the program: bytes - range.lead */
	uint64_t map_size; /* bytes mapped from va; whole pages of the host */
	uint64_t len;      /* bytes of the window */
	unsigned caching;  /* enum pst_caching */

	/*
	 * The handle while copies may use the mapping, else 0.  A copy increments a counter and
	 * then reads mapped; the thread that unmaps writes 0 and then waits for each counter to be
	 * 0.  Both threads use sequentially consistent operations, so one of them notices the
	 * other.  There are several counters, so that concurrent copies do not contend for one
	 * cache line.
	 */
	_Atomic unsigned long mapped;
	struct {
		_Alignas(CACHE_LINE) _Atomic unsigned users;
	} shards[SHARDS];

	struct pin *next;      /* next of all pins; constant */
	struct pin *free_next; /* next free pin, under the lock of the free list */
};

/* ---------------------------------------------------------------- sessions */

/* Return a new session of this process, or 0 if there are too many. */
unsigned long session_new(void);
/* Return 0; EINVAL if there is no such session; EACCES if it belongs to the parent process. */
int session_check(unsigned long session);
/* End a session: no pin can be published in it any more.  Return the same as session_check(). */
int session_end(unsigned long session);

/* -------------------------------------------------------------------- pins */

/* Create a pin of a range, without a handle yet; NULL if out of memory. */
struct pin *pin_new(const struct range *range);
/* Give a pin its handle.  Return 0; EINVAL if the session has ended; ENOMEM.  After an error the
 * caller still owns the pin. */
int pin_publish(struct pin *p, unsigned long session, unsigned long *ret_handle);
/* Return a pin to the free list; it must be unlocked and without a handle. */
void pin_free(struct pin *p);

/* Find and lock the pin of a session's handle; NULL if there is none. */
struct pin *pin_lock(unsigned long session, unsigned long handle);
/* Lock the pin if it belongs to the session; return false if not. */
bool pin_lock_any(struct pin *p, unsigned long session);
void pin_unlock(struct pin *p);
/* Invalidate the pin's handle.  The pin is locked and stays locked. */
void pin_void(struct pin *p);

/* Return the first of all pins; p->next leads to the others. */
struct pin *pin_first(void);

/* ------------------------------------------------------------------ copies */

/*
 * Enter the mapping of a handle: the mapping stays until pin_leave() with *ret_shard.  Return NULL
 * if there is no mapping.
 */
struct pin *pin_enter(unsigned long handle, unsigned *ret_shard);
void pin_leave(struct pin *p, unsigned shard);

/* Allow and forbid entering the mapping.  The pin is locked. */
void pin_mapped(struct pin *p);
void pin_unmapped(struct pin *p);

#endif
