/* SPDX-License-Identifier: MIT */
/* Execution and completion of work requests of the libibverbs stub. */
#include <stdio.h>

#include "stub/ibverbs_stub_int.h"

static uint64_t now(void)
{
	return now_ns();
}

/* Translate a code of min_rnr_timer to nanoseconds. */
static uint64_t rnr_ns(unsigned code)
{
	static const uint32_t us[32] = { 655360, 10,     20,     30,    40,    60,    80,
					 120,    160,    240,    320,   480,   640,   960,
					 1280,   1920,   2560,   3840,  5120,  7680,  10240,
					 15360,  20480,  30720,  40960, 61440, 81920, 122880,
					 163840, 245760, 327680, 491520 };

	return UINT64_C(1000) * us[code % 32];
}

static void complete(struct stub_fabric *f, const struct stub_fqp *q, const struct stub_wqe *e,
		     uint32_t status, uint32_t len)
{
	static const uint32_t opcodes[] = {
		[VB_WR_RDMA_WRITE] = VB_WC_RDMA_WRITE,
		[VB_WR_SEND] = VB_WC_SEND,
		[VB_WR_RDMA_READ] = VB_WC_RDMA_READ,
	};
	struct stub_cqe cqe = {
		.wc = { .wr_id = e->wr_id,
			.status = status,
			.opcode = opcodes[e->opcode],
			.byte_len = len,
			.qp_num = stub_qpn(f, q) },
		.send = true,
		.generation = q->generation,
		.seq = e->seq,
	};

	if (status || q->sig_all || e->flags & VB_SEND_SIGNALED)
		stub_cq_put(f, q->send_cq, &cqe, false);
}

static void complete_recv(struct stub_fabric *f, const struct stub_fqp *q, const struct stub_wqe *e,
			  uint32_t status, uint32_t len, bool solicited)
{
	struct stub_cqe cqe = {
		.wc = { .wr_id = e->wr_id,
			.status = status,
			.opcode = VB_WC_RECV,
			.byte_len = len,
			.qp_num = stub_qpn(f, q) },
	};

	stub_cq_put(f, q->recv_cq, &cqe, solicited);
}

void stub_qp_error(struct stub_fabric *f, struct stub_fqp *q)
{
	q->state = VB_QPS_ERR;
	while (q->sq.head < q->sq.tail)
		complete(f, q, &q->sq.of[q->sq.head++ % STUB_WRS], VB_WC_WR_FLUSH_ERR, 0);
	while (q->rq.head < q->rq.tail)
		complete_recv(f, q, &q->rq.of[q->rq.head++ % STUB_WRS], VB_WC_WR_FLUSH_ERR, 0,
			      false);
}

/* Return the remote queue pair if it is connected to this one; else NULL. */
static struct stub_fqp *peer_of(struct stub_fabric *f, const struct stub_fqp *q)
{
	uint32_t i = q->attr.dest_qp_num - STUB_QPN0;
	struct stub_fqp *p = i < STUB_QPS ? &f->qps[i] : NULL;
	const struct vb_ah_attr *ah = &q->attr.ah_attr;

	if (!p || !p->pid || !stub_alive(p->pid) || f->port_down ||
	    (p->state != VB_QPS_RTR && p->state != VB_QPS_RTS) ||
	    p->attr.dest_qp_num != stub_qpn(f, q) || p->attr.rq_psn != q->attr.sq_psn)
		return NULL;
	if (ah->is_global ? !stub_gid_is(p->device, &ah->grh.dgid) : ah->dlid != p->device + 1)
		return NULL;
	return p;
}

static uint64_t bytes_of(const struct stub_wqe *e)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < e->nr_sges; i++)
		sum += e->sges[i].length;
	return sum;
}

