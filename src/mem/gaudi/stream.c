/* SPDX-License-Identifier: MIT */
/*
 * Copies by SynapseAI's streams.
 *
 * A batch is copied by one call for each piece, and ends with an event.  The device reaches host
 * memory that synHostMap() was called for.  Memory that was not pinned goes through a buffer of the
 * stream, and copy() waits for it.
 */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/uaccess.h"
#include "mem/gaudi/gaudi.h"

#define BATCHES_MAX 64u    /* under way in a stream */
#define RESULTS_KEPT 1024u /* tickets whose result gaudi_poll() still knows */
#define BOUNCE_LEN MIB(1)  /* bytes of the buffer for memory that is not pinned */

struct gaudi_stream {
	struct mem_stream base; /* first */
	struct gaudi_dev *d;
	uint64_t life;
	syn_stream st;
	syn_event events[BATCHES_MAX];
	unsigned nr_events;
	char *bounce;        /* page aligned and mapped for the device; NULL: not needed so far */
	uint64_t head, done; /* last ticket given out, and last one whose result is known */
	int results[RESULTS_KEPT]; /* 0 or a negative errno, by ticket */
};

static struct gaudi_stream *gaudi_stream_of(struct mem_stream *st)
{
	return container_of(st, struct gaudi_stream, base);
}

/* ------------------------------------------------------------------ life */

/* End what SynapseAI has of the stream.  A reset has ended that already. */
static void gaudi_stream_end_syn(struct gaudi_stream *s)
{
	syn_status e = SYN_OK;

	/* The device may write to host memory until its work is done. */
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

/* Make what SynapseAI has of a stream; gaudi_stream_end() ends what is there after a failure. */
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

/* Copy a piece by the stream's buffer.  The program's memory may vanish meanwhile. */
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

/* The status of the batch of a ticket. */
static syn_status gaudi_batch_status(struct gaudi_stream *s, uint64_t ticket)
{
	syn_status e;

	if (gaudi_syn_enter(s->d, s->life) < 0)
		return SYN_DEVICE_RESET;
	e = syn.synEventQuery(s->events[ticket % BATCHES_MAX]);
	gaudi_syn_leave(s->d);
	return e;
}

/* Look how far the device has come. */
static void gaudi_look(struct gaudi_stream *s)
{
	while (s->done < s->head) {
		uint64_t ticket = s->done + 1;
		int *result = &s->results[ticket % RESULTS_KEPT];
		syn_status e = gaudi_batch_status(s, ticket);

		if (e == SYN_BUSY)
			return;
		if (e == SYN_DEVICE_RESET && s->life != atomic_load(&s->d->life))
			*result = -ENODEV; /* seen before */
		else if (e != SYN_OK)
			*result = gaudi_syn_err(s->d, e, "copy");
		s->done = ticket;
	}
}

/* Start a batch, whose ticket is the next.  Calls may name objects of the device. */
static int gaudi_batch_start(struct gaudi_stream *s, enum mem_dir dir, const struct mem_copy *v,
			     unsigned nr)
{
	uint64_t ticket = s->head + 1;
	int bad = -mem_copy_fault();
	syn_status e;

	for (unsigned i = 0; !bad && i < nr; i++)
		bad = gaudi_copy_piece(s, dir, &v[i]);
	/* What was started before the failure ends before its ticket does. */
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
