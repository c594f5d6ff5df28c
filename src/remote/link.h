/* SPDX-License-Identifier: MIT */
/*
 * An I/O context of the storage service, and its links.
 *
 * A task is an operation of core.  It is sent as pieces of at most WIRE_DATA_MAX bytes, each of
 * which is a request on the wire.  Pieces come back in any order, straight into the operation's
 * memory.  When a connection breaks, its pieces are sent again on the next one: each means the same
 * however often it is done.
 *
 * Everything here belongs to the one user of the I/O context and to the thread of attend.h, one at
 * a time.  Nothing blocks.
 */
#ifndef PST_REMOTE_LINK_H
#define PST_REMOTE_LINK_H

#include <sys/uio.h>

#include "file/op.h"
#include "remote/attend.h"
#include "remote/remote.h"

#define LINK_PIECES 1024u   /* requests of an I/O context on the wire, */
#define LINK_SENT 128u      /* and of a link: a server that hangs keeps others none */
#define LINK_BATCH 64u      /* payloads that are copied by one system call */
#define LINK_IN_MAX KIB(64) /* bytes that are received into a link's buffer */
#define LINK_TRIES 3u       /* of a piece whose checksum is wrong, of a handshake that is refused */
#define LINK_LONG KIB(16)   /* a longer payload is received into its place, not into a buffer */

struct link;
struct link_rdma;
struct mem_reg;
struct opened;
struct remote_ctx;

struct task {
	struct io_op *op;
	struct opened *of;
	struct task *next;
	bool queued;         /* in of->todo */
	unsigned nr_pieces;  /* that exist */
	uint64_t issued;     /* bytes of the operation that have pieces, or had */
	uint64_t limit;      /* bytes before the first that is missing; op->len: none is */
	int err;             /* why it is, 0: the file ends there */
	uint64_t nr_writes;  /* of a SYNC: the file's when it began */
	struct mem_reg *reg; /* by RDMA: the operation's memory, for the link's server; or NULL */
};

enum piece_kind {
	PIECE_TASK,
	PIECE_HELLO,
	PIECE_OPEN,
	PIECE_CLOSE,
	PIECE_RDMA,
};

enum piece_state {
	PIECE_FREE,
	PIECE_WAITS, /* to be sent */
	PIECE_SENT,  /* whole: its reply may come */
	PIECE_TAKEN, /* its reply is in the batch of the link */
};

struct piece {
	struct piece *next;
	struct link *link;
	struct opened *of;
	struct task *task; /* NULL: cancelled, or none */
	uint64_t off, len; /* in the operation */
	uint32_t handle;   /* of a CLOSE */
	uint32_t turn;     /* part of the id: an old reply finds nothing */
	uint8_t kind, state, tries;
	uint16_t op;      /* enum wire_op of a task's, which the reply repeats */
	bool waits_again; /* in of->again */
	bool rdma;        /* sent with a key: its reply is a message of the queue pair */
	uint8_t head[WIRE_HEAD];
	uint8_t payload[WIRE_HELLO_LEN]; /* of a hello, or of a request for or by RDMA */
};

struct pieces {
	struct piece *head, *tail;
};

enum opened_state {
	OPENED_NO,
	OPENED_ASKED,
	OPENED_YES,
};

/* A file on a link. */
struct opened {
	struct opened *next;
	struct link *link;
	struct remote_ref *ref;
	enum opened_state state;
	uint32_t handle;
	struct task *todo, *todo_last; /* with bytes that have no piece yet */
	struct pieces again;           /* to be sent again: before all others */
	unsigned nr_tasks;
};

enum link_state {
	LINK_DOWN,
	LINK_CONNECTING,
	LINK_TLS, /* in the handshake */
	LINK_HELLO,
	LINK_UP,
};

struct link {
	struct link *next;
	struct remote_ctx *ctx;
	struct remote_server server;
	struct net_tls *tls; /* of the connection; NULL: plain */
	enum link_state state;
	int fd;
	int err; /* why the last connection ended */
	uint64_t channel, epoch;
	uint64_t boot;       /* of the server, from its last reply */
	uint64_t down_since; /* without a connection, or 0 */
	uint64_t at;         /* when to connect again, or to give the attempt up */
	unsigned nr_tries;
	unsigned nr_refused; /* TLS handshakes, one after the other */
	bool want_out;
	struct opened *files;
	unsigned nr_tasks;
	unsigned nr_sent; /* pieces that wait for their reply, and those that are sent now */
	unsigned max_sent;
	unsigned nr_long;       /* of them with more than LINK_LONG bytes to come */
	uint32_t data_max;      /* bytes of a piece */
	uint64_t features;      /* WIRE_FEATURE_* */
	struct reach *reach;    /* NULL: no file of it is reached by RDMA */
	struct link_rdma *rdma; /* of the connection, or NULL */
	int rdma_no;            /* errno: the server has refused RDMA to the connection */

	struct pieces tx; /* to be sent, in this order */
	size_t tx_done;   /* bytes of the first */

