// SPDX-License-Identifier: MIT
/*
 * Device copies straight from the page cache.
 *
 * A file whose user says that it is stable is mapped read-only, and the device's driver
 * pins the mapping unit by unit; then the device reads the pages itself, and the CPU
 * neither copies nor looks at them: no load from the mapping, so no SIGBUS.  Pinning costs
 * some 20 ms a GiB, which the first pass over a file must not pay: a unit is pinned in the
 * background once its bytes have been read through the staging pool.  A caller who lists
 * the path has it pinned on the spot.
 *
 * Size and change time are compared before and after each copy.  A file that changed loses
 * its mapping, and what was read from it is read again through the pool.
 */
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "core/pagecache.h"

#define UNIT MIB(64)

enum unit_state {
	UNIT_COLD,
	UNIT_WAITING, /* for the pinning thread, or in its hands */
	UNIT_PINNED,
	UNIT_REFUSED, /* by the driver or the limit */
};

struct unit {
	_Atomic uint8_t state;
	_Atomic uint32_t seen_kib; /* staged so far */
};

struct mapping {
	struct mapping *next; /* of the file's */
	const struct mem_ops *ops;
	unsigned device;
	const struct store_file *sf;
	char *base;
	uint64_t len;
	struct stat st; /* when it was mapped */
	atomic_bool stale;
	unsigned nr_waiting; /* units; under pins.lock */
	unsigned nr_units;
	struct unit units[];
};

struct pin {
	struct list link;
	struct mapping *map;
	unsigned idx;
};

/* The thread that pins, and what waits for it. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t idle;
	struct list waiting;
	bool running;
	_Atomic uint64_t bytes, ns; /* pinned now; time spent on pinning */
} pins = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.idle = PTHREAD_COND_INITIALIZER,
	.waiting = LIST_INIT(pins.waiting),
};

/* Half of the machine's memory may be pinned file. */
static uint64_t pin_limit(void)
{
	struct sysinfo si;

	return sysinfo(&si) == 0 ? (uint64_t)si.totalram * si.mem_unit / 2 : GIB(1);
}

static uint64_t unit_len(const struct mapping *m, unsigned idx)
{
	return MIN(UNIT, m->len - idx * UNIT);
}

/* ---------------------------------------------------------------- pinning */

static void unit_pin(struct mapping *m, unsigned idx)
{
	uint64_t len = unit_len(m, idx), start = now_ns();
	struct unit *u = &m->units[idx];
	uint8_t state = UNIT_REFUSED;

	if (atomic_fetch_add(&pins.bytes, len) + len > pin_limit()) {
		log_debug("the limit of pinned file is reached");
	} else if (!plan_resident(m->sf, idx * UNIT, len)) {
		state = UNIT_COLD; /* pinning would read it from the disk */
	} else if (mem_pin_file(m->ops, m->device, m->base + idx * UNIT, len) < 0) {
		log_info("pinning a file for %s %u failed: %s, ignoring", m->ops->name, m->device,
			 err_text());
	} else {
		atomic_fetch_add(&pins.ns, now_ns() - start);
		atomic_store(&u->state, UNIT_PINNED);
		return;
	}
	atomic_fetch_sub(&pins.bytes, len);
	atomic_store(&u->seen_kib, 0);
	atomic_store(&u->state, state);
}

static void *pin_main(void *arg)
{
	(void)arg;
	(void)pthread_setname_np(pthread_self(), "pst-pin");
	pthread_mutex_lock(&pins.lock);
	while (!list_empty(&pins.waiting)) {
		struct pin *p = list_first(&pins.waiting, struct pin, link);
		struct mapping *m = p->map;

		list_del(&p->link);
		pthread_mutex_unlock(&pins.lock);
		unit_pin(m, p->idx);
		free(p);
		pthread_mutex_lock(&pins.lock);
		if (--m->nr_waiting == 0)
			pthread_cond_broadcast(&pins.idle);
	}
	pins.running = false;
	pthread_mutex_unlock(&pins.lock);
	return NULL;
}

/* Have a unit pinned in the background. */
static void unit_want(struct mapping *m, unsigned idx)
{
	uint8_t cold = UNIT_COLD;
	pthread_t thread;
	struct pin *p;

	if (!atomic_compare_exchange_strong(&m->units[idx].state, &cold, UNIT_WAITING))
		return;
	p = malloc(sizeof(*p));
	if (!p) {
		atomic_store(&m->units[idx].state, UNIT_COLD);
		return;
	}
	*p = (struct pin){ .map = m, .idx = idx };
	pthread_mutex_lock(&pins.lock);
	list_add_tail(&pins.waiting, &p->link);
	m->nr_waiting++;
	if (!pins.running && thread_start(&thread, pin_main, NULL) == 0) {
		pins.running = true;
		(void)pthread_detach(thread);
	}
	if (!pins.running) {
		list_del(&p->link);
		m->nr_waiting--;
		free(p);
		atomic_store(&m->units[idx].state, UNIT_COLD);
	}
	pthread_mutex_unlock(&pins.lock);
}

