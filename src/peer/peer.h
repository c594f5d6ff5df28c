/* SPDX-License-Identifier: MIT */
/*
 * Peers: the memory of another process as files, and messages.
 *
 * A connection has one thread, which alone reads and writes its socket.  Other threads leave it
 * work under the lock and wake it by an eventfd.  Whatever waits for the other side has a bound:
 * requests PEER_REQUESTS_MAX, messages PEER_MESSAGES_MAX, of each side.  A side that sends more is
 * disconnected, so the thread never has to stop reading, and two sides never wait for each other.
 *
 * Bytes of a share pass through the thread's buffers: a put is copied into the memory once all of
 * its message is here, and a get out of it before its reply begins.  So a share can be closed at
 * any time, and no peer keeps it busy by being slow.
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
#define PEER_GREET_NS (10 * NSEC_PER_SEC) /* for a connection that is silent */
#define PEER_LINGER_NS NSEC_PER_SEC       /* for the peer to take what pst_peer_close() finds */
/* The longest reply, request and other message: each kind gets its turn in an empty buffer. */
#define PEER_TX_MAX (2 * (PEER_HEAD + PEER_DATA_MAX) + PEER_HEAD + PST_MESSAGE_INLINE)
#define PEER_RX_MAX (PEER_DATA_MAX + KIB(64))
#define PEER_FDS_MAX 8u /* descriptors that came and are not used yet */
/* Bytes that RDMA moves at this side pass through slots: few requests fill a network, and a request
 * that is cancelled leaves its slot to the device and its memory to the program. */
#define PEER_SLOTS 16u
#define PEER_SLOT_LEN KIB(256)
/* To agree on RDMA, until the socket is used.  Both sides may open and try their device first. */
#define PEER_REACH_NS (10 * NSEC_PER_SEC)
#define PEER_REVOKE_NS NSEC_PER_SEC /* for the peer's device to finish with a closed share */

struct pst_peer;
struct peer_file;
struct nic;
struct nic_domain;
struct endpoint;

/* ------------------------------------------------------------- connections */

/* A connection before its thread: TLS and the hello. */
struct greet {
	int fd;
	bool accepted;
	struct net_tls *tls;
	struct peer_keys *keys; /* of tls, or NULL */
	bool sent;              /* our hello */
	uint64_t until;         /* when it is given up */
	uint32_t got;
	uint32_t want; /* bytes of the other side's hello */
	uint8_t buf[PEER_HEAD + PEER_HELLO_MAX];
	struct peer_hello theirs;
};

/* TLS needs them as long as a session lives. */
struct peer_keys {
	atomic_uint refs;
	const struct net_tls_ops *tls;
	struct net_keys keys;
	const struct net_key *key; /* to connect with */
};

/* 0; -EAGAIN with the events to wait for; -errno with a sentence. */
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

/* Something to be sent, a message that came, or both in turn. */
struct item {
	struct item *next;
	struct peer_msg m;
	int fd;       /* goes with it, or -1 */
	uint32_t len; /* of the payload */
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
	uint64_t issued; /* bytes that have requests, or had */
	uint64_t end;    /* bytes of it that the file has */
	unsigned nr_requests;
	int err;
	struct peer_tasks *queue; /* that it waits in, or NULL */
	struct peer_reach *reach; /* by RDMA, or NULL */
};

struct peer_tasks {
	struct peer_task *head, *last;
};

/* A request that waits for its reply. */
struct peer_request {
	bool used;
	uint8_t type;           /* enum peer_type */
	uint32_t turn;          /* part of its id, so an old reply finds nothing */
	struct peer_task *task; /* NULL: cancelled */
	struct peer_opening *opening;
	uint64_t share; /* of an OPEN */
	uint64_t off;   /* in the operation */
	uint32_t len;
};

/* A pst_peer_open() that waits for a reply: to OPEN, then to REACH. */
struct peer_opening {
	bool done;
	int err;
	int fd;
	bool has_grant;
	uint8_t grant[GRANT_LEN];
	struct import *import; /* listed once the grant is here, with the caller as its user */
	uint8_t nic_key[PEER_NIC_KEY_LEN];
};

/* A message of ours that the other side has not taken. */
struct peer_sent {
	bool used;
	bool waits; /* a thread does, and clears used */
	bool done;
	int err;
	uint64_t id;
};

