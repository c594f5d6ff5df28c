/* SPDX-License-Identifier: MIT */
/*
 * Files of a storage service: the client of docs/PROTOCOL.md.
 *
 *   pst://HOST:PORT/PATH
 *   pst+unix://SOCKET:/PATH
 *   psts://[KEY@]HOST:PORT/PATH, with TLS
 *
 * An I/O context has one link, which is one connection, per server of its operations.  A link opens
 * the file by name, once per connection.  So a file is a name plus attributes, by which a
 * replacement with the same name is detected.
 */
#ifndef PST_REMOTE_H
#define PST_REMOTE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "file/io.h"
#include "remote/talk.h"

/* Time without a connection after which operations fail. */
#define REMOTE_GIVE_UP_NS (300 * NSEC_PER_SEC)

/* A server that this process accesses by RDMA (reach.c). */
struct reach;
struct nic;

/* Facts about a file that links need even after it is closed. */
struct remote_ref {
	_Atomic unsigned refs;
	_Atomic bool closed;
	struct remote_server server;
	struct reach *reach; /* NULL: RDMA is not used */
	int no_reach;        /* positive errno why reach is NULL */
	char *path;          /* path on the server */
	uint32_t how;        /* WIRE_O_READ and WIRE_O_WRITE */
	bool crc;            /* payloads have checksums */
	struct wire_attr attr;

	pthread_mutex_t lock; /* covers the member writes */
	struct remote_writes writes;
};

struct remote_file {
	struct file file; /* must be the first member */
	struct remote_ref *ref;
};

/* Number of closed files.  When it changes, each link checks which of its files were closed. */
extern _Atomic uint64_t remote_nr_closed;

void remote_ref_put(struct remote_ref *r);

static inline struct remote_ref *remote_ref_get(struct remote_ref *r)
{
	atomic_fetch_add(&r->refs, 1);
	return r;
}

/* Record a completed write, and the boot id of the server that took it. */
void remote_wrote(struct remote_ref *r, uint64_t boot);
uint64_t remote_nr_writes(struct remote_ref *r);
/* Record a successful SYNC that began after nr_writes writes.  Return 0, or -EIO if writes may be
 * lost. */
int remote_synced(struct remote_ref *r, uint64_t boot, uint64_t nr_writes);

/* Return true if these are the attributes of the file that was opened first. */
static inline bool remote_is_same(const struct wire_attr *a, const struct wire_attr *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->btime_ns == b->btime_ns;
}

/* ----------------------------------------------------------------- reach.c */

/*
 * Find out whether RDMA can be used with a server that offers these features.  Opens this process's
 * NIC, and tests it the first time.  Return 0, or -errno with a sentence.
 */
int reach_get(const struct remote_server *server, uint64_t features, struct reach **ret);
struct reach *reach_again(struct reach *r);
void reach_put(struct reach *r); /* NULL is allowed */
/* Take a reference to the device; nics_put() drops it. Return 0, or -errno with a sentence. */
int reach_nic(struct reach *r, struct nic **ret);
/* Return 0, or the positive errno because of which RDMA is paused at time now, a time of
 * now_ns(). */
int reach_err(const struct reach *r, uint64_t now);
/* Record that RDMA failed: pause RDMA for 5 s, and twice as long after each further failure, up to
 * 640 s. */
void reach_failed(struct reach *r, int err, uint64_t now);
/* Record that RDMA moved bytes by a queue pair that was begun at the time since: the next pause is
 * short again. */
void reach_worked(struct reach *r, uint64_t since);

extern const struct io_backend remote_backend;
extern const struct names_ops remote_names_ops;
/* Tables of the schemes.  file.c chooses other tables for files that use RDMA. */
extern const struct file_ops remote_file_ops, remote_unix_file_ops, remote_tls_file_ops;

#endif
