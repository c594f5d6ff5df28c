/* SPDX-License-Identifier: MIT */
/*
 * Small requests on device memory, moved by the CPU.
 *
 * For a few KiB, the CPU is faster than an engine that gets the request and starts a device copy.
 * So the caller's thread moves the bytes itself, through a window on the memory.
 *
 * A read of bytes that the page cache holds goes straight into the window, with a single copy by
 * the kernel.  For a write, the CPU loads the bytes through the window into a buffer; the request
 * then continues like a write from host memory.  caller.c does the file operations of both.  If a
 * read turns out not to be resident, the engine moves all of it.
 *
 * While an engine works for the queue, a window is opened only after many requests for it.
 *
 * When the first window on a kind of memory is proven, window/cost.c measures up to how many bytes
 * a window is faster.  A small request has at most SMALL_PIECES pieces.  While the engine works for
 * other queues, a single read of up to SINGLE_MAX bytes also counts as small (sched/single.c).
 */
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "window/window.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"
#include "core/ways/cached.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/way.h"
#include "core/ways/window_cache.h"

/* Maximum bytes of a request that may use a window although its policy does not list that path. */
#define SMALL_MAX KIB(64)
#define SINGLE_MAX MIB(1) /* maximum bytes of a single read for which its caller waits */
#define SMALL_PIECES 16u  /* maximum pieces of a request: each costs a system call */
/* maximum bytes of a write that pst_queue_submit() loads through a window: loads are slow */
#define LISTED_WRITE_MAX KIB(64)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool off; /* true if PST_WINDOW=off */

static void window_read_env(void)
{
	const char *env = secure_getenv("PST_WINDOW");

	off = env && strcmp(env, "off") == 0;
	if (env && !off && strcmp(env, "auto") != 0)
		log_warn("PST_WINDOW=%s is neither auto nor off, ignoring", env);
}

static bool small_enabled(void)
{
	(void)pthread_once(&once, window_read_env);
	return !off;
}

/* Return the offset of the first piece in the bounce buffer: its file offset modulo a page, as
 * O_DIRECT needs. */
static uint64_t bounce_lead(const struct req *r)
{
	return r->cur.segs[0].file_off & (PAGE - 1);
}

/* Release the window of a request that no longer uses it, or never did. */
static void window_release(struct req *r)
{
	hold_put(&r->q->holder, &req_way(r)->hold);
	single_end(r);
}

/* A part's use of a window whose memory provider must be told of uses by the CPU. */
struct told {
	struct hold hold;
	struct hold *under; /* hold of the cached window */
	const struct window *w;
	uint32_t rights;
};

static void told_put(const struct holder *by, struct hold *h)
{
	struct told *t = container_of(h, struct told, hold);

	window_end(t->w, t->rights);
	hold_put(by, &t->under);
	free(t);
}

/* Tell the memory's provider that the CPU uses the window.  On entry, *hold is the cached window's
 * hold.  On success, *hold is a new hold, and putting that hold ends the use.  Return 0 or an
 * errno; EAGAIN: try again later. */
static _cold_ int tell(const struct window *w, uint32_t op, struct hold **hold)
{
	struct told *t = malloc(sizeof(*t));
	int r;

	if (!t)
		return ENOMEM;
	*t = (struct told){
		.hold.put = told_put,
		.under = *hold,
		.w = w,
		.rights = op == PST_OP_READ ? PST_RIGHT_WRITE : PST_RIGHT_READ,
	};
	r = window_begin(w, t->rights, false);
	if (r < 0) {
		free(t);
		return -r;
	}
	*hold = &t->hold;
	return 0;
}

static char *window_reach(struct req *r, struct piece *p, struct hold **ret_hold)
{
	const struct pst_mem *m = req_mem(r);
	const struct window *w;
	uint64_t at;
	int err;

	if (req_way(r)->bounce)
		return req_way(r)->bounce + bounce_lead(r) + p->pos;
	*ret_hold = TAKE_PTR(req_way(r)->hold);
	w = window_cache_get(&r->q->holder, m->region, m->off + p->mem_off, &at, ret_hold, &err);
	if (w && unlikely(w->told))
		err = tell(w, r->io.op, ret_hold);
	if (w && unlikely(err == EAGAIN)) {
		req_way(r)->later = true;
		return NULL;
	}
	if (unlikely(!w || err)) {
		req_reason(r, PST_WHY_NO_WINDOW, err);
		return NULL;
	}
	p->len = MIN(p->len, w->len - at);
	return w->ptr + at;
}

/* Fill the bounce buffer through the window. */
static int small_load(struct req *r)
{
	const struct pst_mem *m = req_mem(r);
	struct cursor c = r->cur;
	const struct window *w;
	struct piece p;
	uint64_t at, n;
	int err = 0;

	req_way(r)->bounce = aligned_alloc(PAGE, align_up(bounce_lead(r) + r->total, PAGE));
	if (!req_way(r)->bounce)
		return ENOMEM;
	while (cursor_peek(&c, &p)) {
		w = window_cache_get(&r->q->holder, m->region, m->off + p.mem_off, &at,
				     &req_way(r)->hold, &err);
		if (!w) {
			free(TAKE_PTR(req_way(r)->bounce));
			break;
		}
		n = MIN(p.len, w->len - at);
		err = -window_load_if(w, at, req_way(r)->bounce + bounce_lead(r) + p.pos, n, false);
		if (unlikely(err)) {
			free(TAKE_PTR(req_way(r)->bounce));
			break;
		}
		cursor_skip(&c, n);
	}
	window_release(r);
	return err;
}

