/* SPDX-License-Identifier: MIT */
/*
 * Device copies directly from the page cache.
 *
 * A stable file (PST_FILE_STABLE) is mapped read-only, and the device's driver pins the mapping in
 * units.  Then the device reads the pages itself.  The CPU never loads from the mapping, so there
 * is no SIGBUS.
 *
 * Pinning a GiB takes about 20 ms, during which no other thread can use the driver.  So a file that
 * is read once is not pinned: the work queue pins a unit when a second pass over the unit has
 * begun.  If the caller lists the path, the unit is pinned at once.
 *
 * When a file is closed, the work queue unpins its pages, a unit at a time.  Until then the pages
 * count against the limit, and the mapping keeps the file in use: its file system cannot be
 * unmounted.
 *
 * Size and change time, as this machine knows them, are compared before and after each copy.  If
 * the file has changed, the bytes are read again through the pool and the mapping is not used any
 * more.  The mapping's pages stay pinned until the file is closed.
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#include "base/err.h"
#include "base/limit.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/work.h"
#include "core/queue/object.h"
#include "core/queue/req.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/source.h"
#include "file/local.h"

#define UNIT MIB(64)
#define OTHERS_PIN_NS (300 * NSEC_PER_MSEC) /* maximum ns that a thread waits for another pinner */

enum unit_state {
	UNIT_COLD,
	UNIT_WAITING, /* queued for pinning on the work queue */
	UNIT_PINNING, /* a thread is pinning the unit */
	UNIT_PINNED,
	UNIT_REFUSED, /* the driver refused to pin the unit */
};

struct unit {
	_Atomic uint8_t state;
	_Atomic uint32_t seen; /* bytes of the unit that were staged so far */
};

struct mapping {
	struct source source;
	struct mapping *next; /* next mapping of the file */
	const struct mem_ops *ops;
	unsigned device;
	uint64_t life; /* the device's life when its pages were pinned; a reset of the device ends
		        * the pinning */
	const struct local_file *file;
	char *base;
	uint64_t len;
	struct file_stamp stamp; /* the file's size and change time when it was mapped */
	atomic_bool stale;
	struct work work; /* pins waiting units; after the file is closed, unpins all */
	struct mem_late late;
	pthread_mutex_t lock;
	atomic_uint refs;     /* references: one of the file, and one of each struct half */
	bool closed;          /* the file was closed; under the lock */
	unsigned nr_unpinned; /* unpinned units: all before this index */
	unsigned nr_units;
	struct unit units[];
};

static const struct source_ops pages;

/* The pinned beginning of a unit, if the driver refused the rest of the unit. */
struct half {
	struct mem_late late;
	struct mapping *m;
	struct unit *unit;
	uint64_t len;
};

/* The data that this path keeps for a file. */
struct mappings {
	pthread_mutex_t lock;
	struct mapping *list; /* one mapping per device */
};

/*
 * The pinner: the only thread of the process that pins units now, because the driver serves one
 * thread at a time.
 *
 * A worker that waits to become the pinner serves no requests, so it gives up if the current pinner
 * takes long.  Threads become the pinner in the order of their arrival, so each waits only for the
 * current pinning and for threads that arrived earlier.
 */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t over;
	struct list waiting; /* threads that wait to become the pinner, in order of arrival */
	bool busy;
	uint64_t since; /* CLOCK_MONOTONIC ns when the current pinner began, or the last one
			 * ended */
	bool slow;      /* the current pinner takes too long: workers do not wait for it */
} pinner = { .lock = PTHREAD_MUTEX_INITIALIZER, .waiting = LIST_INIT(pinner.waiting) };

static _Atomic uint64_t pinned_bytes, pinned_ns; /* bytes pinned now; total time of pinning, ns */
static _Atomic uint64_t waiting_bytes;           /* bytes of units that wait to be pinned */

/* Return the limit of pinned page cache in bytes: half of the machine's memory unless a limit was
 * set. */
static uint64_t pin_limit(void)
{
	struct sysinfo si;

	return limit_get(LIMIT_PAGES,
			 sysinfo(&si) == 0 ? (uint64_t)si.totalram * si.mem_unit / 2 : GIB(1));
}

/* Return true if len more bytes fit into the limit. */
static bool pin_fits(uint64_t now, uint64_t len, uint64_t limit)
{
	return now <= limit && len <= limit - now;
}

/* Count len more bytes as pinned, if the limit allows them. */
static bool pin_charge(uint64_t len)
{
	uint64_t now = atomic_load(&pinned_bytes), limit = pin_limit();

	do
		if (!pin_fits(now, len, limit))
			return false;
	while (!atomic_compare_exchange_weak(&pinned_bytes, &now, now + len));
	return true;
}

