/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/log.h"
#include "base/uaccess.h"
#include "window/window.h"

#define WHY_MAX 400 /* bytes for the sentences of all backends */

/* The order in which backends are tried. */
static const struct window_ops *const backends[] = {
	&window_gdrdrv_ops,
	&window_dmabuf_ops,
	&window_nvrm_ops,
	&window_soft_ops,
};
_Static_assert(ARRAY_SIZE(backends) <= WINDOW_BACKENDS_MAX, "pst_window_backends() has room");

/* ---------------------------------------------------------------- mappings */

int window_map(const struct window_ops *ops, int fd, uint64_t off, uint64_t len, uint32_t rights,
	       struct window **ret)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), lead = off & (page - 1);
	int prot = (rights & PST_RIGHT_READ ? PROT_READ : 0) |
		   (rights & PST_RIGHT_WRITE ? PROT_WRITE : 0);
	struct window *w = calloc(1, sizeof(*w));
	int e;

	if (!w)
		return err_set(ENOMEM, "no memory to describe a window");
	w->map_len = align_up(lead + len, page);
	w->map = mmap(NULL, w->map_len, prot, MAP_SHARED, fd, (off_t)(off - lead));
	if (w->map == MAP_FAILED) {
		e = errno;
		free(w);
		return err_set(e, "mapping %" PRIu64 " bytes failed: %s", len, err_name(e));
	}
	(void)madvise(w->map, w->map_len, MADV_DONTFORK);
	w->ops = ops;
	w->ptr = (char *)w->map + lead;
	w->len = len;
	w->rights = rights;
	*ret = w;
	return 0;
}

void window_unmap(struct window *w)
{
	(void)munmap(w->map, w->map_len);
	free(w);
}

/* ----------------------------------------------------------------- opening */

static bool may_serve(const struct window_ops *ops, const struct window_src *src,
		      const struct pst_window_opts *o)
{
	bool dmabuf = ops->by_dmabuf && src->alloc && src->alloc->ops->export_dmabuf &&
		      !(src->alloc->ops->caps & MEM_CAP_NO_MMAP);

	if (!dmabuf && !(ops->kinds & 1u << window_src_kind(src)))
		return false;
	if (!src->alloc && !ops->by_grant)
		return false;
	return !o->backend || strcmp(o->backend, ops->name) == 0;
}

/* Open a window by one backend, prove it, and check that it has the requested caching and
 * kernel. */
static int open_by(const struct window_ops *ops, const struct window_src *src,
		   const struct pst_window_opts *o, const struct copy_kernel *kernel,
		   struct window **ret)
{
	static const char *const caching[] = { "?", "write combining", "cached", "device" };
	struct window_src s = *src;
	struct window *w;
	int r;

	s.caching = o->caching;
	r = ops->open(&s, &w);
	if (r < 0)
		return r;
	w->told = src->alloc && src->alloc->ops->cpu_begin ? src->alloc : NULL;
	if (o->caching && w->caching != o->caching)
		r = err_set(EOPNOTSUPP, "its mappings are %s, not %s", caching[w->caching],
			    caching[o->caching]);
	else
		r = window_prove(w, src);
	if (r == 0 && kernel)
		r = copy_force(&w->copy, w->caching, kernel);
	if (r < 0) {
		window_close(w);
		return r;
	}
	*ret = w;
	return 0;
}

int window_open(const struct window_src *src, const struct pst_window_opts *o, struct window **ret)
{
	const struct copy_kernel *kernel = NULL;
	char why[WHY_MAX] = "";
	size_t used = 0;
	int r, err = EOPNOTSUPP;

	r = o->kernel ? copy_find(o->kernel, &kernel) : 0;
	if (r < 0)
		return r;
	for (unsigned i = 0; i < ARRAY_SIZE(backends); i++) {
		const struct window_ops *ops = backends[i];

		if (!may_serve(ops, src, o))
			continue;
		r = open_by(ops, src, o, kernel, ret);
		if (r == 0)
			return 0;
		log_debug("no window by %s: %s", ops->name, err_text());
		if (r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EACCES || r == -EAGAIN)
			err = -r;
		used += (size_t)snprintf(why + used, sizeof(why) - used, "; %s: %s", ops->name,
					 err_text());
		used = MIN(used, sizeof(why) - 1);
	}
	if (!used && src->alloc && src->alloc->ops->reach)
		return err_set(EOPNOTSUPP, "the CPU cannot map %s memory; %s",
			       src->alloc->ops->name, src->alloc->ops->reach);
	if (!used)
		return err_set(EOPNOTSUPP, "no backend %s%sopens windows on this kind of memory%s",
			       o->backend ? o->backend : "", o->backend ? " " : "",
			       src->alloc ? "" : " by a grant alone");
	return err_set(err, "no window can be had%s", why);
}

