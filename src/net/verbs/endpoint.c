/* SPDX-License-Identifier: MIT */
/*
 * A request has a number, which is its work request's wr_id, and a slot in a ring.  Only some
 * requests are signalled: one per quarter of the slots, and the last one of each post.  The queue
 * completes in order, so a completion implies that all earlier requests are done.  Slots are
 * counted here, because not every device rejects posts to a full queue (rdma_rxe takes up to twice
 * the agreed depth).
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/log.h"
#include "net/verbs/blob.h"
#include "net/verbs/endpoint.h"

#define SLOTS_DEFAULT 128u
#define DEADLINE_MS_DEFAULT 10000u
#define RECV_BIT (UINT64_C(1) << 63) /* flag in wr_id: a receive buffer */
#define DRAIN_ID (UINT64_C(1) << 62) /* flag in wr_id: the request of endpoint_drain() */
#define POLL_MAX 16
#define EVENTS_MAX 64u /* events acknowledged together */

struct request {
	uint64_t id;
	enum endpoint_op op;
	uint32_t len;
	uint32_t status;
};

struct endpoint {
	struct nic_domain *domain;
	struct nic *nic;
	struct vb_comp_channel *channel; /* NULL if created without events */
	struct vb_cq *cq;
	struct vb_qp *qp;
	struct endpoint_times times;
	struct blob own;
	uint32_t send_slots, recv_slots, signal_every;
	bool connected, stopped;
	bool has_reason;      /* the caller stopped the endpoint, or was told of a failure */
	bool lost;            /* the queue pair is destroyed, and all requests have results */
	_Atomic bool failed;  /* the kernel reported that the queue pair failed */
	uint64_t deadline_ns; /* twice the option's deadline: some devices report no failure */
	uint64_t waits;       /* now_ns() of the last progress while requests are posted */
	unsigned unacked;     /* events not yet acknowledged */
	unsigned unsignalled;
	struct request *sends, *recvs; /* rings of send_slots and recv_slots entries */
	/* Counts of requests: posted; known to be over; reported to the caller. */
	uint64_t posted, over, told;
	uint64_t recv_posted, recv_told;
	struct vb_send_wr *wrs; /* send_slots entries in wrs and in sges */
	struct vb_sge *sges;
	struct endpoint_stats st;
};

/* -------------------------------------------------------------------- times */

/* Microseconds for the codes 1 to 31 of min_rnr_timer; code 0 means 655.36 ms. */
static const uint32_t rnr_us[] = { 0,     10,    20,    30,     40,     60,     80,     120,
				   160,   240,   320,   480,    640,    960,    1280,   1920,
				   2560,  3840,  5120,  7680,   10240,  15360,  20480,  30720,
				   40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520 };

struct endpoint_times endpoint_times(uint32_t deadline_ms)
{
	struct endpoint_times t = {
		.timeout = 8, .retry_cnt = 6, .min_rnr_timer = 1, .rnr_retry = 6
	};
	uint64_t us = (uint64_t)deadline_ms * 1000;

	/* Each of seven attempts takes up to four times 4.096 us * 2^timeout. */
	while (t.timeout < 31 && 7 * 4 * ((UINT64_C(4096) << (t.timeout + 1)) / 1000) <= us)
		t.timeout++;
	while (t.min_rnr_timer < 31 && 7 * (uint64_t)rnr_us[t.min_rnr_timer + 1] <= us / 2)
		t.min_rnr_timer++;
	return t;
}

/* ------------------------------------------------------------ making, ending */

static int failed_call(const struct endpoint *ep, const char *what, int err)
{
	err = err ? err : EIO;
	return err_set(err, "%s: %s failed: %s%s", ep->nic->name, what, err_name(err),
		       err == ENOMEM ? "; raise RLIMIT_MEMLOCK (ulimit -l) or use fewer slots"
				     : "");
}