static struct mapping *mapping_of(struct source *s)
{
	return container_of(s, struct mapping, source);
}

static uint64_t unit_len(const struct mapping *m, unsigned idx)
{
	return MIN(UNIT, m->len - idx * UNIT);
}

/* ----------------------------------------------------------------- pinner */

static void pinner_init(void)
{
	cond_init_monotonic(&pinner.over);
}

/* Lock the pinner, and append a thread to the queue for becoming the pinner. */
static void pinner_queue(struct list *place)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, pinner_init);
	pthread_mutex_lock(&pinner.lock);
	list_add_tail(&pinner.waiting, place);
}

/* Leave the queue and unlock.  If there is no pinner, wake the next thread. */
static void pinner_leave(struct list *place)
{
	list_del(place);
	if (!pinner.busy)
		pthread_cond_broadcast(&pinner.over);
	pthread_mutex_unlock(&pinner.lock);
}

/* Become the pinner if there is none and this thread is first in the queue; under the lock. */
static bool pinner_begin(const struct list *place)
{
	if (pinner.busy || pinner.waiting.next != place)
		return false;
	pinner.busy = true;
	pinner.slow = false;
	pinner.since = now_ns();
	return true;
}

/* Become the pinner, waiting for other pinners as long as necessary. */
static void pinner_become(void)
{
	struct list place;

	pinner_queue(&place);
	while (!pinner_begin(&place))
		pthread_cond_wait(&pinner.over, &pinner.lock);
	pinner_leave(&place);
}

/* Return true if the unit is neither pinned nor refused. */
static bool unit_is_open(const struct unit *u)
{
	uint8_t state = atomic_load(&u->state);

	return state != UNIT_PINNED && state != UNIT_REFUSED;
}

/* Wait until the pinner ends.  Return false if the pinner takes longer than OTHERS_PIN_NS. */
static bool pinner_wait(void)
{
	uint64_t end = pinner.since + OTHERS_PIN_NS;
	const struct timespec ts = { .tv_sec = (time_t)(end / NSEC_PER_SEC),
				     .tv_nsec = (long)(end % NSEC_PER_SEC) };

	if (!pinner.slow && now_ns() >= end) {
		pinner.slow = true;
		pthread_cond_broadcast(&pinner.over);
	}
	if (!pinner.slow)
		(void)pthread_cond_timedwait(&pinner.over, &pinner.lock, &ts);
	return !pinner.slow;
}

/* Become the pinner for a unit.  Return false if another thread has pinned the unit or found it
 * refused, or if the current pinner takes too long. */
static bool pinner_become_for(const struct unit *u)
{
	struct list place;
	bool mine = false;

	pinner_queue(&place);
	while (unit_is_open(u) && !(mine = pinner_begin(&place)) && pinner_wait())
		;
	pinner_leave(&place);
	return mine;
}

static void pinner_end(void)
{
	pthread_mutex_lock(&pinner.lock);
	pinner.busy = pinner.slow = false;
	pinner.since = now_ns();
	pthread_cond_broadcast(&pinner.over);
	pthread_mutex_unlock(&pinner.lock);
}

/* ---------------------------------------------------------------- pinning */

/* Return true if a unit is resident.  If not, pinning would read the disk. */
static bool unit_resident(struct mapping *m, unsigned idx)
{
	bool resident;

	pthread_mutex_lock(&m->lock);
	resident = !m->closed && file_resident(&m->file->file, idx * UNIT, unit_len(m, idx)) > 0;
	pthread_mutex_unlock(&m->lock);
	return resident;
}

static void mapping_delete(struct mapping *m)
{
	(void)pthread_mutex_destroy(&m->lock);
	free(m);
}

static void mapping_put(struct mapping *m)
{
	if (atomic_fetch_sub(&m->refs, 1) > 1)
		return;
	(void)munmap(m->base, m->len);
	mapping_delete(m);
}

static void unit_unpin(struct mapping *m, const struct unit *u, uint64_t len)
{
	mem_unpin_file(m->ops, m->device, m->base + (uint64_t)(u - m->units) * UNIT, len);
	atomic_fetch_sub(&pinned_bytes, len);
}

static void half_end(struct mem_late *l)
{
	struct half *h = container_of(l, struct half, late);

	unit_unpin(h->m, h->unit, h->len);
	mapping_put(h->m);
	free(h);
}

