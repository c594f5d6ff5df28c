/* SPDX-License-Identifier: MIT */
/*
 * Peers: the memory of another process as files, and messages.
 *
 * Each connection has one thread, and only that thread uses its socket.  Other threads queue work
 * under the lock and wake the thread by an eventfd.  Everything outstanding is bounded, per side:
 * PEER_REQUESTS_MAX requests and PEER_MESSAGES_MAX messages.  A side that sends more is
 * disconnected.  So the thread never has to stop reading, and two sides never wait for each other.
 *
 * Bytes of a share pass through the thread's buffers: a put is copied into the memory once its
 * whole message has arrived, and a get is copied out before its reply is sent.  So a share can be
 * closed at any time, and a slow peer cannot keep it in use.
 */
#ifndef PST_PEER_H
#define PST_PEER_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "base/list.h"
#include "file/inbox.h"
#include "mem/mem.h"
#include "mem/registrar.h"
#include "net/addr.h"
#include "net/tls.h"
#include "peer/msg.h"

#define PEER_SHARES_MAX 1024u
#define PEER_GREET_NS (10 * NSEC_PER_SEC) /* time limit of the handshake */
#define PEER_LINGER_NS NSEC_PER_SEC       /* time for the peer to read a closing connection */
/* Bytes for one reply, one request and one other message of the largest size.  So an empty buffer
 * has room for one of each kind. */
#define PEER_TX_MAX (2 * (PEER_HEAD + PEER_DATA_MAX) + PEER_HEAD + PST_MESSAGE_INLINE)
#define PEER_RX_MAX (PEER_DATA_MAX + KIB(64))
#define PEER_FDS_MAX 8u /* maximum descriptors that were received but not used yet */
/* RDMA at this side goes through bounce slots.  Few requests fill a network.  And if a request is
 * cancelled, the NIC keeps only its slot, and the program gets its memory back. */
#define PEER_SLOTS 16u
#define PEER_SLOT_LEN KIB(256)
/* Time to agree on RDMA before the socket is used.  Both sides may have to open and test their
 * NIC. */
#define PEER_REACH_NS (10 * NSEC_PER_SEC)
#define PEER_REVOKE_NS NSEC_PER_SEC /* time for the peer's NIC to finish with a closed share */

struct pst_peer;
struct peer_file;
struct nic;
struct nic_domain;
struct endpoint;

/* ------------------------------------------------------------- connections */

/* A connection during its handshake: TLS and the hello. */
struct greet {
	int fd;
	bool accepted;
	struct net_tls *tls;
	struct peer_keys *keys; /* keys that the TLS session uses, or NULL */
	bool sent;              /* our hello was sent */
	uint64_t until;         /* now_ns() deadline of the handshake */
	uint32_t got;
	uint32_t want; /* bytes of the other side's hello: expected, received */
	uint8_t buf[PEER_HEAD + PEER_HELLO_MAX];
	struct peer_hello theirs;
};

/* Keys, reference counted: TLS needs them as long as a session lives. */
struct peer_keys {
	atomic_uint refs;
	const struct net_tls_ops *tls;
	struct net_keys keys;
	const struct net_key *key; /* key to connect with; NULL for a listener */
};

/* Continue the handshake.  Return 0 when complete; -EAGAIN with the events to poll for; -errno with
 * a sentence. */
int greet_go_on(struct greet *g, short *ret_events);
void greet_done(struct greet *g);

struct pst_listener;
int peer_listen(const char *addr, const struct pst_peer_opts *opts, struct pst_listener **ret);
void peer_listener_text(const struct pst_listener *l, char *buf, size_t len);
int peer_accept(struct pst_listener *l, uint64_t deadline_ns, struct pst_peer **ret);
void peer_listener_free(struct pst_listener *l);
int peer_connect(const char *addr, const struct pst_peer_opts *opts, uint64_t deadline_ns,
		 struct pst_peer **ret);

/* ------------------------------------------------------------------- state */

/* A message to send, or a received one, whose item is reused for the answer. */
struct item {
	struct item *next;
	struct peer_msg m;
	int fd;       /* descriptor sent with the item, or -1 */
	uint32_t len; /* payload bytes */
	uint8_t payload[];
};