static int make_queues(struct endpoint *ep, bool events)
{
	uint32_t depth = ep->send_slots + ep->recv_slots + 1;
	struct vb_qp_init_attr a = {
		.cap = { ep->send_slots + 1, ep->recv_slots, 1, 1, 0 },
		.qp_type = VB_QPT_RC,
		.qp_context = ep,
	};
	int flags;

	errno = 0;
	if (events) {
		ep->channel = vb.ibv_create_comp_channel(ep->nic->ctx);
		if (!ep->channel)
			return failed_call(ep, "making a completion channel", errno);
		flags = fcntl(ep->channel->fd, F_GETFL);
		if (flags < 0 || fcntl(ep->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0)
			return failed_call(ep, "making a completion channel", errno);
	}
	ep->cq = vb.ibv_create_cq(ep->nic->ctx, (int)depth, NULL, ep->channel, 0);
	if (!ep->cq)
		return failed_call(ep, "making a completion queue", errno);
	a.send_cq = a.recv_cq = ep->cq;
	ep->qp = vb.ibv_create_qp(ep->domain->pd, &a);
	if (!ep->qp)
		return failed_call(ep, "making a queue pair", errno);
	return 0;
}

static int modify(struct endpoint *ep, struct vb_qp_attr *a, int mask, const char *what)
{
	int err = vb.ibv_modify_qp(ep->qp, a, mask | VB_QP_STATE);

	return err ? failed_call(ep, what, err) : 0;
}

/* Move the queue pair to INIT, which allows receive buffers to be posted. */
static int begin(struct endpoint *ep)
{
	struct vb_qp_attr a = {
		.qp_state = VB_QPS_INIT,
		.port_num = ep->nic->port,
		.qp_access_flags = VB_ACCESS_REMOTE_READ | VB_ACCESS_REMOTE_WRITE,
	};

	return modify(ep, &a, VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
		      "beginning a queue pair");
}

static int endpoint_describe(struct endpoint *ep, uint32_t deadline_ms)
{
	const struct nic *n = ep->nic;
	struct {
		uint64_t number;
		uint32_t psn;
	} drawn;

	if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
		return err_set(EIO, "the kernel gives no random bytes");

	ep->own = (struct blob){
		.qpn = ep->qp->qp_num,
		.lid = n->ethernet ? 0 : n->lid,
		.mtu = (uint8_t)n->mtu,
		.link = n->ethernet ? VB_LINK_ETHERNET : VB_LINK_INFINIBAND,
		.deadline_ms = deadline_ms,
		.rd_atomic = (uint8_t)MAX(n->rd_atomic, 1),
	};
	ep->own.number = drawn.number;
	ep->own.psn = drawn.psn & 0xffffff;
	memcpy(ep->own.gid, n->gid.gid.raw, sizeof(ep->own.gid));
	return 0;
}

static void endpoint_freep(struct endpoint **ep)
{
	endpoint_free(*ep);
}

static int slots_of(const struct nic *n, uint32_t asked, uint32_t *ret)
{
	uint32_t most = MIN(ENDPOINT_SLOTS_MAX, n->max_wr - 1);

	if (asked > most)
		return err_set(EINVAL, "an endpoint of %s has at most %u slots, not %u", n->name,
			       most, asked);
	*ret = asked ? asked : MIN(SLOTS_DEFAULT, most);
	return 0;
}

int endpoint_new(struct nic_domain *d, const struct endpoint_opts *o, struct endpoint **ret)
{
	_cleanup_(endpoint_freep) struct endpoint *ep = calloc(1, sizeof(*ep));
	uint32_t deadline_ms = o->deadline_ms ? o->deadline_ms : DEADLINE_MS_DEFAULT;
	int r;

	if (!ep)
		return err_set(ENOMEM, "out of memory");
	ep->domain = d;
	ep->nic = d->nic;
	r = slots_of(ep->nic, o->send_slots, &ep->send_slots);
	if (r == 0)
		r = slots_of(ep->nic, o->recv_slots, &ep->recv_slots);
	if (r < 0)
		return r;
	ep->signal_every = MAX(ep->send_slots / 4, 1u);
	ep->times = endpoint_times(deadline_ms);
	ep->deadline_ns = 2 * deadline_ms * NSEC_PER_MSEC;
	ep->sends = calloc(ep->send_slots, sizeof(*ep->sends));
	ep->recvs = calloc(ep->recv_slots, sizeof(*ep->recvs));
	ep->wrs = calloc(ep->send_slots, sizeof(*ep->wrs));
	ep->sges = calloc(ep->send_slots, sizeof(*ep->sges));
	if (!ep->sends || !ep->recvs || !ep->wrs || !ep->sges)
		return err_set(ENOMEM, "out of memory");
	r = make_queues(ep, o->events);
	if (r == 0)
		r = begin(ep);
	if (r == 0)
		r = endpoint_describe(ep, deadline_ms);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(ep);
	return 0;
}

static void endpoint_take_events(struct endpoint *ep)
{
	struct vb_cq *cq;
	void *arg;

	while (ep->channel && vb.ibv_get_cq_event(ep->channel, &cq, &arg) == 0)
		if (++ep->unacked == EVENTS_MAX) {
			vb.ibv_ack_cq_events(ep->cq, ep->unacked);
			ep->unacked = 0;
		}
}

/* Destroy the queue pair first: after that the device does nothing for the connection.  Destroying
 * a completion queue requires that its events are acknowledged. */
void endpoint_free(struct endpoint *ep)
{
	struct vb_qp_attr a = { .qp_state = VB_QPS_ERR };

	if (!ep)
		return;
	if (ep->qp) {
		(void)vb.ibv_modify_qp(ep->qp, &a, VB_QP_STATE);
		(void)vb.ibv_destroy_qp(ep->qp);
	}
	if (ep->cq) {
		endpoint_take_events(ep);
		if (ep->unacked)
			vb.ibv_ack_cq_events(ep->cq, ep->unacked);
		(void)vb.ibv_destroy_cq(ep->cq);
	}
	if (ep->channel)
		(void)vb.ibv_destroy_comp_channel(ep->channel);
	free(ep->sends);
	free(ep->recvs);
	free(ep->wrs);
	free(ep->sges);
	free(ep);
}

/* --------------------------------------------------------------- connecting */

void endpoint_blob(const struct endpoint *ep, uint8_t ret[ENDPOINT_BLOB])
{
	_Static_assert(ENDPOINT_BLOB == BLOB_LEN, "one size");
	blob_put(&ep->own, ret);
}

static void endpoint_address(const struct endpoint *ep, const struct blob *peer,
			     struct vb_ah_attr *ret)
{
	const struct nic *n = ep->nic;

	ret->port_num = n->port;
	ret->dlid = peer->lid;
	/* Within an InfiniBand subnet, named by the first half of the GID, the LID is enough. */
	ret->is_global = n->ethernet || memcmp(peer->gid, n->gid.gid.raw, 8) != 0;
	if (!ret->is_global)
		return;
	memcpy(ret->grh.dgid.raw, peer->gid, sizeof(peer->gid));
	ret->grh.sgid_index = (uint8_t)n->gid.index;
	ret->grh.hop_limit = 64;
}

static int ready_to_receive(struct endpoint *ep, const struct blob *peer)
{
	struct vb_qp_attr a = {
		.qp_state = VB_QPS_RTR,
		.path_mtu = MIN(ep->own.mtu, peer->mtu),
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = ep->own.rd_atomic,
		.min_rnr_timer = ep->times.min_rnr_timer,
	};

	endpoint_address(ep, peer, &a.ah_attr);
	return modify(ep, &a,
		      VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN |
			      VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER,
		      "connecting to the peer's address");
}

static int ready_to_send(struct endpoint *ep, const struct blob *peer)
{
	struct vb_qp_attr a = {
		.qp_state = VB_QPS_RTS,
		.timeout = ep->times.timeout,
		.retry_cnt = ep->times.retry_cnt,
		.rnr_retry = ep->times.rnr_retry,
		.sq_psn = ep->own.psn,
		.max_rd_atomic = MIN(ep->own.rd_atomic, peer->rd_atomic),
	};

	return modify(ep, &a,
		      VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_SQ_PSN |
			      VB_QP_MAX_QP_RD_ATOMIC,
		      "connecting");
}

int endpoint_connect(struct endpoint *ep, const uint8_t *blob, size_t len)
{
	struct blob peer;
	int r;

	if (ep->connected || ep->stopped)
		return err_set(EISCONN, "the endpoint was connected before; make another one");
	r = blob_get(blob, len, &peer);
	if (r == -EPROTONOSUPPORT)
		return err_set(r, "the peer's RDMA endpoint is of another version; use the same "
				  "release on both sides");
	if (r < 0)
		return err_set(r, "what the peer sent describes no RDMA endpoint");
	if (peer.link != ep->own.link)
		return err_set(EPROTOTYPE,
			       "%s is on %s and the peer's device is not; choose devices of one "
			       "network",
			       ep->nic->name, ep->nic->ethernet ? "Ethernet" : "InfiniBand");
	r = ready_to_receive(ep, &peer);
	if (r == 0)
		r = ready_to_send(ep, &peer);
	if (r < 0)
		return r;
	ep->connected = true;
	return 0;
}

/* ------------------------------------------------------------------ posting */

unsigned endpoint_room(const struct endpoint *ep)
{
	return ep->send_slots - (unsigned)(ep->posted - ep->told);
}

static int not_connected(const struct endpoint *ep)
{
	return err_set(ENOTCONN, "the connection of %s %s", ep->nic->name,
		       ep->stopped ? "has ended; make a new one" : "was not made yet");
}

static bool is_valid(const struct endpoint *ep, const struct endpoint_io *io)
{
	return io->op <= ENDPOINT_SEND && io->len <= MIN(ep->nic->max_msg_len, (uint32_t)INT_MAX) &&
	       (io->len || io->op == ENDPOINT_SEND);
}

static void endpoint_fill(struct endpoint *ep, const struct endpoint_io *io, unsigned at, bool last)
{
	static const uint32_t opcodes[] = {
		[ENDPOINT_WRITE] = VB_WR_RDMA_WRITE,
		[ENDPOINT_READ] = VB_WR_RDMA_READ,
		[ENDPOINT_SEND] = VB_WR_SEND,
	};
	bool signalled = last || ++ep->unsignalled >= ep->signal_every;

	ep->sges[at] = (struct vb_sge){ io->local, io->len, io->lkey };
	ep->wrs[at] = (struct vb_send_wr){
		.wr_id = ep->posted + at,
		.next = last ? NULL : &ep->wrs[at + 1],
		.sg_list = &ep->sges[at],
		.num_sge = io->len ? 1 : 0,
		.opcode = opcodes[io->op],
		.send_flags = signalled ? VB_SEND_SIGNALED : 0,
		.wr.rdma = { io->remote, io->rkey },
	};
	if (signalled) {
		ep->unsignalled = 0;
		ep->st.signalled++;
	}
	ep->sends[(ep->posted + at) % ep->send_slots] =
		(struct request){ .id = io->id, .op = io->op, .len = io->len };
}

static void endpoint_count(struct endpoint *ep, const struct endpoint_io *v, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		ep->st.writes += v[i].op == ENDPOINT_WRITE;
		ep->st.reads += v[i].op == ENDPOINT_READ;
		ep->st.sends += v[i].op == ENDPOINT_SEND;
	}
}

