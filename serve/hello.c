/* SPDX-License-Identifier: MIT */
/* The hello: the first request of a connection. */
#include "serve/server.h"

static bool same_channel(const struct conn *a, const struct conn *b)
{
	static const uint8_t nobody[sizeof(a->hello.client)];

	return a->hello.channel == b->hello.channel &&
	       !memcmp(a->hello.client, b->hello.client, sizeof(nobody)) &&
	       memcmp(a->hello.client, nobody, sizeof(nobody)) != 0;
}

/*
 * End older connections of the same channel.  A reconnecting client repeats its requests, and
 * requests of its old connection must not run later than these: an old write would undo a new one.
 * Return 0; -EAGAIN while such a request is running; -ESTALE if this connection is the older one.
 */
static int end_older(struct conn *c)
{
	struct server *s = c->s;
	struct list *e, *n;
	int r = 0;

	list_for_each_safe (e, n, &s->conns) {
		struct conn *other = list_entry(e, struct conn, link);

		if (other == c || !same_channel(c, other))
			continue;
		if (other->hello.epoch >= c->hello.epoch)
			return -ESTALE;
		conn_kill(other, NULL);
	}
	list_for_each (e, &s->dead) {
		const struct conn *other = list_entry(e, struct conn, link);

		/* A worker that ends a queue pair runs no request. */
		if (other->nr_pool != other->nr_ends && same_channel(c, other))
			r = -EAGAIN;
	}
	return r;
}

static void conn_welcome(struct conn *c, struct job *j)
{
	struct wire_welcome w = {
		.version = WIRE_VERSION,
		.features = qp_features(c),
		.data_max = WIRE_DATA_MAX,
		.requests_max = c->s->o.requests,
		.files_max = c->s->o.files,
		.flags = c->s->o.write ? 0 : WIRE_SERVER_READ_ONLY,
	};

	wire_put_welcome(&w, j->buf + WIRE_HEAD);
	j->len = WIRE_HEAD + WIRE_HELLO_LEN;
	exec_reply(c->s, j);
	reply_queue(j);
	c->greeted = true;
}

void hello_continue(struct conn *c)
{
	struct job *j = c->hello_job;
	int r = end_older(c);

	if (r == -EAGAIN)
		return;
	c->hello_job = NULL;
	if (r == 0) {
		conn_welcome(c, j);
		return;
	}
	reply_queue_err(j, -r);
	c->ends = true;
}

void hello_take(struct conn *c, struct job *j, const uint8_t *payload)
{
	int r = wire_get_hello(payload, wire_payload(j->q.len), &c->hello);

	if (r == -EPROTONOSUPPORT) {
		reply_queue_err(j, EPROTONOSUPPORT);
		c->ends = true;
		return;
	}
	c->hello_job = j;
	if (r < 0)
		conn_kill(c, "its hello is not of this protocol");
	else
		hello_continue(c);
}
