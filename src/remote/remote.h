/* SPDX-License-Identifier: MIT */
/*
 * Files of a storage service: the client of docs/PROTOCOL.md.
 *
 *   pst://HOST:PORT/PATH
 *   pst+unix://SOCKET:/PATH
 *   psts://[KEY@]HOST:PORT/PATH, by TLS
 *
 * An I/O context has a link, which is one connection, to each server whose files it was given
 * operations on.  A link opens the file by its name once more, and opens it again after it has
 * connected again.  So a file is a name, and facts by which another file of that name is noticed.
 */
#ifndef PST_REMOTE_H
#define PST_REMOTE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "file/io.h"
#include "net/addr.h"
#include "net/tls.h"
#include "net/wire.h"

#define REMOTE_CONNECT_NS (10 * NSEC_PER_SEC)  /* for a connection, and for the answer to a hello */
#define REMOTE_GIVE_UP_NS (300 * NSEC_PER_SEC) /* without a connection: operations fail */

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
 * What links keep of a file, also when it is closed.
 *
 * A server that starts again may have lost what was not synced.  So a file knows which start of the
 * server took its writes since the last SYNC, and a SYNC by another one fails, as all later ones.
 */
struct remote_ref {
	_Atomic unsigned refs;
	_Atomic bool closed;
	struct remote_server server;
	char *path;   /* on the server */
	uint32_t how; /* WIRE_O_READ, WIRE_O_WRITE */
	bool crc;     /* payloads have checksums */
	struct wire_attr attr;

	pthread_mutex_t lock; /* of all below */
	bool dirty, lost;
	uint64_t boot; /* of the writes, if dirty */
	uint64_t nr_writes;
};

struct remote_file {
	struct file file; /* first */
	struct remote_ref *ref;
};

/* Grows with each file that is closed: links then look which of theirs it was. */
extern _Atomic uint64_t remote_nr_closed;

void remote_ref_put(struct remote_ref *r);

static inline struct remote_ref *remote_ref_get(struct remote_ref *r)
{
	atomic_fetch_add(&r->refs, 1);
	return r;
}

/* A write is complete, by that start of the server. */
void remote_wrote(struct remote_ref *r, uint64_t boot);
uint64_t remote_nr_writes(struct remote_ref *r);
/* A SYNC that began after nr_writes writes succeeded: 0, or -EIO where writes may be lost. */
int remote_synced(struct remote_ref *r, uint64_t boot, uint64_t nr_writes);

/* Is it the file that was opened first? */
static inline bool remote_is_same(const struct wire_attr *a, const struct wire_attr *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->btime_ns == b->btime_ns;
}

/*
 * Take a name apart, and find its server's address and key.
 * @may_be_root: the path may be empty
 * @ret_path:    the path in @name
 * Return: 0; -errno with a sentence.
 */
int remote_name(const char *name, bool may_be_root, struct remote_server *ret,
		const char **ret_path);

/* The hello of this process for a link's next connection. */
void remote_hello(struct wire_hello *ret, uint64_t channel, uint64_t epoch);
/* For each link another one. */
uint64_t remote_channel(void);

/* A connection for requests that wait for their answers, one by one. */
struct remote_talk;

/* Connect; 0 or -errno with a sentence, after at most REMOTE_CONNECT_NS. */
int remote_talk_begin(const struct remote_server *server, struct remote_talk **ret);
void remote_talk_end(struct remote_talk *t); /* NULL: nothing */

/*
 * Ask, and wait for the answer for at most REMOTE_CONNECT_NS, twice that with the first one.
 * @name:    payload of the request, @len <= 2 * WIRE_NAME_MAX bytes
 * @payload: gets that of the answer, at most @room bytes
 *
 * Return: 0; -errno with a sentence: the server's, or the connection's, which is of no more use.
 */
int remote_talk_ask(struct remote_talk *t, struct wire_request *q, const char *name, size_t len,
		    struct wire_reply *ret, void *payload, uint32_t room);

/* The attributes of an answer. */
int remote_get_attr(const void *payload, const struct wire_reply *rep, struct wire_attr *ret);

/*
 * One request on a connection of its own, and its answer.
 * @name:     its payload
 * @ret_attr: payload of the answer
 * Return: 0; -errno with a sentence, after at most REMOTE_CONNECT_NS * 2.
 */
int remote_ask(const struct remote_server *server, struct wire_request *q, const char *name,
	       struct wire_attr *ret_attr);

extern const struct io_backend remote_backend;
extern const struct names_ops remote_names_ops;
extern const struct file_ops remote_file_ops, remote_unix_file_ops, remote_tls_file_ops;

#endif
