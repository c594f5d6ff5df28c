/* SPDX-License-Identifier: MIT */
/*
 * The public calls on windows.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/err.h"
#include "base/opts.h"
#include "window/window.h"
#include "core/queue/object.h"
#include "core/ways/region.h"
#include "api/guard.h"

struct pst_window {
	struct window *w;
	bool fenced;           /* pst_window_store() ends with a fence */
	struct region *region; /* region of the memory; NULL for a window on a grant */
};

static int check_opts(struct pst_window_opts *ret, const struct pst_window_opts *opts)
{
	int r = opts_copy(ret, sizeof(*ret), opts);

	if (r < 0)
		return r;
	if (ret->flags & ~(PST_WINDOW_READ_ONLY | PST_WINDOW_UNFENCED))
		return err_set(EINVAL, "flags 0x%x do not go with a window", ret->flags);
	if (ret->caching > PST_CACHING_DEVICE)
		return err_set(EINVAL, "caching %u is none of PST_CACHING_*", ret->caching);
	return 0;
}

/* Check that the memory has the rights that the window needs, and return these. */
static int check_rights(const struct pst_window_opts *o, uint32_t rights, uint32_t *ret)
{
	*ret = o->flags & PST_WINDOW_READ_ONLY ? PST_RIGHT_READ : PST_RIGHT_READ | PST_RIGHT_WRITE;
	if (*ret & ~rights)
		return err_set(EACCES, "the memory may not be %s; %s",
			       rights & PST_RIGHT_READ ? "written" : "read",
			       rights & PST_RIGHT_READ ? "ask for PST_WINDOW_READ_ONLY"
						       : "a window needs that right");
	return 0;
}

/* Create a window.  Takes over the region's reference, even on failure. */
static int window_new(const struct window_src *src, const struct pst_window_opts *o,
		      struct region *region, struct pst_window **ret)
{
	struct pst_window *win = calloc(1, sizeof(*win));
	int r = win ? window_open(src, o, &win->w) : err_set(ENOMEM, "out of memory");

	if (r < 0) {
		if (region)
			region_put(region);
		free(win);
		return r;
	}
	win->region = region;
	win->fenced = !(o->flags & PST_WINDOW_UNFENCED);
	*ret = win;
	return 0;
}

int pst_window_open(struct pst_mem *mem, uint64_t off, uint64_t len,
		    const struct pst_window_opts *opts, struct pst_window **ret_window)
{
	struct window_src src = { .alloc = mem->region->alloc, .off = mem->off + off, .len = len };
	struct pst_window_opts o;
	uint64_t end;
	int r;

	GUARD();
	r = check_opts(&o, opts);
	if (r < 0)
		return r;
	if (!len)
		return err_set(EINVAL, "the length is zero");
	if (__builtin_add_overflow(off, len, &end) || end > mem->len)
		return err_set(ERANGE,
			       "%" PRIu64 " bytes at %" PRIu64 " reach past memory of %" PRIu64,
			       len, off, mem->len);
	if (mem_on_host(mem))
		return err_set(EOPNOTSUPP, "host memory needs no window; use pst_mem_ptr()");
	r = check_rights(&o, mem->rights, &src.rights);
	return r < 0 ? r : window_new(&src, &o, region_again(mem->region), ret_window);
}

int pst_window_open_grant(const struct pst_grant *grant, const struct pst_window_opts *opts,
			  struct pst_window **ret_window)
{
	struct pst_window_opts o;
	struct window_src src;
	struct pst_grant g;
	int r;

	GUARD();
	r = check_opts(&o, opts);
	if (r == 0)
		r = grant_copy(&g, grant);
	if (r < 0)
		return r;
	src = (struct window_src){ .grant = &g, .off = g.off, .len = g.len };
	r = check_rights(&o, g.rights, &src.rights);
	if (r == 0)
		r = window_new(&src, &o, NULL, ret_window);
	grant_wipe(&g);
	return r;
}

