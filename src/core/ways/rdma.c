/* SPDX-License-Identifier: MIT */
/*
 * RDMA: network cards move the bytes.  The hop of pst_peer_open(), and of files of a storage
 * service, where both sides have a device.  TCP stands in for it when it cannot serve, or ends in
 * the middle.
 */
#include "core/queue/req.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/way.h"

static int rdma_err(const struct file *f)
{
	return f->ops->rdma_err ? f->ops->rdma_err(f) : ENODEV;
}

static enum pst_why rdma_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			     int *ret_detail)
{
	(void)m;
	(void)op;
	if (!f->file->ops->rdma_err)
		return PST_WHY_NO_PROVIDER;
	*ret_detail = rdma_err(f->file);
	return *ret_detail ? PST_WHY_NO_RDMA : PST_WHY_NONE;
}

static bool rdma_wanted(const struct req *r)
{
	return req_file(r)->ops->hop == PST_PATH_RDMA;
}

/* A connection by RDMA ends at any time. */
static bool rdma_varies(const struct req *r)
{
	return req_file(r)->ops->rdma_err;
}

static enum pst_why rdma_fit(struct part *p, int *ret_detail)
{
	*ret_detail = rdma_err(req_file(p->req));
	if (*ret_detail && p->hop + 1u < req_plan(p->req)->nr_hops)
		return PST_WHY_NO_RDMA;
	p->op.flags = IO_OP_RDMA;
	return PST_WHY_NONE;
}

/* A request that lists only this path gets the error. */
static enum pst_why rdma_miss(const struct part *p, int err, int *ret_detail)
{
	int broken = p->op.rdma_err ? p->op.rdma_err : rdma_err(req_file(p->req));

	if (!err || !broken || p->hop + 1u >= req_plan(p->req)->nr_hops ||
	    p->req->io.flags & PST_IO_STRICT)
		return PST_WHY_NONE;
	*ret_detail = broken;
	return PST_WHY_NO_RDMA;
}

const struct path_ops path_rdma = {
	.path = PST_PATH_RDMA,
	.why = rdma_why,
	.wanted = rdma_wanted,
	.varies = rdma_varies,
	.fit = rdma_fit,
	.miss = rdma_miss,
};
