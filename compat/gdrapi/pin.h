/* SPDX-License-Identifier: MIT */
/*
 * Sessions and pinned buffers, and the numbers that programs hold for them (base/handle.h).
 *
 * A struct pin is used again and never freed: a thread that has found one may lock it, or enter it,
 * and then checks whether it is still the one.
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
	pthread_mutex_t lock;  /* what follows, up to mapped */
	unsigned long handle;  /* 0: none */
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
	 * The handle while copies may use the mapping, else 0.  A copy counts itself and then
	 * looks; the thread that ends the mapping writes 0 and waits for each count to be 0.  Both
	 * in sequential order, so that one of the two notices the other.  There are several
	 * counts so that threads which copy at once do not fight over one line of the cache.
	 */
	_Atomic unsigned long mapped;
	struct {
		_Alignas(CACHE_LINE) _Atomic unsigned users;
	} shards[SHARDS];

	struct pin *next;      /* of all; constant */
	struct pin *free_next; /* the lock of the free ones */
};

/* ---------------------------------------------------------------- sessions */

/* A session of this process, or 0 when there are too many. */
unsigned long session_new(void);
/* 0; EINVAL for none; EACCES for one of the parent process. */
int session_check(unsigned long session);
/* Nothing becomes public in it any more.  As session_check(). */
int session_end(unsigned long session);

/* -------------------------------------------------------------------- pins */

/* A pin of a range, known to nobody; NULL without memory. */
struct pin *pin_new(const struct range *range);
/* Give it a handle; 0, EINVAL when its session has ended, ENOMEM: it is the caller's as before. */
int pin_publish(struct pin *p, unsigned long session, unsigned long *ret_handle);
/* Back to the free ones.  Not locked, and without a handle. */
void pin_free(struct pin *p);

/* The pin of a handle of the session, locked; NULL for none. */
struct pin *pin_lock(unsigned long session, unsigned long handle);
/* The pin too, if it has any handle of the session. */
bool pin_lock_any(struct pin *p, unsigned long session);
void pin_unlock(struct pin *p);
/* The handle is void from now on; the pin is locked and stays so. */
void pin_void(struct pin *p);

/* The first of all that there ever were; p->next leads on. */
struct pin *pin_first(void);

/* ------------------------------------------------------------------ copies */

/*
 * Enter the mapping of a handle.  It stays until pin_leave(), which takes what ret_shard says.
 * NULL when it is not mapped.
 */
struct pin *pin_enter(unsigned long handle, unsigned *ret_shard);
void pin_leave(struct pin *p, unsigned shard);

/* The mapping may be entered from now on, or is not any more.  The pin is locked. */
void pin_mapped(struct pin *p);
void pin_unmapped(struct pin *p);

#endif
