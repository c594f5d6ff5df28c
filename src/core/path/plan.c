/* SPDX-License-Identifier: MIT */
/*
 * Which hops a request takes.
 *
 * A plan has a device hop, or none for host memory, and a list of file hops.  Where the caller
 * lists no file hops, those of a read are CACHED, DIRECT, BUFFERED, and those of a write DIRECT,
 * BUFFERED. CACHED serves what the page cache holds.  ahead.c takes DIRECT away from small reads
 * that go through a file front to back, and PST_SMALL_WRITE takes it away from small writes.
 *
 * A plan has a reason (why, detail) if DIRECT is wanted and not possible, if it passes over a hop
 * that the caller listed, or if threads stand in for io_uring.  A file system in memory has no disk
 * below it, so DIRECT is not wanted there.
 *
 * A strict request with a reason, MEMLOCK excepted, fails with -EOPNOTSUPP.  If the plan has the
 * reason, the request fails before any byte moves.
 */
#include <linux/magic.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "window/window.h"
#include "gds/path/gds.h"
#include "core/engine/share.h"
#include "core/path/ahead.h"
#include "core/path/pagecache.h"
#include "core/path/plan.h"
#include "core/path/proof.h"
#include "core/path/small.h"
#include "core/path/window_cache.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif

/* Is there a window on the memory's first byte?  If not, *ret_err says why. */
static bool has_window(const struct pst_mem *m, bool *ret_proven, int *ret_err)
{
	struct cache_user me = { .now = now_ns() };
	struct cached_window *cached_window = NULL;
	const struct window *w;
	uint64_t at;

	w = window_cache_get(&me, m->region, m->off, &at, &cached_window, ret_err);
	if (!w)
		return false;
	*ret_proven = w->verdict;
	window_cache_put(&me, cached_window);
	return true;
}

enum pst_why plan_path_reason(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			      uint32_t path, int *ret_detail)
{
	const struct local_file *lf = f->lf;
	const struct proof *proof = f->direct[op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ];
	bool proven;

	*ret_detail = 0;
	switch (path) {
	case PST_PATH_DIRECT:
		if (lf->flags & PST_FILE_PLAIN)
			return PST_WHY_NO_DIRECT;
		if (lf->fd_direct < 0) {
			*ret_detail = lf->detail;
			return lf->why ? lf->why : PST_WHY_NO_DIRECT;
		}
		if (proof_is_bad(proof) ||
		    (proof_state(proof) != PST_STATE_PROVEN && !plan_reader(f)))
			return PST_WHY_NOT_PROVEN;
		if (lf->direct_bad)
			return PST_WHY_DIRECT_ERROR;
		return PST_WHY_NONE;
	case PST_PATH_CACHED:
		return op == PST_OP_READ ? PST_WHY_NONE : PST_WHY_DIRECTION;
	case PST_PATH_BUFFERED:
		return PST_WHY_NONE;
	case PST_PATH_STAGED:
		return mem_ops_of(m)->caps & MEM_CAP_COPY ? PST_WHY_NONE : PST_WHY_NO_PROVIDER;
	case PST_PATH_PAGECACHE:
		if (op != PST_OP_READ)
			return PST_WHY_DIRECTION;
		if (!mem_ops_of(m)->pin_file)
			return PST_WHY_NO_PROVIDER;
		return lf->flags & PST_FILE_STABLE ? PST_WHY_NONE : PST_WHY_NOT_STABLE;
	case PST_PATH_WINDOW:
		if (mem_on_host(m))
			return PST_WHY_NO_PROVIDER;
		return has_window(m, &proven, ret_detail) ? PST_WHY_NONE : PST_WHY_NO_WINDOW;
	case PST_PATH_GDS:
		return gds_reason(f, m, op, ret_detail);
	default:
		return PST_WHY_NO_PROVIDER;
	}
}

static void plan_add(struct plan *p, uint32_t path)
{
	unsigned i;

	for (i = 0; i < p->nr_hops && i < HOPS_MAX; i++)
		if (p->hop[i] == path)
			return;
	if (i < HOPS_MAX) {
		p->hop[i] = (uint8_t)path;
		p->nr_hops = (uint8_t)(i + 1);
	}
}