/* --------------------------------------------------------------- mappings */

static bool unchanged(const struct mapping *m)
{
	struct stat st;

	return fstat(m->sf->fd, &st) == 0 && st.st_size == m->st.st_size &&
	       st.st_ctim.tv_sec == m->st.st_ctim.tv_sec &&
	       st.st_ctim.tv_nsec == m->st.st_ctim.tv_nsec;
}

static struct mapping *mapping_new(const struct store_file *sf, const struct mem_ops *ops,
				   unsigned device)
{
	struct mapping *m;
	struct stat st;
	unsigned nr;

	if (fstat(sf->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0)
		return NULL;
	nr = (unsigned)(((uint64_t)st.st_size + UNIT - 1) / UNIT);
	m = calloc(1, sizeof(*m) + nr * sizeof(m->units[0]));
	if (!m)
		return NULL;
	m->ops = ops;
	m->device = device;
	m->sf = sf;
	m->st = st;
	m->len = (uint64_t)st.st_size;
	m->nr_units = nr;
	m->base = mmap(NULL, m->len, PROT_READ, MAP_SHARED | MAP_NORESERVE, sf->fd, 0);
	if (m->base == MAP_FAILED) {
		free(m);
		return NULL;
	}
	(void)madvise(m->base, m->len, MADV_DONTFORK);
	return m;
}

static void mapping_free(struct mapping *m)
{
	struct pin *p;
	struct list *e, *n;

	pthread_mutex_lock(&pins.lock);
	list_for_each_safe (e, n, &pins.waiting) {
		p = list_entry(e, struct pin, link);
		if (p->map == m) {
			list_del(&p->link);
			free(p);
			m->nr_waiting--;
		}
	}
	while (m->nr_waiting)
		pthread_cond_wait(&pins.idle, &pins.lock);
	pthread_mutex_unlock(&pins.lock);
	for (unsigned i = 0; i < m->nr_units; i++)
		if (m->units[i].state == UNIT_PINNED) {
			mem_unpin_file(m->ops, m->device, m->base + i * UNIT, unit_len(m, i));
			atomic_fetch_sub(&pins.bytes, unit_len(m, i));
		}
	(void)munmap(m->base, m->len);
	free(m);
}

struct mapping *pagecache_mapping(struct pst_file *f, const struct mem_ops *ops, unsigned device)
{
	struct mapping *m;

	pthread_mutex_lock(&f->maps_lock);
	for (m = f->maps; m; m = m->next)
		if (m->ops == ops && m->device == device)
			break;
	if (!m) {
		m = mapping_new(f->sf, ops, device);
		if (m) {
			m->next = f->maps;
			f->maps = m;
		}
	}
	pthread_mutex_unlock(&f->maps_lock);
	return m && !m->stale ? m : NULL;
}

void pagecache_free(struct pst_file *f)
{
	while (f->maps) {
		struct mapping *m = f->maps;

		f->maps = m->next;
		mapping_free(m);
	}
}

bool pagecache_ready(struct mapping *m, uint64_t off, uint64_t len, bool pin_now)
{
	if (m->stale || off + len > m->len)
		return false;
	for (uint64_t i = off / UNIT; i <= (off + len - 1) / UNIT; i++) {
		uint8_t cold = UNIT_COLD;
		struct unit *u = &m->units[i];

		if (atomic_load(&u->state) == UNIT_PINNED)
			continue;
		if (!pin_now)
			return false;
		if (atomic_compare_exchange_strong(&u->state, &cold, UNIT_WAITING))
			unit_pin(m, (unsigned)i);
		if (atomic_load(&u->state) != UNIT_PINNED)
			return false;
	}
	return true;
}

const void *pagecache_at(const struct mapping *m, uint64_t off)
{
	return m->base + off;
}

bool pagecache_still(struct mapping *m)
{
	if (!m->stale && !unchanged(m)) {
		log_warn("a file opened as stable changed; its pages are not used any more");
		atomic_store(&m->stale, true);
	}
	return !m->stale;
}

void pagecache_seen(struct mapping *m, uint64_t off, uint64_t len)
{
	while (len && off < m->len && !m->stale) {
		unsigned idx = (unsigned)(off / UNIT);
		uint64_t n = MIN(len, (idx + 1) * UNIT - off);
		struct unit *u = &m->units[idx];

		if (atomic_load_explicit(&u->state, memory_order_relaxed) == UNIT_COLD &&
		    (atomic_fetch_add(&u->seen_kib, (uint32_t)((n + 1023) / 1024)) + n / 1024) *
					    1024 +
				    4096 >=
			    unit_len(m, idx))
			unit_want(m, idx);
		off += n;
		len -= n;
	}
}

void pagecache_stats(uint64_t *ret_bytes, uint64_t *ret_ns)
{
	*ret_bytes = pins.bytes;
	*ret_ns = pins.ns;
}
