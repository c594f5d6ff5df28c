/* SPDX-License-Identifier: MIT */
/*
 * One thread, the loop, owns all connections: it receives requests, answers short reads from the
 * page cache, and sends replies.  Anything that may wait for a disk or that copies many bytes is a
 * job for a worker thread of the pool, which also sends the reply of a long read.  A long read is
 * tried in the page cache first, for which some workers are left.  A job belongs to the loop,
 * except between pool_put() and exec_pool_take().
 */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/list.h"
#include "net/http.h"
#include "net/wire.h"
#include "serve/serve.h"

/* Bytes that the loop reads at once; only payloads of writes may be longer. */
#define IN_MAX KIB(64)
/* Bytes reserved for each connection: one request of the largest size. */
#define CONN_SURE (WIRE_DATA_MAX + WIRE_HEAD)

/* An open file of one connection.  Only the loop changes the reference count. */
struct handle {
	int fd;     /* -1: a new block of a store */
	void *lent; /* the store's open block, which owns fd; or NULL */
	unsigned refs;
	bool write;
	bool in_memory; /* all bytes are in memory, so no read waits for a disk */
	uint64_t paid;  /* bytes of a new block that were charged at the OPEN */
	uint64_t nr_writes,
		nr_synced; /* equal if a SYNC followed every write; used by the loop only */
};

#define RATE_NAME_MAX 192u
#define SCRAPES 4u /* maximum connections for metrics */

/* A rate-limited client, with all its connections. */
struct rate {
	struct list link; /* in server.rates */
	char name[RATE_NAME_MAX];
	unsigned refs;    /* connections of the client */
	uint64_t full_ns; /* now_ns() when the budget is full again */
};

/* Counters since the start; used by the loop only. */
struct counts {
	uint64_t accepted, refused, dropped, handshakes_failed, slowed, scrapes;
	uint64_t op[WIRE_OP_MAX + 1], error[WIRE_OP_MAX + 1];
	uint64_t bytes_read, bytes_written;
	uint64_t rdma_writes, rdma_reads, rdma_sends, rdma_refused, rdma_failed;
};

#define FAULTS 64u /* maximum clients whose failures of RDMA are remembered */

/* A client whose queue pairs have failed. */
struct fault {
	char who[RATE_NAME_MAX];
	uint64_t paid_ns; /* now_ns() when the client's failures are forgotten */
};

/* A connection for metrics. */
struct scrape {
	int fd; /* -1: the slot is free */
	uint64_t until_ns;
	size_t have, len, at;
	char *out; /* the answer, or NULL */
	char in[HTTP_MAX];
};

struct conn;

struct job {
	struct job *next;
	struct conn *conn;
	struct handle *handle; /* handle that the request uses, or NULL */
	struct wire_request q;
	char *name; /* copy of the payload's first name, NUL-terminated; or NULL */
	char *to;   /* second name, of a RENAME; or NULL */

	/* The reply.  buf has room for WIRE_HEAD plus size bytes. */
	uint8_t *buf;
	uint32_t size;
	uint32_t len;     /* bytes of the reply */
	uint32_t sent;    /* bytes of the reply already sent */
	bool by_worker;   /* a worker sent those bytes, and is the connection's sender now */
	bool send_failed; /* the worker's send failed for another reason than a full socket */

	uint32_t err;
	uint32_t count;
	uint64_t value;
	int new_fd;     /* OPEN: the new descriptor; else -1 */
	void *lent;     /* OPEN of a store: the opened block; else NULL */
	uint64_t paid;  /* OPEN: copied to the handle */
	bool in_memory; /* OPEN: copied to the handle */
	/* WIRE_RDMA: the new RDMA connection, or NULL. */
	struct rdma *joined;
	/* Members for requests that move bytes by RDMA. */
	struct wire_rdma_key key;
	uint8_t slot;    /* index of the slot whose memory buf is in */
	uint8_t left;    /* operations that the device has not completed */
	bool quick;      /* a read that is tried in the page cache, where it waits for nothing */
	bool pulls;      /* the device reads the bytes of a WRITE_RDMA, which has its handle */
	uint64_t writes; /* for a SYNC: nr_writes of the handle when the SYNC began */
	/* Members for jobs that are not a client's request. */
	bool closes;       /* close the handle's descriptor */
	struct rdma *ends; /* end this queue pair; or NULL */
};

struct jobs {
	struct job *head, *tail;
};

