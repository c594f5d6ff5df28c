/* SPDX-License-Identifier: MIT */
/*
 * The library's object for a ring: hf3fs_ior.iorh is its handle.
 *
 * One thread prepares and one waits.  They share the slots: a slot with a registration is in use.
 * Slots are in private memory, because the server can write to the ring's memory, and a daemon is
 * trusted only for a request's result.
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
	struct reg *_Atomic reg; /* registration of the request, with a reference; NULL: the slot
				  * is free */
	const void *user_data;   /* written before reg */
	uint64_t len;
};

struct ring {
	struct usrbio_ring at;
	struct iov *iov; /* memory and publication of the ring */
	bool for_read;
	unsigned forks;             /* lock_forks() of the process that created the ring */
	sem_t *submit;              /* the daemon's semaphore, or NULL; posted only by the kernel */
	struct server_ring *server; /* the ring in the server, on a plain directory; or NULL */

	/* Used by the thread that prepares. */
	uint32_t sq_head;
	uint32_t next; /* slot at which the search for a free one begins */

	/* Used by the thread that waits. */
	uint32_t cq_tail;
	struct spin spin; /* daemon: recent results of polling */
	/* Start of the time without completions although requests are in flight, ns; 0: a
	 * completion came, or no request is in flight. */
	uint64_t idle_since;

	/* requests submitted; written by the preparing thread */
	_Atomic uint32_t nr_sent;
	/* requests ended; written by the waiting thread */
	_Atomic uint32_t nr_ended;
	_Atomic uint64_t bytes_sent, bytes_ended; /* bytes of the requests sent and ended */
	_Atomic bool broken;                      /* the ring's memory is inconsistent */
	/* a request was refused since the last wait, and will never complete */
	_Atomic bool refused;
	uint32_t entries; /* number of slots */
	struct slot slots[];
};

/* Return the ring of a public structure, or NULL.  For any thread, and for signal handlers. */
struct ring *ring_get(const struct hf3fs_ior *ior);

/* Return true if nothing will come: the daemon has ended, or the memory is broken. */
bool ring_is_dead(const struct ring *r);

/* Return true if the ring belongs to the parent process and must not be used here. */
bool ring_is_foreign(const struct ring *r);

#endif
