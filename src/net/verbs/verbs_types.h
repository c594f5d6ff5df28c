/* SPDX-License-Identifier: MIT */
/*
 * The ABI of libibverbs.so.1, as far as Penstock uses it.
 *
 * These declarations avoid a build dependency on rdma-core's headers.  tests/unit/test-verbs-abi.c
 * compares them with <infiniband/verbs.h> if that is installed.  Members that Penstock never
 * touches only keep the layout.
 *
 * Six calls are not functions of the library but inline calls through context->ops: ibv_post_send,
 * ibv_post_recv, ibv_poll_cq, ibv_req_notify_cq and two that are not used here.
 */
#ifndef PST_VERBS_TYPES_H
#define PST_VERBS_TYPES_H

#include <pthread.h>

#include "base/base.h"

union vb_gid {
	uint8_t raw[16];
	struct {
		uint64_t prefix, id; /* big-endian */
	} global;
};

/* enum ibv_gid_type */
#define VB_GID_IB 0u
#define VB_GID_ROCE_V1 1u
#define VB_GID_ROCE_V2 2u

struct vb_gid_entry {
	union vb_gid gid;
	uint32_t index;
	uint32_t port;
	uint32_t type; /* VB_GID_* */
	uint32_t ifindex;
};

/* enum ibv_port_state */
#define VB_PORT_ACTIVE 4u

#define VB_LINK_UNSPECIFIED 0u /* reported by old drivers; means InfiniBand */
#define VB_LINK_INFINIBAND 1u
#define VB_LINK_ETHERNET 2u

struct vb_device_attr {
	char fw_ver[64];
	uint64_t node_guid, sys_image_guid; /* big-endian */
	uint64_t max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int max_qp, max_qp_wr;
	unsigned device_cap_flags;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom;
	int max_qp_init_rd_atom, max_ee_init_rd_atom;
	uint32_t atomic_cap;
	int max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp;
	int max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach;
	int max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
};

/* Zero this struct first: the library fills only the members up to flags. */
struct vb_port_attr {
	uint32_t state; /* VB_PORT_* */
	uint32_t max_mtu, active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply;
	uint8_t active_width, active_speed, phys_state;
	uint8_t link_layer; /* VB_LINK_* */
	uint8_t flags;
	uint16_t port_cap_flags2;
};

struct vb_context;
struct vb_srq;

/* Later members are not read. */
struct vb_device {
	void *unused[2];
	int node_type; /* enum ibv_node_type */
	int transport_type;
};

struct vb_pd {
	struct vb_context *context;
	uint32_t handle;
};

