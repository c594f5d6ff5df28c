/* SPDX-License-Identifier: MIT */
/*
 * Windows by mmap() of a dma-buf, if the driver that exported it allows that: NVIDIA's since
 * version 610, AMD's, Intel's, and udmabuf, which the software device uses.
 */
#include "base/err.h"
#include "window/window.h"

#define ENOTSUPP_KERNEL 524 /* errno inside the kernel, which NVIDIA's driver returns to programs */

static int dmabuf_open(const struct window_src *src, struct window **ret)
{
	struct mem_dmabuf db;
	int r;

	r = mem_export_dmabuf(src->alloc, src->off, src->len, &db);
	if (r < 0)
		return r;
	r = window_map(&window_dmabuf_ops, db.fd, db.off, src->len, src->rights, ret);
	(void)close(db.fd);
	/* The kernel returns EINVAL for an exporter without mmap(). */
	if (r == -ENOTSUPP_KERNEL || r == -ENODEV || r == -EINVAL)
		return err_set(EOPNOTSUPP, "the driver does not let the CPU map its dma-bufs; "
					   "devices reach such memory, and the CPU does not");
	if (r == 0)
		(*ret)->caching = db.caching;
	return r;
}

const struct window_ops window_dmabuf_ops = {
	.name = "dmabuf",
	.by_dmabuf = true,
	.open = dmabuf_open,
	.close = window_unmap,
};
