/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdlib.h>

#include "api/ranges.h"
#include "base/err.h"
#include "core/queue/object.h"
#include "core/ways/region.h"
#include "mem/mapped.h"
#include "mem/mem.h"

/* A range of the caller, with its memory. */
struct range {
	struct pst_mem *mem; /* NULL until the range's address is wrapped */
	uint64_t off; /* offset in mem of the range's first byte; its address if mem is NULL */
	uint64_t len;
	unsigned idx; /* index in the caller's order */
	bool host;    /* the caller gave a host address */
};

struct range_result {
	uint64_t got; /* bytes that were moved */
	int err;      /* positive errno, or 0 */
};

/* ---------------------------------------------------------------- orders */

/* Compare ranges: host addresses first, then device addresses, then ranges with a pst_mem. */
static int by_address(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (!x->mem != !y->mem)
		return x->mem ? 1 : -1;
	if (x->mem)
		return 0;
	if (x->host != y->host)
		return x->host ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

static int by_mem(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->mem != y->mem)
		return (uintptr_t)x->mem < (uintptr_t)y->mem ? -1 : 1;
	return x->idx < y->idx ? -1 : 1;
}

/* ------------------------------------------------------------- addresses */

static int add_wrapped(struct ranges *rs, struct mem_alloc *a, struct pst_mem **ret)
{
	struct region *region;
	int r = region_get(a, &region);

	if (r == 0)
		r = object_new_mem(region, 0, region->alloc->size, ret);
	if (r == 0)
		rs->wrapped[rs->nr_wrapped++] = *ret;
	return r;
}

/* Wrap the span from the first to the last host address.  No request touches bytes between the
 * ranges. */
static int wrap_host(struct ranges *rs, struct range *list, unsigned nr)
{
	_cleanup_(freep) struct mapped *maps = calloc(nr, sizeof(*maps));
	uint64_t base = list[0].off, end = base;
	unsigned nr_maps = 0;
	struct mem_alloc *a;
	struct pst_mem *m;
	int r;

	if (!maps)
		return err_set(ENOMEM, "out of memory");
	/* Merge ranges that touch or overlap, and check each merged one. */
	for (unsigned i = 0; i < nr; i++) {
		if (!nr_maps || list[i].off > end)
			maps[nr_maps++] = (struct mapped){ .addr = list[i].off };
		end = MAX(end, list[i].off + list[i].len);
		maps[nr_maps - 1].len = end - maps[nr_maps - 1].addr;
	}
	r = mapped_check(maps, nr_maps);
	if (r == 0)
		r = mem_host_ops.wrap(base, end - base, 0, &a);
	if (r == 0)
		r = add_wrapped(rs, a, &m);
	for (unsigned i = 0; r == 0 && i < nr; i++) {
		list[i].mem = m;
		list[i].off -= base;
	}
	return r;
}

/* Wrap the whole allocation of each device address. */
static int wrap_device(struct ranges *rs, struct range *list, unsigned nr)
{
	struct mem_alloc *a;
	struct pst_mem *m;
	uint64_t base, end;
	unsigned i = 0;
	int r;

	while (i < nr) {
		r = mem_wrap(list[i].off, list[i].len, 0, 0, &a);
		if (r < 0)
			return r;
		base = a->base.va;
		r = add_wrapped(rs, a, &m);
		if (r < 0)
			return r;
		end = base + m->len;
		/* mem_wrap() has checked that the first range is inside. */
		do {
			list[i].mem = m;
			list[i].off -= base;
			i++;
		} while (i < nr && list[i].off >= base && list[i].off < end &&
			 list[i].len <= end - list[i].off);
	}
	return 0;
}

