/* SPDX-License-Identifier: MIT */
/*
 * The window cache: windows on allocations that are kept open for small requests.
 *
 * A window is opened when a request first needs it, CACHED_LEN bytes long.  Mapping all of a large
 * allocation would take long, and would use more of the device's aperture and of page tables than
 * the requests ever touch.
 *
 * All processes of the machine share the aperture, so the bytes of open windows are bounded.  When
 * the bound is reached, the cache closes the least recently used window that is idle: it has no
 * user, and had none for IDLE_NS.  If no window is idle, the request is staged: if requests all
 * over a large allocation opened windows in turn, staging would be faster.
 */
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/limit.h"
#include "base/log.h"
#include "window/window.h"
#include "core/queue/object.h"
#include "core/ways/window_cache.h"

#define CACHED_LEN MIB(64)
/* Mapping and unmapping this many bytes takes as long as staging one small request. */
#define ASKED_LEN MIB(4)
#define IDLE_NS (100 * NSEC_PER_MSEC)
#define USED_NS (5 * NSEC_PER_MSEC) /* resolution of cached_window.used, ns */
#define APERTURE_SHARE 4u           /* cached windows may use a quarter of the aperture */
/* Maximum bytes of cached windows if the aperture's size is unknown. */
#define APERTURE_UNKNOWN GIB(1)
#define NR_USER_COUNTS 16u

/* Users of a cached window, in NR_USER_COUNTS counters that are chosen by the queue's number: the
 * cache line of a single counter would move between the CPUs of several queues. */
struct user_count {
	atomic_uint users;
} __attribute__((aligned(64)));

struct cached_window {
	struct hold hold;
	struct list link; /* on the list of open windows; under the lock */
	const struct mem_alloc *alloc;
	_Atomic(struct window *) window;
	atomic_int err;        /* errno if no window is possible; 0: unknown */
	_Atomic uint64_t used; /* CLOCK_MONOTONIC ns of the last use, exact to USED_NS */
	atomic_uint asked;     /* requests for the window so far, see window_cache_pays() */
	struct user_count counts[NR_USER_COUNTS];
};

struct window_cache {
	unsigned nr;
	_Atomic uint64_t retry; /* CLOCK_MONOTONIC ns; do not open a window earlier, for lack of
				 * room */
	struct cached_window v[];
};

/* Held to open or close cached windows. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list open_cached = LIST_INIT(open_cached);

static atomic_uint *user_count(const struct holder *by, struct cached_window *v)
{
	return &v->counts[by->number % NR_USER_COUNTS].users;
}

static void cached_window_put(const struct holder *by, struct hold *h)
{
	atomic_fetch_sub(user_count(by, container_of(h, struct cached_window, hold)), 1);
}

static struct window_cache *window_cache_of(struct region *r)
{
	_Atomic(void *) *kept = &r->by_path[PST_PATH_WINDOW];
	struct window_cache *vs = atomic_load_explicit(kept, memory_order_acquire);
	unsigned nr = (unsigned)((r->alloc->size + CACHED_LEN - 1) / CACHED_LEN);

	if (likely(vs))
		return vs;
	pthread_mutex_lock(&lock);
	vs = atomic_load(kept);
	if (!vs) {
		vs = calloc_lines(1, sizeof(*vs) + nr * sizeof(vs->v[0]));
		if (vs)
			vs->nr = nr;
		for (unsigned i = 0; vs && i < nr; i++) {
			vs->v[i].hold.put = cached_window_put;
			list_init(&vs->v[i].link);
			vs->v[i].alloc = r->alloc;
		}
		atomic_store_explicit(kept, vs, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return vs;
}

/* Add a user to a cached window and return the window, or return NULL if it is closed. */
static struct window *window_cache_take(const struct holder *by, struct cached_window *v)
{
	struct window *w;

	/* Pairs with cached_window_close(): either that function sees this user, or this thread
	 * sees no window. */
	atomic_fetch_add(user_count(by, v), 1);
	w = atomic_load(&v->window);
	if (unlikely(!w))
		atomic_fetch_sub(user_count(by, v), 1);
	return w;
}

/* Return the open window of a cached window that the caller uses. */
static struct window *cached_window_window(struct cached_window *v)
{
	struct window *w = atomic_load(&v->window);

	if (unlikely(!w)) {
		/* Wait for the thread that tried to close the window: it found this user, and
		 * restores the window. */
		pthread_mutex_lock(&lock);
		w = atomic_load(&v->window);
		pthread_mutex_unlock(&lock);
	}
	return w;
}

static uint64_t cached_window_len(const struct region *r, uint64_t off)
{
	return MIN(CACHED_LEN, r->alloc->size - off);
}

static bool cached_window_in_use(struct cached_window *v)
{
	for (unsigned i = 0; i < NR_USER_COUNTS; i++)
		if (atomic_load(&v->counts[i].users))
			return true;
	return false;
}

/* ---------------------------------------------------------------- the bound */

static uint64_t window_cache_bound(const struct mem_alloc *a)
{
	uint64_t aperture = mem_aperture(a->ops, a->device);

	return limit_get(LIMIT_APERTURE,
			 aperture ? MAX(aperture / APERTURE_SHARE, CACHED_LEN) : APERTURE_UNKNOWN);
}

