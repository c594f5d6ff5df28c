/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <sys/mman.h>

#include "base/err.h"
#include "topo/numa.h"
#include "core/sched/arena.h"
#include "core/sched/share.h"

#define HUGE_PAGE MIB(2)
#define ARENA_MIN HUGE_PAGE /* bytes of the smallest arena */

_Atomic uint64_t pinned_bytes;

unsigned arena_slots(const struct engine *e)
{
	return (unsigned)MAX(ARENA_MIN / e->slot_size, (uint64_t)SLOT_RESERVED);
}

/* Map memory that begins at a huge page.  The kernel only does this if the length is a multiple of
 * a huge page. */
static char *map_huge(uint64_t len)
{
	uint64_t all = len + HUGE_PAGE, head;
	char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	head = align_up((uintptr_t)p, HUGE_PAGE) - (uintptr_t)p;
	if (head)
		(void)munmap(p, head);
	if (head < HUGE_PAGE)
		(void)munmap(p + head + len, HUGE_PAGE - head);
	return p + head;
}

/* Allocate anonymous memory: io_uring cannot register memory that a device's driver allocated. */
static char *memory_new(uint64_t len, int node)
{
	char *p = map_huge(len);

	if (!p) {
		(void)err_set(ENOMEM, "no memory for %" PRIu64 " bytes of staging slots", len);
		return NULL;
	}
	(void)madvise(p, len, MADV_HUGEPAGE);
	(void)madvise(p, len, MADV_DONTFORK);
	numa_place(p, len, node);
	/* Touch the pages here.  Otherwise the driver does so when it pins them, under a lock for
	 * which other threads wait. */
	for (uint64_t off = 0; off < len; off += PAGE)
		*(volatile char *)(p + off) = 0;
	return p;
}

static void arena_end(struct mem_late *l)
{
	struct arena *a = container_of(l, struct arena, late);

	io_buf_free(a->reg);
	mem_unpin(a->ops, a->device, a->buf, a->pinned);
	if (a->buf)
		(void)munmap(a->buf, a->len);
	pinned_bytes -= a->len;
	free(a);
}

static void arena_free(struct arena *a)
{
	a->late.run = arena_end;
	if (a->pinned)
		mem_late(a->ops, &a->late);
	else
		arena_end(&a->late);
}

static int arena_pin(const struct engine *e, struct arena *a)
{
	int r = mem_pin(a->ops, a->device, e->life, a->buf, a->len, &a->pinned);

	return r < 0 ? r : io_buf_new(a->buf, a->len, &a->reg);
}

static void arena_cut(struct engine *e, struct arena *a)
{
	uint64_t sgls = e->slot_bytes - e->slot_size;

	for (unsigned i = a->nr; i-- > 0;) {
		struct job *j = &a->jobs[i];

		j->engine = e;
		j->arena = a;
		j->buf = a->buf + i * e->slot_size;
		/* Put the lists of copies after all slots, so that slots share huge pages. */
		j->sgl_room = sgls ? a->buf + a->nr * e->slot_size + i * sgls : NULL;
		j->reg = a->reg;
		list_init(&j->link);
		j->next_free = a->free;
		a->free = j;
	}
}

int arena_make(struct engine *e, struct arena **ret)
{
	unsigned nr = arena_slots(e);
	struct arena *a = calloc_lines(1, sizeof(*a) + nr * sizeof(a->jobs[0]));
	uint64_t len = nr * e->slot_bytes;
	int r;

	if (!a) {
		pinned_bytes -= len;
		return err_set(ENOMEM, "out of memory");
	}
	a->ops = e->ops;
	a->device = e->device;
	a->nr = nr;
	a->len = len;
	a->buf = memory_new(len, e->node);
	r = a->buf ? arena_pin(e, a) : -ENOMEM;
	if (r < 0) {
		arena_free(a);
		return r;
	}
	arena_cut(e, a);
	*ret = a;
	return 0;
}

void arenas_free(struct list *arenas)
{
	while (!list_empty(arenas)) {
		struct arena *a = list_first(arenas, struct arena, link);

		list_del(&a->link);
		arena_free(a);
	}
}

/* --------------------------------------- of a pool, under the engine's lock */

void arena_add(struct pool *p, struct arena *a)
{
	a->age = p->ages++;
	list_add_tail(&p->arenas, &a->link);
	if (p->roomy == &p->arenas)
		p->roomy = &a->link;
	p->nr_slots += a->nr;
	p->nr_free += a->nr;
}

void arena_del(struct pool *p, struct arena *a)
{
	if (p->roomy == &a->link)
		p->roomy = a->link.next;
	list_del(&a->link);
	p->nr_slots -= a->nr;
	p->nr_free -= a->nr;
}

struct arena *arena_roomy(struct pool *p)
{
	for (; p->roomy != &p->arenas; p->roomy = p->roomy->next) {
		struct arena *a = list_entry(p->roomy, struct arena, link);

		if (a->free)
			return a;
	}
	return NULL;
}

void slot_put(struct pool *p, struct job *j)
{
	struct arena *a = j->arena;

	j->next_free = a->free;
	a->free = j;
	a->nr_used--;
	if (p->roomy == &p->arenas || a->age < list_entry(p->roomy, struct arena, link)->age)
		p->roomy = &a->link;
}
