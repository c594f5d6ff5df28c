/* SPDX-License-Identifier: MIT */
/*
 * The choice of hops for a request.
 *
 * A plan has a device hop, or none for host memory, and a list of file hops.  If the caller lists
 * no file hops, a read gets CACHED, DIRECT, BUFFERED, and a write DIRECT, BUFFERED.  Files whose
 * provider has its own hop get only that one.  CACHED serves only bytes in the page cache.  ahead.c
 * removes DIRECT for small sequential reads, and PST_SMALL_WRITE removes it for small writes.
 *
 * A plan has a reason (why, detail) if DIRECT is wanted but impossible, if the plan skips a hop
 * that the caller listed, or if threads replace io_uring.  DIRECT is not wanted on a file system in
 * memory, which has no disk.
 *
 * A strict request with a reason other than MEMLOCK fails with -EOPNOTSUPP.  If the plan has the
 * reason, the request fails before any byte moves.
 */
#include <pthread.h>
#include <string.h>

#include "base/err.h"
#include "core/queue/above.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/way.h"

static bool plan_has(const struct plan *p, uint32_t path)
{
	for (unsigned i = 0; i < p->nr_hops; i++)
		if (p->hop[i] == path)
			return true;
	return false;
}

static void plan_add(struct plan *p, uint32_t path)
{
	if (!plan_has(p, path) && p->nr_hops < HOPS_MAX)
		p->hop[p->nr_hops++] = (uint8_t)path;
}

void plan_reason(struct plan *p, uint32_t why, int detail)
{
	if (p->why == PST_WHY_NONE) {
		p->why = why;
		p->detail = detail;
	}
}

/* Add the hop of the file's provider, and the hop that replaces this hop when it cannot serve a
 * request. */
static void plan_own_hops(struct req *r, struct plan *p)
{
	const struct file_ops *ops = req_file(r)->ops;
	enum pst_why why = PST_WHY_NONE;
	int detail = 0;

	if (ops->or_hop)
		why = path_why(r->io.file, req_mem(r), r->io.op, ops->hop, &detail);
	if (why == PST_WHY_NONE)
		plan_add(p, ops->hop);
	else
		plan_reason(p, why, detail);
	if (ops->or_hop)
		plan_add(p, ops->or_hop);
}

static void plan_auto_hops(struct req *r, struct plan *p)
{
	if (req_file(r)->ops->hop) {
		plan_own_hops(r, p);
		return;
	}
	for (const struct path_ops **at = path_list; *at; at++) {
		const struct path_ops *ops = *at;
		enum pst_why why;
		int detail;

		if (!ops->fit || (ops->wanted && !ops->wanted(r)))
			continue;
		why = path_why(r->io.file, req_mem(r), r->io.op, ops->path, &detail);
		if (why == PST_WHY_NONE)
			plan_add(p, ops->path);
		else if (!ops->quiet)
			plan_reason(p, why, detail);
	}
}

static int plan_refuse(struct req *r, const struct plan *p, const char *what)
{
	char text[200];

	r->res.why = p->why;
	r->res.detail = p->detail;
	return err_set(EOPNOTSUPP, "%s: %s", what,
		       pst_why_text(p->why, p->detail, text, sizeof(text)));
}

struct file *plan_reader(const struct pst_file *f)
{
	return f->file->flags & PST_FILE_READ ? f->file : f->reader;
}

/* Add the paths of the caller's list to the plan.  Return the bit set of listed paths. */
static uint32_t plan_listed(struct req *r, struct plan *p)
{
	uint32_t listed = 0;

	for (uint64_t list = r->io.policy; list; list >>= 4) {
		uint32_t path = list & 15;
		bool file_hop = path_is_hop(path);
		enum pst_why why;
		int detail;

		if (!path)
			continue;
		listed |= PST_PATH_BIT(path);
		why = path_why(r->io.file, req_mem(r), r->io.op, path, &detail);
		if (why == PST_WHY_NONE && file_hop)
			plan_add(p, path);
		else if (why == PST_WHY_NONE && !p->dev)
			p->dev = (uint8_t)path;
		else if (why != PST_WHY_NONE && (file_hop ? !p->nr_hops : !p->dev))
			plan_reason(p, why, detail);
	}
	p->listed = listed & path_hops();
	if (!p->listed)
		plan_auto_hops(r, p);
	return listed;
}

/* Return the first device path that can serve the request, or 0. If cpu is true, consider only
 * paths whose bytes the CPU moves, else only the others.  *ret_why gets the reason of the first
 * path that serves this kind of memory. */
static uint8_t plan_first(const struct req *r, bool cpu, uint32_t *ret_why, int *ret_detail)
{
	enum pst_why why;
	int detail;

	for (const struct path_ops **at = path_list; *at; at++) {
		if ((*at)->fit || ((*at)->by == &req_by_caller) != cpu)
			continue;
		why = path_why(r->io.file, req_mem(r), r->io.op, (*at)->path, &detail);
		if (why == PST_WHY_NONE)
			return (uint8_t)(*at)->path;
		if (*ret_why == PST_WHY_NO_PROVIDER) {
			*ret_why = why;
			*ret_detail = detail;
		}
	}
	return 0;
}

