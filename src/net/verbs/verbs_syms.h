/* SPDX-License-Identifier: MIT */
/*
 * List every function of libibverbs.so.1 that Penstock calls, under its exact ABI name.  Define
 * SYM(result, name, args) for required functions and OPT(result, name, args) for optional ones,
 * then include this file; see base/dl.h.
 *
 * Most names have two versions, IBVERBS_1.0 and IBVERBS_1.1; dlsym() finds the default one, which
 * is the newer.  Required functions exist since rdma-core 34 (2021).
 *
 * The formatter is off because it takes "type *" for a multiplication.
 */
/* clang-format off */
SYM(struct vb_device **, ibv_get_device_list, (int *ret_nr))
SYM(void, ibv_free_device_list, (struct vb_device **list))
SYM(const char *, ibv_get_device_name, (struct vb_device *dev))
SYM(struct vb_context *, ibv_open_device, (struct vb_device *dev))
SYM(int, ibv_close_device, (struct vb_context *ctx))
SYM(int, ibv_query_device, (struct vb_context *ctx, struct vb_device_attr *ret))
SYM(int, ibv_query_port, (struct vb_context *ctx, uint8_t port, struct vb_port_attr *ret))
SYM(int, ibv_get_async_event, (struct vb_context *ctx, struct vb_async_event *ret))
SYM(void, ibv_ack_async_event, (struct vb_async_event *event))
/* IBVERBS_1.11.  The last two arguments are 0 and the entry size in bytes. */
SYM(ssize_t, _ibv_query_gid_table,
    (struct vb_context *ctx, struct vb_gid_entry *ret, size_t max, uint32_t flags, size_t size))

SYM(struct vb_pd *, ibv_alloc_pd, (struct vb_context *ctx))
SYM(int, ibv_dealloc_pd, (struct vb_pd *pd))
SYM(struct vb_mr *, ibv_reg_mr, (struct vb_pd *pd, void *addr, size_t len, int access))
/* IBVERBS_1.8: its existence means that optional access bits are known. */
OPT(struct vb_mr *, ibv_reg_mr_iova2,
    (struct vb_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access))
/* IBVERBS_1.12. */
OPT(struct vb_mr *, ibv_reg_dmabuf_mr,
    (struct vb_pd *pd, uint64_t off, size_t len, uint64_t iova, int fd, int access))
SYM(int, ibv_dereg_mr, (struct vb_mr *mr))

SYM(struct vb_comp_channel *, ibv_create_comp_channel, (struct vb_context *ctx))
SYM(int, ibv_destroy_comp_channel, (struct vb_comp_channel *ch))
SYM(struct vb_cq *, ibv_create_cq,
    (struct vb_context *ctx, int nr, void *arg, struct vb_comp_channel *ch, int vector))
SYM(int, ibv_destroy_cq, (struct vb_cq *cq))
SYM(int, ibv_get_cq_event, (struct vb_comp_channel *ch, struct vb_cq **ret, void **ret_arg))
SYM(void, ibv_ack_cq_events, (struct vb_cq *cq, unsigned nr))
SYM(struct vb_qp *, ibv_create_qp, (struct vb_pd *pd, struct vb_qp_init_attr *attr))
SYM(int, ibv_modify_qp, (struct vb_qp *qp, struct vb_qp_attr *attr, int mask))
SYM(int, ibv_query_qp,
    (struct vb_qp *qp, struct vb_qp_attr *ret, int mask, struct vb_qp_init_attr *ret_init))
SYM(int, ibv_destroy_qp, (struct vb_qp *qp))
SYM(const char *, ibv_wc_status_str, (uint32_t status))

#undef SYM
#undef OPT
