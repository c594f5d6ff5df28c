/* SPDX-License-Identifier: MIT */
/*
 * The client's side of a ring, for tests of the server: slots, entries, completions, and a wait
 * that first helps the server, then sleeps.  Thread-safe only for one thread that prepares and one
 * that waits.
 */
#ifndef PST_RING_RIG_H
#define PST_RING_RIG_H

#include <stdatomic.h>
#include <sys/mman.h>

#include "rig.h"

#include "usrbio/proto/ring.h"
#include "usrbio/server/server.h"

struct client {
	void *base;
	size_t size;
	struct usrbio_ring at;
	struct server *w;
	struct server_ring *ring; /* the server's object for this ring; NULL: not served */
	bool never_help;          /* client_wait() sleeps at once, without helping the server */
	uint32_t sq_head, cq_tail;
	atomic_char *busy; /* for each slot, whether it is in use */
	uint32_t next_slot;
	uint64_t sent, got;
};

/* Allocate zeroed memory for a ring. */
static inline void client_map(struct client *c, int entries)
{
	*c = (struct client){ .size = usrbio_ring_size(entries) };
	c->base = mmap(NULL, c->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_CHECK(c->base != MAP_FAILED);
	T_EQ(usrbio_ring_at(c->base, c->size, &c->at), 0);
	c->busy = calloc(c->at.slots, 1);
	T_CHECK(c->busy);
}

static inline struct server_ring_opts client_opts(const struct client *c, bool for_read)
{
	return (struct server_ring_opts){
		.base = c->base,
		.size = c->size,
		.for_read = for_read,
		.priority = USRBIO_NORMAL,
	};
}

static inline void client_add(struct client *c, struct server *w, const struct server_ring_opts *o)
{
	c->w = w;
	T_OK(server_ring_add(w, o, &c->ring));
}

static inline void client_new(struct client *c, struct server *w, int entries, bool for_read,
			      int depth, int timeout_ms)
{
	struct server_ring_opts o;

	client_map(c, entries);
	o = client_opts(c, for_read);
	o.io_depth = depth;
	o.timeout_ms = timeout_ms;
	client_add(c, w, &o);
}

static inline void client_free(struct client *c)
{
	if (c->ring)
		server_ring_remove(c->w, c->ring);
	(void)munmap(c->base, c->size);
	free(c->busy);
	*c = (struct client){ 0 };
}

static inline int client_slot(struct client *c)
{
	for (uint32_t i = 0; i < c->at.slots - 1; i++) {
		uint32_t s = c->next_slot;

		c->next_slot = s + 1 == c->at.slots - 1 ? 0 : s + 1;
		if (!atomic_load_explicit(&c->busy[s], memory_order_acquire)) {
			atomic_store(&c->busy[s], 1);
			return (int)s;
		}
	}
	return -EAGAIN;
}

/* Prepare a request.  Return its slot, or -EAGAIN. */
static inline int client_prep(struct client *c, const struct usrbio_args *a)
{
	uint32_t head = c->sq_head, next = usrbio_ring_next(&c->at, head);
	int slot;

	if (next == (uint32_t)usrbio_marker(c->at.sq_tail))
		return -EAGAIN;
	slot = client_slot(c);
	if (slot < 0)
		return slot;
	c->at.args[slot] = *a;
	c->at.sqes[head] = (struct usrbio_sqe){ .index = slot, .user_data = a->user_data };
	c->sq_head = next;
	c->sent++;
	usrbio_marker_set(c->at.sq_head, next);
	return slot;
}

static inline unsigned client_harvest(struct client *c, struct usrbio_cqe *ret, unsigned max)
{
	unsigned n = 0;

	while (n < max && (uint32_t)usrbio_marker(c->at.cq_head) != c->cq_tail) {
		ret[n] = c->at.cqes[c->cq_tail];
		c->cq_tail = usrbio_ring_next(&c->at, c->cq_tail);
		usrbio_marker_set(c->at.cq_tail, c->cq_tail);
		if ((uint32_t)ret[n].index < c->at.slots)
			atomic_store_explicit(&c->busy[ret[n].index], 0, memory_order_release);
		n++;
	}
	c->got += n;
	return n;
}

/*
 * Sleep on the semaphore until end at most.  May return early: it may have been posted for
 * completions that were already taken.
 */
static inline void client_sleep(struct client *c, uint64_t end)
{
	uint64_t now = t_now(), left = end > now ? end - now : 0;
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	left += (uint64_t)ts.tv_nsec;
	ts.tv_sec += (time_t)(left / 1000000000);
	ts.tv_nsec = (long)(left % 1000000000);
	(void)sem_timedwait(c->at.sem, &ts);
}

/*
 * Wait for min completions, for up to ms milliseconds.  After help that found no work, sleep until
 * a completion arrives instead of helping again.
 */
static inline unsigned client_wait(struct client *c, struct usrbio_cqe *ret, unsigned min,
				   unsigned max, uint64_t ms)
{
	unsigned n = client_harvest(c, ret, max), more;
	bool help = !c->never_help && c->ring;
	uint64_t end = 0;

	while (n < min) {
		if (!help || !server_ring_help(c->ring)) {
			help = false;
			if (!end)
				end = t_in_ms(ms);
			if (t_now() >= end)
				break;
			client_sleep(c, end);
		}
		more = client_harvest(c, ret + n, max - n);
		n += more;
		help |= more && !c->never_help && c->ring;
	}
	return n;
}

#endif