/* Return true if the first file hop may reach the memory by itself. */
static bool plan_hop_takes(const struct req *r, const struct plan *p)
{
	const struct path_ops *ops = p->nr_hops ? path_get(p->hop[0]) : NULL;

	return ops && ops->takes && ops->takes(r);
}

/* Return the device path of a request whose caller listed none: the base path.  For memory that
 * cannot be staged, return the first path that can serve: one that uses the device, else the first
 * file hop, else one that uses the CPU. */
static uint8_t plan_device_path(const struct req *r, struct plan *p, bool can_stage)
{
	uint32_t why = PST_WHY_NO_PROVIDER;
	int detail = 0;
	uint8_t path;

	if (can_stage)
		return (uint8_t)path_base();
	path = plan_first(r, false, &why, &detail);
	if (!path && plan_hop_takes(r, p))
		return p->hop[0];
	if (!path)
		path = plan_first(r, true, &why, &detail);
	if (!path)
		plan_reason(p, why, detail);
	return path;
}

/* Choose the device path, and call plan() of every path. */
static void plan_device(struct req *r, struct plan *p, uint32_t listed)
{
	uint8_t base = (uint8_t)path_base();
	int detail;
	bool can_stage = path_why(r->io.file, req_mem(r), r->io.op, base, &detail) == PST_WHY_NONE;

	if (!p->dev)
		p->dev = plan_device_path(r, p, can_stage);
	if (!p->dev)
		return;
	p->staged = can_stage && (p->dev == base || (listed & PST_PATH_BIT(base)));
	for (const struct path_ops **at = path_list; *at; at++)
		if ((*at)->plan)
			(*at)->plan(r, p, listed);
}

/* Set the plan's reason if threads replace io_uring. */
static void plan_without_uring(const struct req *r, struct plan *p)
{
	int err = p->dev ? atomic_load(r->ring_err) : 0;

	if (r->q->backend_reason)
		plan_reason(p, r->q->backend_reason, r->q->backend_detail);
	else if (err)
		plan_reason(p, PST_WHY_NO_URING, err);
}

/* Set the alignment that the request must have if its first hop must move all bytes: for a write, a
 * strict request, or a plan with one hop.  A read into device memory needs no alignment, because
 * its slot has room for whole blocks. */
static void plan_masks(const struct req *r, struct plan *p)
{
	const struct file *file = req_file(r);
	bool write = r->io.op == PST_OP_WRITE, host = mem_on_host(req_mem(r));

	if (!path_ops_of(p->hop[0])->aligned || (!host && !write) ||
	    (!write && p->nr_hops > 1 && !(r->io.flags & PST_IO_STRICT)))
		return;
	p->off_mask = (uint32_t)(write ? MAX(PAGE, file->off_align) : file->off_align) - 1;
	p->mem_mask = host ? file->mem_align - 1 : 0;
}

static int plan_find(struct req *r, struct plan *ret)
{
	const struct pst_mem *m = req_mem(r);
	struct plan p = { 0 };
	uint32_t listed = 0;

	if (r->io.policy)
		listed = plan_listed(r, &p);
	else
		plan_auto_hops(r, &p);

	if (mem_on_host(m)) {
		if (listed && !(listed & path_hops()))
			return plan_refuse(r, &p, "none of the listed paths serves host memory");
		p.dev = 0;
	} else {
		if (!p.dev && (listed & ~path_hops()))
			return plan_refuse(r, &p, "none of the listed paths reaches this memory");
		plan_device(r, &p, listed);
		if (!p.dev)
			return plan_refuse(r, &p, "none of the listed paths serves this request");
	}
	if (!p.nr_hops)
		return plan_refuse(r, &p, "none of the listed paths reaches this file");
	if (!req_file(r)->ops->backend)
		plan_without_uring(r, &p);
	if ((r->io.flags & PST_IO_STRICT) && p.why)
		return plan_refuse(r, &p, "strict, and a better path is not possible");
	for (unsigned i = 0; path_list[i]; i++)
		if (path_list[i]->choose && (p.dev || plan_has(&p, path_list[i]->path)))
			p.asks |= (uint16_t)(1u << i);
	plan_masks(r, &p);
	*ret = p;
	return 0;
}

/* Return true if the plan may be wrong for the next request of the same kind. */
static bool plan_varies(const struct req *r)
{
	uint32_t listed = 0;

	for (uint64_t list = r->io.policy; list; list >>= 4)
		listed |= PST_PATH_BIT(list & 15);
	for (const struct path_ops **at = path_list; *at; at++)
		if ((*at)->varies && (*at)->varies(r) &&
		    (listed ? listed & PST_PATH_BIT((*at)->path) : (*at)->fit != NULL))
			return true;
	return false;
}

