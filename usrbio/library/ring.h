/* SPDX-License-Identifier: MIT */
/*
 * The library's object for a ring: hf3fs_ior.iorh is its handle.
 *
 * One thread prepares and one waits.  They share the slots: one that has a registration is in use.
 * Slots are in our own memory, because the ring's belongs to its server as much as to us, and a
 * daemon is trusted only for a request's result.
 */
#ifndef USRBIO_RING_H
#define USRBIO_RING_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <hf3fs_usrbio.h>
#include "usrbio/proto/ring.h"
#include "usrbio/proto/spin.h"

struct iov;
struct reg;
struct server_ring;

struct slot {
	struct reg *_Atomic reg; /* of the request, a reference; NULL: free */
	const void *user_data;   /* written before reg */
	uint64_t len;
};

struct ring {
	struct usrbio_ring at;
	struct iov *iov; /* its memory and publication */
	bool for_read;
	unsigned forks;             /* of the process that made it */
	sem_t *submit;              /* daemon: its semaphore, which only the kernel touches */
	struct server_ring *server; /* plain */

	/* The thread's that prepares. */
	uint32_t sq_head;
	uint32_t next; /* slot to look at first */

	/* The thread's that waits. */
	uint32_t cq_tail;
	struct spin spin;    /* daemon: how long it lets us wait */
	uint64_t idle_since; /* that nothing came although requests are in flight; ns, 0: not */

	_Atomic uint32_t nr_sent;                 /* requests ever, by the thread that prepares */
	_Atomic uint32_t nr_ended;                /* of these, by the thread that waits */
	_Atomic uint64_t bytes_sent, bytes_ended; /* likewise */
	_Atomic bool broken;                      /* its memory makes no sense */
	_Atomic bool refused; /* a request was, since a wait ended: nobody completes that */
	uint32_t entries;     /* of slots */
	struct slot slots[];
};

/* Of a public structure, or NULL.  Any thread, and signal handlers. */
struct ring *ring_get(const struct hf3fs_ior *ior);

/* Nothing comes any more: the daemon is gone, or the memory broken. */
bool ring_is_dead(const struct ring *r);

/* Is it the parent's and not to be used here? */
bool ring_is_foreign(const struct ring *r);

#endif
