/* SPDX-License-Identifier: MIT */
/*
 * Limit each client's byte rate.  A client means all connections with the same key, or from the
 * same address, or of the same user of an AF_UNIX socket.  A client's budget of bytes grows with
 * time, up to the bytes of BURST_NS.  A request may start while the budget is positive, and may
 * make it negative, so large requests get the same rate as small ones.  A new block of a store is
 * charged when its room is reserved, because other blocks may be evicted then.
 */
#include <stdio.h>
#include <sys/socket.h>

#include "serve/server.h"

#define BURST_NS (NSEC_PER_SEC / 4)

static void rate_name_of(const struct conn *c, char ret[RATE_NAME_MAX])
{
	struct net_addr a = c->addr;
	struct ucred who;
	socklen_t len = sizeof(who);
	char text[NET_ADDR_TEXT_MAX], *colon;

	if (c->tls) {
		(void)snprintf(ret, RATE_NAME_MAX, "key %s", c->tls->peer);
	} else if (a.sa.ss_family == AF_UNIX) {
		if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
			who.uid = (uid_t)-1;
		(void)snprintf(ret, RATE_NAME_MAX, "user %u", (unsigned)who.uid);
	} else {
		net_addr_text(&a, text, sizeof(text));
		colon = strrchr(text, ':');
		if (colon)
			*colon = '\0';
		(void)snprintf(ret, RATE_NAME_MAX, "%s", text);
	}
}

bool rate_join(struct conn *c)
{
	struct rate *r;
	struct list *e;

	rate_name_of(c, c->who);
	if (!c->s->o.rate || c->rate)
		return true;
	list_for_each (e, &c->s->rates) {
		r = list_entry(e, struct rate, link);
		if (!strcmp(r->name, c->who)) {
			r->refs++;
			c->rate = r;
			return true;
		}
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return false;
	memcpy(r->name, c->who, sizeof(r->name));
	r->refs = 1;
	r->full_ns = about_now_ns();
	list_add_tail(&c->s->rates, &r->link);
	c->rate = r;
	return true;
}

void rate_leave(struct conn *c)
{
	struct rate *r = TAKE_PTR(c->rate);

	if (r)
		r->refs--;
}

void rate_sweep(struct server *s, uint64_t now)
{
	struct list *e, *n;

	/* Keep clients until their budget is full, so that reconnecting does not reset it. */
	list_for_each_safe (e, n, &s->rates) {
		struct rate *r = list_entry(e, struct rate, link);

		if (r->refs || r->full_ns > now)
			continue;
		list_del(e);
		free(r);
	}
}

uint64_t rate_wait(const struct conn *c)
{
	uint64_t now = about_now_ns();

	return c->rate && c->rate->full_ns > now + BURST_NS ? c->rate->full_ns - BURST_NS : 0;
}

void rate_spend(struct conn *c, uint64_t bytes)
{
	uint64_t now = about_now_ns();

	if (!c->rate)
		return;
	c->rate->full_ns = MAX(c->rate->full_ns, now) +
			   (uint64_t)((double)bytes * (double)NSEC_PER_SEC / (double)c->s->o.rate);
}
