/* SPDX-License-Identifier: MIT */
/*
 * An I/O context of the storage service, and its links.
 *
 * A task is an operation of core.  A task is sent as pieces of at most WIRE_DATA_MAX bytes; each
 * piece is one request on the wire.  Replies come in any order, and payloads go straight into the
 * operation's memory.  When a connection breaks, its pieces are sent again on the next one: each
 * piece is idempotent.
 *
 * The I/O context's one user and the thread of attend.h use these structures in turn, under a lock.
 * Nothing blocks.
 */
#ifndef PST_REMOTE_LINK_H
#define PST_REMOTE_LINK_H

#include <sys/uio.h>

#include "file/op.h"
#include "remote/attend.h"
#include "remote/remote.h"

#define LINK_PIECES 1024u   /* maximum requests in flight of an I/O context */
#define LINK_SENT 128u      /* maximum of one link: a hanging server leaves some to other links */
#define LINK_BATCH 64u      /* payloads copied in one system call */
#define LINK_IN_MAX KIB(64) /* bytes of a link's receive buffer */
#define LINK_TRIES 3u       /* attempts after a wrong checksum or a refused handshake */
#define LINK_LONG KIB(16)   /* bytes; longer payloads bypass the receive buffer */

struct link;
struct link_rdma;
struct mem_reg;
struct opened;
struct remote_ctx;

struct task {
	struct io_op *op;
	struct opened *of;
	struct task *next;
	bool queued;         /* on the list todo of the struct opened */
	unsigned nr_pieces;  /* pieces that exist now */
	uint64_t issued;     /* bytes of the operation given to pieces so far */
	uint64_t limit;      /* bytes before the first missing one; op->len if none */
	int err;             /* errno why limit is below op->len; 0: end of file */
	uint64_t nr_writes;  /* SYNC: number of writes of the file at the start of the SYNC */
	struct mem_reg *reg; /* RDMA: registration of the operation's memory, or NULL */
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
	PIECE_WAITS, /* not sent yet */
	PIECE_SENT,  /* completely sent; the reply has not come yet */
	PIECE_TAKEN, /* the piece's reply is in the link's batch */
};

struct piece {
	struct piece *next;
	struct link *link;
	struct opened *of;
	struct task *task; /* NULL: cancelled, or the piece belongs to no task */
	uint64_t off, len; /* bytes; range in the operation */
	uint32_t handle;   /* CLOSE: handle on the server */
	uint32_t turn;     /* use count of the slot, part of the id: stale replies do not match */
	uint8_t kind, state, tries;
	uint16_t op;      /* enum wire_op of a task's piece; the reply repeats it */
	bool waits_again; /* on the list again of its struct opened */
	bool rdma;        /* sent by RDMA: the reply is a message of the queue pair */
	uint8_t head[WIRE_HEAD];
	/* Payload of a hello, or of a request for RDMA or by RDMA. */
	uint8_t payload[WIRE_HELLO_LEN];
};

struct pieces {
	struct piece *head, *tail;
};

enum opened_state {
	OPENED_NO,
	OPENED_ASKED,
	OPENED_YES,
};

/* A file as opened on a link. */
struct opened {
	struct opened *next;
	struct link *link;
	struct remote_ref *ref;
	enum opened_state state;
	uint32_t handle;
	struct task *todo, *todo_last; /* tasks with bytes that have no piece yet */
	struct pieces again;           /* pieces to send again, before all others */
	unsigned nr_tasks;
};

enum link_state {
	LINK_DOWN,
	LINK_CONNECTING,
	LINK_TLS, /* in the TLS handshake */
	LINK_HELLO,
	LINK_UP,
};

struct link {
	struct link *next;
	struct remote_ctx *ctx;
	struct remote_server server;
	struct net_tls *tls; /* TLS session of the connection; NULL: plain */
	enum link_state state;
	int fd;
	int err; /* errno that ended the last connection */
	uint64_t channel, epoch;
	uint64_t boot;       /* boot id in the server's last reply */
	uint64_t down_since; /* now_ns() since when there is no connection, or 0 */
	uint64_t at;         /* now_ns() to connect again, or to give up connecting */
	unsigned nr_tries;
	unsigned nr_refused; /* consecutive TLS handshakes that failed */
	bool want_out;
	struct opened *files;
	unsigned nr_tasks;
	unsigned nr_sent; /* pieces being sent or waiting for their reply */
	unsigned max_sent;
	unsigned nr_long;       /* pieces with more than LINK_LONG bytes to receive */
	uint32_t data_max;      /* maximum bytes of a piece */
	uint64_t features;      /* WIRE_FEATURE_* */
	struct reach *reach;    /* RDMA state of the server; NULL: no file uses RDMA */
	struct link_rdma *rdma; /* RDMA state of this connection, or NULL */
	int rdma_no;            /* errno with which the server refused RDMA to this connection */

	struct pieces tx; /* pieces to send, in this order */
	size_t tx_done;   /* bytes of the first piece that are already sent */

