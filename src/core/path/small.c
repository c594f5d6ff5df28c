/* SPDX-License-Identifier: MIT */
/*
 * Small requests on device memory, moved by the CPU.
 *
 * The CPU moves a few KiB sooner than a request is handed to an engine and a device copy is
 * started. So the caller's thread moves them itself, through a window on the memory.
 *
 * A read that the page cache holds goes straight into the window: the kernel's copy is the only
 * one. A write is loaded through the window into a buffer, and then goes on as if it came from host
 * memory.  parts.c does the file operations of both.  If a read turns out not to be resident, the
 * engine does all of it.
 *
 * window/cost.c measures how many bytes are few enough, when the first window on that kind of
 * memory is proven.  A small request has at most SMALL_PIECES pieces.
 */
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "window/window.h"
#include "core/engine/share.h"
#include "core/path/plan.h"
#include "core/path/small.h"
#include "core/path/window_cache.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

#define SMALL_PIECES 16u         /* of a request; each costs a system call */
#define LISTED_WRITE_MAX KIB(64) /* loads take long, and pst_queue_submit() must not */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool off; /* PST_WINDOW=off */

static void read_env(void)
{
	const char *env = secure_getenv("PST_WINDOW");

	off = env && strcmp(env, "off") == 0;
	if (env && !off && strcmp(env, "auto") != 0)
		log_warn("PST_WINDOW=%s is neither auto nor off, ignoring", env);
}

bool small_enabled(void)
{
	(void)pthread_once(&once, read_env);
	return !off;
}

/* In the buffer the first piece lies as it does in the file, for O_DIRECT's sake. */
static uint64_t bounce_lead(const struct req *r)
{
	return r->cur.segs[0].file_off & (PAGE - 1);
}

char *small_addr(struct req *r, const struct piece *p, uint64_t *ret_room,
		 struct cached_window **ret_cached, int *ret_err)
{
	const struct pst_mem *m = req_mem(r);
	const struct window *w;
	uint64_t at;

	if (r->bounce) {
		*ret_room = p->len;
		return r->bounce + bounce_lead(r) + p->pos;
	}
	*ret_cached = TAKE_PTR(r->cached_window);
	w = window_cache_get(&r->q->cache_user, m->region, m->off + p->mem_off, &at, ret_cached,
			     ret_err);
	if (unlikely(!w))
		return NULL;
	*ret_room = w->len - at;
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

	r->bounce = aligned_alloc(PAGE, align_up(bounce_lead(r) + r->total, PAGE));
	if (!r->bounce)
		return ENOMEM;
	while (cursor_peek(&c, &p)) {
		w = window_cache_get(&r->q->cache_user, m->region, m->off + p.mem_off, &at,
				     &r->cached_window, &err);
		if (!w) {
			free(TAKE_PTR(r->bounce));
			break;
		}
		n = MIN(p.len, w->len - at);
		window_load(w, at, r->bounce + bounce_lead(r) + p.pos, n);
		cursor_skip(&c, n);
	}
	small_let_go(r);
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

/* Returns 0 if a window serves the request better, an errno if no window can be had, -1 if a window
 * is not the better way. */
static int small_fits(struct req *r)
{
	const struct pst_mem *m = req_mem(r);
	bool write = r->io.op == PST_OP_WRITE;
	const struct window *w;
	struct piece p;
	uint64_t at, most;
	int err;

	if (r->total > SMALL_MAX || !few_pieces(r) || !cursor_peek(&r->cur, &p))
		return -1;
	if (!write && (r->plan.hop[0] != PST_PATH_CACHED || !plan_try_cached(r, p.file_off, p.len)))
		return -1;
	w = window_cache_get(&r->q->cache_user, m->region, m->off + p.mem_off, &at,
			     &r->cached_window, &err);
	if (!w)
		return err;
	most = write ? w->load_max : w->store_max;
	return r->total <= most ? 0 : -1;
}

void small_choose(struct req *r)
{
	struct plan *p = &r->plan;
	int err = small_fits(r);

	if (err == 0 && mem_alive(req_mem(r)->region->alloc) < 0)
		err = -1; /* the engine finds that out too, and says it */
	if (err == 0 && r->io.op == PST_OP_WRITE)
		err = small_load(r);
	if (err > 0)
		req_reason(r, PST_WHY_NO_WINDOW, err);
	if (err) {
		small_let_go(r);
		return;
	}
	p->dev = PST_PATH_WINDOW;
	p->restage = true;
}

int small_listed(struct req *r)
{
	int err = r->io.stream ? EOPNOTSUPP : 0; /* the device cannot wait for the CPU */

	if (mem_alive(req_mem(r)->region->alloc) < 0)
		return -EFAULT;
	if (!err && r->io.op == PST_OP_WRITE)
		err = r->total <= LISTED_WRITE_MAX ? small_load(r) : EFBIG;
	if (!err)
		return 0;
	req_reason(r, PST_WHY_NO_WINDOW, err);
	if (!r->plan.staged)
		return err_set(EOPNOTSUPP, "no window for this request: %s", err_name(err));
	r->plan.dev = PST_PATH_STAGED;
	return 0;
}

void small_give_up(struct req *r)
{
	/* It may have waited for a free part. */
	list_del(&r->link);
	r->left = false;
	r->plan.dev = PST_PATH_STAGED;
	r->plan.restage = false;
	r->limit = r->total;
	r->err_pos = UINT64_MAX;
	r->paths = 0;
	memset(r->hop_bytes, 0, sizeof(r->hop_bytes));
	cursor_init(&r->cur, r->cur.segs, r->cur.nr);
	free(TAKE_PTR(r->bounce));
	small_let_go(r);
	r->q->nr_engine++;
	engine_submit(r);
}