/* Find the memory of a work request; return false if a key does not permit it. */
static bool resolve(struct stub_fabric *f, const struct stub_fqp *q, const struct stub_wqe *e,
		    uint32_t access, uint64_t at[STUB_SGES])
{
	for (uint32_t i = 0; i < e->nr_sges; i++)
		if (e->sges[i].length &&
		    stub_mr_find(f, q->pid, q->pd, e->sges[i].lkey, e->sges[i].addr,
				 e->sges[i].length, access, &at[i]) < 0)
			return false;
	return true;
}

/* Copy between the segments of e, a request of q, and one range of p. */
static int copy_range(const struct stub_fqp *q, const struct stub_wqe *e, const uint64_t *at,
		      const struct stub_fqp *p, uint64_t far, bool out)
{
	int r = 0;

	for (uint32_t i = 0; i < e->nr_sges && r == 0; far += e->sges[i++].length)
		r = out ? stub_copy(p->pid, far, q->pid, at[i], e->sges[i].length)
			: stub_copy(q->pid, at[i], p->pid, far, e->sges[i].length);
	return r;
}

/* Copy a message from the segments of e to those of the receive request. */
static int copy_message(const struct stub_fqp *q, const struct stub_wqe *e, const uint64_t *at,
			const struct stub_fqp *p, const struct stub_wqe *to, const uint64_t *to_at)
{
	uint32_t j = 0, used = 0;

	for (uint32_t i = 0; i < e->nr_sges; i++)
		for (uint32_t done = 0; done < e->sges[i].length;) {
			uint32_t n;

			while (used == to->sges[j].length) {
				j++;
				used = 0;
			}
			n = MIN(e->sges[i].length - done, to->sges[j].length - used);
			if (stub_copy(p->pid, to_at[j] + used, q->pid, at[i] + done, n) < 0)
				return -ESRCH;
			done += n;
			used += n;
		}
	return 0;
}

/* Complete the request with an error, and put its queue pair into the error state. */
static void fail_request(struct stub_fabric *f, struct stub_fqp *q, uint32_t status)
{
	complete(f, q, &q->sq.of[q->sq.head++ % STUB_WRS], status, 0);
	stub_qp_error(f, q);
}

static void succeed(struct stub_fabric *f, struct stub_fqp *q, uint32_t len)
{
	complete(f, q, &q->sq.of[q->sq.head++ % STUB_WRS], VB_WC_SUCCESS, len);
}

/* Note that a request got no answer: return false until all retries are over, then fail the
 * request. */
static bool unanswered(struct stub_fabric *f, struct stub_fqp *q, struct stub_wqe *e, uint64_t wait,
		       unsigned retries, uint32_t status)
{
	if (!e->since)
		e->since = now();
	if (retries == 7 && status == VB_WC_RNR_RETRY_EXC_ERR)
		return false;
	if (now() - e->since < wait * (retries + 1))
		return false;
	fail_request(f, q, status);
	return true;
}

static bool no_answer(struct stub_fabric *f, struct stub_fqp *q, struct stub_wqe *e)
{
	return unanswered(f, q, e, UINT64_C(4096) << q->attr.timeout, q->attr.retry_cnt,
			  VB_WC_RETRY_EXC_ERR);
}

/* Flip a bit of the middle byte that arrived. */
static void damage(pid_t pid, uint64_t first, uint64_t len)
{
	uint64_t at = first + len / 2;
	uint8_t byte;

	if (stub_copy(getpid(), (uintptr_t)&byte, pid, at, 1) < 0)
		return;
	byte ^= 0x10;
	(void)stub_copy(pid, at, getpid(), (uintptr_t)&byte, 1);
}

static bool move_one_sided(struct stub_fabric *f, struct stub_fqp *q, struct stub_wqe *e,
			   struct stub_fqp *p, const uint64_t *at)
{
	bool write = e->opcode == VB_WR_RDMA_WRITE;
	uint32_t access = (uint32_t)(write ? VB_ACCESS_REMOTE_WRITE : VB_ACCESS_REMOTE_READ);
	uint64_t len = bytes_of(e), far = 0;

