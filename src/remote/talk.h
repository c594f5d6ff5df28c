/* SPDX-License-Identifier: MIT */
/*
 * Servers of the storage service by their names, and requests that wait for their answers.
 *
 * This part of the client needs no libpenstock: the server of a mount uses it, too.
 */
#ifndef PST_REMOTE_TALK_H
#define PST_REMOTE_TALK_H

#include "net/addr.h"
#include "net/tls.h"
#include "net/wire.h"

#define REMOTE_CONNECT_NS (10 * NSEC_PER_SEC) /* for a connection, and for the answer to a hello */

/* A server, and how to reach it. */
struct remote_server {
	struct net_addr addr;
	const struct net_tls_ops *tls; /* NULL: bytes are plain */
	struct net_key key;            /* with tls */
};

static inline bool remote_is_server(const struct remote_server *a, const struct remote_server *b)
{
	return net_addr_is(&a->addr, &b->addr) && a->tls == b->tls &&
	       !strcmp(a->key.name, b->key.name) && a->key.len == b->key.len &&
	       !memcmp(a->key.key, b->key.key, sizeof(a->key.key));
}

/*
 * Writes of a file since the last SYNC.
 *
 * A server that starts again may have lost what was not synced.  So a file knows which start of the
 * server took its writes since the last SYNC, and a SYNC by another one fails, as all later ones.
 * Whoever has the struct locks it.
 */
struct remote_writes {
	bool dirty, lost;
	uint64_t boot; /* of the writes, if dirty */
	uint64_t nr;
};

/* Record that a write is complete, by that start of the server. */
void remote_writes_add(struct remote_writes *w, uint64_t boot);
/* Record that a SYNC which began after nr writes succeeded.  Return 0, or -EIO if writes may be
 * lost. */
int remote_writes_sync(struct remote_writes *w, uint64_t boot, uint64_t nr);

/*
 * Take a name apart, and find its server's address and key.
 * @may_be_root: the path may be empty
 * @ret_path:    the path in @name
 * Return: 0; -errno with a sentence.
 */
int remote_name(const char *name, bool may_be_root, struct remote_server *ret,
		const char **ret_path);

/* An address of libpenstock, which the module for TLS lies beside.  Each program of this code has
 * its own. */
const void *remote_tls_near(void);

/* The hello of this process for a link's next connection. */
void remote_hello(struct wire_hello *ret, uint64_t channel, uint64_t epoch);
/* For each link another one. */
uint64_t remote_channel(void);

/* A connection for requests that wait for their answers, one by one. */
struct remote_talk;

/*
 * Connect; 0 or -errno with a sentence, after at most REMOTE_CONNECT_NS.  The server ends older
 * connections of the channel, those with a lower epoch, before it answers on this one.
 */
int remote_talk_begin(const struct remote_server *server, uint64_t channel, uint64_t epoch,
		      struct remote_talk **ret);
void remote_talk_end(struct remote_talk *t); /* NULL: nothing */

/* Close the connection under the call that waits on it, which then fails.  Any thread, while the
 * talk exists. */
void remote_talk_stop(struct remote_talk *t);

/* Return true once the connection is of no more use: a request failed for another reason than the
 * server's answer. */
bool remote_talk_is_broken(const struct remote_talk *t);

/*
 * Ask, and wait for the answer for at most REMOTE_CONNECT_NS, twice that with the first one.
 * @q:       its length is filled in
 * @bytes:   payload of the request, @len <= WIRE_DATA_MAX bytes
 * @payload: gets that of the answer, at most @room bytes
 *
 * Return: 0; -errno with a sentence: the server's, or the connection's, which is of no more use.
 */
int remote_talk_ask(struct remote_talk *t, struct wire_request *q, const void *bytes, size_t len,
		    struct wire_reply *ret, void *payload, uint32_t room);

/* Wait no longer than until then in later calls of remote_talk_ask(). */
void remote_talk_limit(struct remote_talk *t, uint64_t deadline_ns);
/* WIRE_FEATURE_* of the connection, once a request was answered. */
uint64_t remote_talk_features(const struct remote_talk *t);

/* The attributes of an answer. */
int remote_get_attr(const void *payload, const struct wire_reply *rep, struct wire_attr *ret);

/*
 * One request on a connection of its own, and its answer.
 * @name:     its payload
 * @ret_attr: payload of the answer
 * @ret_features: WIRE_FEATURE_* that the server has, too; or NULL
 * Return: 0; -errno with a sentence, after at most REMOTE_CONNECT_NS * 2.
 */
int remote_ask(const struct remote_server *server, struct wire_request *q, const char *name,
	       struct wire_attr *ret_attr, uint64_t *ret_features);

#endif
