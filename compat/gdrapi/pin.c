/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/handle.h"
#include "pin.h"

_Static_assert(sizeof(unsigned long) == sizeof(uintptr_t), "programs hold handles as these");

/* ---------------------------------------------------------------- sessions */

/* Maps a session's number to the process that created it. */
static struct handle_table sessions = HANDLE_TABLE(1024);

unsigned long session_new(void)
{
	uintptr_t session;

	if (handle_new(&sessions, (void *)(uintptr_t)getpid(), &session) < 0)
		return 0;
	return session;
}

int session_check(unsigned long session)
{
	void *pid = handle_get(&sessions, session);

	if (!pid)
		return EINVAL;
	return (pid_t)(uintptr_t)pid == getpid() ? 0 : EACCES;
}

int session_end(unsigned long session)
{
	int r = session_check(session);

	if (r == 0 && !handle_take(&sessions, session))
		r = EINVAL;
	return r;
}

/* -------------------------------------------------------------------- pins */

static struct handle_table handles = HANDLE_TABLE(1u << 18);

static struct {
	pthread_mutex_t lock;
	struct pin *free;
	struct pin *_Atomic all;
} pins = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct pin *pin_first(void)
{
	return atomic_load(&pins.all);
}

/* Allocate one more pin.  The lock is held. */
static struct pin *pin_add(void)
{
	struct pin *p = aligned_alloc(CACHE_LINE, sizeof(*p));

	if (!p)
		return NULL;
	memset(p, 0, sizeof(*p));
	(void)pthread_mutex_init(&p->lock, NULL);
	p->next = atomic_load(&pins.all);
	atomic_store(&pins.all, p);
	return p;
}

struct pin *pin_new(const struct range *range)
{
	struct pin *p;

	(void)pthread_mutex_lock(&pins.lock);
	p = pins.free;
	if (p)
		pins.free = p->free_next;
	else
		p = pin_add();
	(void)pthread_mutex_unlock(&pins.lock);
	if (p)
		p->range = *range;
	return p;
}

int pin_publish(struct pin *p, unsigned long session, unsigned long *ret_handle)
{
	uintptr_t handle = 0;
	int r;

	/* Hold the pin's lock: a thread that finds the handle, or ends the session, waits for this
	 * lock.  So either this call sees the end of the session, or the other thread finds the
	 * pin. */
	(void)pthread_mutex_lock(&p->lock);
	r = session_check(session) ? EINVAL : 0;
	if (!r && handle_new(&handles, p, &handle) < 0)
		r = ENOMEM;
	if (!r) {
		p->session = session;
		p->handle = *ret_handle = handle;
	}
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

void pin_free(struct pin *p)
{
	(void)pthread_mutex_lock(&pins.lock);
	p->free_next = pins.free;
	pins.free = p;
	(void)pthread_mutex_unlock(&pins.lock);
}

struct pin *pin_lock(unsigned long session, unsigned long handle)
{
	struct pin *p = handle_get(&handles, handle);

	if (!p)
		return NULL;
	(void)pthread_mutex_lock(&p->lock);
	if (p->handle == handle && p->session == session)
		return p;
	(void)pthread_mutex_unlock(&p->lock);
	return NULL;
}

bool pin_lock_any(struct pin *p, unsigned long session)
{
	(void)pthread_mutex_lock(&p->lock);
	if (p->handle && p->session == session)
		return true;
	(void)pthread_mutex_unlock(&p->lock);
	return false;
}

void pin_unlock(struct pin *p)
{
	(void)pthread_mutex_unlock(&p->lock);
}

void pin_void(struct pin *p)
{
	(void)handle_take(&handles, p->handle);
	p->handle = 0;
}

/* ------------------------------------------------------------------ copies */

/* Choose by the stack's address, which differs between threads. */
static unsigned shard_of_thread(void)
{
	uintptr_t at = (uintptr_t)__builtin_frame_address(0) >> 16;

	return (unsigned)((at * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % SHARDS;
}

struct pin *pin_enter(unsigned long handle, unsigned *ret_shard)
{
	struct pin *p = handle_get(&handles, handle);
	unsigned shard = shard_of_thread();

	if (!p)
		return NULL;
	(void)atomic_fetch_add(&p->shards[shard].users, 1);
	if (atomic_load(&p->mapped) == handle) {
		*ret_shard = shard;
		return p;
	}
	pin_leave(p, shard);
	return NULL;
}

void pin_leave(struct pin *p, unsigned shard)
{
	(void)atomic_fetch_sub(&p->shards[shard].users, 1);
}

void pin_mapped(struct pin *p)
{
	atomic_store(&p->mapped, p->handle);
}

void pin_unmapped(struct pin *p)
{
	atomic_store(&p->mapped, 0);
	for (unsigned i = 0; i < SHARDS; i++)
		while (atomic_load(&p->shards[i].users))
			(void)nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}