struct items {
	struct item *head, *tail;
};

struct item *peer_item_new(uint16_t type, uint32_t len);
void peer_item_free(struct item *i);
void peer_items_push(struct items *q, struct item *i);
struct item *peer_items_pop(struct items *q);

/* An operation of core, sent as requests of at most PEER_DATA_MAX bytes. */
struct peer_task {
	struct peer_task *next;
	struct io_op *op;
	struct io_inbox *in;
	uint64_t share;
	uint64_t issued; /* bytes of the operation given to requests so far */
	uint64_t end;    /* bytes of the operation that are within the file */
	unsigned nr_requests;
	int err;
	struct peer_tasks *queue; /* queue that holds the task, or NULL */
	struct peer_reach *reach; /* access by RDMA; NULL: over the socket */
};

struct peer_tasks {
	struct peer_task *head, *last;
};

/* A request without a reply so far. */
struct peer_request {
	bool used;
	uint8_t type;           /* enum peer_type */
	uint32_t turn;          /* slot's use count, part of the id: stale replies do not match */
	struct peer_task *task; /* NULL: cancelled, or the request belongs to no task */
	struct peer_opening *opening;
	uint64_t share; /* share that an OPEN asks for */
	uint64_t off;   /* bytes; range in the operation */
	uint32_t len;
};

/* A pst_peer_open() that waits for the reply to OPEN, then to REACH. */
struct peer_opening {
	bool done;
	int err;
	int fd;
	bool has_grant;
	uint8_t grant[GRANT_LEN];
	struct import *import; /* on p->imports once the grant has arrived; the caller holds one
			        * of the import's uses */
	uint8_t nic_key[PEER_NIC_KEY_LEN];
};

/* A sent message that the other side has not received yet. */
struct peer_sent {
	bool used;
	bool waits; /* a thread waits for the answer, and will clear @used */
	bool done;
	int err;
	uint64_t id;
};

/* A GET or PUT of the other side that needs a reply. */
struct served {
	uint16_t type;
	uint64_t id, share, off;
	uint32_t count, err;
};

enum peer_rdma_state {
	PEER_RDMA_NONE,
	PEER_RDMA_MAKING, /* a thread creates the endpoint, without the lock */
	PEER_RDMA_ASKED,  /* this side's endpoint was announced */
	PEER_RDMA_READY,
	PEER_RDMA_OVER,
};

/* A bounce buffer of RDMA. */
struct peer_slot {
	bool used;
	bool tell;              /* send REVOKED once no slot of the share is in use */
	struct peer_task *task; /* NULL: cancelled */
	uint64_t share;
	uint64_t off; /* bytes; range in the operation */
	uint32_t len;
	bool get;
};

/* RDMA state of the connection, under the peer's lock.  Only the thread uses the endpoint. */
struct peer_rdma {
	enum peer_rdma_state state;
	_Atomic int err; /* 0, or the errno why RDMA has ended */
	bool made;       /* the endpoint was made, and may have been freed since */
	bool asked;      /* the endpoint was announced before the other side's PEER_RDMA came */
	bool told;       /* a PEER_RDMA message was received */
	bool ended;      /* a PEER_UNREACH message was received */
	bool unreached;  /* a PEER_UNREACH message was queued */
	/* NULL before RDMA begins, and once it has ended. */
	struct nic *nic;
	struct nic_domain *domain; /* shares register there */
	struct endpoint *ep;
	uint8_t *mem; /* memory of the slots; NULL until the first use */
	struct mem_reg *reg;
	struct peer_slot slots[PEER_SLOTS];
	unsigned nr_used;
	struct peer_tasks todo;
	struct list reaches;
};

/* Access to a share of the peer by RDMA, with the key that the peer sent. */
struct peer_reach {
	struct list link; /* in p->rdma.reaches */
	struct peer_nic_key key;
	bool revoked;
};

struct pst_peer {
	atomic_uint refs;
	int efd;       /* eventfd that wakes the thread */
	uint32_t info; /* PST_PEER_LOCAL and PST_PEER_TLS */
	uint32_t uid, pid;
	/* Limits of the other side, from its hello. */
	uint32_t data_max, inline_max, requests_max, messages_max;
	pthread_t thread;

