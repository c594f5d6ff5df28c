/* SPDX-License-Identifier: MIT */
/*
 * The numbers that programs hold.
 *
 * A number is a place in a table and how often that place was used.  None is given out twice,
 * and nothing is followed before it was compared: one that is old, or made up, finds nothing.
 * Places are never freed, so that looking is safe without a lock.
 *
 * Lock order: a place, then the table.
 */
#ifndef GDRAPI_HANDLE_H
#define GDRAPI_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "range.h"

#define LANES 8u
#define CACHE_LINE 64

struct pst_window;

/* A pinned buffer. */
struct place {
	pthread_mutex_t lock;  /* what follows, up to mapped */
	unsigned long handle;  /* 0: free */
	unsigned long next;    /* the number that it will have */
	unsigned long session; /* that it belongs to */
	struct range range;

	/* Of the mapping.  Constant while mapped is not 0. */
	struct pst_window *window;
	char *bytes;       /* of the window */
	char *va;          /* what the program got: the range's lead comes first */
	uint64_t map_size; /* from va, in pages of the host */
	uint64_t len;      /* of the window */
	unsigned caching;  /* enum pst_caching */

	/*
	 * The handle while copies may use the mapping, else 0.  A copy enters a lane and
	 * looks; who ends the mapping writes 0 and waits until each lane was seen empty.  Both
	 * in sequential order, so that one of the two notices the other.  Lanes are there so
	 * that threads which copy at once do not fight over one line of the cache.
	 */
	_Atomic unsigned long mapped;
	struct {
		_Alignas(CACHE_LINE) _Atomic unsigned users;
	} lanes[LANES];

	struct place *free_next; /* the table's lock */
};

/* ---------------------------------------------------------------- sessions */

/* A session of this process, or 0 when there are too many. */
unsigned long session_new(void);
/* 0; EINVAL for none; EACCES for one of the parent process. */
int session_check(unsigned long session);
/* Nothing becomes public in it any more.  As session_check(). */
int session_end(unsigned long session);

/* ------------------------------------------------------------------ places */

/* A place for a range, known to nobody; NULL without memory. */
struct place *place_new(const struct range *range);
/* Give it a handle, if its session still is; false: it is the caller's as before. */
bool place_publish(struct place *p, unsigned long session, unsigned long *ret_handle);
/* Back to the free ones.  Not locked, and without a handle. */
void place_free(struct place *p);

/* The place of a handle of the session, locked; NULL for none. */
struct place *place_lock(unsigned long session, unsigned long handle);
/* The place too, if it has any handle of the session. */
bool place_lock_any(struct place *p, unsigned long session);
void place_unlock(struct place *p);
/* The handle is void from now on; the place is locked and stays so. */
void place_void(struct place *p);

/* The i-th place there ever was, NULL behind the last. */
struct place *place_at(unsigned i);

/* ------------------------------------------------------------------ copies */

/*
 * Enter the mapping of a handle.  It stays until place_leave(), which takes what ret_lane
 * says.  NULL when it is not mapped.
 */
struct place *place_enter(unsigned long handle, unsigned *ret_lane);
void place_leave(struct place *p, unsigned lane);

/* The mapping may be entered from now on, or is not any more.  The place is locked. */
void place_mapped(struct place *p);
void place_unmapped(struct place *p);

#endif