static void plan_reason(struct plan *p, uint32_t why, int detail)
{
	if (p->why == PST_WHY_NONE) {
		p->why = why;
		p->detail = detail;
	}
}

/*
 * Small writes one at a time are done sooner through the page cache, the sync that follows
 * included.  But other processes may write the file by O_DIRECT, and nobody can ask them.  So small
 * writes do this only if the user sets PST_SMALL_WRITE.
 */
static uint64_t small_write_max;

static void small_write_env(void)
{
	const char *text = secure_getenv("PST_SMALL_WRITE");
	uint64_t max;

	if (!text || !*text)
		return;
	if (size_parse(text, &max) < 0)
		log_warn("PST_SMALL_WRITE: %s, ignoring", err_text());
	else
		small_write_max = max;
}

static bool plan_buffered_write(const struct req *r)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (r->io.op != PST_OP_WRITE || r->io.policy || req_local(r)->block_device)
		return false;
	(void)pthread_once(&once, small_write_env);
	return r->total <= small_write_max;
}

static void plan_auto_hops(struct req *r, struct plan *p)
{
	const struct local_file *lf = req_local(r);
	enum pst_why why;
	int detail;

	if (r->io.op == PST_OP_READ)
		plan_add(p, PST_PATH_CACHED);
	p->buffered_write = plan_buffered_write(r);
	if (lf->memory_fs || (lf->flags & PST_FILE_PLAIN) || p->buffered_write) {
		/* There is no disk to go to directly, or the caller wants none of it. */
		plan_add(p, PST_PATH_BUFFERED);
		return;
	}
	why = plan_path_reason(r->io.file, req_mem(r), r->io.op, PST_PATH_DIRECT, &detail);
	if (why == PST_WHY_NONE)
		plan_add(p, PST_PATH_DIRECT);
	else
		plan_reason(p, why, detail);
	plan_add(p, PST_PATH_BUFFERED);
}

static int plan_refuse(struct req *r, const struct plan *p, const char *what)
{
	char text[200];

	r->why = p->why;
	r->detail = p->detail;
	return err_set(EOPNOTSUPP, "%s: %s", what,
		       pst_why_text(p->why, p->detail, text, sizeof(text)));
}

bool plan_path_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op, uint32_t path)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	const struct proof *p;
	bool proven;
	int err;

	switch (path) {
	case PST_PATH_CACHED:
	case PST_PATH_BUFFERED:
		return true; /* what the other paths are compared with */
	case PST_PATH_DIRECT:
		return proof_state(f->direct[op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ]) ==
		       PST_STATE_PROVEN;
	case PST_PATH_WINDOW:
		if (mem_on_host(m))
			return false;
		return has_window(m, &proven, &err) && proven;
	case PST_PATH_GDS:
		return gds_proven(f, m, op);
	case PST_PATH_STAGED:
		mem_ops_of(m)->device_info(m->region->alloc->device, &dev);
		p = proof_copies(&dev);
		return p && proof_state(p) == PST_STATE_PROVEN;
	default:
		return false;
	}
}

struct local_file *plan_reader(const struct pst_file *f)
{
	return f->lf->flags & PST_FILE_READ ? f->lf : f->reader;
}

bool plan_can_judge(const struct req *r)
{
	const struct pst_seg *s = r->cur.segs;

	return r->cur.nr == 1 &&
	       (s->count < 2 || (s->file_stride >= s->len && s->mem_stride >= s->len));
}

#define FILE_HOPS                                                        \
	(PST_PATH_BIT(PST_PATH_DIRECT) | PST_PATH_BIT(PST_PATH_CACHED) | \
	 PST_PATH_BIT(PST_PATH_BUFFERED))

/* Walk the caller's list.  Returns the set of listed paths. */
static uint32_t plan_listed(struct req *r, struct plan *p)
{
	uint32_t listed = 0;

	for (uint64_t list = r->io.policy; list; list >>= 4) {
		uint32_t path = list & 15;
		bool file_hop = PST_PATH_BIT(path) & FILE_HOPS;
		enum pst_why why;
		int detail;

		if (!path)
			continue;
		listed |= PST_PATH_BIT(path);
		why = plan_path_reason(r->io.file, req_mem(r), r->io.op, path, &detail);
		if (why == PST_WHY_NONE && file_hop)
			plan_add(p, path);
		else if (why == PST_WHY_NONE && !p->dev)
			p->dev = (uint8_t)path;
		else if (why != PST_WHY_NONE && (file_hop ? !p->nr_hops : !p->dev))
			plan_reason(p, why, detail);
	}
	p->listed = listed & FILE_HOPS;
	if (!p->listed)
		plan_auto_hops(r, p);
	return listed;
}