	if (!(p->attr.qp_access_flags & access)) {
		fail_request(f, q, VB_WC_REM_INV_REQ_ERR);
		stub_qp_error(f, p);
		return true;
	}
	if (len && stub_mr_find(f, p->pid, p->pd, e->rkey, e->raddr, len, access, &far) < 0) {
		fail_request(f, q, VB_WC_REM_ACCESS_ERR);
		stub_qp_error(f, p);
		return true;
	}
	if (copy_range(q, e, at, p, far, write) < 0)
		return no_answer(f, q, e);
	if (len && stub_fault("damage"))
		damage(write ? p->pid : q->pid, write ? far : at[0],
		       write ? len : e->sges[0].length);
	if (write)
		stub_process.st.writes++;
	else
		stub_process.st.reads++;
	succeed(f, q, (uint32_t)len);
	return true;
}

static bool move_message(struct stub_fabric *f, struct stub_fqp *q, struct stub_wqe *e,
			 struct stub_fqp *p, const uint64_t *at)
{
	struct stub_wqe *to = &p->rq.of[p->rq.head % STUB_WRS];
	uint64_t len = bytes_of(e), to_at[STUB_SGES] = { 0 };

	if (p->rq.head == p->rq.tail)
		return unanswered(f, q, e, rnr_ns(p->attr.min_rnr_timer), q->attr.rnr_retry,
				  VB_WC_RNR_RETRY_EXC_ERR);
	/* Do as rdma_rxe does.  Other devices report a local length or protection error to the
	 * receiver and a remote invalid request to the sender. */
	if (!resolve(f, p, to, (uint32_t)VB_ACCESS_LOCAL_WRITE, to_at) || len > bytes_of(to)) {
		p->rq.head++;
		complete_recv(f, p, to, VB_WC_LOC_QP_OP_ERR, 0, false);
		stub_qp_error(f, p);
		fail_request(f, q, VB_WC_REM_OP_ERR);
		return true;
	}
	if (copy_message(q, e, at, p, to, to_at) < 0)
		return no_answer(f, q, e);
	p->rq.head++;
	stub_process.st.sends++;
	complete_recv(f, p, to, VB_WC_SUCCESS, (uint32_t)len, e->flags & VB_SEND_SOLICITED);
	succeed(f, q, (uint32_t)len);
	return true;
}

/* Execute the first request of a queue pair; return true if it completed, even with an error. */
static bool move(struct stub_fabric *f, struct stub_fqp *q)
{
	struct stub_wqe *e = &q->sq.of[q->sq.head % STUB_WRS];
	struct stub_fqp *p = peer_of(f, q);
	uint64_t at[STUB_SGES] = { 0 };
	int status;

	if (q->pid != getpid() && (!p || p->pid != getpid()))
		return false; /* both ends are in other processes */
	if (!e->since && (status = stub_fault("completion"))) {
		fail_request(f, q, (uint32_t)status);
		return true;
	}
	if (!resolve(f, q, e, e->opcode == VB_WR_RDMA_READ ? (uint32_t)VB_ACCESS_LOCAL_WRITE : 0,
		     at)) {
		fail_request(f, q, VB_WC_LOC_PROT_ERR);
		return true;
	}
	if (!p)
		return no_answer(f, q, e);
	return e->opcode == VB_WR_SEND ? move_message(f, q, e, p, at)
				       : move_one_sided(f, q, e, p, at);
}

void stub_progress(struct stub_fabric *f, bool polls)
{
	if (!stub_process.late_read) {
		stub_process.late = getenv("STUB_IBVERBS_LATE");
		stub_process.late_read = true;
	}
	if (stub_process.dead || (stub_process.late && !polls))
		return;
	for (struct stub_fqp *q = f->qps; q < f->qps + STUB_QPS; q++)
		while (q->pid && q->state == VB_QPS_RTS && q->sq.head < q->sq.tail && move(f, q))
			;
}