/* Unpin the beginning of a unit whose rest the driver refused.  Unpinning may wait for a stream, so
 * the work queue does it; without memory for the work, unpin here. */
static void half_unpin(struct mapping *m, struct unit *u, uint64_t len)
{
	struct half *h = calloc(1, sizeof(*h));

	if (!h) {
		unit_unpin(m, u, len);
		return;
	}
	atomic_fetch_add(&m->refs, 1);
	*h = (struct half){ .late.run = half_end, .m = m, .unit = u, .len = len };
	mem_late(m->ops, &h->late);
}

/* Pin a unit that the caller has claimed.  Return the unit's new state. */
static enum unit_state unit_try(struct mapping *m, unsigned idx)
{
	uint64_t len = unit_len(m, idx), start = now_ns(), pinned = 0;
	enum unit_state state = UNIT_REFUSED;
	struct unit *u = &m->units[idx];

	if (!pin_charge(len)) {
		log_debug("the bound of pinned page cache is reached");
		return UNIT_COLD; /* stay cold: the limit may be raised later */
	}
	if (!unit_resident(m, idx)) {
		state = UNIT_COLD;
	} else if (mem_pin_file(m->ops, m->device, m->life, m->base + idx * UNIT, len, &pinned) <
		   0) {
		log_info("pinning a file for %s %u failed: %s, ignoring", m->ops->name, m->device,
			 err_text());
	} else {
		atomic_fetch_add(&pinned_ns, now_ns() - start);
		return UNIT_PINNED;
	}
	atomic_fetch_sub(&pinned_bytes, len - pinned);
	if (pinned)
		half_unpin(m, u, pinned);
	return state;
}

/* Claim a unit for pinning.  Return false if the unit is pinned or refused, or another thread has
 * claimed it.  *ret_waiting is true if the unit was queued for pinning in the background. */
static bool unit_claim(struct unit *u, bool *ret_waiting)
{
	uint8_t state = atomic_load(&u->state);

	while (state == UNIT_COLD || state == UNIT_WAITING) {
		*ret_waiting = state == UNIT_WAITING;
		if (atomic_compare_exchange_weak(&u->state, &state, UNIT_PINNING))
			return true;
	}
	return false;
}

/* Pin a unit.  The caller is the pinner. */
static void unit_pin(struct mapping *m, unsigned idx)
{
	struct unit *u = &m->units[idx];
	enum unit_state state;
	bool waiting;

	if (!unit_claim(u, &waiting))
		return;
	state = unit_try(m, idx);
	if (state != UNIT_PINNED)
		atomic_store(&u->seen, 0);
	atomic_store(&u->state, state);
	if (waiting)
		atomic_fetch_sub(&waiting_bytes, unit_len(m, idx));
}

/* Pin a unit now, even if another thread has just failed to pin it: the page cache and the limit
 * may have changed.  Return true if the unit is pinned. */
static bool unit_pin_now(struct mapping *m, unsigned idx)
{
	struct unit *u = &m->units[idx];
	bool fits = pin_fits(atomic_load(&pinned_bytes), unit_len(m, idx), pin_limit());

	/* The limit may be reached because another thread has charged this same unit, so wait for
	 * that thread. */
	if (!fits && atomic_load(&u->state) != UNIT_PINNING)
		return atomic_load(&u->state) == UNIT_PINNED;
	if (pinner_become_for(u)) {
		unit_pin(m, idx);
		pinner_end();
	}
	return atomic_load(&u->state) == UNIT_PINNED;
}

/* Unpin the next pinned unit.  Return false if there is none.  No unit of the mapping may be pinned
 * any more. */
static bool unpin_next(struct mapping *m)
{
	while (m->nr_unpinned < m->nr_units) {
		unsigned i = m->nr_unpinned++;

		if (m->units[i].state == UNIT_WAITING)
			atomic_fetch_sub(&waiting_bytes, unit_len(m, i));
		if (m->units[i].state != UNIT_PINNED)
			continue;
		unit_unpin(m, &m->units[i], unit_len(m, i));
		return true;
	}
	return false;
}

static void mapping_free(struct mapping *m)
{
	while (unpin_next(m))
		;
	mapping_put(m);
}

/* Unpin one unit per run of the work queue, so that units of other files and the pool get their
 * turns. */
static void unpin_one(struct mem_late *l)
{
	struct mapping *m = container_of(l, struct mapping, late);

	if (unpin_next(m))
		(void)work_queue(&m->work, WORK_LOW); /* cannot fail on the work queue's thread */
	else
		mapping_free(m);
}