	pthread_mutex_t lock; /* covers all members up to the next comment block */
	pthread_cond_t more;  /* signalled when anything changes that a caller may wait for */
	int err;              /* 0, or the errno that ended the connection */
	bool gone;            /* the other side closed its socket, so it uses none of our memory */
	bool closing;
	uint64_t linger_until;
	bool kicked;
	struct items out; /* items to send */
	struct peer_tasks todo;
	struct peer_request requests[PEER_REQUESTS_MAX];
	unsigned nr_requests;
	struct peer_sent sent[PEER_MESSAGES_MAX];
	unsigned nr_sent;
	uint64_t last_message;
	struct items in; /* received messages */
	unsigned nr_in;
	unsigned nr_untaken; /* messages of the other side until TAKEN is sent */
	bool receiving;      /* a thread is receiving the first message */
	unsigned nr_revoked; /* REVOKED messages still to send */
	struct list imports;
	uint32_t features; /* PEER_KNOWS_* of the other side; constant */
	struct peer_rdma rdma;
	unsigned nr_granted; /* shares for which the other side got a grant */

	pthread_mutex_t share_lock; /* covers shares; taken inside lock */
	pthread_cond_t share_idle;
	struct pst_share *shares[PEER_SHARES_MAX];
	unsigned nr_registered; /* shares whose memory is registered for the other side's NIC */
	uint32_t share_epoch[PEER_SHARES_MAX];

	/* Used by the connection's thread only.  After the thread has ended, fd stays open while a
	 * grant may be in use. */
	int fd;
	struct net_tls *tls;
	struct peer_keys *keys; /* keys that the TLS session uses, or NULL */
	struct served served[PEER_REQUESTS_MAX];
	unsigned served_at, nr_served;
	unsigned nr_owed;      /* replies still to send, including OPENED in out */
	int fds[PEER_FDS_MAX]; /* received; -1: the kernel dropped it for lack of room */
	unsigned nr_fds;
	bool shut;
	bool nic_pause; /* the NIC's events were read; do so again after a pause */
	uint8_t *rx;    /* receive buffer of PEER_RX_MAX bytes */
	uint32_t rx_at, rx_len;
	struct peer_request *body; /* request whose reply arrives straight at its place; or NULL */
	uint32_t body_at, body_len;
	int body_err; /* 0, or the errno why the rest is skipped */
	uint8_t *tx;  /* send buffer of PEER_TX_MAX bytes */
	uint32_t tx_at, tx_len;
	int tx_fd; /* descriptor to send with the first byte, or -1 */
};

/* Start the thread of a connection; on success it takes over fd and tls of @g. */
int peer_start(struct greet *g, struct pst_peer **ret);
void peer_keys_put(struct peer_keys *k);
void peer_put(struct pst_peer *p);
static inline struct pst_peer *peer_get(struct pst_peer *p)
{
	atomic_fetch_add(&p->refs, 1);
	return p;
}
void peer_end(struct pst_peer *p);
/* Wake the thread.  The lock is held. */
void peer_kick(struct pst_peer *p);
/* Return 0, or -errno with a sentence if the connection has ended.  The lock is held. */
int peer_check(struct pst_peer *p);
void peer_facts(struct pst_peer *p, struct pst_peer_info *ret);
void *peer_thread(void *arg);

/* ------------------------------------------------------------------ shares */

/* How a share registers its memory for a NIC; implemented by core/ways/registration.h. */
struct share_ops {
	/* Register; return 0 and the registration, or -errno with a sentence. */
	int (*reg)(void *arg, struct mem_registrar *by, uint32_t rights, const struct mem_reg **ret,
		   uint64_t *ret_epoch);
	void (*dereg)(void *arg);
	void (*done)(void *arg); /* release the memory */
};

