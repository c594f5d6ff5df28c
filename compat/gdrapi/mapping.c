/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <unistd.h>

#include <penstock.h>

#include "error.h"
#include "log.h"
#include "mapping.h"

int mapping_begin(struct pin *p, uint64_t size, unsigned caching)
{
	struct pst_window_opts o = { .sz = sizeof(o), .caching = caching };
	struct pst_window_info info = { .sz = sizeof(info) };
	const struct range *range = &p->range;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), map_size = (size + page - 1) & ~(page - 1);
	uint64_t len;
	int r;

	if (!size || size > range->mapped_size || map_size <= range->lead)
		return EINVAL;
	len = map_size - range->lead;
	if (len > range->len)
		len = range->len;
	r = pst_window_open(range->mem, 0, len, &o, &p->window);
	if (r == 0)
		r = pst_window_info(p->window, &info);
	if (r < 0) {
		gdr_log_line(LOG_ERROR, "cannot map %" PRIu64 " bytes at %#" PRIx64 ": %s", size,
			     range->va, pst_error_text());
		p->window = pst_window_close(p->window);
		return to_errno(r);
	}
	p->bytes = pst_window_ptr(p->window);
	p->va = (char *)((uintptr_t)p->bytes - range->lead);
	p->map_size = map_size;
	p->len = len;
	p->caching = info.caching;
	pin_mapped(p);
	gdr_log_line(LOG_INFO, "mapped %" PRIu64 " bytes at %#" PRIx64 " to %p by %s", size,
		     range->va, (void *)p->va, info.backend);
	return 0;
}

void mapping_end(struct pin *p)
{
	pin_unmapped(p);
	p->window = pst_window_close(p->window);
	gdr_log_line(LOG_DEBUG, "unmapped %#" PRIx64, p->range.va);
}

/* ------------------------------------------------------------------ copies */

/* Get the offset of ptr in the window; return false if the bytes are not all inside. */
static bool offset_of(const struct pin *p, const void *ptr, size_t size, uint64_t *ret)
{
	uint64_t off = (uintptr_t)ptr - (uintptr_t)p->bytes;

	*ret = off;
	return off <= p->len && size <= p->len - off;
}

/* Log why a copy is refused.  Return EINVAL. */
static int mapping_refuse(unsigned long handle, const void *ptr, size_t size)
{
	gdr_log_line(LOG_ERROR, "%zu bytes at %p are not in the mapping of %#lx", size, ptr,
		     handle);
	return EINVAL;
}

int mapping_store(unsigned long handle, void *ptr, const void *src, size_t size)
{
	unsigned shard;
	struct pin *p = pin_enter(handle, &shard);
	uint64_t off;
	int r;

	if (!p)
		return mapping_refuse(handle, ptr, size);
	if (!size)
		r = 0;
	else if (src && offset_of(p, ptr, size, &off))
		r = to_errno(pst_window_store(p->window, off, src, size));
	else
		r = mapping_refuse(handle, ptr, size);
	pin_leave(p, shard);
	return r;
}

int mapping_load(unsigned long handle, void *dst, const void *ptr, size_t size)
{
	unsigned shard;
	struct pin *p = pin_enter(handle, &shard);
	uint64_t off;
	int r;

	if (!p)
		return mapping_refuse(handle, ptr, size);
	if (!size)
		r = 0;
	else if (dst && offset_of(p, ptr, size, &off))
		r = to_errno(pst_window_load(p->window, off, dst, size));
	else
		r = mapping_refuse(handle, ptr, size);
	pin_leave(p, shard);
	return r;
}

unsigned long mapping_find(const void *ptr)
{
	for (struct pin *p = pin_first(); p; p = p->next) {
		unsigned long handle = atomic_load(&p->mapped);
		unsigned shard;
		uint64_t off;
		bool inside;

		if (!handle || !pin_enter(handle, &shard))
			continue;
		inside = offset_of(p, ptr, 1, &off);
		pin_leave(p, shard);
		if (inside)
			return handle;
	}
	return 0;
}