static bool few_pieces(const struct req *r)
{
	uint64_t nr = 0;

	for (uint64_t i = 0; i < r->cur.nr; i++) {
		nr += MAX(r->cur.segs[i].count, UINT64_C(1));
		if (nr > SMALL_PIECES || i == SMALL_PIECES)
			return false;
	}
	return true;
}

/* Return true if the read is alone in its queue, so that its caller waits for the copy.  Return
 * false if the device reads the file's bytes directly, because no CPU copies then. */
static bool is_awaited(const struct req *r)
{
	const struct pst_queue *q = r->q;

	return r->io.op == PST_OP_READ && r->total <= SINGLE_MAX && q->nr_inflight == 1 &&
	       list_empty(&q->prepared) && !req_plan(r)->from;
}

/* Return 0 if a window serves the request better; an errno if no window is possible; -1 if a window
 * is not faster. */
static int small_fits(struct req *r)
{
	const struct pst_mem *m = req_mem(r);
	bool write = r->io.op == PST_OP_WRITE;
	const struct window *w;
	struct piece p;
	uint64_t at, most;
	int err;

	if ((r->total > SMALL_MAX && !is_awaited(r)) || !few_pieces(r) || !cursor_peek(&r->cur, &p))
		return -1;
	if (write && req_plan(r)->from) /* the device writes to the file directly */
		return -1;
	if (!write &&
	    (req_plan(r)->hop[0] != PST_PATH_CACHED || !cached_worth(r, p.file_off, p.len)))
		return -1;
	/* Stage the first requests: opening a window of a large allocation takes as long as staging
	 * several, and many programs wrap memory for one request. */
	if (!window_cache_pays(m->region, m->off + p.mem_off))
		return -1;
	w = window_cache_get(&r->q->holder, m->region, m->off + p.mem_off, &at, &req_way(r)->hold,
			     &err);
	if (!w)
		return err;
	most = write ? w->load_max : w->store_max;
	if (r->total <= SMALL_MAX)
		return r->total <= most ? 0 : -1;
	/* Use a window only if the CPU was faster even with the longest measured copy. */
	return most == WINDOW_COST_MAX && single_begin(r) ? 0 : -1;
}

static char *window_reach_now(const struct holder *by, const struct pst_io *io,
			      struct hold **ret_hold)
{
	const struct pst_mem *m = io->mem;
	const struct window *w;
	uint64_t at;
	int err;

	if (io->policy || io->len > SMALL_MAX || !small_enabled())
		return NULL;
	w = window_cache_get(by, m->region, m->off + io->mem_off, &at, ret_hold, &err);
	if (!w || w->told || io->len > w->store_max || io->len > w->len - at ||
	    mem_alive(m->region->alloc) < 0)
		return NULL;
	return w->ptr + at;
}

/* Use a window if it is the faster path. */
static void choose_small(struct req *r)
{
	struct plan *p = req_plan(r);
	int err;

	if (r->io.policy || (r->io.flags & REQ_SUMS) || r->io.stream || p->pieces ||
	    !small_enabled())
		return;
	err = small_fits(r);
	if (err == 0 && mem_alive(req_mem(r)->region->alloc) < 0)
		err = -1; /* stage the request: the engine will find and report the error */
	if (err == 0 && r->io.op == PST_OP_WRITE)
		err = small_load(r);
	if (err > 0)
		req_reason(r, PST_WHY_NO_WINDOW, err);
	if (err) {
		window_release(r);
		return;
	}
	p->dev = PST_PATH_WINDOW;
	p->restage = true;
}

/* Remove the hops that cannot reach a window, such as O_DIRECT, from a plan.  Return the number of
 * hops left. */
static unsigned keep_copying_hops(struct plan *p)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < p->nr_hops; i++)
		if (path_get(p->hop[i])->copies)
			p->hop[nr++] = p->hop[i];
	return nr;
}

/* Return true if the caller lists DIRECT, or does not list WINDOW. */
static bool wants_direct(const struct plan *p, uint32_t listed)
{
	return !(listed & PST_PATH_BIT(PST_PATH_WINDOW)) ||
	       (p->listed & PST_PATH_BIT(PST_PATH_DIRECT));
}

static bool plan_has_direct(const struct plan *p)
{
	return memchr(p->hop, PST_PATH_DIRECT, p->nr_hops) != NULL;
}

/* Prepare a write of more bytes than pst_queue_submit() may load: the kernel loads them during the
 * write.  Used only for memory that no device copies.  Return 0 or an errno. */