void window_close(struct window *w)
{
	window_unproven(w);
	w->ops->close(w);
}

/* ------------------------------------------------------------------ copies */

#define COPY_MAP MIB(64) /* bytes that are mapped at a time */
/* Bytes of a buffer between the window and the program's memory, which may vanish. */
#define COPY_BOUNCE KIB(64)

static int copy_piece(const struct window *w, enum mem_dir dir, uint64_t off, char *host,
		      char *bounce, uint64_t len)
{
	int r = dir == MEM_TO_DEVICE ? uaccess_read(bounce, host, len)
				     : window_load(w, off, bounce, len);

	if (r < 0)
		return r;
	return dir == MEM_TO_DEVICE ? window_store(w, off, bounce, len)
				    : uaccess_write(host, bounce, len);
}

static int copy_mapped(const struct window_src *src, enum mem_dir dir, char *host, char *bounce)
{
	struct pst_window_opts o = { .sz = sizeof(o) };
	struct window *w;
	int r = window_open(src, &o, &w);

	if (r < 0)
		return r;
	for (uint64_t at = 0; r == 0 && at < src->len; at += COPY_BOUNCE)
		r = copy_piece(w, dir, at, host + at, bounce, MIN(COPY_BOUNCE, src->len - at));
	window_close(w);
	return r;
}

int window_copy(const struct mem_alloc *a, enum mem_dir dir, uint64_t off, void *host, uint64_t len)
{
	_cleanup_(freep) char *bounce = malloc(COPY_BOUNCE);
	int r = 0;

	if (!bounce)
		return err_set(ENOMEM, "no memory to copy through a window");
	for (uint64_t at = 0; r == 0 && at < len; at += COPY_MAP) {
		struct window_src src = {
			.alloc = a,
			.off = off + at,
			.len = MIN(COPY_MAP, len - at),
			.rights = dir == MEM_TO_DEVICE ? PST_RIGHT_WRITE : PST_RIGHT_READ,
		};

		r = copy_mapped(&src, dir, (char *)host + at, bounce);
	}
	return r;
}

/* -------------------------------------------------------------- what there is */

int window_backends(const struct mem_ops *mem, unsigned device, struct pst_window_backend *ret,
		    unsigned max)
{
	struct window_src src = { .len = KIB(64), .rights = PST_RIGHT_READ | PST_RIGHT_WRITE };
	struct pst_window_opts o = { .sz = sizeof(o) };
	struct mem_alloc *a;
	struct window *w;
	unsigned nr = 0;
	int r;

	r = mem_alloc(mem, device, src.len + WINDOW_SCRATCH_ALIGN, 0, &a);
	if (r < 0)
		return r;
	src.alloc = a;
	src.off = window_scratch_off(a);
	for (unsigned i = 0; i < ARRAY_SIZE(backends); i++) {
		struct pst_window_backend b = { .sz = sizeof(b) };

		if (!may_serve(backends[i], &src, &o))
			continue;
		if (nr++ >= max)
			continue;
		(void)snprintf(b.name, sizeof(b.name), "%s", backends[i]->name);
		r = open_by(backends[i], &src, &o, NULL, &w);
		b.state = r < 0 ? PST_STATE_IMPOSSIBLE : PST_STATE_PROVEN;
		b.err = -MIN(r, 0);
		if (r < 0)
			(void)snprintf(b.text, sizeof(b.text), "%s", err_text());
		else
			window_close(w);
		ret[nr - 1] = b;
	}
	mem_free(a);
	return (int)nr;
}