/* A GET or PUT of the other side, to be replied to. */
struct served {
	uint16_t type;
	uint64_t id, share, off;
	uint32_t count, err;
};

enum peer_rdma_state {
	PEER_RDMA_NONE,
	PEER_RDMA_MAKING, /* a thread makes the endpoint, without the lock */
	PEER_RDMA_ASKED,  /* the other side was told of it */
	PEER_RDMA_READY,
	PEER_RDMA_OVER,
};

/* Bytes on their way. */
struct peer_slot {
	bool used;
	bool tell;              /* REVOKED is to be sent once no slot of the share is in use */
	struct peer_task *task; /* NULL: cancelled */
	uint64_t share;
	uint64_t off; /* in the operation */
	uint32_t len;
	bool get;
};

/* The connection by RDMA.  The lock of the peer covers it; its thread alone uses the endpoint. */
struct peer_rdma {
	enum peer_rdma_state state;
	_Atomic int err; /* 0, or why there is none any more */
	bool told;       /* RDMA came */
	bool ended;      /* UNREACH came */
	struct nic *nic;
	struct nic_domain *domain; /* until the peer is freed: shares register with it */
	struct endpoint *ep;
	uint8_t *mem; /* of the slots; NULL until the first use */
	struct mem_reg *reg;
	struct peer_slot slots[PEER_SLOTS];
	unsigned nr_used;
	struct peer_tasks todo;
	struct list reaches;
};

/* Memory of the peer that its device told. */
struct peer_reach {
	struct list link; /* p->rdma.reaches */
	struct peer_nic_key key;
	bool revoked;
};

struct pst_peer {
	atomic_uint refs;
	int efd;       /* wakes the thread */
	uint32_t info; /* PST_PEER_LOCAL, PST_PEER_TLS */
	uint32_t uid, pid;
	uint32_t data_max, inline_max, requests_max, messages_max; /* that the other side takes */
	pthread_t thread;

	pthread_mutex_t lock; /* of all to the next comment */
	pthread_cond_t more;  /* whatever a caller may wait for has changed */
	int err;              /* 0, or why there is no connection any more */
	bool gone;            /* the other side has closed its socket: it uses no memory of ours */
	bool closing;
	uint64_t linger_until;
	bool kicked;
	struct items out; /* to be sent */
	struct peer_tasks todo;
	struct peer_request requests[PEER_REQUESTS_MAX];
	unsigned nr_requests;
	struct peer_sent sent[PEER_MESSAGES_MAX];
	unsigned nr_sent;
	uint64_t last_message;
	struct items in; /* messages that came */
	unsigned nr_in;
	unsigned nr_untaken; /* of the other side's, until TAKEN is on its way */
	bool receiving;      /* a thread takes the first of them */
	unsigned nr_revoked; /* REVOKED to be sent */
	struct list imports;
	uint32_t features; /* PEER_KNOWS_*, of the other side; constant */
	struct peer_rdma rdma;
	unsigned nr_granted; /* shares of which the other side got a grant */

	pthread_mutex_t share_lock; /* of shares; inside of lock */
	pthread_cond_t share_idle;
	struct pst_share *shares[PEER_SHARES_MAX];
	uint32_t share_epoch[PEER_SHARES_MAX];

	/* The thread's own.  Once it has ended, fd is open while a grant may be in use. */
	int fd;
	struct net_tls *tls;
	struct peer_keys *keys; /* of tls, or NULL */
	struct served served[PEER_REQUESTS_MAX];
	unsigned served_at, nr_served;
	unsigned nr_owed;      /* replies, those to OPEN in out included */
	int fds[PEER_FDS_MAX]; /* -1: one that came while this process had no room for it */
	unsigned nr_fds;
	bool shut;
	uint8_t *rx; /* PEER_RX_MAX bytes */
	uint32_t rx_at, rx_len;
	struct peer_request *body; /* whose payload comes straight into its place, or NULL */
	uint32_t body_at, body_len;
	int body_err; /* 0, or why the rest is passed over */
	uint8_t *tx;  /* PEER_TX_MAX bytes */
	uint32_t tx_at, tx_len;
	int tx_fd; /* to be sent with the first byte, or -1 */
};