struct pst_share {
	struct pst_peer *peer;
	struct mem_alloc *alloc;
	uint64_t off, len; /* bytes; range in the allocation */
	uint32_t rights, flags;
	uint64_t id; /* table index in the low half, epoch in the high half */
	uint8_t nonce[16];
	unsigned users; /* requests that use the memory now */
	unsigned opens;
	bool granted;        /* a grant was sent; under the peer's lock */
	struct item *revoke; /* the REVOKE message, until it is sent */
	bool asked;          /* REVOKE was queued */
	bool revoked;        /* REVOKED was received */
	bool gone;           /* removed from the table */
	struct mem_stream *stream;
	const struct share_ops *ops;
	void *arg;
	struct peer_nic_key nic_key; /* valid if registered is true; the peer's lock covers both */
	bool registered;             /* changed with share_lock held, too */
};

int peer_share_new(struct pst_peer *p, const struct pst_share *from, struct pst_share **ret);
void share_key(const struct pst_share *s, uint8_t to[PEER_KEY_LEN]);
/* Close the share.  Return 0, with the share freed, or -EBUSY. */
int share_close(struct pst_share *s, uint64_t deadline_ns);

/* Move bytes of a local share, on the connection's thread.  Return 0, or -errno without a
 * sentence. */
int share_move(struct pst_peer *p, enum mem_dir dir, const struct peer_msg *m, void *buf);
/* Check the key of an OPEN and queue the reply, with a grant if the share allows one.  Return 0 or
 * -ENOMEM. */
int share_opened(struct pst_peer *p, uint64_t id, const uint8_t *key, uint32_t len);
void share_closed(struct pst_peer *p, uint64_t id);
/* Register the share for the peer's NIC, and queue the reply with its key.  Return 0 or -ENOMEM. */
int share_reached(struct pst_peer *p, const struct peer_msg *m);
void share_revoked(struct pst_peer *p, uint64_t id);
/* End the registrations of all shares, because RDMA has ended. */
void shares_unregister(struct pst_peer *p);

/* ------------------------------------------------------------------- files */

/* Memory of the peer, mapped into this process by a grant. */
struct import {
	struct list link; /* in p->imports; the peer's lock covers all members except stream */
	struct pst_peer *peer;
	uint64_t share;
	struct mem_alloc *alloc; /* NULL: not yet mapped, or released */
	uint64_t off;
	unsigned users;
	bool listed;
	bool revoked;
	bool answer; /* send REVOKED once there is no user */
	struct mem_stream *stream;
	pthread_mutex_t stream_lock;
};

struct peer_file {
	struct file file; /* must be the first member */
	struct pst_peer *peer;
	uint64_t share, len;
	struct import *import;    /* NULL: by RDMA or over the socket */
	struct peer_reach *reach; /* NULL: RDMA is not used */
	int rdma_err;             /* 0, or the positive errno why reach is NULL */
	struct item *close;       /* CLOSE message, sent when the file is closed */
};

static inline struct peer_file *peer_file_of(const struct file *f)
{
	return container_of((struct file *)f, struct peer_file, file);
}

int peer_open(struct pst_peer *p, const void *key, size_t len, uint32_t flags, uint64_t deadline_ns,
	      struct file **ret);

/* Functions of socket.c; the lock is held in all. */
int peer_request_new(struct pst_peer *p, uint8_t type, struct peer_request **ret, uint64_t *ret_id);
/* Return the request of that id and type, or NULL. */
struct peer_request *peer_request_find(struct pst_peer *p, uint64_t id, uint8_t type);
/* End a request after its reply, with 0 or -errno. */
void peer_request_end(struct pst_peer *p, struct peer_request *q, int err);
/* Make the next request of an operation, with its header; NULL if none can be sent now. */
struct peer_request *peer_request_next(struct pst_peer *p, struct peer_msg *ret);
void peer_tasks_push(struct peer_tasks *q, struct peer_task *t);
/* Remove a task from its queue, if it is in one. */
void peer_task_unqueue(struct peer_task *t);
void peer_task_fail(struct pst_peer *p, struct peer_task *t, int err);
/* End a task if all its requests have replies and it needs no more requests. */
void peer_task_check(struct pst_peer *p, struct peer_task *t);
/* Wait for a free slot, send a request, and wait until its reply has set @o done.  Return 0;
 * -ETIMEDOUT; -EPIPE. */
int peer_ask(struct pst_peer *p, struct item *it, struct peer_opening *o, uint64_t share,
	     uint64_t deadline_ns);