/* Return true if the queue's last plan serves this request.  Each queue keeps its last plan,
 * because programs mostly repeat the same kind of request. */
static inline bool plan_kept(const struct pst_io *io, const struct plan_memo *memo)
{
	const struct mem_alloc *a = io->mem->region->alloc;

	return memo->file == io->file && memo->ops == a->ops && memo->device == a->device &&
	       memo->op == io->op && memo->flags == io->flags && memo->policy == io->policy &&
	       memo->epoch == atomic_load_explicit(&path_epoch, memory_order_relaxed);
}

const struct plan *plan_of_read(const struct pst_queue *q, const struct pst_io *io)
{
	const struct plan_memo *memo = &queue_way(q)->memo;
	const struct plan *p = &memo->plan;

	return plan_kept(io, memo) && !(p->off_mask | p->mem_mask) ? p : NULL;
}

/* Return true if every piece has the alignment that the plan needs. */
static bool segs_aligned(const struct req *r, const struct plan *p)
{
	for (uint64_t i = 0; i < r->cur.nr; i++) {
		const struct pst_seg *s = &r->cur.segs[i];
		uint64_t off = s->file_off | s->len;
		uint64_t mem = p->mem_mask ? (uintptr_t)req_host(r, s->mem_off) : 0;

		if (s->count > 1) {
			off |= s->file_stride;
			mem |= s->mem_stride;
		}
		if ((off & p->off_mask) || (mem & p->mem_mask))
			return false;
	}
	return true;
}

static inline bool is_aligned(const struct req *r, const struct plan *p)
{
	if (unlikely(r->io.segs))
		return segs_aligned(r, p);
	return !((r->io.file_off | r->io.len) & p->off_mask) &&
	       !(p->mem_mask && (uintptr_t)req_host(r, r->io.mem_off) & p->mem_mask);
}

/* Handle a request that is not aligned as its first hop needs. */
static _cold_ int plan_unaligned(struct req *r, struct plan *p)
{
	p->unaligned = true;
	plan_reason(p, PST_WHY_UNALIGNED, (int)p->off_mask + 1);
	r->res.why = p->why;
	r->res.detail = p->detail;
	if (p->nr_hops == 1 || (r->io.flags & PST_IO_STRICT))
		return plan_refuse(r, p, "no listed path can serve all of this request");
	p->hop[0] = p->hop[1];
	p->nr_hops = 1;
	return 0;
}

/* Copy the queue's kept plan into the request. */
static inline int plan_take(struct req *r)
{
	struct plan *p = req_plan(r);

	atomic_store_explicit(&req_way(r)->compared, false, memory_order_relaxed);
	*p = queue_way(r->q)->memo.plan;
	r->res.why = p->why;
	r->res.detail = p->detail;
	if ((p->off_mask | p->mem_mask) && unlikely(!is_aligned(r, p)))
		return plan_unaligned(r, p);
	return 0;
}

static _cold_ int plan_anew(struct req *r)
{
	struct plan_memo new = {
		.file = plan_varies(r) ? NULL : r->io.file,
		.ops = mem_ops_of(req_mem(r)),
		.device = req_mem(r)->region->alloc->device,
		.op = r->io.op,
		.flags = r->io.flags,
		.policy = r->io.policy,
		.epoch = atomic_load(&path_epoch), /* read before why() of any path is called */
	};
	int err = plan_find(r, &new.plan);

	if (err < 0)
		return err;
	queue_way(r->q)->memo = new;
	return plan_take(r);
}

/* Make the plan of a read or write.  Return 0, or -EOPNOTSUPP with a sentence, and with the reason
 * in r->res. */
static inline int ways_plan_make(struct req *r)
{
	if (unlikely(!plan_kept(&r->io, &queue_way(r->q)->memo)))
		return plan_anew(r);
	return plan_take(r);
}

/* Set up a sync, which has no plan. */
static void choose_sync(struct req *r)
{
	if (r->q->backend_reason && !req_file(r)->ops->backend)
		req_reason(r, r->q->backend_reason, r->q->backend_detail);
}

int ways_choose(struct req *r)
{
	int err;

	r->ops = &req_by_caller;
	if (unlikely(r->io.op == PST_OP_SYNC)) {
		choose_sync(r);
		return 0;
	}
	err = ways_plan_make(r);
	for (unsigned asks = req_plan(r)->asks; err == 0 && asks; asks &= asks - 1)
		err = path_list[__builtin_ctz(asks)]->choose(r);
	if (err == 0 && req_plan(r)->dev)
		r->ops = path_ops_of(req_plan(r)->dev)->by;
	return err;
}

void ways_over(struct req *r)
{
	path_ops_of(r->tell)->over(r);
}

void ways_forget(struct pst_queue *q)
{
	queue_way(q)->memo.file = NULL;
}
