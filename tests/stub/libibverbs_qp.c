/* SPDX-License-Identifier: MIT */
/* Queue pairs of the libibverbs stub: their states and posting. */
#include <stdio.h>

#include "stub/ibverbs_stub_int.h"

/* Attributes that each transition requires and permits; all others are refused. */
static const struct {
	uint32_t from, to;
	int must, may;
} steps[] = {
	{ VB_QPS_RESET, VB_QPS_INIT, VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS, 0 },
	{ VB_QPS_INIT, VB_QPS_INIT, 0, VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS },
	{ VB_QPS_INIT, VB_QPS_RTR,
	  VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN | VB_QP_MAX_DEST_RD_ATOMIC |
		  VB_QP_MIN_RNR_TIMER,
	  VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX },
	{ VB_QPS_RTR, VB_QPS_RTS,
	  VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_SQ_PSN | VB_QP_MAX_QP_RD_ATOMIC,
	  VB_QP_ACCESS_FLAGS | VB_QP_MIN_RNR_TIMER },
	{ VB_QPS_RTS, VB_QPS_RTS, 0, VB_QP_ACCESS_FLAGS | VB_QP_MIN_RNR_TIMER },
};

uint32_t stub_qpn(const struct stub_fabric *f, const struct stub_fqp *q)
{
	return (uint32_t)(q - f->qps) + STUB_QPN0;
}

static struct stub_fqp *fqp(struct stub_fabric *f, const struct vb_qp *qp)
{
	return &f->qps[qp->qp_num - STUB_QPN0];
}

static void qp_clear(struct stub_fqp *q)
{
	q->state = VB_QPS_RESET;
	q->posted = q->freed = 0;
	q->sq.head = q->sq.tail = q->rq.head = q->rq.tail = 0;
	q->generation++;
}

static int check_init(const struct stub_fabric *f, const struct vb_pd *pd,
		      const struct vb_qp_init_attr *a)
{
	const struct vb_qp_cap *cap = &a->cap;

	(void)f;
	if (!a->send_cq || !a->recv_cq || a->send_cq->context != pd->context ||
	    a->recv_cq->context != pd->context || a->srq)
		return EINVAL;
	if (a->qp_type != VB_QPT_RC)
		return EOPNOTSUPP;
	if (cap->max_send_wr > 256 || cap->max_recv_wr > 256 || cap->max_send_sge > STUB_SGES ||
	    cap->max_recv_sge > STUB_SGES || cap->max_inline_data)
		return EINVAL;
	return 0;
}

struct vb_qp *ibv_create_qp(struct vb_pd *pd, struct vb_qp_init_attr *attr)
{
	struct vb_qp *qp = calloc(1, sizeof(*qp));
	struct stub_fabric *f = stub_lock();
	int err = stub_fault("ibv_create_qp");
	struct stub_fqp *q = f->qps;

	if (!err)
		err = check_init(f, pd, attr);
	while (q < f->qps + STUB_QPS && q->pid && stub_alive(q->pid))
		q++;
	if (!err && (!qp || q == f->qps + STUB_QPS))
		err = ENOMEM;
	if (err) {
		stub_unlock(f);
		free(qp);
		errno = err;
		return NULL;
	}
	q->pid = getpid();
	q->device = container_of(pd->context, struct stub_context, ctx)->device;
	q->pd = pd->handle;
	q->send_cq = attr->send_cq->handle;
	q->recv_cq = attr->recv_cq->handle;
	q->sig_all = attr->sq_sig_all;
	q->cap = attr->cap;
	q->attr = (struct vb_qp_attr){ 0 };
	qp_clear(q);
	*qp = (struct vb_qp){
		.context = pd->context,
		.qp_context = attr->qp_context,
		.pd = pd,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.qp_num = stub_qpn(f, q),
		.qp_type = VB_QPT_RC,
	};
	container_of(pd, struct stub_pd, pd)->users++;
	container_of(attr->send_cq, struct stub_cq, cq)->qps++;
	container_of(attr->recv_cq, struct stub_cq, cq)->qps++;
	stub_process.st.qps++;
	stub_unlock(f);
	return qp;
}