void peer_tasks_fail(struct pst_peer *p, int err);

/* Handle a message whose header was checked.  Return 0, -EPROTO or -ENOMEM.  Defined in got.c. */
int peer_got(struct pst_peer *p, const struct peer_msg *m, uint8_t *payload);
/* Return where byte @at of a reply goes; NULL: skip it.  The lock is held. */
char *peer_place_of(const struct peer_request *q, uint32_t at);
/* Store bytes of a reply, from its byte @at on, at their place.  Return 0 or -EFAULT. The lock is
 * held. */
int peer_store(const struct peer_request *q, uint32_t at, const void *from, uint32_t len);

/* Functions of memory.c for imports; the lock is held in these: */
int imports_revoke(struct pst_peer *p, uint64_t share);
void imports_end(struct pst_peer *p);
void import_list(struct pst_peer *p, struct import *i);
/* Functions of memory.c that are called without the lock: */
struct import *peer_import_new(struct pst_peer *p, uint64_t share);
/* Map the grant that arrived, on the opener's thread.  Return 0; -errno with a sentence: use the
 * socket. */
int import_open(struct import *i, const struct peer_key *k, const uint8_t *grant, int fd);
void import_free(struct import *i);
/* Hold the memory until import_unuse().  Return 0, -ESTALE or -EPIPE. */
int import_use(struct import *i);
void import_unuse(struct import *i);

/* -------------------------------------------------------------------- RDMA */

/* Ask the peer for the key with which RDMA accesses a share that was opened.  Return 0, or -errno
 * with a sentence: use the socket then.  Defined in rdma.c. */
int peer_reach(struct pst_peer *p, const struct peer_key *k, uint64_t deadline_ns,
	       struct peer_reach **ret);
void peer_reach_free(struct pst_peer *p, struct peer_reach *r);
/* Handle a PEER_RDMA message, on the connection's thread, without the lock.  Return 0, -EPROTO or
 * -ENOMEM. */
int rdma_got(struct pst_peer *p, const struct peer_msg *m, const uint8_t *payload);
/* Post waiting requests and reap completions; release the NIC if RDMA has ended.  Return the
 * descriptor to poll, or -1 if nothing is in flight.  *ret_nic is the NIC whose failure must be
 * waited for, or NULL. */
int rdma_turn(struct pst_peer *p, struct nic **ret_nic);
/* Release all that RDMA used, after RDMA has ended and no slot is in use.  Called on the
 * connection's thread, without the lock, because a NIC that failed may take long. */
void rdma_release(struct pst_peer *p);
/* The lock is held in the next functions. */
int rdma_unreach(struct pst_peer *p);
int rdma_revoke(struct pst_peer *p, uint64_t share);
void rdma_detach(struct pst_peer *p, struct peer_task *t);
void rdma_end(struct pst_peer *p);
/* Return the registrar with which shares are registered for the peer. */
struct mem_registrar *rdma_registrar(struct pst_peer *p);
/* Free the RDMA state; no share may be left. */
void rdma_free(struct pst_peer *p);

/* ---------------------------------------------------------------- messages */

/* Send a message; @buf is copied.  Return 0, or -errno with a sentence. */
int peer_send_inline(struct pst_peer *p, const void *buf, uint32_t len, uint64_t deadline_ns);
/* Offer a local share, and wait until the other side has received the offer. */
int peer_send_offer(struct pst_peer *p, const uint8_t *key, uint64_t len, uint64_t deadline_ns);
/* Return the first message, to one thread at a time.  Return 0, after which peer_recv_end() must be
 * called, or -errno. */
int peer_recv_begin(struct pst_peer *p, uint64_t deadline_ns, struct item **ret);
/* End peer_recv_begin(). If taken is true, remove the message and answer its sender with err; else
 * the message stays the first. */
void peer_recv_end(struct pst_peer *p, struct item *i, bool taken, int err);
int64_t peer_recv_len(struct pst_peer *p, uint64_t deadline_ns);

static inline uint64_t item_message_len(const struct item *i)
{
	return i->m.type == PEER_OFFER ? i->m.off : i->len;
}

extern const struct io_backend peer_backend;

#endif