/* Close a cached window, under the lock.  Return false if it has users. */
static bool cached_window_close(struct cached_window *v)
{
	struct window *w = atomic_exchange(&v->window, NULL);

	if (cached_window_in_use(v)) {
		atomic_store(&v->window, w);
		return false;
	}
	list_del(&v->link);
	window_close(w);
	return true;
}

/* Return the bytes of all windows open on the allocation's device, and in *ret_idle the window to
 * close next, or NULL; under the lock. */
static uint64_t open_bytes(const struct mem_alloc *a, struct cached_window **ret_idle)
{
	uint64_t sum = 0, oldest = about_now_ns() - IDLE_NS;
	struct list *e;

	*ret_idle = NULL;
	list_for_each (e, &open_cached) {
		struct cached_window *v = list_entry(e, struct cached_window, link);

		if (v->alloc->ops != a->ops || v->alloc->device != a->device)
			continue;
		sum += atomic_load(&v->window)->len;
		if (v->used < oldest && !cached_window_in_use(v)) {
			oldest = v->used;
			*ret_idle = v;
		}
	}
	return sum;
}

/* Close idle windows until len more bytes fit; under the lock.  Return false if they do not fit. */
static bool make_room(const struct mem_alloc *a, uint64_t len)
{
	uint64_t most = window_cache_bound(a);
	struct cached_window *idle;

	while (open_bytes(a, &idle) + len > most)
		if (!idle || !cached_window_close(idle))
			return false;
	return true;
}

/* ------------------------------------------------------------------- cached windows */

/* Return true for a lack of resources that may be temporary. */
static bool is_passing(int err)
{
	return err == ENOMEM || err == EMFILE || err == ENFILE || err == EAGAIN;
}

/* Open a cached window, and add the caller as a user; under the lock.  Return NULL and set *ret_err
 * on failure. */
static struct window *cached_window_open(const struct holder *by, struct region *r,
					 struct cached_window *v, uint64_t off, int *ret_err)
{
	struct window_src src = {
		.alloc = r->alloc,
		.off = off,
		.len = cached_window_len(r, off),
		.rights = r->alloc->rights,
	};
	struct pst_window_opts o = { .sz = sizeof(o) };
	struct window *w = window_cache_take(by, v);
	int err;

	*ret_err = v->err;
	if (w || *ret_err)
		return w;
	if (!make_room(r->alloc, src.len)) {
		*ret_err = ENOSPC;
		return NULL;
	}
	err = window_open(&src, &o, &w);
	if (err < 0) {
		log_info("small requests are staged: %s", err_text());
		if (!is_passing(-err))
			atomic_store(&v->err, -err);
		*ret_err = -err;
		return NULL;
	}
	list_add_tail(&open_cached, &v->link);
	atomic_fetch_add(user_count(by, v), 1);
	atomic_store(&v->window, w);
	return w;
}

const struct window *window_cache_get(const struct holder *by, struct region *r, uint64_t off,
				      uint64_t *ret_at, struct hold **hold, int *ret_err)
{
	struct window_cache *vs = window_cache_of(r);
	struct window *w;
	struct cached_window *v;

	*ret_at = off % CACHED_LEN;
	*ret_err = ENOMEM;
	if (unlikely(!vs))
		return NULL;
	v = &vs->v[off / CACHED_LEN];
	*ret_err = 0;
	if (*hold == &v->hold)
		return cached_window_window(v);
	hold_put(by, hold);
	w = window_cache_take(by, v);
	*ret_err = w ? 0 : atomic_load_explicit(&v->err, memory_order_relaxed);
	if (unlikely(!w && !*ret_err)) {
		*ret_err = ENOSPC;
		if (about_now_ns() < vs->retry)
			return NULL;
		pthread_mutex_lock(&lock);
		w = cached_window_open(by, r, v, off - *ret_at, ret_err);
		pthread_mutex_unlock(&lock);
		if (!w && *ret_err == ENOSPC)
			vs->retry = about_now_ns() + IDLE_NS;
	}
	if (unlikely(!w))
		return NULL;
	if (by->now > atomic_load_explicit(&v->used, memory_order_relaxed) + USED_NS)
		atomic_store_explicit(&v->used, by->now, memory_order_relaxed);
	*hold = &v->hold;
	return w;
}

bool window_cache_pays(struct region *r, uint64_t off)
{
	struct window_cache *vs = window_cache_of(r);
	uint64_t asked, len = cached_window_len(r, align_down(off, CACHED_LEN));
	struct cached_window *v = vs ? &vs->v[off / CACHED_LEN] : NULL;

	if (!v || atomic_load_explicit(&v->window, memory_order_relaxed))
		return true;
	asked = 1 + atomic_fetch_add_explicit(&v->asked, 1, memory_order_relaxed);
	return asked * ASKED_LEN >= len;
}

void window_cache_free(struct region *r)
{
	struct window_cache *vs = atomic_load(&r->by_path[PST_PATH_WINDOW]);

	for (unsigned i = 0; i < vs->nr; i++) {
		struct cached_window *v = &vs->v[i];
		struct window *w;

		pthread_mutex_lock(&lock);
		w = atomic_exchange(&v->window, NULL);
		list_del(&v->link);
		pthread_mutex_unlock(&lock);
		if (w)
			window_close(w);
	}
	free(vs);
}