/* Return true if the request moves its bytes by RDMA and is answered by an RDMA message. */
static inline bool job_by_rdma(const struct job *j)
{
	return j->q.op == WIRE_READ_RDMA || j->q.op == WIRE_WRITE_RDMA;
}

static inline void jobs_push(struct jobs *q, struct job *j)
{
	j->next = NULL;
	if (q->head)
		q->tail->next = j;
	else
		q->head = j;
	q->tail = j;
}

static inline void jobs_push_first(struct jobs *q, struct job *j)
{
	j->next = q->head;
	if (!q->head)
		q->tail = j;
	q->head = j;
}

static inline struct job *jobs_pop(struct jobs *q)
{
	struct job *j = q->head;

	if (j)
		q->head = j->next;
	return j;
}

/*
 * The thread that sends on a connection.  With TLS, the sender also uses the session, which cannot
 * receive and send at the same time.  A sender keeps the socket's sending side until everything
 * that it began to send is sent.
 */
enum conn_sender {
	SENDER_NONE,
	SENDER_LOOP,
	SENDER_WORKER, /* a worker, until its job is back with the loop */
};

struct conn {
	struct list link; /* on server.conns; once dead, on server.dead until the jobs are back */
	struct server *s;
	int fd;   /* -1: the connection is dead */
	int sock; /* the socket; -1 once it is closed. Constant while a worker may send */
	_Atomic enum conn_sender sender;
	struct net_addr addr;
	bool greeted;    /* the hello was answered */
	bool again;      /* tls may have buffered bytes, for which epoll gives no event */
	bool full;       /* the connection is at its limit of requests or bytes in flight */
	bool ends;       /* the connection ends once its replies are sent */
	uint32_t events; /* epoll events that are requested */
	char key[NET_KEY_NAME_MAX + 1]; /* name of the client's key; "" without TLS */
	struct wire_hello hello;
	struct job *hello_job; /* hello that waits until older connections of the channel end */
	uint64_t since_ns;     /* now_ns() of the last progress */
	uint64_t born_ns;
	struct rate *rate;       /* NULL: none yet, or unlimited */
	char who[RATE_NAME_MAX]; /* identifies the client; "" before the TLS handshake ends */
	struct net_tls *tls;     /* TLS session; NULL: plain TCP.  Belongs to the sender */
	struct rdma *rdma;       /* RDMA connection, or NULL */
	bool rdma_agreed;        /* the welcome offered RDMA, and the client may still ask for it */
	bool rdma_counted;       /* counted in server.nr_rdma */

	uint8_t *kept; /* bytes that were read but could not be processed yet */
	uint32_t nr_kept;
	struct job *payload; /* WRITE whose payload is arriving */
	uint32_t got;        /* bytes of that payload received */

	uint64_t mem;        /* bytes of the connection's jobs */
	unsigned nr_jobs;    /* requests whose reply is not sent */
	unsigned nr_pool;    /* jobs that the pool has */
	unsigned nr_running; /* jobs that workers have; under the lock of the pool */
	unsigned nr_slow;    /* jobs of nr_running that may wait for a disk; under the lock of
			      * the pool */
	unsigned nr_ends;    /* jobs of nr_pool that end the queue pair */
	struct jobs waiting; /* jobs for workers; under the lock of the pool */
	struct conn *next_waiting;
	bool is_waiting;
	bool is_forgotten;       /* pool_forget() has removed the jobs; under the lock of the
				  * pool */
	bool is_quiet;           /* dead, and none of its requests runs */
	struct jobs out;         /* replies to send */
	uint64_t nr_out;         /* unsent bytes of the replies in out */
	uint64_t nr_taken;       /* requests taken since the start */
	unsigned nr_now;         /* reads that the loop served in this turn */
	struct handle **handles; /* o.files entries; NULL before the first OPEN */
};

struct server {
	struct serve_opts o;
	_Atomic uint64_t boot;
	int epfd, sigfd, efd, timerfd;
	int listeners[SERVE_LISTEN_MAX];
	unsigned nr_listeners;
	bool accepts; /* the listening sockets are in epoll */
	struct list conns, dead;
	unsigned nr_conns;
	bool rdma;        /* there is a device, and it may be used */
	char rdma_by[80]; /* name of the device and its port */
	unsigned nr_rdma; /* connections that have, or are about to have, a queue pair */
	struct fault faults[FAULTS];
	unsigned nr_again; /* connections with conn.again set */
	struct list rates;
	/* now_ns() when a rate-limited connection may continue; UINT64_MAX: none. */
	uint64_t wake_ns;
	uint64_t start_ns;
	_Atomic uint64_t nr_boots; /* how often the boot id changed */
	struct counts counts;
	int metrics_fd;
	struct scrape scrapes[SCRAPES];
	uint64_t shared; /* bytes used by all connections beyond CONN_SURE */
	uint8_t *in;     /* buffer of 3 * IN_MAX bytes: kept bytes, then bytes just read */
	bool draining;
	uint64_t drain_end_ns;

