/* SPDX-License-Identifier: MIT */
/*
 * Allocations, and the references that users' memory objects hold on them.
 *
 * Registrations and exports cost time, so they belong to the allocation, and every pst_mem on it
 * shares them.  The key is the provider's buffer id, never the address: an address may be reused
 * after a free, a buffer id is not.
 */
#include "base/err.h"
#include "core/ways/path.h"
#include "core/ways/region.h"

#define BUCKETS 4096u

static struct {
	pthread_mutex_t lock;
	struct region *of[BUCKETS]; /* hash table by buffer id */
} regions = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct region **region_bucket(const struct mem_alloc *a)
{
	return &regions.of[(a->buffer_id ^ a->buffer_id >> 12) % BUCKETS];
}

static struct region *region_find(const struct mem_alloc *a)
{
	struct region *r = *region_bucket(a);

	while (r && (r->alloc->ops != a->ops || r->alloc->buffer_id != a->buffer_id))
		r = r->next;
	return r;
}

static void region_add(struct region *r)
{
	struct region **at = region_bucket(r->alloc);

	r->next = *at;
	*at = r;
}

static void region_del(struct region *r)
{
	struct region **at = region_bucket(r->alloc);

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
}

/*
 * Allow I/O contexts to register the memory with the kernel.  Wrapped host memory is registered
 * only if its owner promised that the pages stay: registration pins them, and after an early
 * munmap() the kernel would write to pages that nobody sees.
 */
static int region_make_fit(struct region *r)
{
	struct mem_alloc *a = r->alloc;

	if (a->ops->caps & MEM_CAP_PEER)
		return 0; /* the kernel does not keep pages of other devices pinned */
	if (!a->host || (!a->owned && !(a->flags & PST_MEM_PINNED)))
		return 0;
	if (!(a->rights & PST_RIGHT_WRITE))
		return 0; /* io_uring registers only writable pages */
	return io_buf_new(a->host, a->size, &r->reg);
}

int region_get(struct mem_alloc *a, struct region **ret)
{
	struct region *r;
	int err = 0;

	pthread_mutex_lock(&regions.lock);
	r = region_find(a);
	if (r) {
		r->users++;
	} else {
		r = calloc(1, sizeof(*r));
		if (r) {
			r->alloc = a;
			r->users = 1;
			list_init(&r->regs);
			err = region_make_fit(r);
		} else {
			err = err_set(ENOMEM, "out of memory");
		}
		if (!err)
			region_add(r);
	}
	pthread_mutex_unlock(&regions.lock);
	if (err) {
		free(r);
		mem_free(a);
		return err;
	}
	if (r->alloc != a)
		mem_free(a);
	*ret = r;
	return 0;
}

struct region *region_again(struct region *r)
{
	pthread_mutex_lock(&regions.lock);
	r->users++;
	pthread_mutex_unlock(&regions.lock);
	return r;
}

static void region_free(struct region *r)
{
	io_buf_free(r->reg);
	mem_free(r->alloc);
	free(r);
}

/* Drop a reference.  Return true if it was the last; the caller then frees the region.  *ret_ends
 * is set if only paths hold references now. */
static bool region_unref(struct region *r, bool *ret_ends)
{
	bool last;

	pthread_mutex_lock(&regions.lock);
	last = --r->users == 0;
	*ret_ends = last && !r->ends;
	if (*ret_ends) {
		region_del(r);
		r->ends = true;
		r->users = 1; /* the caller's reference stays until the paths have dropped theirs */
	}
	pthread_mutex_unlock(&regions.lock);
	return last && !*ret_ends;
}

void region_put(struct region *r)
{
	bool ends, last = region_unref(r, &ends);

	if (ends) {
		if (r->ended)
			r->ended(r);
		path_region_end(r);
		last = region_unref(r, &ends);
	}
	if (last)
		region_free(r);
}

static void release_mem(struct object *obj)
{
	struct pst_mem *m = container_of(obj, struct pst_mem, obj);

	region_put(m->region);
	free(m);
}

int object_new_mem(struct region *r, uint64_t off, uint64_t len, struct pst_mem **ret)
{
	struct pst_mem *m = calloc(1, sizeof(*m));

	if (!m) {
		region_put(r);
		return err_set(ENOMEM, "out of memory");
	}
	atomic_init(&m->obj.refs, 1);
	m->obj.release = release_mem;
	m->region = r;
	m->off = off;
	m->len = len;
	m->on_host = r->alloc->ops->caps & MEM_CAP_CPU;
	m->flags = r->alloc->flags;
	m->rights = r->alloc->rights;
	*ret = m;
	return 0;
}