	struct wire_reply rep;
	struct piece *cur; /* whose payload comes, or NULL: it is skipped */
	uint32_t body;     /* bytes of the payload that come */
	uint32_t body_done;
	uint8_t small[WIRE_HELLO_MAX]; /* payloads but those of reads */
	bool crc_good;                 /* the payload was compared with its checksum */
	uint32_t in_at, in_len;
	struct {
		struct piece *piece;
		struct wire_reply rep;
	} batch[LINK_BATCH]; /* replies whose payloads are whole in the buffer and not copied yet */
	struct iovec batch_to[LINK_BATCH], batch_from[LINK_BATCH];
	unsigned nr_batch;
	uint8_t *in; /* LINK_IN_MAX bytes */
};

struct remote_ctx {
	struct io_ctx base; /* its user's own but for nr_ops, which the lock below covers */
	struct attended attended;
	int armed_efd; /* the user's eventfd while armed, or -1 */
	struct waker *waker;
	int epfd; /* of the sockets and the timer */
	int timerfd;
	uint64_t timer_at;
	uint64_t nr_closed; /* remote_nr_closed, when files were looked at */
	struct link *links;
	struct io_fifo done;
	unsigned nr_done;
	struct task *tasks; /* [depth] */
	struct task *free_tasks;
	struct piece *pieces; /* [LINK_PIECES] */
	struct piece *free_pieces;
};

/* 0, -EAGAIN or -ENOMEM. */
int link_add_op(struct remote_ctx *c, struct io_op *op);
void link_cancel_op(struct remote_ctx *c, struct io_op *op);
/* Send and receive what can be.  Time passes, too. */
void link_turn(struct link *l);
/* The next time at which link_turn() has something to do; UINT64_MAX: none. */
uint64_t link_next(const struct link *l);
void link_free(struct link *l);
/* Files that were closed are closed on the server, too.  False: one of them still has to be. */
bool link_close_files(struct link *l);

/* Close the connection.  Its pieces wait for the next one. */
void link_drop(struct link *l, int err);
/* Is there something to send? */
static inline bool link_wants_out(const struct link *l)
{
	return l->tx.head || (l->tls && net_tls_unsent(l->tls));
}

/* Poll the socket for replies, and if asked for room to send. */
void link_poll(struct link *l, bool out);

/* ---------------------------------------------------------------- pieces.c */

void pieces_push(struct pieces *q, struct piece *p);
struct piece *pieces_pop(struct pieces *q);
void pieces_remove(struct pieces *q, struct piece *p);
void pieces_drop(struct pieces *q);

/* Return NULL if all pieces of the context are in use. */
struct piece *piece_new(struct link *l, enum piece_kind kind);
void piece_free(struct piece *p);
uint64_t piece_id(const struct piece *p);
/* Return the sent piece of that id, or NULL. */
struct piece *piece_find(const struct link *l, uint64_t id);
bool piece_is_long(const struct piece *p);
/* Has the piece's payload a checksum?  The CPU reaches no memory of a device. */
static inline bool link_crc(const struct piece *p)
{
	return p->of->ref->crc && !(p->task->op->flags & IO_OP_DEVICE);
}

/* Return true if all bytes that are wanted have pieces, or had. */
bool task_is_issued(const struct task *t);
/* Complete the operation. */
void task_end(struct task *t);
/* Complete the operation if none of its pieces is left. */
void task_check(struct task *t);
/* Note that bytes from off on are missing; err 0: the file ends there. */
void task_cut(struct task *t, uint64_t off, int err);

void opened_push_task(struct opened *of, struct task *t);
void opened_remove_task(struct opened *of, struct task *t);
/* Fail what has not been sent. */
void opened_fail(struct opened *of, int err);
void link_fail(struct link *l, int err);

/* ------------------------------------------------------------------ rdma.c */

/* May a request by RDMA be sent?  1; 0: not yet; -errno: not by RDMA. */
int link_rdma_room(struct link *l);
/* Register the memory of the piece's operation, and put its key into the payload.  0 or -errno. */
int link_rdma_key(struct link *l, struct piece *p);
/* The piece's reply is here, or the piece was not sent after all. */
void link_rdma_unsend(struct link *l, struct piece *p);
void link_rdma_task_end(struct link *l, struct task *t);
/* The reply to WIRE_RDMA is here. */
void link_rdma_joined(struct link *l);
/* The time at which a server that has not replied to WIRE_RDMA is given up; UINT64_MAX: none. */
uint64_t link_rdma_next(const struct link *l);
/* Take the messages that are there.  Return true if there were any. */
bool link_rdma_turn(struct link *l);
/* Have the context woken by the next message.  Return true if one came meanwhile. */
bool link_rdma_wait(struct link *l);
/* End the queue pair and all registrations.  err: why the connection ends; 0: it does not. */
void link_rdma_end(struct link *l, int err);

/* ------------------------------------------------------ send.c, receive.c */

/* Turn what waits into pieces; each file in its turn. */
void link_fill(struct link *l);
void link_send(struct link *l);
/* False: no piece is free, and nothing was sent. */
bool link_send_close(struct link *l, uint32_t handle);
void link_receive(struct link *l);
/* Take a reply that is a message of the queue pair. */
void link_message(struct link *l, const uint8_t head[WIRE_HEAD]);

/* ------------------------------------------------------------------ wake.c */

/* Turns "epfd is readable" into a write of an eventfd. */
int waker_new(int epfd, struct waker **ret);
void waker_free(struct waker *w);
/* As io_backend.arm(); now: there is work already. */
int waker_arm(struct waker *w, int efd, bool armed, bool now);
/* After a wake-up, and as often as you like. */
void waker_clear(struct waker *w);

#endif