static void unpin_some(struct work *w)
{
	struct mapping *m = container_of(w, struct mapping, work);

	m->late.run = unpin_one;
	mem_late(m->ops, &m->late);
}

/* Unpin all units in one call, because no thread can run the work. */
static void unpin_all(struct mem_late *l)
{
	mapping_free(container_of(l, struct mapping, late));
}

/* Pin one waiting unit per run of the work queue, as unpin_one() does. */
static void pin_waiting(struct work *w)
{
	struct mapping *m = container_of(w, struct mapping, work);
	unsigned i = 0;

	while (i < m->nr_units && atomic_load(&m->units[i].state) != UNIT_WAITING)
		i++;
	if (i == m->nr_units)
		return;
	pinner_become();
	unit_pin(m, i);
	pinner_end();
	(void)work_queue(w, WORK_LOW);
}

/* Queue a unit for pinning in the background. */
static void unit_want(struct mapping *m, unsigned idx)
{
	uint8_t cold = UNIT_COLD, waiting = UNIT_WAITING;

	/* Count first: the thread that pins the unit subtracts its bytes. */
	atomic_fetch_add(&waiting_bytes, unit_len(m, idx));
	if (!atomic_compare_exchange_strong(&m->units[idx].state, &cold, UNIT_WAITING) ||
	    (work_queue(&m->work, WORK_LOW) < 0 &&
	     atomic_compare_exchange_strong(&m->units[idx].state, &waiting, UNIT_COLD)))
		atomic_fetch_sub(&waiting_bytes, unit_len(m, idx));
}

/* --------------------------------------------------------------- mappings */

static struct mapping *mapping_new(const struct local_file *file, const struct mem_ops *ops,
				   unsigned device)
{
	struct file_stamp stamp;
	struct mapping *m;
	unsigned nr;

	if (!file || file->block_device || file_stamp(&file->file, &stamp) < 0 || !stamp.size)
		return NULL;
	nr = (unsigned)((stamp.size + UNIT - 1) / UNIT);
	m = calloc(1, sizeof(*m) + nr * sizeof(m->units[0]));
	if (!m)
		return NULL;
	m->source.ops = &pages;
	m->ops = ops;
	m->device = device;
	m->life = mem_life(ops, device);
	m->file = file;
	m->stamp = stamp;
	m->len = stamp.size;
	m->nr_units = nr;
	m->refs = 1;
	work_init(&m->work, pin_waiting);
	(void)pthread_mutex_init(&m->lock, NULL);
	m->base = mmap(NULL, m->len, PROT_READ, MAP_SHARED | MAP_NORESERVE, file->fd, 0);
	if (m->base == MAP_FAILED) {
		mapping_delete(m);
		return NULL;
	}
	(void)madvise(m->base, m->len, MADV_DONTFORK);
	return m;
}

static struct mappings *mappings_of(struct pst_file *f)
{
	_Atomic(void *) *kept = &f->by_path[PST_PATH_PAGECACHE];
	struct mappings *all = atomic_load(kept);

	if (likely(all))
		return all;
	all = calloc(1, sizeof(*all));
	if (all)
		all->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	return path_keep(kept, all);
}

/* Return the file's mapping for a device, created on first use; NULL if mapping is impossible or
 * not allowed. */
static struct mapping *mapping_get(struct pst_file *f, const struct mem_ops *ops, unsigned device)
{
	struct mappings *all = mappings_of(f);
	struct mapping *m;

	if (!all)
		return NULL;
	pthread_mutex_lock(&all->lock);
	for (m = all->list; m; m = m->next)
		if (m->ops == ops && m->device == device && m->life == mem_life(ops, device))
			break;
	if (!m) {
		m = mapping_new(file_local(f->file), ops, device);
		if (m) {
			m->next = all->list;
			all->list = m;
		}
	}
	pthread_mutex_unlock(&all->lock);
	return m && !m->stale ? m : NULL;
}

/* Unpin the file's mappings in the background.  The pages count against the limit until then. */
static void pagecache_file_end(struct pst_file *f)
{
	struct mappings *all = atomic_load(&f->by_path[PST_PATH_PAGECACHE]);

	while (all->list) {
		struct mapping *m = all->list;

		all->list = m->next;
		/* Synchronize with the work queue, which may be pinning a unit of this mapping. */
		pthread_mutex_lock(&m->lock);
		m->closed = true;
		pthread_mutex_unlock(&m->lock);
		m->late.run = unpin_all;
		if (work_change(&m->work, unpin_some, WORK_LOW) < 0)
			mem_late(m->ops, &m->late);
	}
	(void)pthread_mutex_destroy(&all->lock);
	free(all);
}

