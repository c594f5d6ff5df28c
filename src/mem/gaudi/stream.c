/* SPDX-License-Identifier: MIT */
/*
 * Copies by SynapseAI's streams.
 *
 * A batch is copied by one call for each piece, and ends with an event.  The device reaches host
 * memory for which synHostMap() was called.  Other host memory is copied through a buffer of the
 * stream, and gaudi_copy() waits for that.
 */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/uaccess.h"
#include "mem/gaudi/gaudi.h"

#define BATCHES_MAX 64u    /* maximum batches in flight in a stream */
#define RESULTS_KEPT 1024u /* last tickets whose result is kept */
#define BOUNCE_LEN MIB(1)  /* bytes of the buffer for host memory that is not pinned */

struct gaudi_stream {
	struct mem_stream base; /* must be the first member */
	struct gaudi_dev *d;
	uint64_t life;
	syn_stream st;
	syn_event events[BATCHES_MAX];
	unsigned nr_events;
	char *bounce;              /* page aligned and mapped for the device; NULL until needed */
	uint64_t head, done;       /* head: latest ticket returned; done: latest ticket whose
				    * result is known */
	int results[RESULTS_KEPT]; /* 0 or a negative errno, by ticket */
};

static struct gaudi_stream *gaudi_stream_of(struct mem_stream *st)
{
	return container_of(st, struct gaudi_stream, base);
}

/* ------------------------------------------------------------------ life */

/* Destroy SynapseAI's objects of the stream.  After a reset they are gone already. */
static void gaudi_stream_end_syn(struct gaudi_stream *s)
{
	syn_status e = SYN_OK;

	/* Wait first, because the device may be writing to host memory. */
	if (s->st)
		(void)syn.synStreamSynchronize(s->st);
	for (unsigned i = 0; i < s->nr_events; i++)
		(void)syn.synEventDestroy(s->events[i]);
	if (s->st)
		e = syn.synStreamDestroy(s->st);
	if (e != SYN_OK)
		log_warn("SynapseAI does not end a stream of %s: %s, ignoring", s->d->name,
			 syn_err_name(e));
	if (s->bounce)
		(void)syn.synHostUnmap(s->d->syn_id, s->bounce);
}

static void gaudi_stream_end(struct gaudi_stream *s)
{
	if (gaudi_syn_enter(s->d, s->life) == 0) {
		gaudi_stream_end_syn(s);
		gaudi_syn_leave(s->d);
	}
	free(s->bounce);
	gaudi_syn_drop(s->d, s->life);
	free(s);
}

void gaudi_stream_free(struct mem_stream *st)
{
	gaudi_stream_end(gaudi_stream_of(st));
}

/* Create SynapseAI's objects of a stream.  After a failure, gaudi_stream_end() destroys what was
 * created. */
static int gaudi_stream_make(struct gaudi_stream *s)
{
	syn_status e;
	int r = gaudi_syn_enter(s->d, s->life);

	if (r < 0)
		return r;
	e = syn.synStreamCreateGeneric(&s->st, s->d->syn_id, 0);
	if (e != SYN_OK)
		s->st = NULL;
	while (e == SYN_OK && s->nr_events < BATCHES_MAX) {
		e = syn.synEventCreate(&s->events[s->nr_events], s->d->syn_id, 0);
		s->nr_events += e == SYN_OK;
	}
	gaudi_syn_leave(s->d);
	return e == SYN_OK ? 0 : gaudi_syn_err(s->d, e, "make a stream");
}

int gaudi_stream_new(unsigned device, struct mem_stream **ret)
{
	struct gaudi_dev *d = gaudi_device(device);
	struct gaudi_stream *s;
	uint64_t life = 0;
	int r = gaudi_syn_hold(d, &life);

	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s) {
		gaudi_syn_drop(d, life);
		return err_set(ENOMEM, "no memory for a stream");
	}
	s->base.ops = &mem_gaudi_synapse_ops;
	s->d = d;
	s->life = life;
	r = gaudi_stream_make(s);
	if (r < 0) {
		gaudi_stream_end(s);
		return r;
	}
	*ret = &s->base;
	return 0;
}

/* ------------------------------------------------------------------ copies */

static int copy_start(struct gaudi_stream *s, enum mem_dir dir, uint64_t va, void *host,
		      uint64_t len)
{
	uint64_t at = (uintptr_t)host;
	syn_status e = dir == MEM_TO_DEVICE
			       ? syn.synMemCopyAsync(s->st, at, len, va, SYN_HOST_TO_DRAM)
			       : syn.synMemCopyAsync(s->st, va, len, at, SYN_DRAM_TO_HOST);

	return e == SYN_OK ? 0 : gaudi_syn_err(s->d, e, "copy");
}

static int copy_start_wait(struct gaudi_stream *s, enum mem_dir dir, uint64_t va, uint64_t len)
{
	syn_status e;
	int r = copy_start(s, dir, va, s->bounce, len);

	if (r < 0)
		return r;
	e = syn.synStreamSynchronize(s->st);
	return e == SYN_OK ? 0 : gaudi_syn_err(s->d, e, "copy");
}