/*
 * True if O_DIRECT leaves no edges: every piece begins and ends on the file's alignment, and its
 * memory, where the kernel writes to it, on the memory's.
 */
static bool plan_aligned(const struct req *r)
{
	const struct local_file *lf = req_local(r);
	const struct pst_mem *m = req_mem(r);
	uint64_t base = m->region->alloc->base.va + m->off;
	bool write = r->io.op == PST_OP_WRITE, host = mem_on_host(m);
	uint64_t unit = write ? MAX(PAGE, lf->off_align) : lf->off_align;

	if (!host && !write)
		return true; /* into a slot, which takes the blocks around a piece too */
	for (uint64_t i = 0; i < r->cur.nr; i++) {
		const struct pst_seg *s = &r->cur.segs[i];
		uint64_t file = s->file_off | s->len, mem = base + s->mem_off;

		if (s->count > 1) {
			file |= s->file_stride;
			mem |= s->mem_stride;
		}
		if ((file & (unit - 1)) || (host && (mem & (lf->mem_align - 1))))
			return false;
	}
	return true;
}

/*
 * Sets the device-side choices: window, pool, page cache.
 *
 * Pages of a stable file may serve the device directly.  If the caller leaves the choice, they do
 * once they are pinned.  If the path is listed, they are pinned at once.  They never serve a
 * request with a checksum, which the CPU would have to take from the mapping.
 */
static void plan_pages(struct req *r, struct plan *p, uint32_t listed)
{
	const struct mem_alloc *a = req_mem(r)->region->alloc;
	int detail;

	p->window = !listed && !(r->io.flags & PST_IO_CRC32C) && small_enabled();
	p->staged = p->dev == PST_PATH_STAGED || (listed & PST_PATH_BIT(PST_PATH_STAGED));
	p->pin_now = p->dev == PST_PATH_PAGECACHE;
	if (!p->pin_now && (listed & ~FILE_HOPS))
		return;
	if ((r->io.flags & PST_IO_CRC32C) ||
	    plan_path_reason(r->io.file, req_mem(r), r->io.op, PST_PATH_PAGECACHE, &detail))
		return;
	p->map = pagecache_mapping(r->io.file, a->ops, a->device);
}

/*
 * The caller listed WINDOW.  O_DIRECT does not reach one, and the CPU would have to load a
 * checksum's bytes from the device.
 */
static void plan_window(const struct req *r, struct plan *p, uint32_t listed)
{
	bool read = r->io.op == PST_OP_READ;
	uint8_t hops[HOPS_MAX];
	unsigned nr = 0;

	p->staged = p->restage = listed & PST_PATH_BIT(PST_PATH_STAGED);
	for (unsigned i = 0; i < p->nr_hops; i++)
		if (p->hop[i] != PST_PATH_DIRECT)
			hops[nr++] = p->hop[i];
	if ((r->io.flags & PST_IO_CRC32C) ||
	    (read && (p->staged ? p->hop[0] != PST_PATH_CACHED : !nr))) {
		plan_reason(p, PST_WHY_NO_PROVIDER, (int)(r->io.flags & PST_IO_CRC32C));
		p->dev = p->staged ? PST_PATH_STAGED : 0;
	} else if (read && !p->staged) {
		memcpy(p->hop, hops, nr);
		p->nr_hops = (uint8_t)nr;
	}
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
		if (listed && !(listed & FILE_HOPS))
			return plan_refuse(r, &p, "none of the listed paths serves host memory");
	} else if (!p.dev) {
		if (listed & ~FILE_HOPS)
			return plan_refuse(r, &p, "none of the listed paths reaches this memory");
		p.dev = PST_PATH_STAGED;
	}
	if (p.dev == PST_PATH_WINDOW)
		plan_window(r, &p, listed);
	else if (p.dev)
		plan_pages(r, &p, listed);
	if (!mem_on_host(m) && !p.dev)
		return plan_refuse(r, &p, "none of the listed paths serves this request");
	if (!p.nr_hops)
		return plan_refuse(r, &p, "none of the listed paths reaches this file");
	if (r->q->backend_reason)
		plan_reason(&p, r->q->backend_reason, r->q->backend_detail);
	else if (p.dev && share_without_uring(r->share, r->q))
		plan_reason(&p, PST_WHY_NO_URING, ENOMEM);
	if ((r->io.flags & PST_IO_STRICT) && p.why)
		return plan_refuse(r, &p, "strict, and a better path is not possible");
	*ret = p;
	return 0;
}