int ibv_destroy_qp(struct vb_qp *qp)
{
	struct stub_fabric *f;
	struct stub_fqp *q;

	stub_hold();
	f = stub_lock();
	q = fqp(f, qp);
	qp_clear(q);
	q->pid = 0;
	container_of(qp->pd, struct stub_pd, pd)->users--;
	container_of(qp->send_cq, struct stub_cq, cq)->qps--;
	container_of(qp->recv_cq, struct stub_cq, cq)->qps--;
	stub_process.st.qps--;
	stub_unlock(f);
	free(qp);
	return 0;
}

/* Check that values are in the device's ranges. */
static int check_values(const struct stub_fqp *q, const struct vb_qp_attr *a, int mask)
{
	struct vb_gid_entry e;

	if (mask & VB_QP_PORT && a->port_num != 1)
		return EINVAL;
	if (mask & VB_QP_PKEY_INDEX && a->pkey_index)
		return EINVAL;
	if (mask & VB_QP_PATH_MTU && (a->path_mtu < 1 || a->path_mtu > 5))
		return EINVAL;
	if (mask & VB_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > 16)
		return EINVAL;
	if (mask & VB_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > 16)
		return EINVAL;
	if ((mask & VB_QP_TIMEOUT && a->timeout > 31) ||
	    (mask & VB_QP_RETRY_CNT && a->retry_cnt > 7) ||
	    (mask & VB_QP_RNR_RETRY && a->rnr_retry > 7) ||
	    (mask & VB_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31))
		return EINVAL;
	if (mask & VB_QP_AV && a->ah_attr.port_num != 1)
		return EINVAL;
	if (mask & VB_QP_AV && !stub_is_ib() &&
	    (!a->ah_attr.is_global || !stub_gid(q->device, a->ah_attr.grh.sgid_index, &e)))
		return EINVAL;
	return 0;
}

static int check_step(const struct stub_fqp *q, const struct vb_qp_attr *a, int mask)
{
	int rest = mask & ~VB_QP_STATE;
	uint32_t to = mask & VB_QP_STATE ? a->qp_state : q->state;

	if (to == VB_QPS_RESET || to == VB_QPS_ERR)
		return rest ? EINVAL : 0;
	for (unsigned i = 0; i < ARRAY_SIZE(steps); i++)
		if (steps[i].from == q->state && steps[i].to == to)
			return (rest & steps[i].must) == steps[i].must &&
					       !(rest & ~(steps[i].must | steps[i].may))
				       ? check_values(q, a, mask)
				       : EINVAL;
	return EINVAL;
}

