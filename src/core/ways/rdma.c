/* SPDX-License-Identifier: MIT */
/*
 * RDMA: network cards move the bytes.  This is the hop for files of pst_peer_open(), and for files
 * of a storage service, if both sides have a card.  If RDMA cannot serve, or breaks during a
 * request, TCP replaces this hop.
 *
 * If a card of this machine reaches an accelerator's memory, the card of a storage service's server
 * reaches it too.  The caller's thread then moves the request without staging memory.  Memory that
 * no card reaches is staged, and the card moves the bytes of the slots.  A dma-buf, which cannot be
 * staged, is instead moved by the CPU through a window.
 */
#include <stdlib.h>

#include "core/queue/object.h"
#include "core/queue/req.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/way.h"

/* Least bytes of a piece that goes into device memory without a slot: a registration costs some 100
 * us, and a window serves shorter pieces (SMALL_MAX in window.c). */
#define DEVICE_MIN KIB(64)

/* The data of this path for an allocation. */
struct rdma_region {
	_Atomic int err;      /* errno with which no card reaches the allocation; 0: unknown */
	_Atomic bool reached; /* a card has reached the allocation */
};

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

/* Return true for a file whose RDMA connection may end: each request needs a new plan. */
static bool rdma_varies(const struct req *r)
{
	return req_file(r)->ops->rdma_err;
}

/* Return true if the card itself reaches the device memory, so that no slot or window is used. */
static bool rdma_on_device(const struct req *r)
{
	return req_plan(r)->dev == PST_PATH_RDMA;
}

static enum pst_why rdma_fit(struct part *p, int *ret_detail)
{
	*ret_detail = rdma_err(req_file(p->req));
	if (*ret_detail && (p->hop + 1u < req_plan(p->req)->nr_hops || rdma_on_device(p->req)))
		return PST_WHY_NO_RDMA;
	p->op.flags = IO_OP_RDMA;
	if (rdma_on_device(p->req)) {
		p->op.flags |= IO_OP_DEVICE;
		p->op.device = req_mem(p->req)->region->alloc;
		/* rdma_reach() added 1 */
		p->op.device_off = (uintptr_t)p->data - 1 + (p->op.off - p->off);
	}
	return PST_WHY_NONE;
}

/* ---------------------------------------------------------- memory of devices */

static _Atomic(void *) *rdma_kept(const struct req *r)
{
	return &req_mem(r)->region->by_path[PST_PATH_RDMA];
}

/* Return the path's data for the request's allocation; NULL without memory. */
static struct rdma_region *rdma_region_get(const struct req *r)
{
	struct rdma_region *kept = atomic_load_explicit(rdma_kept(r), memory_order_acquire);

	return kept ? kept : path_keep(rdma_kept(r), calloc(1, sizeof(*kept)));
}

static void rdma_region_refused(const struct req *r, int err)
{
	struct rdma_region *kept = rdma_region_get(r);

	/* Do not remember errors that may be temporary: a lack of room, or the loss of one
	 * connection. */
	if (kept && err != ENOMEM && err != EAGAIN && err != EIO && err != ENODEV)
		atomic_store(&kept->err, err);
}

static void rdma_region_end(struct region *r)
{
	free(r->by_path[PST_PATH_RDMA]);
}

static bool rdma_is_listed(const struct req *r, uint32_t path)
{
	for (uint64_t list = r->io.policy; list; list >>= 4)
		if ((list & 15) == path)
			return true;
	return false;
}

static bool pieces_are_long(const struct req *r)
{
	uint64_t nr = 0;

	for (uint64_t i = 0; i < r->cur.nr; i++)
		nr += MAX(r->cur.segs[i].count, UINT64_C(1));
	return r->total / nr >= DEVICE_MIN;
}

/* Return true if requests on this file and kind of memory can do without slots. */
static bool rdma_takes(const struct req *r)
{
	return req_file(r)->caps & FILE_DEVICE && !(r->io.flags & REQ_SUMS) && !r->io.stream &&
	       req_mem(r)->region->alloc->ops->lands;
}