	struct wire_reply rep;
	struct piece *cur; /* piece whose payload is arriving; NULL: skip the payload */
	uint32_t body;     /* bytes of the arriving payload: total, received */
	uint32_t body_done;
	uint8_t small[WIRE_HELLO_MAX]; /* payloads of replies other than READ */
	bool crc_good;                 /* the arriving payload matches its checksum */
	uint32_t in_at, in_len;
	struct {
		struct piece *piece;
		struct wire_reply rep;
	} batch[LINK_BATCH]; /* complete replies whose payloads in the buffer are not copied yet */
	struct iovec batch_to[LINK_BATCH], batch_from[LINK_BATCH];
	unsigned nr_batch;
	uint8_t *in; /* receive buffer of LINK_IN_MAX bytes */
};

struct remote_ctx {
	struct io_ctx base; /* only the user touches this member, except nr_ops (under
			     * attended.lock) */
	struct attended attended;
	int armed_efd; /* the user's eventfd while armed, or -1 */
	struct waker *waker;
	int epfd; /* epoll of the sockets and the timer */
	int timerfd;
	uint64_t timer_at;
	uint64_t nr_closed; /* remote_nr_closed at the last check for closed files */
	struct link *links;
	struct io_fifo done;
	unsigned nr_done;
	struct task *tasks; /* depth entries */
	struct task *free_tasks;
	struct piece *pieces; /* LINK_PIECES entries */
	struct piece *free_pieces;
};

/* Add an operation.  Return 0, -EAGAIN or -ENOMEM. */
int link_add_op(struct remote_ctx *c, struct io_op *op);
void link_cancel_op(struct remote_ctx *c, struct io_op *op);
/* Send and receive as much as possible, and handle timeouts. */
void link_turn(struct link *l);
/* Return when link_turn() must run even without events, as of now_ns(); UINT64_MAX: never. */
uint64_t link_next(const struct link *l);
void link_free(struct link *l);
/* Close files on the server that the program has closed.  Return false if some remain. */
bool link_close_files(struct link *l);

/* Close the connection.  Pieces wait for the next connection. */
void link_drop(struct link *l, int err);
/* Return true if there is something to send. */
static inline bool link_wants_out(const struct link *l)
{
	return l->tx.head || (l->tls && net_tls_unsent(l->tls));
}

/* Poll the socket for replies, and if out is set, for room to send. */
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
/* Return true if the piece's payload has a checksum.  The CPU cannot read device memory. */
static inline bool link_crc(const struct piece *p)
{
	return p->of->ref->crc && !(p->task->op->flags & IO_OP_DEVICE);
}

/* Return true if all wanted bytes were given to pieces. */
bool task_is_issued(const struct task *t);
/* Complete the operation. */
void task_end(struct task *t);
/* Complete the operation if it has no piece left. */
void task_check(struct task *t);
/* Record that bytes from off on are missing; err 0: end of file. */
void task_cut(struct task *t, uint64_t off, int err);

void opened_push_task(struct opened *of, struct task *t);
void opened_remove_task(struct opened *of, struct task *t);
/* Fail all tasks and pieces that were not sent. */
void opened_fail(struct opened *of, int err);
void link_fail(struct link *l, int err);

/* ------------------------------------------------------------------ rdma.c */

/* Decide whether a request by RDMA may be sent: 1 if so; 0: not yet; -errno: do not use RDMA. */
int link_rdma_room(struct link *l);
/* Register the piece's memory, and put the key into the payload.  Return 0 or -errno. */
int link_rdma_key(struct link *l, struct piece *p);
/* Account for a piece whose reply came, or that was not sent after all. */
void link_rdma_unsend(struct link *l, struct piece *p);
void link_rdma_task_end(struct link *l, struct task *t);
/* Handle the reply to WIRE_RDMA. */
void link_rdma_joined(struct link *l);
/* Return the now_ns() deadline of the reply to WIRE_RDMA; UINT64_MAX: none is due. */
uint64_t link_rdma_next(const struct link *l);
/* Receive messages of the queue pair.  Return true if there were any. */
bool link_rdma_turn(struct link *l);
/* Arm the wake-up for the next message.  Return true if one has arrived in between. */
bool link_rdma_wait(struct link *l);
/* Destroy the queue pair and all registrations.  err: why the connection ends; 0: it continues. */
void link_rdma_end(struct link *l, int err);

/* ------------------------------------------------------ send.c, receive.c */

/* Create pieces for waiting tasks, taking the files in turn. */
void link_fill(struct link *l);
void link_send(struct link *l);
/* Send a CLOSE.  Return false, with nothing sent, if no piece is free. */
bool link_send_close(struct link *l, uint32_t handle);
void link_receive(struct link *l);
/* Handle a reply that came as a message of the queue pair. */
void link_message(struct link *l, const uint8_t head[WIRE_HEAD]);

/* ------------------------------------------------------------------ wake.c */

/* Create a waker, which writes an eventfd when epfd becomes readable. */
int waker_new(int epfd, struct waker **ret);
void waker_free(struct waker *w);
/* Arm or disarm as io_backend.arm() does; now: there is work already. */
int waker_arm(struct waker *w, int efd, bool armed, bool now);
/* Reset after a wake-up; may be called at any time. */
void waker_clear(struct waker *w);

#endif
