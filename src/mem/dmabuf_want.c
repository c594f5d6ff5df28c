/* SPDX-License-Identifier: MIT */
/*
 * Decide whether memory must become a dma-buf: by PST_DMABUF for the process, by PST_MEM_DMABUF and
 * PST_MEM_NO_DMABUF for one allocation.  "yes" exports a dma-buf at once: if that is impossible,
 * the allocation fails, and not a later transfer.
 */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "mem/dmabuf.h"
#include "mem/mem.h"

enum want { TRY, YES, NO };

static enum want want_of_process(void)
{
	const char *env = secure_getenv("PST_DMABUF");

	if (!env || !*env || !strcmp(env, "try"))
		return TRY;
	if (!strcmp(env, "yes"))
		return YES;
	if (!strcmp(env, "no"))
		return NO;
	log_warn("PST_DMABUF is not yes, no or try, ignoring");
	return TRY;
}

int mem_dmabuf_probe(const struct mem_alloc *a, uint64_t off, uint64_t len)
{
	struct mem_dmabuf d;
	int r = mem_export_dmabuf(a, off, len, &d);

	if (r == 0)
		(void)close(d.fd);
	return r;
}

int mem_dmabuf_want(uint32_t flags, struct mem_alloc **a)
{
	struct err_kept why;
	int r = 0;

	if (flags & PST_MEM_NO_DMABUF)
		(*a)->flags |= PST_MEM_NO_DMABUF;
	else if (flags & PST_MEM_DMABUF)
		r = mem_dmabuf_probe(*a, 0, MIN((*a)->size, UINT64_C(4096)));
	if (r == 0)
		return 0;
	err_keep(&why);
	mem_free(*a);
	*a = NULL;
	return err_set(EOPNOTSUPP, "the memory has to become a dma-buf, and cannot: %.400s",
		       why.text);
}

uint32_t mem_dmabuf_flags(const struct mem_ops *ops, uint32_t flags)
{
	/* Devices reach host memory by its pages, without a dma-buf. */
	if (flags & MEM_DMABUF_FLAGS || ops->caps & MEM_CAP_CPU || want_of_process() != YES)
		return flags;
	return flags | PST_MEM_DMABUF;
}

int mem_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len, struct mem_dmabuf *ret)
{
	if (!a->ops->export_dmabuf)
		return err_set(EOPNOTSUPP, "%s memory cannot be shared by a dma-buf", a->ops->name);
	if (!len || off > a->size || len > a->size - off)
		return err_set(ERANGE,
			       "%" PRIu64 " bytes at offset %" PRIu64 " are none or reach past "
			       "the end of the memory, which has %" PRIu64,
			       len, off, a->size);
	if (a->flags & PST_MEM_NO_DMABUF)
		return err_set(EOPNOTSUPP, "the memory was allocated with PST_MEM_NO_DMABUF, so it "
					   "does not become a dma-buf; leave that out");
	if (want_of_process() == NO)
		return err_set(EOPNOTSUPP, "PST_DMABUF=no: no memory becomes a dma-buf; set it to "
					   "try");
	return a->ops->export_dmabuf(a, off, len, ret);
}