	struct pool {
		pthread_mutex_t lock;
		pthread_cond_t work;
		struct conn *first, *last; /* connections with waiting jobs, served in turn */
		struct jobs done;
		struct jobs quick; /* reads of all connections that are tried in the page cache */
		struct jobs ends;  /* jobs that end queue pairs */
		unsigned nr_slow;  /* workers that have a job which may wait for a disk */
		unsigned slow_max; /* limit of nr_slow plus nr_ends */
		unsigned nr_ends;  /* workers that have a job of @ends */
		unsigned share;    /* limit of nr_slow of one connection, and of nr_ends */
		bool stop;
		unsigned nr_threads;
		pthread_t *threads;
	} pool;
};

/* ------------------------------------------------------------------ exec.c */

/* Execute a job; any thread may call this.  Sets err, count, value, and the reply's payload. */
void exec_job(struct server *s, struct job *j);
int exec_read(struct job *j);
/* Serve a read if the page cache holds all its bytes; return false if not.  Any thread may call
 * this. */
bool exec_read_now(struct server *s, struct job *j);
/* Write the reply's header. */
void exec_reply(struct server *s, struct job *j);

/* Close a handle without users. */
void exec_close(struct server *s, struct handle *h);

int pool_start(struct server *s);
void pool_stop(struct server *s);
void pool_put(struct server *s, struct job *j);
/* Take all finished jobs; return the list's first. */
struct job *exec_pool_take(struct server *s);

/* Change the boot id, which tells clients that writes may be lost.  Any thread may call this. */
void server_new_boot(struct server *s);

/* ----------------------------------------------------------------- store.c */

/* Return the bytes of the block that an OPEN will create; 0 for other opens. */
uint64_t store_new_bytes(const struct server *s, const struct job *j);
/* Execute a job on a store.  Return 0 or -errno. */
int store_op(const struct server *s, struct job *j);

/* -------------------------------------------------------------------- qp.c */

/* Look for a NIC, if the options allow it.  Return 0, or -errno with a sentence if they require
 * one. */
int qp_begin(struct server *s);
/* Log which NIC is used, if there is one. */
void qp_say(const struct server *s);
/* Return WIRE_FEATURE_RDMA if the connection may use RDMA, else 0. */
uint64_t qp_features(struct conn *c);
/* Return false if the request needs RDMA and the connection does not have it. */
bool qp_may(const struct conn *c, const struct wire_request *q);
/* Handle a WIRE_RDMA.  Return true if a worker must create the queue pair; false if the request was
 * answered. */
bool qp_ask(struct conn *c, struct job *j, const uint8_t *payload);
/* Create the queue pair, on any thread.  Return 0 or -errno. */
int qp_make(struct job *j);
/* Take over the new queue pair, or set the reply's error.  Called by the loop. */
void qp_join(struct job *j);
/* Give the job a registered slot.  Return false if all are in use. */
bool qp_room(struct job *j);
void qp_room_free(struct job *j);
/* Handle a request that moves bytes. */
void qp_request(struct job *j, const uint8_t *payload);
/* Let the NIC move the bytes of a read, followed by the reply. */
void qp_answer(struct job *j);
/* Handle completions.  Return true if memory was freed.  Kills the connection if the NIC failed. */
bool qp_turn(struct conn *c);
/* Return true if the device has something to complete, or has failed. */
bool qp_is_busy(const struct conn *c);
/* Let a worker end the queue pair, and forget the jobs that the device had. */
void qp_stop(struct conn *c);
/* Let a worker free the connection's RDMA state, when no worker has a job of the connection.
 * Return true if no such state is left. */
bool qp_end(struct conn *c);
/* Let a worker free an RDMA connection that was created, but that no connection took. */
void qp_forget(struct conn *c, struct rdma *r);
/* End a queue pair, or free all of an RDMA connection; on a worker, because this can take long. */
void qp_work(struct rdma *r);
/* Account for an RDMA connection whose qp_work() has ended. */
void qp_ended(struct rdma *r);

