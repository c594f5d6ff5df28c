/* SPDX-License-Identifier: MIT */
/*
 * Windows on the software device: its memory is a memfd.
 */
#include "base/err.h"
#include "mem/memfd.h"
#include "window/window.h"

static int soft_open(const struct window_src *src, struct window **ret)
{
	struct pst_grant g = { .fd = -1 };
	int r, fd = src->grant ? src->grant->fd : -1;

	if (src->grant)
		r = memfd_check(fd, src->grant->size, src->rights);
	else
		r = mem_export(src->alloc, src->rights, &g);
	if (r < 0)
		return r;
	r = window_map(&window_soft_ops, src->grant ? fd : g.fd, src->off, src->len, src->rights,
		       ret);
	closep(&g.fd);
	if (r == 0)
		(*ret)->caching = PST_CACHING_CACHED;
	return r;
}

const struct window_ops window_soft_ops = {
	.name = "soft",
	.kinds = 1u << PST_KIND_SOFT,
	.by_grant = true,
	.open = soft_open,
	.close = window_unmap,
};
