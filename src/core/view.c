// SPDX-License-Identifier: MIT
/*
 * Windows on an allocation, for small requests.
 *
 * They are opened where a request first needs one, VIEW_LEN bytes at a time: to map all of a
 * large allocation would take long, and with it more of the device's aperture and of
 * page tables than the requests ever touch.
 */
#include "base/err.h"
#include "base/log.h"
#include "core/core.h"
#include "window/window.h"

#define VIEW_LEN MIB(64)

struct view {
	_Atomic(struct window *) window;
	atomic_int err; /* why there is none; 0: not tried */
};

struct views {
	unsigned nr;
	struct view v[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* who opens */

static struct views *views_of(struct region *r)
{
	struct views *vs = atomic_load_explicit(&r->views, memory_order_acquire);
	unsigned nr = (unsigned)((r->alloc->size + VIEW_LEN - 1) / VIEW_LEN);

	if (likely(vs))
		return vs;
	pthread_mutex_lock(&lock);
	vs = atomic_load(&r->views);
	if (!vs) {
		vs = calloc(1, sizeof(*vs) + nr * sizeof(vs->v[0]));
		if (vs)
			vs->nr = nr;
		atomic_store_explicit(&r->views, vs, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return vs;
}

static void view_open(struct region *r, struct view *v, uint64_t off)
{
	struct window_src src = {
		.alloc = r->alloc,
		.off = off,
		.len = MIN(VIEW_LEN, r->alloc->size - off),
		.rights = r->alloc->rights,
	};
	struct pst_window_opts o = { .sz = sizeof(o) };
	struct window *w;
	int err;

	pthread_mutex_lock(&lock);
	if (!atomic_load(&v->window) && !atomic_load(&v->err)) {
		err = window_open(&src, &o, &w);
		if (err < 0)
			log_info("small requests are staged: %s", err_text());
		atomic_store(&v->err, -MIN(err, 0));
		atomic_store_explicit(&v->window, err < 0 ? NULL : w, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
}

const struct window *view_get(struct region *r, uint64_t off, uint64_t *ret_at, int *ret_err)
{
	struct views *vs = views_of(r);
	struct window *w;
	struct view *v;

	*ret_at = off % VIEW_LEN;
	*ret_err = ENOMEM;
	if (unlikely(!vs))
		return NULL;
	v = &vs->v[off / VIEW_LEN];
	w = atomic_load_explicit(&v->window, memory_order_acquire);
	if (unlikely(!w && !atomic_load(&v->err))) {
		view_open(r, v, off - *ret_at);
		w = atomic_load(&v->window);
	}
	*ret_err = atomic_load_explicit(&v->err, memory_order_relaxed);
	return w;
}

void views_free(struct region *r)
{
	struct views *vs = atomic_load(&r->views);

	for (unsigned i = 0; vs && i < vs->nr; i++)
		if (vs->v[i].window)
			window_close(vs->v[i].window);
	free(vs);
}