/* Start the thread of a connection; takes fd and tls of @g over on success. */
int peer_start(struct greet *g, struct pst_peer **ret);
void peer_keys_put(struct peer_keys *k);
void peer_put(struct pst_peer *p);
static inline struct pst_peer *peer_get(struct pst_peer *p)
{
	atomic_fetch_add(&p->refs, 1);
	return p;
}
void peer_end(struct pst_peer *p);
/* With the lock: wake the thread. */
void peer_kick(struct pst_peer *p);
/* With the lock: 0, or -errno with a sentence where the connection has ended. */
int peer_check(struct pst_peer *p);
void peer_facts(struct pst_peer *p, struct pst_peer_info *ret);
void *peer_thread(void *arg);

/* ------------------------------------------------------------------ shares */

/* How a share registers its memory for a device; core/ways/registration.h does it. */
struct share_ops {
	/* 0 and the registration; -errno with a sentence. */
	int (*reg)(void *arg, struct mem_registrar *by, uint32_t rights, const struct mem_reg **ret,
		   uint64_t *ret_epoch);
	void (*dereg)(void *arg);
	void (*done)(void *arg); /* the memory is not needed any more */
};

struct pst_share {
	struct pst_peer *peer;
	struct mem_alloc *alloc;
	uint64_t off, len; /* in the allocation */
	uint32_t rights, flags;
	uint64_t id; /* index, and epoch above it */
	uint8_t nonce[16];
	unsigned users; /* that touch the memory now */
	unsigned opens;
	bool granted;        /* a grant was sent; the lock of the peer covers it */
	struct item *revoke; /* REVOKE, until it is sent */
	bool asked;          /* REVOKE was sent */
	bool revoked;        /* REVOKED came */
	bool gone;           /* taken out of the table */
	struct mem_stream *stream;
	const struct share_ops *ops;
	void *arg;
	struct peer_nic_key nic_key; /* once it is registered; the lock of the peer covers both */
	bool registered;
};

int peer_share_new(struct pst_peer *p, const struct pst_share *from, struct pst_share **ret);
void share_key(const struct pst_share *s, uint8_t to[PEER_KEY_LEN]);
/* 0: freed; -EBUSY. */
int share_close(struct pst_share *s, uint64_t deadline_ns);

/* For the thread: move bytes of a share of this process.  0 or -errno without a sentence. */
int share_move(struct pst_peer *p, enum mem_dir dir, const struct peer_msg *m, void *buf);
/* Look up the key of an OPEN, and reply, with a grant where the share has one.  0; -ENOMEM. */
int share_opened(struct pst_peer *p, uint64_t id, const uint8_t *key, uint32_t len);
void share_closed(struct pst_peer *p, uint64_t id);
/* Register the share for the peer's device, and reply with its key.  0; -ENOMEM. */
int share_reached(struct pst_peer *p, const struct peer_msg *m);
void share_revoked(struct pst_peer *p, uint64_t id);

/* ------------------------------------------------------------------- files */

/* Memory of the peer, in this process by a grant. */
struct import {
	struct list link; /* p->imports; the lock of the peer covers all but stream */
	struct pst_peer *peer;
	uint64_t share;
	struct mem_alloc *alloc; /* NULL: not yet, or no more */
	uint64_t off;
	unsigned users;
	bool listed;
	bool revoked;
	bool answer; /* REVOKED is to be sent once there is no user */
	struct mem_stream *stream;
	pthread_mutex_t stream_lock;
};

struct peer_file {
	struct file file; /* first */
	struct pst_peer *peer;
	uint64_t share, len;
	struct import *import;    /* NULL: by RDMA or over the socket */
	struct peer_reach *reach; /* NULL: not by RDMA */
	int rdma_err;             /* 0, or why not */
	struct item *close;       /* is sent when the file is closed */
};

static inline struct peer_file *peer_file_of(const struct file *f)
{
	return container_of((struct file *)f, struct peer_file, file);
}

int peer_open(struct pst_peer *p, const void *key, size_t len, uint32_t flags, uint64_t deadline_ns,
	      struct file **ret);

