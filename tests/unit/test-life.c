/* SPDX-License-Identifier: MIT */
/* Walk the table of a request's states in every order of events. */
#include "t.h"

#include "core/queue/life.h"

/* What the rest of the library knows about a request. */
struct world {
	enum req_state state;
	bool submitted, under_way, reaped;
	unsigned completed, released;
};

static unsigned seen[REQ_STATES], steps;

/* Return true if this event can happen now, without looking into the table. */
static bool can_come(const struct world *w, enum req_event ev)
{
	bool there = w->state != REQ_FREE;

	switch (ev) {
	case REQ_PREP:
		return !there;
	case REQ_HOLD:
		return there && !w->submitted && !w->completed;
	case REQ_START:
		return there && !w->under_way && !w->completed;
	case REQ_QUIET: /* no operation is in flight any more, or the request did not start */
		return there && (w->under_way || !w->completed);
	case REQ_GIVE_UP:
		return w->under_way && !w->completed;
	case REQ_REAP:
		return w->completed && !w->reaped;
	case REQ_DROP:
		return there && !w->submitted && !w->completed;
	default:
		return false;
	}
}

static struct world next(struct world w, enum req_event ev, const struct life_step *s)
{
	w.state = s->next;
	switch (ev) {
	case REQ_HOLD:
		w.submitted = true;
		break;
	case REQ_START:
		w.submitted = w.under_way = true;
		break;
	case REQ_QUIET:
		w.under_way = false;
		break;
	case REQ_REAP:
		w.reaped = true;
		break;
	default:
		break;
	}
	w.completed += !!(s->acts & LIFE_COMPLETE);
	w.released += !!(s->acts & LIFE_RELEASE);
	return w;
}

/* Check what must hold in every state. */
static void look(const struct world *w, enum req_event ev, const struct life_step *s)
{
	T_CHECK(w->completed <= 1);
	T_CHECK(w->released <= 1);
	T_CHECK(!w->released || !w->under_way);
	T_EQ(w->state == REQ_LATE || w->state == REQ_BUSY, w->completed && w->under_way);
	if (ev == REQ_REAP)
		T_CHECK(w->state == REQ_FREE || w->state == REQ_BUSY);
	if (!(s->acts & LIFE_FREE)) {
		T_CHECK(w->state != REQ_FREE);
		return;
	}
	/* At the end, released and reaped once each, unless it was never submitted. */
	T_EQ(w->state, REQ_FREE);
	T_EQ(w->released, 1);
	T_EQ(w->completed, ev == REQ_DROP ? 0 : 1);
	T_EQ(w->reaped, ev != REQ_DROP);
	T_CHECK(!w->under_way);
}

/* Walk all events from here.  A life has at most six steps: prepared, held, started, given up,
 * reaped, quiet. */
static void walk(const struct world *w, unsigned depth)
{
	bool on = false;

	T_CHECK(depth <= 6);
	seen[w->state]++;
	for (enum req_event ev = 0; ev < REQ_EVENTS; ev++) {
		const struct life_step *s = &life[w->state][ev];
		struct world n;

		T_EQ(s->acts != 0, can_come(w, ev));
		if (!s->acts)
			continue;
		on = true;
		steps++;
		n = next(*w, ev, s);
		look(&n, ev, s);
		if (n.state != REQ_FREE)
			walk(&n, depth + 1);
	}
	T_CHECK(on); /* some event must be possible */
}

static void every_order(void)
{
	const struct world w = { .state = REQ_FREE };

	walk(&w, 0);
	for (unsigned i = 0; i < REQ_STATES; i++)
		T_CHECK(seen[i] > 0);
	T_CHECK(steps > 20);
}

int main(void)
{
	T_RUN(every_order);
	return t_done();
}
