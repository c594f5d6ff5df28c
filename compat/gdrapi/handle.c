// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "handle.h"

#define SESSIONS_MAX 1024u
#define CHUNK 64u /* places that are made at once */
#define CHUNKS_MAX 4096u
#define PLACES_MAX (CHUNK * CHUNKS_MAX)

_Static_assert(sizeof(unsigned long) == 8, "a handle has room for a place and its uses");

static struct {
	pthread_mutex_t lock;
	struct place *free;
	unsigned chunks;
	struct {
		unsigned long id; /* 0: free */
		unsigned long next;
		_Atomic pid_t pid; /* that made it; of the last one while free */
	} sessions[SESSIONS_MAX];
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Written once each, with the table's lock held. */
static struct place *_Atomic chunks[CHUNKS_MAX];

/* ---------------------------------------------------------------- sessions */

unsigned long session_new(void)
{
	unsigned long id = 0;

	(void)pthread_mutex_lock(&table.lock);
	for (unsigned i = 0; i < SESSIONS_MAX && !id; i++) {
		if (table.sessions[i].id)
			continue;
		table.sessions[i].next += SESSIONS_MAX;
		table.sessions[i].id = id = table.sessions[i].next + i;
		table.sessions[i].pid = getpid();
	}
	(void)pthread_mutex_unlock(&table.lock);
	return id;
}

/* The table's lock is held. */
static int check(unsigned long session)
{
	unsigned i = session % SESSIONS_MAX;

	return session && table.sessions[i].id == session ? 0 : EINVAL;
}

/* Before any lock: in a child they may be held by threads that are not there. */
static bool is_parents(unsigned long session)
{
	pid_t pid = table.sessions[session % SESSIONS_MAX].pid;

	return pid && pid != getpid();
}

int session_check(unsigned long session)
{
	int r;

	if (is_parents(session))
		return EACCES;
	(void)pthread_mutex_lock(&table.lock);
	r = check(session);
	(void)pthread_mutex_unlock(&table.lock);
	return r;
}

int session_end(unsigned long session)
{
	int r;

	if (is_parents(session))
		return EACCES;
	(void)pthread_mutex_lock(&table.lock);
	r = check(session);
	if (r == 0)
		table.sessions[session % SESSIONS_MAX].id = 0;
	(void)pthread_mutex_unlock(&table.lock);
	return r;
}

/* ------------------------------------------------------------------ places */

/* The table's lock is held. */
static bool more_places(void)
{
	struct place *c;

	if (table.chunks == CHUNKS_MAX)
		return false;
	c = aligned_alloc(CACHE_LINE, CHUNK * sizeof(*c));
	if (!c)
		return false;
	memset(c, 0, CHUNK * sizeof(*c));
	for (unsigned i = CHUNK; i-- > 0;) {
		(void)pthread_mutex_init(&c[i].lock, NULL);
		c[i].next = PLACES_MAX + table.chunks * CHUNK + i;
		c[i].free_next = table.free;
		table.free = &c[i];
	}
	atomic_store(&chunks[table.chunks++], c);
	return true;
}

struct place *place_new(const struct range *range)
{
	struct place *p = NULL;

	(void)pthread_mutex_lock(&table.lock);
	if (table.free || more_places()) {
		p = table.free;
		table.free = p->free_next;
	}
	(void)pthread_mutex_unlock(&table.lock);
	if (p)
		p->range = *range;
	return p;
}

bool place_publish(struct place *p, unsigned long session, unsigned long *ret_handle)
{
	bool good;

	(void)pthread_mutex_lock(&p->lock);
	(void)pthread_mutex_lock(&table.lock);
	good = check(session) == 0;
	(void)pthread_mutex_unlock(&table.lock);
	if (good) {
		p->session = session;
		p->handle = *ret_handle = p->next;
		p->next += PLACES_MAX;
	}
	(void)pthread_mutex_unlock(&p->lock);
	return good;
}

void place_free(struct place *p)
{
	(void)pthread_mutex_lock(&table.lock);
	p->free_next = table.free;
	table.free = p;
	(void)pthread_mutex_unlock(&table.lock);
}

struct place *place_at(unsigned i)
{
	struct place *c = i < PLACES_MAX ? atomic_load(&chunks[i / CHUNK]) : NULL;

	return c ? &c[i % CHUNK] : NULL;
}

struct place *place_lock(unsigned long session, unsigned long handle)
{
	struct place *p = place_at(handle % PLACES_MAX);

	if (!p || !handle)
		return NULL;
	(void)pthread_mutex_lock(&p->lock);
	if (p->handle == handle && p->session == session)
		return p;
	(void)pthread_mutex_unlock(&p->lock);
	return NULL;
}

bool place_lock_any(struct place *p, unsigned long session)
{
	(void)pthread_mutex_lock(&p->lock);
	if (p->handle && p->session == session)
		return true;
	(void)pthread_mutex_unlock(&p->lock);
	return false;
}

void place_unlock(struct place *p)
{
	(void)pthread_mutex_unlock(&p->lock);
}

void place_void(struct place *p)
{
	p->handle = 0;
}

/* ------------------------------------------------------------------ copies */

/* Threads differ in where their stacks are. */
static unsigned lane_of_thread(void)
{
	uintptr_t at = (uintptr_t)__builtin_frame_address(0) >> 16;

	return (unsigned)((at * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % LANES;
}

struct place *place_enter(unsigned long handle, unsigned *ret_lane)
{
	struct place *p = place_at(handle % PLACES_MAX);
	unsigned lane = lane_of_thread();

	if (!p || !handle)
		return NULL;
	(void)atomic_fetch_add(&p->lanes[lane].users, 1);
	if (atomic_load(&p->mapped) == handle) {
		*ret_lane = lane;
		return p;
	}
	place_leave(p, lane);
	return NULL;
}

void place_leave(struct place *p, unsigned lane)
{
	(void)atomic_fetch_sub(&p->lanes[lane].users, 1);
}

void place_mapped(struct place *p)
{
	atomic_store(&p->mapped, p->handle);
}

void place_unmapped(struct place *p)
{
	atomic_store(&p->mapped, 0);
	for (unsigned i = 0; i < LANES; i++)
		while (atomic_load(&p->lanes[i].users))
			(void)nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}