/* socket.c; all with the lock. */
int peer_request_new(struct pst_peer *p, uint8_t type, struct peer_request **ret, uint64_t *ret_id);
/* Return the request of that id and type, or NULL. */
struct peer_request *peer_request_find(struct pst_peer *p, uint64_t id, uint8_t type);
/* Its reply came: with -errno or 0. */
void peer_request_end(struct pst_peer *p, struct peer_request *q, int err);
/* The next request of an operation, with its header; NULL: none can be sent now. */
struct peer_request *peer_request_next(struct pst_peer *p, struct peer_msg *ret);
void peer_tasks_push(struct peer_tasks *q, struct peer_task *t);
/* Take a task out of the queue that it waits in, if it does. */
void peer_task_unqueue(struct peer_task *t);
void peer_task_fail(struct pst_peer *p, struct peer_task *t, int err);
/* End a task whose requests are all back, and which has none to send. */
void peer_task_check(struct pst_peer *p, struct peer_task *t);
/* Send a request that is replied to, and wait for a free place for it.  @o is done once the reply
 * is here.  0; -ETIMEDOUT; -EPIPE. */
int peer_ask(struct pst_peer *p, struct item *it, struct peer_opening *o, uint64_t share,
	     uint64_t deadline_ns);
void peer_tasks_fail(struct pst_peer *p, int err);

/* got.c: handle a message whose header is in its bounds.  0; -EPROTO; -ENOMEM. */
int peer_got(struct pst_peer *p, const struct peer_msg *m, uint8_t *payload);
/* Where a byte of a reply belongs; NULL: nowhere.  With the lock. */
char *peer_place_of(const struct peer_request *q, uint32_t at);
/* Store bytes there.  0; -EFAULT.  With the lock. */
int peer_store(const struct peer_request *q, uint32_t at, const void *from, uint32_t len);

/* memory.c: imports.  Those with the lock: */
int imports_revoke(struct pst_peer *p, uint64_t share);
void imports_end(struct pst_peer *p);
void import_list(struct pst_peer *p, struct import *i);
/* Without the lock: */
struct import *peer_import_new(struct pst_peer *p, uint64_t share);
/* The opener's: open the grant that came.  0; -errno with a sentence, and the socket is left. */
int import_open(struct import *i, const struct peer_key *k, const uint8_t *grant, int fd);
void import_free(struct import *i);
/* Keep the memory until import_unuse().  0; -ESTALE; -EPIPE. */
int import_use(struct import *i);
void import_unuse(struct import *i);

/* -------------------------------------------------------------------- RDMA */

/* rdma.c.  For who opens: have the peer's device tell how to reach a share whose key was shown.
 * 0; -errno with a sentence, and the socket is left. */
int peer_reach(struct pst_peer *p, const struct peer_key *k, uint64_t deadline_ns,
	       struct peer_reach **ret);
void peer_reach_free(struct pst_peer *p, struct peer_reach *r);
/* For the thread, without the lock: messages that came.  0; -EPROTO; -ENOMEM. */
int rdma_got(struct pst_peer *p, const struct peer_msg *m, const uint8_t *payload);
/* Post what waits and take what completed.  Return the descriptor that tells of more, or -1 where
 * nothing is under way. */
int rdma_turn(struct pst_peer *p);
/* With the lock: */
int rdma_unreach(struct pst_peer *p);
int rdma_revoke(struct pst_peer *p, uint64_t share);
void rdma_detach(struct pst_peer *p, struct peer_task *t);
void rdma_end(struct pst_peer *p);
/* The domain with which shares are registered for the peer. */
struct mem_registrar *rdma_registrar(struct pst_peer *p);
/* No share is left. */
void rdma_free(struct pst_peer *p);

/* ---------------------------------------------------------------- messages */

/* 0 or -errno with a sentence; @buf is copied. */
int peer_send_inline(struct pst_peer *p, const void *buf, uint32_t len, uint64_t deadline_ns);
/* Offer a share of this process, and wait until the other side has taken it. */
int peer_send_offer(struct pst_peer *p, const uint8_t *key, uint64_t len, uint64_t deadline_ns);
/* The first message, for one thread at a time; 0 and peer_recv_end() is due, or -errno. */
int peer_recv_begin(struct pst_peer *p, uint64_t deadline_ns, struct item **ret);
/* @taken: the message is over, for its sender with that error; else it stays the first. */
void peer_recv_end(struct pst_peer *p, struct item *i, bool taken, int err);
int64_t peer_recv_len(struct pst_peer *p, uint64_t deadline_ns);

static inline uint64_t item_message_len(const struct item *i)
{
	return i->m.type == PEER_OFFER ? i->m.off : i->len;
}

extern const struct io_backend peer_backend;

#endif
