/* SPDX-License-Identifier: MIT */
/*
 * One end of a reliable connection: one-sided reads and writes, and messages.
 *
 *	server and client		each for its own end
 *	endpoint_new(domain, opts)	create queues that can be connected
 *	endpoint_blob(ep, blob)		describe this end; send that to the peer by any channel
 *	endpoint_connect(ep, peer's)	connect; both ends must do so before the first request
 *	endpoint_post(ep, ops, nr)	post requests, in order; returns how many were taken
 *	endpoint_recv(ep, ...)		post a buffer for a message of the peer
 *	endpoint_poll(ep, done, max)	reap; each request completes once, in posting order
 *	endpoint_free(ep)
 *
 * The first request that fails ends the connection, as RDMA prescribes: it completes with its
 * reason, and later requests and receive buffers complete with -ECANCELED.  If no request of this
 * end failed, such as when the peer's end did, the first to complete has -EIO instead.  A new
 * connection needs new endpoints.  The memory of a request must stay registered and unchanged until
 * it completes.
 *
 * An endpoint is used by one thread at a time.  No call here waits.
 */
#ifndef PST_VERBS_ENDPOINT_H
#define PST_VERBS_ENDPOINT_H

#include "net/verbs/mr.h"

struct endpoint;

#define ENDPOINT_BLOB 64u /* bytes */
#define ENDPOINT_SLOTS_MAX 4096u

struct endpoint_opts {
	uint32_t send_slots;  /* maximum requests in flight; 0: 128 */
	uint32_t recv_slots;  /* maximum receive buffers; 0: 128 */
	uint32_t deadline_ms; /* ms until an unresponsive peer is given up; 0: 10000 */
	bool events;          /* make endpoint_fd() available */
};

enum endpoint_op {
	ENDPOINT_WRITE, /* write to the peer's memory */
	ENDPOINT_READ,  /* read from the peer's memory */
	ENDPOINT_SEND,  /* send a message into the peer's first receive buffer */
	ENDPOINT_RECV,  /* only in completions: a message in a buffer of endpoint_recv() */
};

/* One transfer between contiguous ranges. */
struct endpoint_io {
	enum endpoint_op op;
	uint32_t len;   /* bytes; at least 1 for READ and WRITE */
	uint64_t local; /* local address, as in struct mem_reg */
	uint32_t lkey;
	uint64_t remote; /* READ and WRITE: the peer's address; rkey is its key */
	uint32_t rkey;
	uint64_t id; /* chosen by the caller, repeated in the completion */
};

struct endpoint_done {
	uint64_t id;
	enum endpoint_op op;
	int res;         /* bytes, or the -errno of verbs_status_errno() */
	uint32_t status; /* VB_WC_*, for messages */
};

struct endpoint_stats {
	uint64_t writes, reads, sends, recvs; /* requests posted */
	uint64_t doorbells, signalled;
	uint64_t bytes; /* bytes of successful requests */
};

/* A deadline translated into parameters of a queue pair. */
struct endpoint_times {
	uint8_t timeout;       /* wait for an answer: 4.096 us * 2^timeout */
	uint8_t retry_cnt;     /* 6, because 7 means endless on rdma_rxe */
	uint8_t min_rnr_timer; /* code of the pause before a message is resent */
	uint8_t rnr_retry;     /* 6, because 7 means endless on every device */
};

/*
 * Compute parameters so that all attempts end before the deadline, if that is at least 30 ms.  A
 * device may wait up to four times the given timeout for an answer.
 */
struct endpoint_times endpoint_times(uint32_t deadline_ms);

/* Create an endpoint.  The domain must outlive the endpoint. */
int endpoint_new(struct nic_domain *d, const struct endpoint_opts *o, struct endpoint **ret);

/* Stop requests in flight and destroy the queues.  After this call the device accesses no memory
 * for the connection.  NULL is ignored. */
void endpoint_free(struct endpoint *ep);

void endpoint_blob(const struct endpoint *ep, uint8_t ret[ENDPOINT_BLOB]);

/*
 * Connect to the endpoint that a blob describes.  Receive buffers may be posted before.
 *
 * Return: 0; -EBADMSG for a malformed blob; -EPROTONOSUPPORT for another version; -EPROTOTYPE if
 * one end is InfiniBand and the other Ethernet; -EISCONN; or the device's error.
 */
int endpoint_connect(struct endpoint *ep, const uint8_t *blob, size_t len);

/*
 * Post requests with one doorbell.
 *
 * Return: how many were taken, 0 if all slots are in use; -ENOTCONN before the connection and after
 * it failed; -EINVAL, with nothing posted; -EIO if the device refused the first one.
 */
int endpoint_post(struct endpoint *ep, const struct endpoint_io *v, unsigned nr);

/* Post a receive buffer.  Return 0; -EAGAIN if all slots are in use; -ENOTCONN. */
int endpoint_recv(struct endpoint *ep, uint64_t local, uint32_t lkey, uint32_t len, uint64_t id);

/*
 * Return the number of completions, up to max.  Requests and messages each keep their order.
 *
 * This call ends the connection if the device fails, is removed, or completes nothing for twice the
 * deadline: the queue pair is destroyed, and each request completes.  So every request ends within
 * that time, if the caller polls often enough.
 */
int endpoint_poll(struct endpoint *ep, struct endpoint_done *ret, unsigned max);

/* Return the number of free slots for requests. */
unsigned endpoint_room(const struct endpoint *ep);

/* Return a descriptor that becomes readable at the next completion after endpoint_arm(). */
int endpoint_fd(const struct endpoint *ep);
/* Arm endpoint_fd() once.  Poll again afterwards, because a completion may have come before.
 * Return 0 or -errno. */
int endpoint_arm(struct endpoint *ep);

/* Stop at once: requests in flight complete with -ECANCELED. */
void endpoint_stop(struct endpoint *ep);

void endpoint_stats(const struct endpoint *ep, struct endpoint_stats *ret);

#endif
