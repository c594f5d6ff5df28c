/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdbool.h>

#include <gdrapi.h>
#include <penstock.h>

#include "error.h"
#include "log.h"
#include "range.h"

#define PAGE ((uint64_t)GPU_PAGE_SIZE)
#define ALIGNMENT 256u /* bytes; devices align all allocations to this */

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Wrap device memory at an address, and get its allocation.  Return 0 or -errno. */
static int range_wrap(uint64_t addr, uint64_t len, struct pst_mem **ret, struct pst_mem_info *info)
{
	int r = pst_mem_wrap(addr, len, NULL, ret);

	if (r < 0)
		return r;
	*info = (struct pst_mem_info){ .sz = sizeof(*info) };
	r = pst_mem_info(*ret, info);
	/* Addresses that belong to no device count as host memory. */
	if (r == 0 && info->kind == PST_KIND_HOST)
		r = -EFAULT;
	if (r < 0)
		*ret = pst_mem_free(*ret);
	return r;
}

/* Get the allocation that contains some bytes. */
static int allocation_at(uint64_t addr, uint64_t len, struct pst_mem_info *ret)
{
	struct pst_mem *mem;
	int r = range_wrap(addr, len, &mem, ret);

	if (r == 0)
		pst_mem_free(mem);
	return r;
}

/*
 * Get the allocation that has bytes between from and to, which are a few pages apart.  Return
 * -ENOTUNIQ if several have: it is unknown which one the caller means.
 */
static int only_allocation(uint64_t from, uint64_t to, struct pst_mem_info *ret)
{
	struct pst_mem_info found;
	bool any = false;

	for (uint64_t at = from; at < to;) {
		int r = allocation_at(at, 1, &found);

		if (r == -EFAULT || r == -ERANGE) {
			at += ALIGNMENT;
			continue;
		}
		if (r < 0)
			return r;
		if (any)
			return -ENOTUNIQ;
		any = true;
		*ret = found;
		at = max(at + 1, found.base + found.size);
	}
	return any ? 0 : -EFAULT;
}

/*
 * Get the allocation of a range that rounding to pages has made longer than the allocation.
 * Rounding adds less than a page at each side: before the range only if its beginning lies on a
 * page border, and after the range only if its end lies on a page border or its size is a multiple
 * of the page size.  The rest of the range certainly belongs to the caller.
 */
static int rounded_allocation(uint64_t addr, uint64_t size, struct pst_mem_info *ret)
{
	uint64_t from = addr, to = addr + size;

	if (addr % PAGE == 0)
		from += PAGE - 1;
	if (size % PAGE == 0 || to % PAGE == 0)
		to -= min(PAGE - 1, size - 1);
	return from < to ? allocation_at(from, to - from, ret)
			 : only_allocation(addr, addr + size, ret);
}

/* Log the failure, and return it in gdrcopy's form. */
static int failure(int r, uint64_t addr, uint64_t size)
{
	const char *why = r == -EFAULT     ? "no device has them"
			  : r == -ENOTUNIQ ? "several allocations share these GPU pages; pin the "
					     "address and the length of the one that is meant"
					   : pst_error_text();

	gdr_log_line(LOG_ERROR, "cannot pin %" PRIu64 " bytes at %#" PRIx64 ": %s", size, addr,
		     why);
	return to_errno(r);
}

int range_find(uint64_t addr, uint64_t size, struct range *ret)
{
	struct range found = { .va = addr };
	struct pst_mem_info info;
	uint64_t from, to;
	int r;

	if (!addr || !size || size > INT64_MAX - PAGE || addr > UINT64_MAX - size - PAGE)
		return EINVAL;
	r = allocation_at(addr, size, &info);
	if (r == -EFAULT || r == -ERANGE)
		r = rounded_allocation(addr, size, &info);
	if (r < 0)
		return failure(r, addr, size);
	/* Map whole pages even if the range was not rounded, as far as the allocation reaches. */
	found.mapped_size = (size + PAGE - 1) & ~(PAGE - 1);
	from = max(addr, info.base);
	to = min(addr + found.mapped_size, info.base + info.size);
	found.lead = from - addr;
	found.len = to - from;
	r = range_wrap(from, found.len, &found.mem, &info);
	if (r < 0)
		return failure(r, addr, size);
	*ret = found;
	return 0;
}

void range_done(struct range *r)
{
	r->mem = pst_mem_free(r->mem);
}
