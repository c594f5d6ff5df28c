/* SPDX-License-Identifier: MIT */
/* Polling memory before sleeping: what it finds, and when it is skipped. */
#include "t.h"

#include <stdatomic.h>

#include "base/base.h"
#include "usrbio/proto/spin.h"

#define LOOK_NS 20000u

static atomic_uint looks;
static bool there;

static bool came(const void *arg)
{
	(void)arg;
	(void)atomic_fetch_add(&looks, 1);
	return there;
}

/* Make a spin state whose contention was determined just now. */
static struct spin fresh(bool contended)
{
	return (struct spin){ .looked_ns = now_ns(), .contended = contended };
}

static bool look(struct spin *s, bool is_there)
{
	there = is_there;
	atomic_store(&looks, 0);
	/* Do not determine contention again. */
	s->looked_ns = now_ns();
	return spin_until(s, LOOK_NS, came, NULL);
}

static void what_is_there_is_found_at_once(void)
{
	struct spin s = fresh(false);

	T_CHECK(look(&s, true));
	T_EQ(looks, 1);
	T_EQ(s.in_vain, 0);
	T_EQ(s.skip, 0);
}

static void what_does_not_come_ends_the_look(void)
{
	struct spin s = fresh(false);
	uint64_t from = now_ns();

	T_CHECK(!look(&s, false));
	T_CHECK(now_ns() - from >= LOOK_NS);
	T_CHECK(looks > 1);
	T_EQ(s.in_vain, 1);
}

static void looks_in_vain_become_rare(void)
{
	struct spin s = fresh(false);
	unsigned rounds = 0, skipped = 0;

	while (s.in_vain < SPIN_SKIP_MAX) {
		T_CHECK(!look(&s, false));
		skipped = 0;
		while (s.skip) {
			T_CHECK(!look(&s, false));
			T_EQ(looks, 1);
			skipped++;
		}
		T_CHECK(++rounds < 20);
	}
	T_EQ(skipped, SPIN_SKIP_MAX);
	/* Polling becomes frequent again once it finds something. */
	for (unsigned i = 0; i < 8; i++)
		T_CHECK(look(&s, true));
	T_EQ(s.in_vain, 0);
}

static void nobody_looks_twice_under_contention(void)
{
	struct spin s = fresh(true);

	T_CHECK(!look(&s, false));
	T_EQ(looks, 1);
	T_CHECK(look(&s, true));
	T_EQ(looks, 1);
	T_EQ(s.in_vain, 0);
}

int main(void)
{
	T_RUN(what_is_there_is_found_at_once);
	T_RUN(what_does_not_come_ends_the_look);
	T_RUN(looks_in_vain_become_rare);
	T_RUN(nobody_looks_twice_under_contention);
	return t_done();
}