int endpoint_post(struct endpoint *ep, const struct endpoint_io *v, unsigned nr)
{
	unsigned take = MIN(nr, endpoint_room(ep));
	struct vb_send_wr *bad = NULL;
	int err;

	if (!ep->connected || ep->stopped)
		return not_connected(ep);
	for (unsigned i = 0; i < nr; i++)
		if (!is_valid(ep, &v[i]))
			return err_set(EINVAL, "request %u of %u has no valid operation or length",
				       i, nr);
	if (!take)
		return 0;
	for (unsigned i = 0; i < take; i++)
		endpoint_fill(ep, &v[i], i, i == take - 1);
	ep->st.doorbells++;
	err = ep->nic->ctx->ops.post_send(ep->qp, ep->wrs, &bad);
	if (err) {
		take = bad ? (unsigned)(bad - ep->wrs) : 0;
		(void)failed_call(ep, "posting a request", err);
	}
	endpoint_count(ep, v, take);
	if (ep->posted == ep->over)
		ep->waits = now_ns();
	ep->posted += take;
	if (err) {
		endpoint_stop(ep); /* the return value reports the failure */
		return take ? (int)take : -EIO;
	}
	return (int)take;
}

int endpoint_recv(struct endpoint *ep, uint64_t local, uint32_t lkey, uint32_t len, uint64_t id)
{
	struct vb_sge sge = { local, len, lkey };
	struct vb_recv_wr wr = {
		.wr_id = RECV_BIT | ep->recv_posted,
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct vb_recv_wr *bad;
	int err;

	if (ep->stopped)
		return not_connected(ep);
	if (ep->recv_posted - ep->recv_told == ep->recv_slots)
		return err_set(EAGAIN, "all %u buffers for messages are given", ep->recv_slots);
	err = ep->nic->ctx->ops.post_recv(ep->qp, &wr, &bad);
	if (err)
		return failed_call(ep, "giving a buffer for a message", err);
	ep->recvs[ep->recv_posted++ % ep->recv_slots] = (struct request){ .id = id,
									  .op = ENDPOINT_RECV };
	ep->st.recvs++;
	return 0;
}

/*
 * Post a request after all others.  In the error state the device flushes it at once, and its
 * completion shows that all earlier requests are over.  Otherwise nobody would know of unsignalled
 * requests that succeeded.
 */
static void endpoint_drain(struct endpoint *ep)
{
	struct vb_send_wr wr = {
		.wr_id = DRAIN_ID | ep->posted,
		.opcode = VB_WR_RDMA_WRITE,
		.send_flags = VB_SEND_SIGNALED,
	};
	struct vb_send_wr *bad;
	int err = ep->nic->ctx->ops.post_send(ep->qp, &wr, &bad);

	if (err)
		log_warn("%s: requests of a connection that ended may stay without completion: %s, "
			 "ignoring",
			 ep->nic->name, err_name(err));
}

static void endpoint_halt(struct endpoint *ep)
{
	struct vb_qp_attr a = { .qp_state = VB_QPS_ERR };

	if (ep->stopped)
		return;
	ep->stopped = true;
	if (!ep->qp)
		return;
	(void)vb.ibv_modify_qp(ep->qp, &a, VB_QP_STATE);
	if (ep->connected)
		endpoint_drain(ep);
}

void endpoint_stop(struct endpoint *ep)
{
	ep->has_reason = true;
	endpoint_halt(ep);
}

void nic_queue_failed(void *arg)
{
	struct endpoint *ep = arg;

	if (ep)
		atomic_store(&ep->failed, true);
}

/*
 * Give up on a device that reports nothing.  Destroy the queue pair, so that the device accesses no
 * memory for the connection, and then give each request without completion a result.
 */
static void endpoint_lose(struct endpoint *ep, uint32_t status)
{
	if (ep->lost)
		return;
	log_warn("%s: a connection ended without completions: %s", ep->nic->name,
		 verbs_status_name(status));
	ep->lost = ep->stopped = true;
	(void)vb.ibv_destroy_qp(ep->qp);
	ep->qp = NULL;
	for (uint64_t i = ep->over; i < ep->posted; i++)
		ep->sends[i % ep->send_slots].status = status;
	ep->over = ep->posted;
	for (uint64_t i = ep->recv_told; i < ep->recv_posted; i++)
		ep->recvs[i % ep->recv_slots].status = VB_WC_WR_FLUSH_ERR;
}

/* -------------------------------------------------------------- completions */

static void sent(struct endpoint *ep, const struct vb_wc *wc)
{
	uint64_t nr = wc->wr_id & ~DRAIN_ID;

	if (wc->wr_id & DRAIN_ID) {
		ep->over = MAX(ep->over, nr);
		return;
	}
	ep->over = MAX(ep->over, nr + 1);
	ep->waits = now_ns();
	ep->sends[nr % ep->send_slots].status = wc->status;
}

static void endpoint_tell(struct endpoint *ep, const struct request *q, uint32_t len,
			  struct endpoint_done *ret)
{
	*ret = (struct endpoint_done){
		.id = q->id,
		.op = q->op,
		.res = q->status ? verbs_status_errno(q->status) : (int)len,
		.status = q->status,
	};
	if (!q->status)
		ep->st.bytes += len;
	/* If the peer's end failed, the device gives no reason; rdma_rxe often gives none at
	 * all. */
	if (q->status == VB_WC_WR_FLUSH_ERR && !ep->has_reason)
		ret->res = -EIO;
	ep->has_reason |= q->status != VB_WC_SUCCESS;
}

/* Report a receive buffer.  Receive buffers complete in order, like requests. */
static void received(struct endpoint *ep, const struct vb_wc *wc, struct endpoint_done *ret)
{
	struct request *q = &ep->recvs[ep->recv_told++ % ep->recv_slots];

	q->status = wc->status;
	endpoint_tell(ep, q, wc->byte_len, ret);
}

static unsigned tell_sent(struct endpoint *ep, struct endpoint_done *ret, unsigned max)
{
	unsigned n = 0;

	for (; n < max && ep->told < ep->over; n++) {
		const struct request *q = &ep->sends[ep->told++ % ep->send_slots];

		endpoint_tell(ep, q, q->len, &ret[n]);
	}
	return n;
}

/* After the queue pair was destroyed, report the receive buffers that got no message. */
static unsigned tell_lost(struct endpoint *ep, struct endpoint_done *ret, unsigned max)
{
	unsigned n = 0;

	for (; n < max && ep->lost && ep->recv_told < ep->recv_posted; n++)
		endpoint_tell(ep, &ep->recvs[ep->recv_told++ % ep->recv_slots], 0, &ret[n]);
	return n;
}

/* If no completion came, check whether the device still works. */
static void endpoint_look(struct endpoint *ep)
{
	if (ep->lost)
		return;
	nic_events(ep->nic);
	if (atomic_load(&ep->nic->dead))
		endpoint_lose(ep, VB_WC_FATAL_ERR);
	else if (atomic_load(&ep->failed))
		endpoint_halt(ep); /* this flushes all requests */
	if (!ep->lost && ep->over < ep->posted && now_ns() - ep->waits > ep->deadline_ns)
		endpoint_lose(ep, VB_WC_RETRY_EXC_ERR);
}

int endpoint_poll(struct endpoint *ep, struct endpoint_done *ret, unsigned max)
{
	unsigned n = tell_sent(ep, ret, max);
	struct vb_wc wc[POLL_MAX];
	bool failed = false;
	int nr = 1;

	while (n < max && nr > 0 && !ep->lost) {
		nr = ep->nic->ctx->ops.poll_cq(ep->cq, (int)MIN(max - n, (unsigned)POLL_MAX), wc);
		for (int i = 0; i < nr; i++) {
			failed = failed || wc[i].status;
			if (wc[i].wr_id & RECV_BIT)
				received(ep, &wc[i], &ret[n++]);
			else
				sent(ep, &wc[i]);
		}
		n += tell_sent(ep, ret + n, max - n);
	}
	if (nr < 0)
		endpoint_lose(ep, VB_WC_GENERAL_ERR);
	/* A failed request ends the connection: the device would flush all later posts. */
	if (failed)
		endpoint_halt(ep);
	if (!n)
		endpoint_look(ep);
	n += tell_sent(ep, ret + n, max - n);
	n += tell_lost(ep, ret + n, max - n);
	return (int)n;
}

int endpoint_fd(const struct endpoint *ep)
{
	return ep->channel ? ep->channel->fd : -1;
}

int endpoint_arm(struct endpoint *ep)
{
	int err;

	if (!ep->channel)
		return err_set(EINVAL, "the endpoint was made without events");
	if (ep->lost)
		return 0; /* poll reports the rest without waiting */
	endpoint_take_events(ep);
	err = ep->nic->ctx->ops.req_notify_cq(ep->cq, 0);
	return err ? failed_call(ep, "asking for an event", err) : 0;
}

void endpoint_stats(const struct endpoint *ep, struct endpoint_stats *ret)
{
	*ret = ep->st;
}
