/* SPDX-License-Identifier: MIT */
/*
 * The states of a route.
 *
 *	UNKNOWN -> ASKING	gds_route_ask(), by the thread that must answer
 *	ASKING -> GOOD, BAD	gds_route_answer()
 *	ASKING -> UNKNOWN	gds_route_answer(): undecided; not asked again for AGAIN_MS
 *	ASKING -> BAD		gds_route_look(): no answer within ASKING_MS; later ones are ignored
 *	GOOD -> BAD		gds_disable(); BAD is final
 *
 * State, errno and time are packed into one atomic word, so readers see consistent values, and of
 * two concurrent changes only one succeeds.
 */
#include <sys/sysmacros.h>

#include "base/err.h"
#include "base/log.h"
#include "gds/path/gds.h"

#define ASKING_MS 60000u /* without an answer for this long, the probing thread counts as hung */
#define AGAIN_MS 10000u  /* delay until the next attempt after a temporary failure */

/* The word: 2 bits of state, 14 bits of errno, then milliseconds of now_ns(). */
#define ERR_AT 2
#define TIME_AT 16

static uint64_t route_word_of(enum gds_state state, int err, uint64_t ms)
{
	return ms << TIME_AT | (uint64_t)(uint32_t)err << ERR_AT | (uint64_t)state;
}

static enum gds_state route_state_of(uint64_t word)
{
	return (enum gds_state)(word & ((1u << ERR_AT) - 1));
}

static int err_of(uint64_t word)
{
	return (int)(word >> ERR_AT & ((1u << (TIME_AT - ERR_AT)) - 1));
}

/* Return the milliseconds at which ASKING began, or from which UNKNOWN may be asked again. */
static uint64_t route_time_of(uint64_t word)
{
	return word >> TIME_AT;
}

/* Return the positive errno why the route is not used, or 0; the word of a new route is 0. */
static int route_say(uint64_t word)
{
	if (route_state_of(word) == GDS_GOOD)
		return 0;
	return err_of(word) ? err_of(word) : EAGAIN;
}

static uint64_t to_ms(uint64_t ns)
{
	return ns / NSEC_PER_MSEC;
}

static bool may_ask(uint64_t word, uint64_t now)
{
	return route_state_of(word) == GDS_UNKNOWN && to_ms(now) >= route_time_of(word);
}

bool gds_route_may_ask(const struct gds_route *route, uint64_t now)
{
	return may_ask(atomic_load(&route->word), now);
}

bool gds_route_ask(struct gds_route *route, uint64_t now)
{
	uint64_t was = atomic_load(&route->word);

	return may_ask(was, now) &&
	       atomic_compare_exchange_strong(&route->word, &was,
					      route_word_of(GDS_ASKING, EAGAIN, to_ms(now)));
}

bool gds_route_answer(struct gds_route *route, enum gds_state state, int err, uint64_t now)
{
	uint64_t was = atomic_load(&route->word);
	uint64_t next = route_word_of(state, err, state == GDS_UNKNOWN ? to_ms(now) + AGAIN_MS : 0);

	return route_state_of(was) == GDS_ASKING &&
	       atomic_compare_exchange_strong(&route->word, &was, next);
}

int gds_route_look(struct gds_route *route, uint64_t now)
{
	uint64_t word = atomic_load(&route->word);

	/* Add instead of subtracting: the state may have begun after @now was read. */
	if (route_state_of(word) == GDS_ASKING && to_ms(now) > route_time_of(word) + ASKING_MS &&
	    atomic_compare_exchange_strong(&route->word, &word,
					   route_word_of(GDS_BAD, ETIMEDOUT, 0))) {
		log_warn("cuFile is not used between device %u and files of %u:%u: it hangs",
			 route->device, major(route->dev), minor(route->dev));
		return ETIMEDOUT;
	}
	return route_say(word);
}

int gds_route_err(struct gds_route *route)
{
	uint64_t word = atomic_load(&route->word);

	return likely(route_state_of(word) == GDS_GOOD) ? 0 : gds_route_look(route, now_ns());
}

void gds_disable(struct gds_route *route, int err)
{
	uint64_t was = atomic_load(&route->word);

	/* Keep the first reason. */
	if (route_state_of(was) == GDS_GOOD &&
	    atomic_compare_exchange_strong(&route->word, &was, route_word_of(GDS_BAD, err, 0)))
		log_warn("cuFile is not used between device %u and files of %u:%u any more: %s",
			 route->device, major(route->dev), minor(route->dev), err_name(err));
}