static int bounce_make(struct gaudi_stream *s)
{
	syn_status e;

	if (s->bounce)
		return 0;
	s->bounce = aligned_alloc(4096, BOUNCE_LEN);
	if (!s->bounce)
		return err_set(ENOMEM, "no memory for copies");
	e = syn.synHostMap(s->d->syn_id, BOUNCE_LEN, s->bounce);
	if (e == SYN_OK)
		return 0;
	free(s->bounce);
	s->bounce = NULL;
	return gaudi_syn_err(s->d, e, "map host memory");
}

/* Copy a piece through the stream's buffer, because the program's memory may be unmapped during the
 * copy. */
static int copy_bounced(struct gaudi_stream *s, enum mem_dir dir, const struct mem_copy *c)
{
	uint64_t va = c->alloc->base.va + c->off;
	int r = bounce_make(s);

	for (uint64_t at = 0; r == 0 && at < c->len; at += BOUNCE_LEN) {
		uint64_t len = MIN(c->len - at, BOUNCE_LEN);
		char *host = (char *)c->host + at;

		if (dir == MEM_TO_DEVICE)
			r = uaccess_read(s->bounce, host, len);
		if (r == 0)
			r = copy_start_wait(s, dir, va + at, len);
		if (r == 0 && dir == MEM_FROM_DEVICE)
			r = uaccess_write(host, s->bounce, len);
	}
	return r;
}

static int gaudi_copy_piece(struct gaudi_stream *s, enum mem_dir dir, const struct mem_copy *c)
{
	if (!c->len)
		return 0;
	if (gaudi_syn_pinned(s->d, s->life, c->host, c->len))
		return copy_start(s, dir, c->alloc->base.va + c->off, c->host, c->len);
	return copy_bounced(s, dir, c);
}

/* Query the event of a ticket's batch. */
static syn_status gaudi_batch_status(struct gaudi_stream *s, uint64_t ticket)
{
	syn_status e;

	if (gaudi_syn_enter(s->d, s->life) < 0)
		return SYN_DEVICE_RESET;
	e = syn.synEventQuery(s->events[ticket % BATCHES_MAX]);
	gaudi_syn_leave(s->d);
	return e;
}

/* Record the results of batches that the device has finished. */
static void gaudi_look(struct gaudi_stream *s)
{
	while (s->done < s->head) {
		uint64_t ticket = s->done + 1;
		int *result = &s->results[ticket % RESULTS_KEPT];
		syn_status e = gaudi_batch_status(s, ticket);

		if (e == SYN_BUSY)
			return;
		if (e == SYN_DEVICE_RESET && s->life != atomic_load(&s->d->life))
			*result = -ENODEV; /* the reset was noticed before */
		else if (e != SYN_OK)
			*result = gaudi_syn_err(s->d, e, "copy");
		s->done = ticket;
	}
}

/* Start a batch, which gets the next ticket.  The caller has called gaudi_syn_enter(). */
static int gaudi_batch_start(struct gaudi_stream *s, enum mem_dir dir, const struct mem_copy *v,
			     unsigned nr)
{
	uint64_t ticket = s->head + 1;
	int bad = -mem_copy_fault();
	syn_status e;

	for (unsigned i = 0; !bad && i < nr; i++)
		bad = gaudi_copy_piece(s, dir, &v[i]);
	/* Record the event even after a failure: copies that were started must end before the
	 * ticket does. */
	e = syn.synEventRecord(s->events[ticket % BATCHES_MAX], s->st);
	if (e != SYN_OK) {
		(void)syn.synStreamSynchronize(s->st);
		return gaudi_syn_err(s->d, e, "copy");
	}
	s->results[ticket % RESULTS_KEPT] = bad;
	s->head = ticket;
	return 0;
}

int gaudi_copy(struct mem_stream *base, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
	       uint64_t *ret_ticket)
{
	struct gaudi_stream *s = gaudi_stream_of(base);
	int r = gaudi_check_life(s->d, s->life);

	for (unsigned i = 0; r == 0 && i < nr; i++)
		r = gaudi_check_life(s->d, v[i].alloc->life);
	if (r < 0)
		return r;
	if (s->head - s->done == BATCHES_MAX)
		gaudi_look(s);
	if (s->head - s->done == BATCHES_MAX)
		return err_set(EAGAIN, "%u batches of copies are under way", BATCHES_MAX);
	r = gaudi_syn_enter(s->d, s->life);
	if (r < 0)
		return r;
	r = gaudi_batch_start(s, dir, v, nr);
	gaudi_syn_leave(s->d);
	if (r == 0)
		*ret_ticket = s->head;
	return r;
}

int gaudi_poll(struct mem_stream *base, uint64_t ticket)
{
	struct gaudi_stream *s = gaudi_stream_of(base);
	int r;

	if (ticket > s->done)
		gaudi_look(s);
	if (ticket > s->done)
		return 0;
	r = s->results[ticket % RESULTS_KEPT];
	if (r == -ENODEV && gaudi_check_life(s->d, s->life) < 0)
		return r;
	return r < 0 ? err_set(-r, "a copy on %s failed: %s", s->d->name, err_name(-r)) : 1;
}