/* Return true if these bytes are pinned.  If now is true, pin resident bytes first. */
static bool pagecache_ready(struct source *s, uint64_t off, uint64_t len, bool now)
{
	struct mapping *m = mapping_of(s);

	if (m->stale || off + len > m->len)
		return false;
	for (uint64_t i = off / UNIT; i <= (off + len - 1) / UNIT; i++) {
		if (atomic_load(&m->units[i].state) == UNIT_PINNED)
			continue;
		if (!now || !unit_pin_now(m, (unsigned)i))
			return false;
	}
	return true;
}

static void pagecache_aim(const struct source *s, uint64_t off, struct mem_copy *c)
{
	c->host = container_of(s, const struct mapping, source)->base + off;
}

/* Return true if the file has not changed since it was mapped. */
static bool pagecache_still(struct source *s)
{
	struct mapping *m = mapping_of(s);

	if (!m->stale && !file_still(&m->file->file, &m->stamp)) {
		log_warn("a file opened as stable changed; its pages are not used any more");
		atomic_store(&m->stale, true);
	}
	return !m->stale;
}

/* Return true if the unit was read more than once.  The excess must be over 1/8 of its length:
 * headers and edges are read twice even in one pass. */
static bool worth_pinning(const struct mapping *m, unsigned idx, uint64_t seen)
{
	return seen > unit_len(m, idx) + unit_len(m, idx) / 8;
}

/* Count staged bytes that came from the page cache.  In the second pass over a unit, ask for the
 * unit to be pinned. */
static void pagecache_seen(struct source *s, uint64_t off, uint64_t len, uint32_t hops)
{
	struct mapping *m = mapping_of(s);

	if (hops & ~PST_PATH_BIT(PST_PATH_CACHED))
		return;
	while (len && off < m->len && !m->stale) {
		unsigned idx = (unsigned)(off / UNIT);
		uint64_t n = MIN(len, (idx + 1) * UNIT - off);
		struct unit *u = &m->units[idx];

		if (atomic_load_explicit(&u->state, memory_order_relaxed) == UNIT_COLD &&
		    worth_pinning(m, idx, atomic_fetch_add(&u->seen, (uint32_t)n) + n))
			unit_want(m, idx);
		off += n;
		len -= n;
	}
}

static const struct source_ops pages = {
	.path = PST_PATH_PAGECACHE,
	.ready = pagecache_ready,
	.aim = pagecache_aim,
	.still = pagecache_still,
	.seen = pagecache_seen,
};

static void pagecache_stats(struct pst_stats *ret)
{
	ret->pages_limit = pin_limit();
	ret->pages_bytes = pinned_bytes;
	ret->pages_ns = pinned_ns;
	ret->pages_waiting = waiting_bytes;
}

static enum pst_why pagecache_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
				  int *ret_detail)
{
	(void)ret_detail;
	if (op != PST_OP_READ)
		return PST_WHY_DIRECTION;
	if (!mem_ops_of(m)->pin_file || !file_local(f->file))
		return PST_WHY_NO_PROVIDER;
	return f->file->flags & PST_FILE_STABLE ? PST_WHY_NONE : PST_WHY_NOT_STABLE;
}

static bool pagecache_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op)
{
	(void)f;
	(void)m;
	(void)op;
	return false; /* each copy is checked separately */
}

/*
 * Plan to copy from pages of a stable file.  If the caller listed the path, the pages are pinned at
 * once.  If the caller listed no paths, only pages that are already pinned are used.
 */
static void pagecache_plan(const struct req *r, struct plan *p, uint32_t listed)
{
	const struct mem_alloc *a = req_mem(r)->region->alloc;
	struct mapping *m;
	int detail;

	p->source_now = p->dev == PST_PATH_PAGECACHE;
	if (!p->source_now && (listed & ~path_hops()))
		return;
	/* A checksum calls the driver, which may block until the stream continues, and the stream
	 * waits for this read. */
	if ((r->io.flags & PST_IO_CRC32C && r->io.flags & PST_IO_STREAM_WAIT) ||
	    pagecache_why(r->io.file, req_mem(r), r->io.op, &detail))
		return;
	m = mapping_get(r->io.file, a->ops, a->device);
	p->from = m ? &m->source : NULL;
}

const struct path_ops path_pagecache = {
	.path = PST_PATH_PAGECACHE,
	.by = &req_by_engine,
	.plan = pagecache_plan,
	.why = pagecache_why,
	.proven = pagecache_proven,
	.file_end = pagecache_file_end,
	.stats = pagecache_stats,
};
