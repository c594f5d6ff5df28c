/* SPDX-License-Identifier: MIT */
/*
 * One end of a reliable connection: one-sided reads and writes, and messages.
 *
 *	server and client		each its own
 *	endpoint_new(domain, opts)	queues that can be connected
 *	endpoint_blob(ep, blob)		what the peer has to know; goes there by any channel
 *	endpoint_connect(ep, peer's)	both ends have done that before the first request
 *	endpoint_post(ep, ops, nr)	requests, in order; returns how many were taken
 *	endpoint_recv(ep, ...)		a buffer for a message of the peer
 *	endpoint_poll(ep, done, max)	each request completes once, in the order of posting
 *	endpoint_free(ep)
 *
 * The first request that fails ends the connection, as RDMA has it: it completes with its reason,
 * and those behind it with -ECANCELED, as do the buffers for messages.  A new connection needs new
 * endpoints.  The memory of a request stays registered and unchanged until it completes.
 *
 * An endpoint is used by one thread at a time.  Nothing here waits.
 */
#ifndef PST_VERBS_ENDPOINT_H
#define PST_VERBS_ENDPOINT_H

#include "net/verbs/mr.h"

struct endpoint;

#define ENDPOINT_BLOB 64u /* bytes */
#define ENDPOINT_SLOTS_MAX 4096u

struct endpoint_opts {
	uint32_t send_slots;  /* requests posted and not completed; 0: 128 */
	uint32_t recv_slots;  /* buffers for messages; 0: 128 */
	uint32_t deadline_ms; /* a peer that does not answer is given up by then; 0: 10000 */
	bool events;          /* endpoint_fd() is there */
};

enum endpoint_op {
	ENDPOINT_WRITE, /* to the peer's memory */
	ENDPOINT_READ,  /* from the peer's memory */
	ENDPOINT_SEND,  /* a message, into the first buffer that the peer gave */
	ENDPOINT_RECV,  /* a completion alone: of endpoint_recv() */
};

/* One contiguous range at either side. */
struct endpoint_io {
	enum endpoint_op op;
	uint32_t len;   /* of a read or write at least 1 */
	uint64_t local; /* address, as struct mem_reg has it */
	uint32_t lkey;
	uint64_t remote; /* READ and WRITE: address that the peer told, and its key */
	uint32_t rkey;
	uint64_t id; /* the caller's own */
};

struct endpoint_done {
	uint64_t id;
	enum endpoint_op op;
	int res;         /* bytes, or -errno: verbs_status_errno() */
	uint32_t status; /* VB_WC_*, for people */
};

struct endpoint_stats {
	uint64_t writes, reads, sends, recvs; /* posted */
	uint64_t doorbells, signalled;
	uint64_t bytes; /* of requests that succeeded */
};

/* How a deadline becomes the numbers of a queue pair. */
struct endpoint_times {
	uint8_t timeout;       /* of an answer: 4.096 us * 2^timeout */
	uint8_t retry_cnt;     /* 6: 7 is endless on rdma_rxe */
	uint8_t min_rnr_timer; /* code of the pause before a message is sent again */
	uint8_t rnr_retry;     /* 6: 7 is endless everywhere */
};

/*
 * A device may wait up to four times as long as it was told for an answer.  All attempts together
 * end before the deadline, but for deadlines below 30 ms.
 */
struct endpoint_times endpoint_times(uint32_t deadline_ms);

/* The domain stays until endpoint_free(). */
int endpoint_new(struct nic_domain *d, const struct endpoint_opts *o, struct endpoint **ret);

/* Stop what is under way, and end the queues.  When the call returns, the device touches no memory
 * for this connection any more.  NULL is allowed. */
void endpoint_free(struct endpoint *ep);

void endpoint_blob(const struct endpoint *ep, uint8_t ret[ENDPOINT_BLOB]);

/*
 * Connect to the endpoint that a blob describes.  Buffers for messages may be given before.
 *
 * Return: 0; -EBADMSG for bytes that are no such blob; -EPROTONOSUPPORT for one of another version;
 * -EPROTOTYPE where one end is InfiniBand and the other Ethernet; -EISCONN; what the device says.
 */
int endpoint_connect(struct endpoint *ep, const uint8_t *blob, size_t len);

/*
 * Post requests with one doorbell.
 *
 * Return: how many of them were taken, 0 where all slots are in use; -ENOTCONN before the
 * connection and after it failed; -EINVAL, and nothing is posted; -EIO where the device refused the
 * first one.
 */
int endpoint_post(struct endpoint *ep, const struct endpoint_io *v, unsigned nr);

/* Give a buffer for a message.  0; -EAGAIN where all slots are in use; -ENOTCONN. */
int endpoint_recv(struct endpoint *ep, uint64_t local, uint32_t lkey, uint32_t len, uint64_t id);

/*
 * Return the number of completions, up to max.  Requests and messages each keep their order.
 *
 * A device that fails, is taken away, or completes nothing for twice the deadline of the options
 * ends the connection here: the queue pair is destroyed, and each request completes.  Polled often
 * enough, that is the bound of every request.
 */
int endpoint_poll(struct endpoint *ep, struct endpoint_done *ret, unsigned max);

/* Free slots for requests. */
unsigned endpoint_room(const struct endpoint *ep);

/* A descriptor that becomes readable with the next completion after endpoint_arm(). */
int endpoint_fd(const struct endpoint *ep);
/* Ask for that.  Poll again afterwards: a completion may have come before.  0, or -errno. */
int endpoint_arm(struct endpoint *ep);

/* Stop at once: what is posted completes with -ECANCELED. */
void endpoint_stop(struct endpoint *ep);

void endpoint_stats(const struct endpoint *ep, struct endpoint_stats *ret);

#endif
