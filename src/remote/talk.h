/* SPDX-License-Identifier: MIT */
/*
 * Find servers of the storage service by name, and make blocking requests.
 *
 * This part of the client needs no libpenstock: the mount's server also uses it.
 */
#ifndef PST_REMOTE_TALK_H
#define PST_REMOTE_TALK_H

#include "net/addr.h"
#include "net/tls.h"
#include "net/wire.h"

#define REMOTE_CONNECT_NS (10 * NSEC_PER_SEC) /* Time limit for connecting, and for each answer. */

/* A server, and how to reach it. */
struct remote_server {
	struct net_addr addr;
	const struct net_tls_ops *tls; /* NULL: plain connection */
	struct net_key key;            /* valid if tls is set */
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
 * A restarted server may have lost unsynced writes.  So a file remembers the boot id of the server
 * that took its writes since the last SYNC.  A SYNC at a server with another boot id fails, and so
 * do all later ones.  The owner of the struct locks it.
 */
struct remote_writes {
	bool dirty, lost;
	uint64_t boot; /* boot id of the server that took the writes, if dirty */
	uint64_t nr;
};

/* Record a completed write, and the boot id of the server that took it. */
void remote_writes_add(struct remote_writes *w, uint64_t boot);
/* Record a successful SYNC that began after nr writes.  Return 0, or -EIO if writes may be lost. */
int remote_writes_sync(struct remote_writes *w, uint64_t boot, uint64_t nr);

/*
 * Split a name, and find its server's address and key.
 * @may_be_root: the path may be empty
 * @ret_path: the path in @name
 *
 * Return: 0; -errno with a sentence.
 */
int remote_name(const char *name, bool may_be_root, struct remote_server *ret,
		const char **ret_path);

/* Return an address in libpenstock: the TLS module is searched in that library's folder.  Each
 * program that links this code defines its own. */
const void *remote_tls_near(void);

/* Fill in this process's hello for a link's next connection. */
void remote_hello(struct wire_hello *ret, uint64_t channel, uint64_t epoch);
/* Return a channel number that no other link of this process has. */
uint64_t remote_channel(void);

/* A connection for blocking requests, one at a time. */
struct remote_talk;

/*
 * Connect within REMOTE_CONNECT_NS.  Return 0, or -errno with a sentence.  Before it answers, the
 * server ends older connections of the channel, which are those with a lower epoch.
 */
int remote_talk_begin(const struct remote_server *server, uint64_t channel, uint64_t epoch,
		      struct remote_talk **ret);
void remote_talk_end(struct remote_talk *t); /* NULL is ignored */

/* Shut the connection down, so that a call waiting on it fails.  Any thread may do this while the
 * talk exists. */
void remote_talk_stop(struct remote_talk *t);

/* Return true if the connection is unusable, because a request got no answer. */
bool remote_talk_is_broken(const struct remote_talk *t);

/*
 * Send a request and wait for the answer, at most REMOTE_CONNECT_NS, or twice that for the first
 * request.
 * @q: its length is filled in
 * @bytes: payload of the request, @len <= WIRE_DATA_MAX bytes
 * @payload: receives the answer's payload, at most @room bytes
 *
 * Return: 0; -errno with a sentence, from the server or the connection.  After an error of the
 * connection, the talk is unusable.
 */
int remote_talk_ask(struct remote_talk *t, struct wire_request *q, const void *bytes, size_t len,
		    struct wire_reply *ret, void *payload, uint32_t room);

/* Limit all later calls of remote_talk_ask() to this deadline. */
void remote_talk_limit(struct remote_talk *t, uint64_t deadline_ns);
/* Return the connection's WIRE_FEATURE_*; valid after a request was answered. */
uint64_t remote_talk_features(const struct remote_talk *t);

/* Parse the attributes in an answer. */
int remote_get_attr(const void *payload, const struct wire_reply *rep, struct wire_attr *ret);

/*
 * Send one request on a new connection, and wait for its answer.
 * @name: payload of the request
 * @ret_attr: attributes in the answer's payload
 * @ret_features: WIRE_FEATURE_* that the server also supports; may be NULL
 *
 * Return: 0; -errno with a sentence, after at most REMOTE_CONNECT_NS * 2.
 */
int remote_ask(const struct remote_server *server, struct wire_request *q, const char *name,
	       struct wire_attr *ret_attr, uint64_t *ret_features);

#endif