struct pst_window *pst_window_close(struct pst_window *window)
{
	_cleanup_(errno_restore) int saved = errno;
	NO_CANCEL();

	/* Do nothing in a forked child: the mapping and the open window belong to its parent. */
	if (!window || fork_guard() < 0)
		return NULL;
	window_close(window->w);
	if (window->region)
		region_put(window->region);
	free(window);
	return NULL;
}

void *pst_window_ptr(const struct pst_window *window)
{
	return window->w->ptr;
}

int pst_window_info(const struct pst_window *window, struct pst_window_info *ret)
{
	const struct window *w = window->w;
	struct pst_window_info info = {
		.sz = sizeof(info),
		.len = w->len,
		.caching = w->caching,
		.rights = w->rights,
		.state = w->verdict ? PST_STATE_PROVEN : PST_STATE_POSSIBLE,
	};

	GUARD();
	(void)snprintf(info.backend, sizeof(info.backend), "%s", w->ops->name);
	(void)snprintf(info.store, sizeof(info.store), "%s", w->copy.store_large->name);
	(void)snprintf(info.load, sizeof(info.load), "%s", w->copy.load_large->name);
	return opts_return(ret, &info, sizeof(info));
}

static int window_check_range(const struct window *w, uint64_t off, uint64_t len)
{
	int g = fork_guard();

	if (unlikely(g < 0))
		return g;
	if (unlikely(off > w->len || len > w->len - off))
		return err_set(ERANGE,
			       "%" PRIu64 " bytes at %" PRIu64 " reach past a window of %" PRIu64,
			       len, off, w->len);
	return 0;
}

int pst_window_store(struct pst_window *window, uint64_t off, const void *src, uint64_t len)
{
	const struct window *w = window->w;
	int r = window_check_range(w, off, len);

	if (unlikely(r < 0))
		return r;
	if (unlikely(!(w->rights & PST_RIGHT_WRITE)))
		return err_set(EACCES, "the window is read-only");
	if (likely(window->fenced))
		return window_store(w, off, src, len);
	r = window_begin(w, PST_RIGHT_WRITE, true);
	if (unlikely(r < 0))
		return r;
	copy_store_unfenced(&w->copy, w->ptr + off, src, len);
	window_end(w, PST_RIGHT_WRITE);
	return 0;
}

int pst_window_load(struct pst_window *window, uint64_t off, void *dst, uint64_t len)
{
	const struct window *w = window->w;
	int r = window_check_range(w, off, len);

	if (unlikely(r < 0))
		return r;
	return window_load(w, off, dst, len);
}

void pst_window_fence(void)
{
	copy_fence_all();
}

int pst_window_kernels(const char **ret_names, unsigned max)
{
	const struct copy_kernel *const *all;
	unsigned nr_all, nr = 0;

	GUARD();
	if (max && !ret_names)
		return err_set(EINVAL, "no room is given for %u names", max);
	all = copy_kernels(&nr_all);
	for (unsigned i = 0; i < nr_all; i++) {
		if (!copy_supported(all[i]))
			continue;
		if (nr < max)
			ret_names[nr] = all[i]->name;
		nr++;
	}
	return (int)nr;
}

int pst_window_backends(const char *device, struct pst_window_backend *ret, unsigned max)
{
	struct pst_window_backend of[WINDOW_BACKENDS_MAX];
	const struct mem_ops *ops;
	unsigned idx;
	int r;

	GUARD();
	if (!device)
		return err_set(EINVAL, "no device name is given");
	r = opts_array_check(ret, max, "pst_window_backend");
	if (r == 0)
		r = mem_find(device, &ops, &idx);
	if (r < 0)
		return r;
	if (ops->caps & MEM_CAP_CPU)
		return 0;
	r = window_backends(ops, idx, of, ARRAY_SIZE(of));
	for (int i = 0; i < r && i < (int)MIN(max, ARRAY_SIZE(of)); i++)
		(void)opts_return(opts_array_at(ret, (unsigned)i), &of[i], sizeof(of[i]));
	return r;
}
