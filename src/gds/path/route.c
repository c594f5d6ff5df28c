/* SPDX-License-Identifier: MIT */
/*
 * What is known of a route.
 *
 *	UNKNOWN -> ASKING	gds_route_ask(), by the one who then has to answer
 *	ASKING -> GOOD, BAD	gds_route_answer()
 *	ASKING -> UNKNOWN	gds_route_answer(): it is not known; not asked for AGAIN_MS
 *	ASKING -> BAD		gds_route_look(): no answer for ASKING_MS; a later one is dropped
 *	GOOD -> BAD		gds_disable(); nothing leads out of BAD
 *
 * State, errno and time are one word that is only ever exchanged as a whole: who looks sees what
 * belongs together, and of two who would change it one does, and the other knows.
 */
#include <sys/sysmacros.h>

#include "base/err.h"
#include "base/log.h"
#include "gds/path/gds.h"

#define ASKING_MS 60000u /* then what it is asked by hangs */
#define AGAIN_MS 10000u  /* when asking failed for a reason that may pass */

/* Two bits of state, 14 of the errno, and milliseconds of now_ns(). */
#define ERR_AT 2
#define TIME_AT 16

static uint64_t word_of(enum gds_state state, int err, uint64_t ms)
{
	return ms << TIME_AT | (uint64_t)(uint32_t)err << ERR_AT | (uint64_t)state;
}

static enum gds_state state_of(uint64_t word)
{
	return (enum gds_state)(word & ((1u << ERR_AT) - 1));
}

static int err_of(uint64_t word)
{
	return (int)(word >> ERR_AT & ((1u << (TIME_AT - ERR_AT)) - 1));
}

/* ASKING: when it began.  UNKNOWN: it is not to be asked before. */
static uint64_t time_of(uint64_t word)
{
	return word >> TIME_AT;
}

/* 0, or why the way is not used; a new one is all zero. */
static int say(uint64_t word)
{
	if (state_of(word) == GDS_GOOD)
		return 0;
	return err_of(word) ? err_of(word) : EAGAIN;
}

static uint64_t to_ms(uint64_t ns)
{
	return ns / NSEC_PER_MSEC;
}

static bool may_ask(uint64_t word, uint64_t now)
{
	return state_of(word) == GDS_UNKNOWN && to_ms(now) >= time_of(word);
}

bool gds_route_may_ask(const struct gds_route *w, uint64_t now)
{
	return may_ask(atomic_load(&w->word), now);
}

bool gds_route_ask(struct gds_route *w, uint64_t now)
{
	uint64_t was = atomic_load(&w->word);

	return may_ask(was, now) &&
	       atomic_compare_exchange_strong(&w->word, &was,
					      word_of(GDS_ASKING, EAGAIN, to_ms(now)));
}

bool gds_route_answer(struct gds_route *w, enum gds_state state, int err, uint64_t now)
{
	uint64_t was = atomic_load(&w->word);
	uint64_t next = word_of(state, err, state == GDS_UNKNOWN ? to_ms(now) + AGAIN_MS : 0);

	return state_of(was) == GDS_ASKING && atomic_compare_exchange_strong(&w->word, &was, next);
}

int gds_route_look(struct gds_route *w, uint64_t now)
{
	uint64_t word = atomic_load(&w->word);

	/* It may have begun after now was read: nothing is subtracted. */
	if (state_of(word) == GDS_ASKING && to_ms(now) > time_of(word) + ASKING_MS &&
	    atomic_compare_exchange_strong(&w->word, &word, word_of(GDS_BAD, ETIMEDOUT, 0))) {
		log_warn("cuFile is not used between device %u and files of %u:%u: it hangs",
			 w->device, major(w->dev), minor(w->dev));
		return ETIMEDOUT;
	}
	return say(word);
}

int gds_route_err(struct gds_route *w)
{
	uint64_t word = atomic_load(&w->word);

	return likely(state_of(word) == GDS_GOOD) ? 0 : gds_route_look(w, now_ns());
}

void gds_disable(struct gds_route *w, int err)
{
	uint64_t was = atomic_load(&w->word);

	/* The first reason stays. */
	if (state_of(was) == GDS_GOOD &&
	    atomic_compare_exchange_strong(&w->word, &was, word_of(GDS_BAD, err, 0)))
		log_warn("cuFile is not used between device %u and files of %u:%u any more: %s",
			 w->device, major(w->dev), minor(w->dev), err_name(err));
}