static int write_from_window(struct req *r)
{
	unsigned nr;

	if (mem_copies(mem_ops_of(req_mem(r))))
		return EFBIG; /* a device copy is faster */
	if (plan_has_direct(req_plan(r)) && !r->io.policy) {
		req_reason(r, PST_WHY_NO_PROVIDER, 0);
		if (r->io.flags & PST_IO_STRICT)
			return EOPNOTSUPP;
	}
	nr = keep_copying_hops(req_plan(r));
	if (!nr)
		return EOPNOTSUPP;
	req_plan(r)->nr_hops = (uint8_t)nr;
	return 0;
}

/* Handle a request whose caller listed WINDOW, or whose memory only a window reaches.  Return 0 if
 * the window is ready, or if the request is staged because STAGED is listed too; else -errno. */
static int choose_listed(struct req *r)
{
	int err = r->io.stream ? EOPNOTSUPP : 0; /* a stream cannot order copies by the CPU */
	bool load = !err && r->io.op == PST_OP_WRITE, now = r->total <= LISTED_WRITE_MAX;

	if (mem_alive(req_mem(r)->region->alloc) < 0)
		return -EFAULT;
	if (load && now)
		err = small_load(r);
	if (load && (!now || err == EAGAIN)) /* EAGAIN: the memory is in use now, so let the kernel
					      * load the bytes later */
		err = write_from_window(r);
	if (!err)
		return 0;
	req_reason(r, PST_WHY_NO_WINDOW, err);
	if (!req_plan(r)->staged)
		return err_set(EOPNOTSUPP, "no window for this request: %s", err_name(err));
	req_plan(r)->dev = PST_PATH_STAGED;
	return 0;
}

int window_instead(struct req *r)
{
	struct plan *p = req_plan(r);
	char text[200];

	p->dev = PST_PATH_WINDOW;
	p->restage = false;
	if (r->io.op == PST_OP_READ)
		p->nr_hops = (uint8_t)keep_copying_hops(p);
	if (!p->nr_hops)
		req_reason(r, PST_WHY_NO_PROVIDER, 0);
	if (!p->nr_hops || (r->io.flags & PST_IO_STRICT && r->res.why))
		return err_set(EOPNOTSUPP, "no other path reaches this memory: %s",
			       pst_why_text(r->res.why, r->res.detail, text, sizeof(text)));
	return choose_listed(r);
}

/* -------------------------------------------------------------------- path */

/* Return true if a window on the memory's first byte is possible.  If not, set *ret_err. */
static bool has_window(const struct pst_mem *m, bool *ret_proven, int *ret_err)
{
	struct holder me = { .now = now_ns() };
	struct hold *hold = NULL;
	const struct window *w;
	uint64_t at;

	w = window_cache_get(&me, m->region, m->off, &at, &hold, ret_err);
	if (!w)
		return false;
	*ret_proven = w->verdict;
	hold_put(&me, &hold);
	return true;
}

static enum pst_why window_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			       int *ret_detail)
{
	bool proven;

	(void)f;
	(void)op;
	if (mem_on_host(m))
		return PST_WHY_NO_PROVIDER;
	return has_window(m, &proven, ret_detail) ? PST_WHY_NONE : PST_WHY_NO_WINDOW;
}

static bool window_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op)
{
	bool proven;
	int err;

	(void)f;
	(void)op;
	return !mem_on_host(m) && has_window(m, &proven, &err) && proven;
}

/*
 * Plan a request whose caller listed WINDOW.  O_DIRECT cannot reach a window, and for a checksum
 * the CPU would have to load the bytes from the device.
 */
static void window_plan(const struct req *r, struct plan *p, uint32_t listed)
{
	bool read = r->io.op == PST_OP_READ;
	struct plan copying = *p;
	unsigned nr;

	if (p->dev != PST_PATH_WINDOW)
		return;
	p->restage = p->staged;
	nr = keep_copying_hops(&copying);
	if ((r->io.flags & REQ_SUMS) ||
	    (read && (p->staged ? p->hop[0] != PST_PATH_CACHED : !nr))) {
		plan_reason(p, PST_WHY_NO_PROVIDER, (int)(r->io.flags & REQ_SUMS));
		p->dev = p->staged ? PST_PATH_STAGED : 0;
	} else if (read && !p->staged) {
		if (plan_has_direct(p) && wants_direct(p, listed))
			plan_reason(p, PST_WHY_NO_PROVIDER, 0);
		memcpy(p->hop, copying.hop, nr);
		p->nr_hops = (uint8_t)nr;
	}
}

static bool window_varies(const struct req *r)
{
	(void)r;
	return true; /* whether a window is possible differs between allocations */
}

static int window_choose(struct req *r)
{
	if (req_plan(r)->dev == PST_PATH_WINDOW)
		return choose_listed(r);
	if (req_plan(r)->dev && !path_is_hop(req_plan(r)->dev))
		choose_small(r);
	return 0;
}

const struct path_ops path_window = {
	.path = PST_PATH_WINDOW,
	.by = &req_by_caller,
	.varies = window_varies,
	.plan = window_plan,
	.choose = window_choose,
	.reach = window_reach,
	.reach_now = window_reach_now,
	.why = window_why,
	.proven = window_proven,
	.region_end = window_cache_free,
};
