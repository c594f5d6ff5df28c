/* SPDX-License-Identifier: MIT */
/*
 * Compare our declarations of libibverbs with rdma-core's, if <infiniband/verbs.h> is installed.
 * The compiler makes nearly all of the checks.
 */
#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#define HAVE_VERBS 1
#else
#define HAVE_VERBS 0
#endif

#if __has_include(<rdma/rdma_cma.h>)
#include <rdma/rdma_cma.h>
#define HAVE_CM 1
#else
#define HAVE_CM 0
#endif

#include "net/verbs/nic.h"

#include "t.h"
#include "verbs_iwarp.h"

#if HAVE_VERBS

/* Constants. */
#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours)
SAME(VB_GID_IB, IBV_GID_TYPE_IB);
SAME(VB_GID_ROCE_V1, IBV_GID_TYPE_ROCE_V1);
SAME(VB_GID_ROCE_V2, IBV_GID_TYPE_ROCE_V2);
SAME(VB_EVENT_CQ_ERR, IBV_EVENT_CQ_ERR);
SAME(VB_EVENT_QP_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
SAME(VB_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
SAME(NIC_NODE_RNIC, IBV_NODE_RNIC);
SAME(VB_PORT_ACTIVE, IBV_PORT_ACTIVE);
SAME(VB_LINK_UNSPECIFIED, IBV_LINK_LAYER_UNSPECIFIED);
SAME(VB_LINK_INFINIBAND, IBV_LINK_LAYER_INFINIBAND);
SAME(VB_LINK_ETHERNET, IBV_LINK_LAYER_ETHERNET);
SAME(VB_QPT_RC, IBV_QPT_RC);
SAME(VB_QPS_RESET, IBV_QPS_RESET);
SAME(VB_QPS_INIT, IBV_QPS_INIT);
SAME(VB_QPS_RTR, IBV_QPS_RTR);
SAME(VB_QPS_RTS, IBV_QPS_RTS);
SAME(VB_QPS_SQD, IBV_QPS_SQD);
SAME(VB_QPS_SQE, IBV_QPS_SQE);
SAME(VB_QPS_ERR, IBV_QPS_ERR);
SAME(VB_QP_STATE, IBV_QP_STATE);
SAME(VB_QP_ACCESS_FLAGS, IBV_QP_ACCESS_FLAGS);
SAME(VB_QP_PKEY_INDEX, IBV_QP_PKEY_INDEX);
SAME(VB_QP_PORT, IBV_QP_PORT);
SAME(VB_QP_AV, IBV_QP_AV);
SAME(VB_QP_PATH_MTU, IBV_QP_PATH_MTU);
SAME(VB_QP_TIMEOUT, IBV_QP_TIMEOUT);
SAME(VB_QP_RETRY_CNT, IBV_QP_RETRY_CNT);
SAME(VB_QP_RNR_RETRY, IBV_QP_RNR_RETRY);
SAME(VB_QP_RQ_PSN, IBV_QP_RQ_PSN);
SAME(VB_QP_MAX_QP_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC);
SAME(VB_QP_MIN_RNR_TIMER, IBV_QP_MIN_RNR_TIMER);
SAME(VB_QP_SQ_PSN, IBV_QP_SQ_PSN);
SAME(VB_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_DEST_RD_ATOMIC);
SAME(VB_QP_DEST_QPN, IBV_QP_DEST_QPN);
SAME(VB_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE);
SAME(VB_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE);
SAME(VB_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
SAME(VB_ACCESS_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING);
SAME(VB_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE);
SAME(VB_WR_SEND, IBV_WR_SEND);
SAME(VB_WR_RDMA_READ, IBV_WR_RDMA_READ);
SAME(VB_SEND_FENCE, IBV_SEND_FENCE);
SAME(VB_SEND_SIGNALED, IBV_SEND_SIGNALED);
SAME(VB_SEND_SOLICITED, IBV_SEND_SOLICITED);
SAME(VB_SEND_INLINE, IBV_SEND_INLINE);
SAME(VB_WC_SUCCESS, IBV_WC_SUCCESS);
SAME(VB_WC_LOC_LEN_ERR, IBV_WC_LOC_LEN_ERR);
SAME(VB_WC_LOC_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR);
SAME(VB_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
SAME(VB_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR);
SAME(VB_WC_LOC_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR);
SAME(VB_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
SAME(VB_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
SAME(VB_WC_REM_OP_ERR, IBV_WC_REM_OP_ERR);
SAME(VB_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR);
SAME(VB_WC_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR);
SAME(VB_WC_FATAL_ERR, IBV_WC_FATAL_ERR);
SAME(VB_WC_GENERAL_ERR, IBV_WC_GENERAL_ERR);
SAME(VB_WC_SEND, IBV_WC_SEND);
SAME(VB_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE);
SAME(VB_WC_RDMA_READ, IBV_WC_RDMA_READ);
SAME(VB_WC_RECV, IBV_WC_RECV);
SAME(VB_EVENT_QP_FATAL, IBV_EVENT_QP_FATAL);
SAME(VB_EVENT_DEVICE_FATAL, IBV_EVENT_DEVICE_FATAL);
SAME(VB_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ACTIVE);
SAME(VB_EVENT_PORT_ERR, IBV_EVENT_PORT_ERR);
SAME(VB_EVENT_GID_CHANGE, IBV_EVENT_GID_CHANGE);

/* Layouts. */
#define SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define FIELD(ours, a, theirs, b)                                                  \
	_Static_assert(offsetof(ours, a) == offsetof(theirs, b) &&                 \
			       sizeof(((ours *)0)->a) == sizeof(((theirs *)0)->b), \
		       #ours "." #a)
/* Members with the same name in both. */
#define BOTH(name, member) FIELD(struct vb_##name, member, struct ibv_##name, member)
SIZE(union vb_gid, union ibv_gid);
SIZE(struct vb_gid_entry, struct ibv_gid_entry);
BOTH(gid_entry, gid);
FIELD(struct vb_gid_entry, index, struct ibv_gid_entry, gid_index);
FIELD(struct vb_gid_entry, port, struct ibv_gid_entry, port_num);
FIELD(struct vb_gid_entry, type, struct ibv_gid_entry, gid_type);
FIELD(struct vb_gid_entry, ifindex, struct ibv_gid_entry, ndev_ifindex);
SIZE(struct vb_device_attr, struct ibv_device_attr);
BOTH(device_attr, max_mr_size);
BOTH(device_attr, max_qp);
BOTH(device_attr, max_qp_wr);
BOTH(device_attr, max_sge);
BOTH(device_attr, max_cqe);
BOTH(device_attr, max_mr);
BOTH(device_attr, max_qp_rd_atom);
BOTH(device_attr, max_qp_init_rd_atom);
BOTH(device_attr, max_srq_sge);
BOTH(device_attr, phys_port_cnt);
SIZE(struct vb_port_attr, struct ibv_port_attr);
BOTH(port_attr, state);
BOTH(port_attr, active_mtu);
BOTH(port_attr, gid_tbl_len);
BOTH(port_attr, max_msg_sz);
BOTH(port_attr, lid);
BOTH(port_attr, active_width);
BOTH(port_attr, link_layer);
BOTH(port_attr, flags);
FIELD(struct vb_device, node_type, struct ibv_device, node_type);
FIELD(struct vb_device, transport_type, struct ibv_device, transport_type);
SIZE(struct vb_pd, struct ibv_pd);
BOTH(pd, context);
SIZE(struct vb_mr, struct ibv_mr);
BOTH(mr, pd);
BOTH(mr, addr);
BOTH(mr, length);
BOTH(mr, lkey);
BOTH(mr, rkey);
SIZE(struct vb_comp_channel, struct ibv_comp_channel);
BOTH(comp_channel, fd);
SIZE(struct vb_cq, struct ibv_cq);
BOTH(cq, context);
BOTH(cq, channel);
BOTH(cq, cqe);
SIZE(struct vb_qp, struct ibv_qp);
BOTH(qp, context);
BOTH(qp, pd);
BOTH(qp, send_cq);
BOTH(qp, recv_cq);
BOTH(qp, qp_num);
BOTH(qp, state);
BOTH(qp, qp_type);
SIZE(struct vb_qp_cap, struct ibv_qp_cap);
BOTH(qp_cap, max_send_wr);
BOTH(qp_cap, max_inline_data);
SIZE(struct vb_qp_init_attr, struct ibv_qp_init_attr);
BOTH(qp_init_attr, send_cq);
BOTH(qp_init_attr, recv_cq);
BOTH(qp_init_attr, cap);
BOTH(qp_init_attr, qp_type);
BOTH(qp_init_attr, sq_sig_all);
SIZE(struct vb_route, struct ibv_global_route);
SIZE(struct vb_ah_attr, struct ibv_ah_attr);
BOTH(ah_attr, dlid);
BOTH(ah_attr, is_global);
BOTH(ah_attr, port_num);
SIZE(struct vb_qp_attr, struct ibv_qp_attr);
BOTH(qp_attr, qp_state);
BOTH(qp_attr, path_mtu);
BOTH(qp_attr, rq_psn);
BOTH(qp_attr, sq_psn);
BOTH(qp_attr, dest_qp_num);
BOTH(qp_attr, qp_access_flags);
BOTH(qp_attr, ah_attr);
BOTH(qp_attr, pkey_index);
BOTH(qp_attr, max_rd_atomic);
BOTH(qp_attr, max_dest_rd_atomic);
BOTH(qp_attr, min_rnr_timer);
BOTH(qp_attr, port_num);
BOTH(qp_attr, timeout);
BOTH(qp_attr, retry_cnt);
BOTH(qp_attr, rnr_retry);
SIZE(struct vb_sge, struct ibv_sge);
BOTH(sge, addr);
BOTH(sge, length);
BOTH(sge, lkey);
SIZE(struct vb_send_wr, struct ibv_send_wr);
BOTH(send_wr, wr_id);
BOTH(send_wr, next);
BOTH(send_wr, sg_list);
BOTH(send_wr, num_sge);
BOTH(send_wr, opcode);
BOTH(send_wr, send_flags);
BOTH(send_wr, imm_data);
BOTH(send_wr, wr.rdma.remote_addr);
BOTH(send_wr, wr.rdma.rkey);
SIZE(struct vb_recv_wr, struct ibv_recv_wr);
BOTH(recv_wr, num_sge);
SIZE(struct vb_wc, struct ibv_wc);
BOTH(wc, status);
BOTH(wc, opcode);
BOTH(wc, vendor_err);
BOTH(wc, byte_len);
BOTH(wc, qp_num);
BOTH(wc, wc_flags);
SIZE(struct vb_context_ops, struct ibv_context_ops);
BOTH(context_ops, poll_cq);
BOTH(context_ops, req_notify_cq);
BOTH(context_ops, post_send);
BOTH(context_ops, post_recv);
SIZE(struct vb_context, struct ibv_context);
BOTH(context, ops);
BOTH(context, cmd_fd);
BOTH(context, async_fd);
SIZE(struct vb_async_event, struct ibv_async_event);
FIELD(struct vb_async_event, type, struct ibv_async_event, event_type);

/*
 * Signatures.  Tags of structs are mapped to the vendor's here; their layouts were compared
 * above.  A few of the vendor's names are macros, and some of its numbers are enums.
 */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#define vb_device ibv_device
#define vb_context ibv_context
#define vb_device_attr ibv_device_attr
#define vb_async_event ibv_async_event
#define vb_gid_entry ibv_gid_entry
#define vb_pd ibv_pd
#define vb_mr ibv_mr
#define vb_comp_channel ibv_comp_channel
#define vb_cq ibv_cq
#define vb_qp ibv_qp
#define vb_qp_attr ibv_qp_attr
#define vb_qp_init_attr ibv_qp_init_attr
#define vb_port_attr _compat_ibv_port_attr
#define SYM(result, name, args)                                                       \
	_Static_assert(__builtin_types_compatible_p(__typeof__(name), result args) || \
			       __builtin_strcmp(#name, "ibv_wc_status_str") == 0,     \
		       #name);
#define OPT SYM
#include "net/verbs/verbs_syms.h"

#if HAVE_CM
/* RDMA CM, which only tests use.  struct cm_event ends early. */
SAME(CM_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_RESOLVED);
SAME(CM_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED);
SAME(CM_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_REQUEST);
SAME(CM_ESTABLISHED, RDMA_CM_EVENT_ESTABLISHED);
SAME(CM_PS_TCP, RDMA_PS_TCP);
SAME(sizeof(struct cm_channel), sizeof(struct rdma_event_channel));
SAME(sizeof(struct cm_param), sizeof(struct rdma_conn_param));
SAME(offsetof(struct cm_param, responder_resources),
     offsetof(struct rdma_conn_param, responder_resources));
SAME(offsetof(struct cm_param, initiator_depth), offsetof(struct rdma_conn_param, initiator_depth));
SAME(offsetof(struct cm_param, qp_num), offsetof(struct rdma_conn_param, qp_num));
SAME(offsetof(struct cm_event, event), offsetof(struct rdma_cm_event, event));
SAME(offsetof(struct cm_event, status), offsetof(struct rdma_cm_event, status));
#endif

static void declarations_are_the_vendors(void)
{
	T_EQ(sizeof(enum ibv_wc_status), sizeof(uint32_t));
	T_EQ(sizeof(enum ibv_qp_state), sizeof(uint32_t));
}

#else

static void declarations_are_the_vendors(void)
{
	T_SKIP("no <infiniband/verbs.h> (libibverbs-dev) to compare with");
}

#endif

int main(void)
{
	T_RUN(declarations_are_the_vendors);
	return t_done();
}
