/* SPDX-License-Identifier: MIT */
/*
 * The outcome of a read, a write and a sync by the rules of the library, in any order of events:
 * one completion of each, its result, and how long memory and file are in use.
 */
#ifndef PST_TESTS_ORDERS_RULES_H
#define PST_TESTS_ORDERS_RULES_H

#include "orders.h"

#define LEN 4096u /* bytes of each read and write */

/* The expected state of one request. */
struct sub {
	bool there;
	bool held;    /* a sync that waits for the write */
	bool at_gate; /* the request's operation waits at the gate */
	bool asked;   /* cancelled by pst_queue_cancel() */
	bool told;    /* the deaf operation at the gate got a cancel */
	bool touches; /* the operation at the gate uses the memory */
	bool completed, reaped;
	bool busy;        /* completed with PST_DONE_BUSY */
	bool may_be_busy; /* PST_DONE_BUSY may or may not have been set */
	int64_t res;
	uint64_t prefix;
	uint64_t moved; /* bytes that the operation moved, even after the completion */
};

struct rules {
	struct variant v;
	bool soft; /* true for device memory: an engine moves the bytes */
	bool open[TEST_BARS];
	struct sub subs[TEST_BARS];
	uint64_t requests, errors, timeouts, canceled; /* expected counters of the queue */
};

/* Cancel the operation at the gate. */
static inline void stop(struct rules *r, enum test_bar bar)
{
	struct sub *s = &r->subs[bar];

	if (r->v.deaf) {
		s->told |= s->at_gate;
		return;
	}
	/* The engine's worker cancels the write a moment later. */
	s->may_be_busy = s->at_gate && r->soft && bar == TEST_BAR_WRITE;
	s->at_gate = s->touches = false;
}

static inline void answered(struct rules *r, enum test_bar bar);

static inline void completed(struct rules *r, enum test_bar bar, int64_t res, uint64_t prefix)
{
	struct sub *s = &r->subs[bar], *sync = &r->subs[TEST_BAR_SYNC];

	s->completed = true;
	s->held = false;
	s->res = res;
	s->prefix = prefix;
	r->requests++;
	r->errors += res < 0;
	r->timeouts += res == -ETIMEDOUT;
	r->canceled += res == -ECANCELED;
	if (bar == TEST_BAR_WRITE && sync->held) {
		sync->held = false;
		sync->at_gate = true;
		if (r->open[TEST_BAR_SYNC])
			answered(r, TEST_BAR_SYNC);
	}
}

/* Take the result of the operation at the gate. */
static inline void answered(struct rules *r, enum test_bar bar)
{
	struct sub *s = &r->subs[bar];
	enum test_result result = r->v.result[bar];
	int64_t res = bar == TEST_BAR_SYNC ? 0 : LEN;
	uint64_t moved = (uint64_t)res;

	if (!s->at_gate)
		return;
	s->at_gate = s->touches = false;
	if (result == TEST_ERROR) {
		res = -EIO;
		moved = 0;
	} else if (result == TEST_SHORT && bar != TEST_BAR_SYNC) {
		moved = LEN / 2;
		res = bar == TEST_BAR_WRITE ? -ENOSPC : (int64_t)moved;
		/* A cancelled request does not start its second half. */
		if (s->asked)
			res = -ECANCELED;
	}
	s->moved = moved;
	if (s->completed)
		return;
	/* A finished operation keeps its own result; but an engine does not copy what a cancelled
	 * read has read. */
	if (s->asked && r->soft && bar == TEST_BAR_READ)
		completed(r, bar, -ECANCELED, 0);
	else
		completed(r, bar, res, moved);
}

/* Cancel all requests. Return their number, or -ENOENT. */
static inline int canceled(struct rules *r)
{
	int nr = 0;

	for (enum test_bar bar = 0; bar < TEST_BARS; bar++)
		nr += r->subs[bar].there && !r->subs[bar].completed;
	if (r->subs[TEST_BAR_SYNC].held)
		completed(r, TEST_BAR_SYNC, -ECANCELED, 0);
	for (enum test_bar bar = 0; bar < TEST_BARS; bar++) {
		struct sub *s = &r->subs[bar];

		if (!s->there || s->completed)
			continue;
		s->asked = true;
		stop(r, bar);
		if (!r->v.deaf)
			completed(r, bar, -ECANCELED, 0);
	}
	return nr ? nr : -ENOENT;
}

/* Complete all requests, even those whose operation still waits at the gate. */
static inline void ended(struct rules *r, int err)
{
	/* A sync that waits for the write is never started. */
	if (r->subs[TEST_BAR_SYNC].held)
		completed(r, TEST_BAR_SYNC, err, 0);
	for (enum test_bar bar = 0; bar < TEST_BARS; bar++) {
		struct sub *s = &r->subs[bar];

		if (!s->there || s->completed)
			continue;
		stop(r, bar);
		s->busy = s->at_gate && (bar == TEST_BAR_WRITE || s->touches);
		completed(r, bar, s->asked ? -ECANCELED : err, 0);
	}
}

static inline unsigned nr_inflight(const struct rules *r)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < TEST_BARS; i++)
		nr += r->subs[i].there && !r->subs[i].completed;
	return nr;
}

static inline unsigned nr_busy(const struct rules *r)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < TEST_BARS; i++)
		nr += r->subs[i].completed && r->subs[i].at_gate;
	return nr;
}

static inline unsigned nr_unreaped(const struct rules *r)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < TEST_BARS; i++)
		nr += r->subs[i].completed && !r->subs[i].reaped;
	return nr;
}

/* Return true if a drain of the memory has to wait. */
static inline bool uses_mem(const struct rules *r)
{
	for (unsigned i = 0; i < TEST_BARS; i++) {
		const struct sub *s = &r->subs[i];

		if (s->there && i != TEST_BAR_SYNC && (!s->completed || s->touches))
			return true;
	}
	return false;
}

/* Return true if a drain of the file has to wait. */
static inline bool uses_file(const struct rules *r)
{
	return nr_inflight(r) || nr_busy(r);
}

#endif