static int ranges_wrap(struct ranges *rs, struct range *list, unsigned nr_addresses)
{
	unsigned nr_host = 0;
	int r = 0;

	if (!nr_addresses)
		return 0;
	rs->wrapped = calloc(nr_addresses, sizeof(struct pst_mem *));
	if (!rs->wrapped)
		return err_set(ENOMEM, "out of memory");
	qsort(list, rs->nr, sizeof(*list), by_address);
	while (nr_host < nr_addresses && list[nr_host].host)
		nr_host++;
	if (nr_host)
		r = wrap_host(rs, list, nr_host);
	if (r == 0)
		r = wrap_device(rs, list + nr_host, nr_addresses - nr_host);
	return r;
}

/* ---------------------------------------------------------------- groups */

static int check_vec(uint32_t op, const struct pst_vec *v, unsigned i, uint64_t *total)
{
	uint32_t need = op == PST_OP_READ ? PST_RIGHT_WRITE : PST_RIGHT_READ;
	uint64_t end;

	if (!v->len)
		return err_set(EINVAL, "the length of range %u is zero", i);
	if (v->reserved)
		return err_set(EINVAL, "the reserved field of range %u is not 0", i);
	if (!v->mem && !v->mem_off)
		return err_set(EINVAL, "range %u has neither memory nor an address", i);
	if (__builtin_add_overflow(*total, v->len, total) || *total > INT64_MAX)
		return err_set(EOVERFLOW, "the lengths add up to more than INT64_MAX");
	if (__builtin_add_overflow(v->file_off, v->len, &end) || end > INT64_MAX)
		return err_set(EOVERFLOW, "range %u ends beyond 2^63 bytes in the file", i);
	if (!v->mem)
		return __builtin_add_overflow(v->mem_off, v->len, &end)
			       ? err_set(EINVAL,
					 "range %u wraps around the end of the address "
					 "space",
					 i)
			       : 0;
	if (__builtin_add_overflow(v->mem_off, v->len, &end) || end > v->mem->len)
		return err_set(ERANGE,
			       "range %u has %" PRIu64 " bytes at %" PRIu64 " of memory that has "
			       "%" PRIu64,
			       i, v->len, v->mem_off, v->mem->len);
	if (!(v->mem->rights & need))
		return err_set(EACCES, "range %u: the grant of its memory does not allow that", i);
	return 0;
}

static bool host_has(const struct pst_vec *v)
{
	const struct mem_ops *owner = mem_owner(v->mem_off, v->len);

	return owner && owner->kind == PST_KIND_HOST;
}

/* Check all ranges, and wrap those that are addresses. */
static int ranges_resolve(struct ranges *rs, uint32_t op, const struct pst_vec *vecs,
			  struct range *list)
{
	unsigned nr_addresses = 0;

	for (unsigned i = 0; i < rs->nr; i++) {
		const struct pst_vec *v = &vecs[i];
		int r = check_vec(op, v, i, &rs->total);

		if (r < 0)
			return r;
		list[i] =
			(struct range){ .mem = v->mem, .off = v->mem_off, .len = v->len, .idx = i };
		if (!v->mem) {
			list[i].host = host_has(v);
			nr_addresses++;
		}
	}
	return ranges_wrap(rs, list, nr_addresses);
}

static int by_first(const void *a, const void *b, void *arg)
{
	const struct group *x = a, *y = b;
	const unsigned *order = arg;

	return order[x->first] < order[y->first] ? -1 : 1;
}

static void make_groups(struct ranges *rs, const struct pst_vec *vecs, struct range *list)
{
	struct group *g = NULL;

	qsort(list, rs->nr, sizeof(*list), by_mem);
	for (unsigned i = 0; i < rs->nr; i++) {
		const struct range *at = &list[i];

		if (!g || g->mem != at->mem) {
			g = &rs->groups[rs->nr_groups++];
			*g = (struct group){ .mem = at->mem, .first = i };
		}
		g->nr++;
		rs->order[i] = at->idx;
		rs->segs[i] = (struct pst_seg){ .file_off = vecs[at->idx].file_off,
						.mem_off = at->off,
						.len = at->len };
	}
	/* Sort the groups by their first range, so that requests start in the caller's order. */
	qsort_r(rs->groups, rs->nr_groups, sizeof(*rs->groups), by_first, rs->order);
}