/*
 * True if the list has a path whose plan must not be kept.  The verdict on GDS may come at any
 * time; one allocation has a window where others have none.
 */
static bool lists_volatile(uint64_t policy)
{
	for (; policy; policy >>= 4)
		if ((policy & 15) == PST_PATH_GDS || (policy & 15) == PST_PATH_WINDOW)
			return true;
	return false;
}

/*
 * Programs send the same kind of request again and again, so each queue keeps its last plan.
 * O_DIRECT may have gone bad since: that is looked at here, and again when a hop is taken.
 */
static bool plan_kept(const struct req *r, const struct plan_memo *memo)
{
	enum proof_dir dir = r->io.op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ;
	const struct mem_alloc *a = req_mem(r)->region->alloc;

	return !lists_volatile(r->io.policy) && memo->file == r->io.file && memo->ops == a->ops &&
	       memo->device == a->device && memo->op == r->io.op && memo->flags == r->io.flags &&
	       memo->policy == r->io.policy &&
	       memo->plan.buffered_write == plan_buffered_write(r) && !req_local(r)->direct_bad &&
	       !proof_is_bad(r->io.file->direct[dir]);
}

int plan_make(struct req *r)
{
	struct plan_memo *memo = &r->q->memo;
	struct plan *p = &r->plan;

	if (!plan_kept(r, memo)) {
		int err = plan_find(r, p);

		if (err < 0)
			return err;
		*memo = (struct plan_memo){
			.file = r->io.file,
			.ops = mem_ops_of(req_mem(r)),
			.device = req_mem(r)->region->alloc->device,
			.op = r->io.op,
			.flags = r->io.flags,
			.policy = r->io.policy,
			.plan = *p,
		};
	}
	*p = memo->plan;
	if (p->hop[0] == PST_PATH_DIRECT &&
	    (r->io.op == PST_OP_WRITE || p->nr_hops == 1 || (r->io.flags & PST_IO_STRICT)) &&
	    unlikely(!plan_aligned(r))) {
		uint32_t unit = req_local(r)->off_align;

		p->unaligned = true;
		plan_reason(p, PST_WHY_UNALIGNED,
			    (int)(r->io.op == PST_OP_WRITE ? MAX(PAGE, unit) : unit));
		if (p->nr_hops == 1 || (r->io.flags & PST_IO_STRICT))
			return plan_refuse(r, p, "O_DIRECT alone cannot serve this request");
		p->hop[0] = p->hop[1];
		p->nr_hops = 1;
	}
	r->why = p->why;
	r->detail = p->detail;
	return 0;
}

/* ------------------------------------------------------------ residency */

/*
 * An RWF_NOWAIT read that misses starts read-ahead, which costs the disk the same bytes
 * twice.  So cachestat(2) (Linux 6.5) is asked first, until the file has proven warm;
 * and after misses fewer and fewer requests ask.
 */
#define WARM_SURE 8
#define WARM_BACKOFF_MAX 64
#define WARM_ASK_LEN KIB(64)

/* local_file.warm, unpacked. */
struct warm {
	uint8_t hits;    /* in a row, up to WARM_SURE: then asking is not needed */
	uint8_t skip;    /* requests that go without asking */
	uint8_t backoff; /* how many these were at first, after the last miss */
};

static struct warm warm_get(const struct local_file *lf)
{
	int v = atomic_load_explicit(&lf->warm, memory_order_relaxed);

	return (struct warm){ (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16) };
}