/* Return 0 if the card may move the bytes to or from the device memory; else the errno that is the
 * reason, or -1 if there is nothing to report. */
static int rdma_refusal(const struct req *r, const struct rdma_region *kept)
{
	const struct mem_alloc *a = req_mem(r)->region->alloc;

	if (rdma_is_listed(r, PST_PATH_STAGED) || !pieces_are_long(r) || rdma_err(req_file(r)) ||
	    mem_alive(a) < 0)
		return -1;
	if (!a->ops->lands(a))
		return mem_copies(a->ops) ? -1 : EOPNOTSUPP;
	return kept ? atomic_load_explicit(&kept->err, memory_order_relaxed) : ENOMEM;
}

/* Let the card reach the device memory without staging, if possible. */
static int rdma_choose(struct req *r)
{
	bool strict = r->io.policy && r->io.flags & PST_IO_STRICT;
	struct rdma_region *kept;
	struct plan *p = req_plan(r);
	bool slots = p->dev != PST_PATH_RDMA; /* the memory can be staged */
	int err;

	if ((slots && p->dev != path_base()) || p->hop[0] != PST_PATH_RDMA || p->pieces ||
	    p->from || !rdma_takes(r))
		return 0;
	kept = rdma_region_get(r);
	err = rdma_refusal(r, kept);
	if (err > 0 && (!r->io.policy || !slots))
		req_reason(r, PST_WHY_NO_RDMA, err);
	/* Use slots if only this hop is listed and the card cannot reach the memory.  A strict
	 * request has only one attempt, so it uses slots until a card has reached the memory. */
	if (slots &&
	    (err || (strict && !atomic_load_explicit(&kept->reached, memory_order_relaxed))))
		return 0;
	if (err)
		return window_instead(r);
	p->dev = PST_PATH_RDMA;
	p->restage = true;
	return 0;
}

/* Return the offset in the allocation plus 1, as an address. part.c only calculates with it, and no
 * CPU uses it.  The memory may have no real address, and NULL would mean that no hop reaches the
 * memory. */
static char *rdma_reach(struct req *r, struct piece *pc, struct hold **ret_hold)
{
	(void)ret_hold;
	return (char *)(uintptr_t)(req_mem(r)->off + pc->mem_off + 1);
}

/* ---------------------------------------------------------------------- ends */

static void rdma_hit(const struct part *p)
{
	struct rdma_region *kept = rdma_on_device(p->req) ? rdma_region_get(p->req) : NULL;

	if (kept && !atomic_load_explicit(&kept->reached, memory_order_relaxed))
		atomic_store(&kept->reached, true);
}

/* Return the reason if RDMA broke.  A request that lists only this path gets the error instead. */
static enum pst_why rdma_miss(const struct part *p, int err, int *ret_detail)
{
	int broken = p->op.rdma_err ? p->op.rdma_err : rdma_err(req_file(p->req));

	if (err && broken && rdma_on_device(p->req)) {
		if (p->op.rdma_mem_err)
			rdma_region_refused(p->req, p->op.rdma_mem_err);
		*ret_detail = broken;
		return PST_WHY_NO_RDMA;
	}

	if (!err || !broken || p->hop + 1u >= req_plan(p->req)->nr_hops ||
	    p->req->io.flags & PST_IO_STRICT)
		return PST_WHY_NONE;
	*ret_detail = broken;
	return PST_WHY_NO_RDMA;
}

const struct path_ops path_rdma = {
	.path = PST_PATH_RDMA,
	.by = &req_by_caller,
	.choose = rdma_choose,
	.reach = rdma_reach,
	.region_end = rdma_region_end,
	.why = rdma_why,
	.wanted = rdma_wanted,
	.varies = rdma_varies,
	.takes = rdma_takes,
	.fit = rdma_fit,
	.hit = rdma_hit,
	.miss = rdma_miss,
};