int ranges_init(struct ranges *rs, uint32_t op, const struct pst_vec *vecs, unsigned nr)
{
	_cleanup_(freep) struct range *list = NULL;
	int r;

	if (!vecs)
		return err_set(EINVAL, "no range is given");
	if (!nr || nr > PST_VECS_MAX)
		return err_set(EINVAL, "%u ranges are not within 1 and %u", nr, PST_VECS_MAX);
	rs->nr = nr;
	rs->order = calloc(nr, sizeof(*rs->order));
	rs->segs = calloc(nr, sizeof(*rs->segs));
	rs->groups = calloc(nr, sizeof(*rs->groups));
	rs->results = calloc(nr, sizeof(*rs->results));
	list = calloc(nr, sizeof(*list));
	if (!rs->order || !rs->segs || !rs->groups || !rs->results || !list)
		return err_set(ENOMEM, "out of memory");
	r = ranges_resolve(rs, op, vecs, list);
	if (r == 0)
		make_groups(rs, vecs, list);
	return r;
}

void ranges_done(struct ranges *rs)
{
	for (unsigned i = 0; i < rs->nr_wrapped; i++)
		(void)pst_mem_free(rs->wrapped[i]);
	free(rs->wrapped);
	free(rs->results);
	free(rs->groups);
	free(rs->segs);
	free(rs->order);
}

/* ---------------------------------------------------------------- result */

/* Return how many bytes of a range arrived, if @before bytes precede the range in its group. */
static uint64_t arrived(const struct group *g, uint64_t before, uint64_t len)
{
	uint64_t prefix = g->ended ? g->done.prefix : 0;

	return prefix <= before ? 0 : MIN(prefix - before, len);
}

static void add_group(struct ranges *rs, const struct group *g, int unmet, struct pst_done *ret)
{
	int err = g->ended ? (int)-MIN(g->done.res, 0) : unmet;
	uint64_t before = 0;

	ret->paths |= g->done.paths;
	ret->flags |= g->done.flags & (PST_DONE_BUSY | PST_DONE_PINNED | PST_DONE_PROOF);
	if (!ret->why) {
		ret->why = g->done.why;
		ret->detail = g->done.detail;
	}
	for (unsigned k = g->first; k < g->first + g->nr; k++) {
		struct range_result *to = &rs->results[rs->order[k]];

		to->got = arrived(g, before, rs->segs[k].len);
		to->err = err;
		before += rs->segs[k].len;
	}
}

/* Return the group with this range of the caller; NULL if its request did not end. */
static const struct group *group_of(const struct ranges *rs, unsigned idx)
{
	for (unsigned i = 0; i < rs->nr_groups; i++) {
		const struct group *g = &rs->groups[i];

		for (unsigned k = g->first; k < g->first + g->nr; k++)
			if (rs->order[k] == idx)
				return g->ended ? g : NULL;
	}
	return NULL;
}

const struct group *ranges_result(struct ranges *rs, const struct pst_vec *vecs, int unmet,
				  struct pst_done *ret)
{
	bool whole = true;

	for (unsigned i = 0; i < rs->nr_groups; i++)
		add_group(rs, &rs->groups[i], unmet, ret);
	for (unsigned i = 0; i < rs->nr; i++) {
		const struct range_result *at = &rs->results[i];

		/* Count bytes only before the first gap, but errors of any range. */
		if (whole)
			ret->prefix += at->got;
		if (whole && at->got < vecs[i].len) {
			ret->user_data = i;
			whole = false;
		}
		if (at->err && at->got < vecs[i].len) {
			ret->user_data = i;
			ret->res = -at->err;
			return group_of(rs, i);
		}
	}
	ret->res = (int64_t)ret->prefix;
	return NULL;
}