static void warm_set(struct local_file *lf, struct warm w)
{
	atomic_store_explicit(&lf->warm, w.hits | w.skip << 8 | w.backoff << 16,
			      memory_order_relaxed);
}

struct cachestat_range {
	uint64_t off, len;
};

struct cachestat {
	uint64_t nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted;
};

bool plan_at_end(const struct local_file *lf, uint64_t off)
{
	uint64_t size;

	if (lf->may_hang || (!lf->memory_fs && !lf->block_device && !major(lf->dev) &&
			     lf->fs_magic != OVERLAYFS_SUPER_MAGIC))
		return false;
	return local_file_size(lf, &size) == 0 && off >= size;
}

/*
 * A file of an overlay has its pages in the file system below, where cachestat(2) does not
 * look; a mapping leads there.  The mapping is not touched.
 */
static int resident_below(const struct local_file *lf, uint64_t off, uint64_t len)
{
	uint64_t start = align_down(off, PAGE), end = align_up(off + len, PAGE);
	unsigned char vec[1024];

	for (uint64_t n; start < end; start += n) {
		void *p;
		int r;

		n = MIN(end - start, sizeof(vec) * PAGE);
		p = mmap(NULL, n, PROT_READ, MAP_SHARED, lf->fd, (off_t)start);
		if (p == MAP_FAILED)
			return -1;
		r = mincore(p, n, vec);
		(void)munmap(p, n);
		if (r < 0)
			return -1;
		for (uint64_t i = 0; i < n / PAGE; i++)
			if (!(vec[i] & 1))
				return plan_at_end(lf, start + i * PAGE);
	}
	return 1;
}

/* 1 resident, 0 not, -1 this kernel cannot tell. */
static int resident(const struct local_file *lf, uint64_t off, uint64_t len)
{
	struct cachestat_range range = { off, len };
	struct cachestat cs;
	uint64_t first = off / PAGE, end = align_up(off + len, PAGE) / PAGE;

	if (lf->fs_magic == OVERLAYFS_SUPER_MAGIC)
		return resident_below(lf, off, len);
	if (syscall(__NR_cachestat, lf->fd, &range, &cs, 0) < 0)
		return -1;
	return cs.nr_cache >= end - first ||
	       (cs.nr_cache && plan_at_end(lf, (first + cs.nr_cache) * PAGE));
}

bool plan_nowait(const struct local_file *lf)
{
	return lf->fs_magic != OVERLAYFS_SUPER_MAGIC;
}

bool plan_resident(const struct local_file *lf, uint64_t off, uint64_t len)
{
	return lf->memory_fs || resident(lf, off, len) > 0;
}

bool plan_try_cached(const struct req *r, uint64_t off, uint64_t len)
{
	struct local_file *lf = req_local(r);
	struct warm w = warm_get(lf);
	bool skip = w.skip && !r->plan.listed;
	int res;

	if (lf->memory_fs || w.hits >= WARM_SURE)
		return true;
	/* Read-ahead is what is wanted there, but a file system that may hang is asked first. */
	if (r->plan.ahead && plan_nowait(lf) && !lf->may_hang)
		return true;
	/* To ask costs nothing beside many bytes, and the file may have become warm. */
	res = skip && len < WARM_ASK_LEN ? -1 : resident(lf, off, len);
	if (res < 0 && skip) {
		w.skip--;
		warm_set(lf, w);
		return false;
	}
	if (res == 0 && !(r->plan.listed && plan_at_end(lf, off))) {
		plan_cached(r, false);
		return false;
	}
	return true;
}

bool plan_is_warm(const struct local_file *lf)
{
	return warm_get(lf).hits >= WARM_SURE;
}

void plan_cached(const struct req *r, bool hit)
{
	struct local_file *lf = req_local(r);
	struct warm w = warm_get(lf);

	/* Bytes that were read ahead say nothing of the rest of the file. */
	if (r->plan.ahead || (hit && w.hits >= WARM_SURE))
		return;
	if (hit) {
		w = (struct warm){ .hits = (uint8_t)(w.hits + 1) };
	} else {
		w.backoff = w.hits ? 1 : (uint8_t)MIN(w.backoff * 2 + 1, WARM_BACKOFF_MAX);
		w.hits = 0;
		w.skip = w.backoff;
	}
	warm_set(lf, w);
}