/* ----------------------------------------------------------------- hello.c */

void hello_take(struct conn *c, struct job *j, const uint8_t *payload);
/* Answer the hello, unless requests of an older connection still run. */
void hello_continue(struct conn *c);

/* ------------------------------------------------------------------ rate.c */

/* Attach a connection to its client, once its key is known.  Return false if out of memory. */
bool rate_join(struct conn *c);
void rate_leave(struct conn *c);
/* Return the now_ns() when the next request may start; 0: now. */
uint64_t rate_wait(const struct conn *c);
void rate_spend(struct conn *c, uint64_t bytes);
/* Free clients that have no connection and a full budget. */
void rate_sweep(struct server *s, uint64_t now);

/* --------------------------------------------------------------- metrics.c */

/* Write all metrics in Prometheus' text format, allocated; NULL if out of memory. */
char *serve_metrics_text(struct server *s, size_t *ret_len);
/* Handle a failed accept4(2). If descriptors or memory are exhausted, listeners are polled again at
 * the next tick. */
void server_accept_failed(struct server *s);
void scrape_accept(struct server *s);
/* Continue a metrics connection after an event or a tick. */
void scrape_turn(struct server *s, struct scrape *sc);
void scrape_close(struct server *s, struct scrape *sc);

/* ------------------------------------------------------------------- job.c */

/* Create a job, and charge its memory if it is a client's request.  Return NULL if out of
 * memory. */
struct job *job_new(struct conn *c, const struct wire_request *q, uint32_t size);
/* Return true if the payload begins with a name. */
bool job_has_name(const struct job *j);
/* Copy the names from the payload.  Return 0; -EINVAL for an illegal name; -ENOMEM. */
int job_take_names(struct job *j, const uint8_t *payload);
void job_free(struct job *j);

struct handle *handle_of(const struct conn *c, uint32_t nr);
/* Return a free handle number, or 0. */
uint32_t handle_room(struct conn *c);
void handle_unref(struct conn *c, struct handle *h);

/* ----------------------------------------------------------------- reply.c */

/* Count a reply and queue it; the connection's turn sends it. */
void reply_queue(struct job *j);
void reply_queue_err(struct job *j, int err);
/* Send the reply of a read, on a worker, unless another thread is sending: the loop sends the rest.
 * The job keeps the connection's socket open. */
void reply_send_by_worker(struct job *j);
/* A worker has sent a reply, or a part of it: make the loop the sender, which sends the rest before
 * all other replies.  A failed send ends the connection. */
void reply_take_over(struct job *j);
/* Send what can be sent now.  Return false if the client is gone.  While a worker sends, nothing is
 * sent here: the loop takes the connection's turn again when the worker's job is back. */
bool reply_send_some(struct conn *c);
/* Return true if the kernel has accepted all replies.  Called by the loop. */
bool reply_all_sent(const struct conn *c);
/* Return true if replies wait for the client to take earlier ones.  A worker that sends never
 * waits. */
bool reply_is_stalled(const struct conn *c);
/* Make the loop the sender.  Return false if a worker is. */
bool reply_loop_sends(struct conn *c);
/* The loop stops being the sender if it has nothing to send. */
void reply_end_sending(struct conn *c);

/* ------------------------------------------------------------------ conn.c */

/* Handle a complete message. payload: what follows the header; NULL for requests with data, which
 * is in the job's buffer. */
void conn_request(struct conn *c, struct job *j, const uint8_t *payload);
/* Write to the file what the NIC has read from the client; the job holds its handle. */
void conn_pulled(struct job *j);
void conn_new(struct server *s, int fd, const struct net_addr *addr);
/* Receive and send as much as possible now. */
void conn_turn(struct conn *c);
/* Drop the client.  Jobs that run in the pool continue; all others are freed. */
void conn_kill(struct conn *c, const char *why);
/* Handle a job that the pool has finished. */
void conn_job_done(struct job *j);
/* Check a connection's timeouts; called once a second. */
void conn_tick(struct conn *c, uint64_t now);
/* Free dead connections without jobs in the pool, and answer hellos that waited for them. */
void conn_sweep(struct server *s);
/* Remove the jobs of a connection that no worker has begun, and return them as a list.
 * *ret_running: number of those that workers have now. */
struct job *pool_forget(struct server *s, struct conn *c, unsigned *ret_running);

#endif
