/* SPDX-License-Identifier: MIT */
/*
 * The states of a route by cuFile and their transitions.  Threads that look, ask and answer at
 * the same time must see only these states.
 */
#include <pthread.h>
#include <string.h>

#include "gds/path/gds.h"
#include "t.h"

#define S NSEC_PER_SEC
#define T0 (100 * S)

static void asked_once(void)
{
	struct gds_route w = { .device = 0 };

	T_EQ(gds_route_look(&w, T0), EAGAIN);
	T_CHECK(gds_route_may_ask(&w, T0));
	T_CHECK(gds_route_ask(&w, T0));
	T_CHECK(!gds_route_may_ask(&w, T0));
	T_CHECK(!gds_route_ask(&w, T0));
	T_EQ(gds_route_look(&w, T0), EAGAIN);
	T_CHECK(gds_route_answer(&w, GDS_GOOD, 0, T0));
	T_EQ(gds_route_err(&w), 0);
	T_CHECK(!gds_route_ask(&w, T0 + 1000 * S));
	T_CHECK(!gds_route_answer(&w, GDS_BAD, EIO, T0));
	T_EQ(gds_route_err(&w), 0);
}

/* A disabled route keeps its first reason for ever. */
static void condemned(void)
{
	struct gds_route w = { .device = 0 };

	T_CHECK(gds_route_ask(&w, T0));
	T_CHECK(gds_route_answer(&w, GDS_GOOD, 0, T0));
	gds_disable(&w, EILSEQ);
	gds_disable(&w, EIO);
	T_EQ(gds_route_err(&w), EILSEQ);
	T_CHECK(!gds_route_ask(&w, T0 + 1000 * S));
	T_EQ(gds_route_look(&w, T0 + 1000 * S), EILSEQ);

	memset(&w, 0, sizeof(w));
	T_CHECK(gds_route_ask(&w, T0));
	T_CHECK(gds_route_answer(&w, GDS_BAD, EPERM, T0));
	gds_disable(&w, EIO);
	T_EQ(gds_route_err(&w), EPERM);
	T_CHECK(!gds_route_ask(&w, T0 + 1000 * S));
}

/* A passing reason stays until the route is tried again, after 10 s. */
static void passing(void)
{
	struct gds_route w = { .device = 0 };

	T_CHECK(gds_route_ask(&w, T0));
	T_CHECK(gds_route_answer(&w, GDS_UNKNOWN, EMFILE, T0));
	T_EQ(gds_route_look(&w, T0), EMFILE);
	T_CHECK(!gds_route_ask(&w, T0 + 9 * S));
	T_EQ(gds_route_look(&w, T0 + 1000 * S), EMFILE);
	T_CHECK(gds_route_ask(&w, T0 + 11 * S));
	T_EQ(gds_route_look(&w, T0 + 11 * S), EAGAIN);
	T_CHECK(gds_route_answer(&w, GDS_GOOD, 0, T0 + 12 * S));
	T_EQ(gds_route_look(&w, T0 + 12 * S), 0);
}

/* An answer that does not come within 60 s is given up, and a late one is ignored. */
static void hangs(void)
{
	struct gds_route w = { .device = 0 };

	T_CHECK(gds_route_ask(&w, T0));
	T_EQ(gds_route_look(&w, T0 - 5 * S), EAGAIN); /* a thread with an older time */
	T_EQ(gds_route_look(&w, T0 + 59 * S), EAGAIN);
	T_EQ(gds_route_look(&w, T0 + 61 * S), ETIMEDOUT);
	T_CHECK(!gds_route_answer(&w, GDS_GOOD, 0, T0 + 62 * S));
	T_CHECK(!gds_route_answer(&w, GDS_UNKNOWN, EAGAIN, T0 + 62 * S));
	T_EQ(gds_route_err(&w), ETIMEDOUT);
}

/* ----------------------------------------------------------------- threads */

#define ROUNDS 20000u

static struct race {
	struct gds_route route;
	_Atomic uint64_t now;
	atomic_bool over;
	atomic_uint odd;
} race;

/* A look returns either EAGAIN, during a trial, or the reason of a finished one. */
static void *look(void *arg)
{
	(void)arg;
	while (!atomic_load(&race.over)) {
		int err = gds_route_look(&race.route, atomic_load(&race.now));

		if (err != EAGAIN && err != EMFILE)
			atomic_fetch_add(&race.odd, 1);
	}
	return NULL;
}

static void *ask(void *arg)
{
	unsigned *wins = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t now = atomic_fetch_add(&race.now, 11 * S);

		if (!gds_route_ask(&race.route, now))
			continue;
		*wins += gds_route_answer(&race.route, GDS_UNKNOWN, EMFILE, now);
	}
	return NULL;
}

static void races(void)
{
	pthread_t looks[2], asks;
	unsigned wins = 0;

	atomic_store(&race.now, T0);
	for (unsigned i = 0; i < 2; i++)
		T_CHECK(!pthread_create(&looks[i], NULL, look, NULL));
	T_CHECK(!pthread_create(&asks, NULL, ask, &wins));
	(void)pthread_join(asks, NULL);
	atomic_store(&race.over, true);
	for (unsigned i = 0; i < 2; i++)
		(void)pthread_join(looks[i], NULL);
	T_EQ(atomic_load(&race.odd), 0);
	T_EQ(wins, ROUNDS);
	T_EQ(gds_route_look(&race.route, atomic_load(&race.now)), EMFILE);
}

int main(void)
{
	T_RUN(asked_once);
	T_RUN(condemned);
	T_RUN(passing);
	T_RUN(hangs);
	T_RUN(races);
	return t_done();
}