struct vb_mr {
	struct vb_context *context;
	struct vb_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

struct vb_comp_channel {
	struct vb_context *context;
	int fd;
	int refcnt;
};

struct vb_cq {
	struct vb_context *context;
	struct vb_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
};

struct vb_qp {
	struct vb_context *context;
	void *qp_context;
	struct vb_pd *pd;
	struct vb_cq *send_cq, *recv_cq;
	struct vb_srq *srq;
	uint32_t handle, qp_num;
	uint32_t state; /* VB_QPS_* */
	uint32_t qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct vb_qp_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

#define VB_QPT_RC 2u

struct vb_qp_init_attr {
	void *qp_context;
	struct vb_cq *send_cq, *recv_cq;
	struct vb_srq *srq;
	struct vb_qp_cap cap;
	uint32_t qp_type;
	int sq_sig_all;
};

/* enum ibv_qp_state */
#define VB_QPS_RESET 0u
#define VB_QPS_INIT 1u
#define VB_QPS_RTR 2u
#define VB_QPS_RTS 3u
#define VB_QPS_SQD 4u
#define VB_QPS_SQE 5u
#define VB_QPS_ERR 6u

/* enum ibv_qp_attr_mask */
#define VB_QP_STATE (1 << 0)
#define VB_QP_ACCESS_FLAGS (1 << 3)
#define VB_QP_PKEY_INDEX (1 << 4)
#define VB_QP_PORT (1 << 5)
#define VB_QP_AV (1 << 7)
#define VB_QP_PATH_MTU (1 << 8)
#define VB_QP_TIMEOUT (1 << 9)
#define VB_QP_RETRY_CNT (1 << 10)
#define VB_QP_RNR_RETRY (1 << 11)
#define VB_QP_RQ_PSN (1 << 12)
#define VB_QP_MAX_QP_RD_ATOMIC (1 << 13)
#define VB_QP_MIN_RNR_TIMER (1 << 15)
#define VB_QP_SQ_PSN (1 << 16)
#define VB_QP_MAX_DEST_RD_ATOMIC (1 << 17)
#define VB_QP_DEST_QPN (1 << 20)

struct vb_route {
	union vb_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
};

struct vb_ah_attr {
	struct vb_route grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct vb_qp_attr {
	uint32_t qp_state, cur_qp_state; /* VB_QPS_* */
	uint32_t path_mtu, path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned qp_access_flags; /* VB_ACCESS_* */
	struct vb_qp_cap cap;
	struct vb_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining;
	uint8_t max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num;
	uint8_t timeout, retry_cnt, rnr_retry;
	uint8_t alt_port_num, alt_timeout;
	uint32_t rate_limit;
};

/* enum ibv_access_flags */
#define VB_ACCESS_LOCAL_WRITE (1 << 0)
#define VB_ACCESS_REMOTE_WRITE (1 << 1)
#define VB_ACCESS_REMOTE_READ (1 << 2)
/* Optional: a device or library that does not support the bit ignores it. */
#define VB_ACCESS_RELAXED_ORDERING (1 << 20)

struct vb_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

/* enum ibv_wr_opcode */
#define VB_WR_RDMA_WRITE 0u
#define VB_WR_SEND 2u
#define VB_WR_RDMA_READ 4u

/* enum ibv_send_flags */
#define VB_SEND_FENCE (1u << 0)
#define VB_SEND_SIGNALED (1u << 1)
#define VB_SEND_SOLICITED (1u << 2)
#define VB_SEND_INLINE (1u << 3)

struct vb_send_wr {
	uint64_t wr_id;
	struct vb_send_wr *next;
	struct vb_sge *sg_list;
	int num_sge;
	uint32_t opcode; /* VB_WR_* */
	unsigned send_flags;
	uint32_t imm_data;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr, compare_add, swap;
			uint32_t rkey;
		} atomic;
	} wr;
	uint32_t remote_srqn;
	union {
		uint64_t bind[6]; /* unused: memory windows */
		struct {
			void *hdr;
			uint16_t hdr_sz, mss;
		} tso;
	};
};

struct vb_recv_wr {
	uint64_t wr_id;
	struct vb_recv_wr *next;
	struct vb_sge *sg_list;
	int num_sge;
};

/* enum ibv_wc_status */
#define VB_WC_SUCCESS 0u
#define VB_WC_LOC_LEN_ERR 1u
#define VB_WC_LOC_QP_OP_ERR 2u
#define VB_WC_LOC_PROT_ERR 4u
#define VB_WC_WR_FLUSH_ERR 5u
#define VB_WC_LOC_ACCESS_ERR 8u
#define VB_WC_REM_INV_REQ_ERR 9u
#define VB_WC_REM_ACCESS_ERR 10u
#define VB_WC_REM_OP_ERR 11u
#define VB_WC_RETRY_EXC_ERR 12u
#define VB_WC_RNR_RETRY_EXC_ERR 13u
#define VB_WC_FATAL_ERR 19u
#define VB_WC_GENERAL_ERR 21u

/* enum ibv_wc_opcode */
#define VB_WC_SEND 0u
#define VB_WC_RDMA_WRITE 1u
#define VB_WC_RDMA_READ 2u
#define VB_WC_RECV (1u << 7)

/* In a failed completion only wr_id, status, qp_num and vendor_err are valid. */
struct vb_wc {
	uint64_t wr_id;
	uint32_t status; /* VB_WC_* */
	uint32_t opcode;
	uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
	unsigned wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

/* In the library's order; all members are function pointers. */
struct vb_context_ops {
	void *before_poll[11];
	int (*poll_cq)(struct vb_cq *cq, int nr, struct vb_wc *ret);
	int (*req_notify_cq)(struct vb_cq *cq, int solicited_only);
	void *before_post[12];
	int (*post_send)(struct vb_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad);
	int (*post_recv)(struct vb_qp *qp, struct vb_recv_wr *wr, struct vb_recv_wr **bad);
	void *rest[5];
};

struct vb_context {
	struct vb_device *device;
	struct vb_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};

/* enum ibv_event_type */
#define VB_EVENT_CQ_ERR 0u
#define VB_EVENT_QP_FATAL 1u
#define VB_EVENT_QP_REQ_ERR 2u
#define VB_EVENT_QP_ACCESS_ERR 3u
#define VB_EVENT_DEVICE_FATAL 8u
#define VB_EVENT_PORT_ACTIVE 9u
#define VB_EVENT_PORT_ERR 10u
#define VB_EVENT_GID_CHANGE 18u

struct vb_async_event {
	union {
		void *object;
		int port;
	} element;
	uint32_t type; /* VB_EVENT_* */
};

#endif