static void take(struct vb_qp_attr *to, const struct vb_qp_attr *a, int mask)
{
#define TAKE(bit, member)                       \
	do {                                    \
		if (mask & (bit))               \
			to->member = a->member; \
	} while (0)
	TAKE(VB_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(VB_QP_AV, ah_attr);
	TAKE(VB_QP_PATH_MTU, path_mtu);
	TAKE(VB_QP_TIMEOUT, timeout);
	TAKE(VB_QP_RETRY_CNT, retry_cnt);
	TAKE(VB_QP_RNR_RETRY, rnr_retry);
	TAKE(VB_QP_RQ_PSN, rq_psn);
	TAKE(VB_QP_SQ_PSN, sq_psn);
	TAKE(VB_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(VB_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(VB_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(VB_QP_DEST_QPN, dest_qp_num);
#undef TAKE
}

int ibv_modify_qp(struct vb_qp *qp, struct vb_qp_attr *attr, int mask)
{
	int err = stub_fault("ibv_modify_qp");
	struct stub_fabric *f = stub_lock();
	struct stub_fqp *q = fqp(f, qp);

	if (!err)
		err = check_step(q, attr, mask);
	if (!err) {
		take(&q->attr, attr, mask);
		if (mask & VB_QP_STATE && attr->qp_state == VB_QPS_RESET)
			qp_clear(q);
		else if (mask & VB_QP_STATE && attr->qp_state == VB_QPS_ERR)
			stub_qp_error(f, q);
		else if (mask & VB_QP_STATE)
			q->state = attr->qp_state;
		qp->state = q->state;
		stub_progress(f, false);
	}
	stub_unlock(f);
	return err;
}

int ibv_query_qp(struct vb_qp *qp, struct vb_qp_attr *ret, int mask,
		 struct vb_qp_init_attr *ret_init)
{
	struct stub_fabric *f = stub_lock();
	const struct stub_fqp *q = fqp(f, qp);

	(void)mask;
	*ret = q->attr;
	ret->qp_state = ret->cur_qp_state = q->state;
	ret->cap = q->cap;
	*ret_init = (struct vb_qp_init_attr){ .cap = q->cap, .qp_type = VB_QPT_RC };
	qp->state = q->state;
	stub_unlock(f);
	return 0;
}

/* ------------------------------------------------------------------ posting */

static int put_send(struct stub_fqp *q, const struct vb_send_wr *wr)
{
	struct stub_wqe *e;

	if (q->state < VB_QPS_RTS)
		return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->cap.max_send_sge ||
	    wr->send_flags & VB_SEND_INLINE ||
	    (wr->opcode != VB_WR_RDMA_WRITE && wr->opcode != VB_WR_RDMA_READ &&
	     wr->opcode != VB_WR_SEND))
		return EINVAL;
	if (q->posted - q->freed >= q->cap.max_send_wr)
		return ENOMEM;
	e = &q->sq.of[q->sq.tail++ % STUB_WRS];
	*e = (struct stub_wqe){
		.wr_id = wr->wr_id,
		.opcode = wr->opcode,
		.flags = wr->send_flags,
		.nr_sges = (uint32_t)wr->num_sge,
		.raddr = wr->wr.rdma.remote_addr,
		.rkey = wr->wr.rdma.rkey,
		.seq = q->posted++,
	};
	for (int i = 0; i < wr->num_sge; i++)
		e->sges[i] = wr->sg_list[i];
	return 0;
}

int stub_post_send(struct vb_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad)
{
	struct stub_fabric *f = stub_lock();
	struct stub_fqp *q = fqp(f, qp);
	int err = 0;

	stub_process.st.doorbells++;
	for (; wr; wr = wr->next) {
		err = stub_fault("ibv_post_send");
		if (!err)
			err = put_send(q, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (q->state == VB_QPS_ERR)
		stub_qp_error(f, q);
	stub_progress(f, false);
	stub_unlock(f);
	return err;
}

static int put_recv(struct stub_fqp *q, const struct vb_recv_wr *wr)
{
	struct stub_wqe *e;

	if (q->state == VB_QPS_RESET || wr->num_sge < 0 ||
	    (uint32_t)wr->num_sge > q->cap.max_recv_sge)
		return EINVAL;
	if (q->rq.tail - q->rq.head >= q->cap.max_recv_wr)
		return ENOMEM;
	e = &q->rq.of[q->rq.tail++ % STUB_WRS];
	*e = (struct stub_wqe){ .wr_id = wr->wr_id, .nr_sges = (uint32_t)wr->num_sge };
	for (int i = 0; i < wr->num_sge; i++)
		e->sges[i] = wr->sg_list[i];
	return 0;
}

int stub_post_recv(struct vb_qp *qp, struct vb_recv_wr *wr, struct vb_recv_wr **bad)
{
	struct stub_fabric *f = stub_lock();
	struct stub_fqp *q = fqp(f, qp);
	int err = 0;

	for (; wr; wr = wr->next) {
		err = stub_fault("ibv_post_recv");
		if (!err)
			err = put_recv(q, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (q->state == VB_QPS_ERR)
		stub_qp_error(f, q);
	stub_progress(f, false);
	stub_unlock(f);
	return err;
}
