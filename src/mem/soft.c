/* SPDX-License-Identifier: MIT */
/*
 * The software device: an accelerator without silicon.
 *
 * It behaves as a real one does where that matters to the layers above.  The address that
 * users hold lies in a range mapped PROT_NONE, so that a CPU which follows it crashes
 * at once instead of working here and failing on hardware.  The bytes are in a sealed
 * memfd with a second mapping that only this file knows.  Copies between it and host
 * memory are made by one thread per device, which plays the DMA engine: asynchronous, in
 * order within a stream, taking turns between streams.
 *
 * Allocations stand in one array sorted by address, because every wrap asks whose an
 * address is.  What an allocation consists of is counted (struct region), so that a wrap
 * of memory that its owner has freed copies to a mapping nobody sees and not to one
 * that is gone.
 *
 * A stream is a ring of batches with one producer, the stream's user, and one consumer,
 * the device's thread; they share no lock.  The thread is there while the device has
 * streams.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "mem/mem.h"
#include "mem/memfd.h"
#include "mem/udmabuf.h"

#define DEVICES_MAX 8
#define BATCHES_MAX 64u    /* under way in a stream; power of two */
#define RESULTS_KEPT 1024u /* tickets whose result poll() still knows; power of two */
#define PIECES_FIRST 256u  /* room for pieces at first; power of two */
#define PIECES_MAX 65536u  /* most pieces of one batch */
#define SPIN_NS 20000u     /* how long the thread looks for work before it sleeps */

/* What one allocation consists of. */
struct region {
	_Atomic unsigned refs;
	unsigned device;
	uint64_t va;      /* of the PROT_NONE range */
	uint64_t size;    /* as asked for */
	uint64_t map_len; /* in whole pages */
	char *hidden;     /* the bytes: for the device's thread */
	int fd;
	uint32_t rights;
	uint64_t buffer_id;
};

struct soft_alloc {
	struct mem_alloc a;
	struct region *region;
};

/* One copy, checked and resolved. */
struct piece {
	char *dev;
	char *host;
	uint64_t len;
};

struct batch {
	uint64_t end; /* number of the piece behind its last */
	enum mem_dir dir;
};

struct soft_stream {
	struct mem_stream base;
	struct soft_device *dev;
	struct list on_dev; /* dev->lock */
	bool busy;          /* dev->lock: the thread is inside a batch */
	int efd;

	/* Written by the user, read by the thread once head says so. */
	struct batch batches[BATCHES_MAX];
	struct piece *pieces;
	uint64_t nr_pieces;                 /* room; power of two */
	uint64_t piece_head;                /* pieces ever queued: the user's own */
	_Alignas(64) _Atomic uint64_t head; /* last ticket given out; pairs with next_stream() */

	/* Written by the thread, read by the user once done says so. */
	_Alignas(64) _Atomic uint64_t done; /* last ticket completed; pairs with soft_poll() */
	_Atomic bool signalled;             /* efd was written and nobody has polled since */
	uint64_t piece_tail;                /* pieces ever copied: the thread's own */
	int results[RESULTS_KEPT];          /* 0 or errno, by ticket */
};

/* Lock order: ctl, lock. */
struct soft_device {
	unsigned idx;
	uint8_t uuid[16];
	pthread_mutex_t ctl; /* start and end of the thread */
	unsigned nr_streams;
	pthread_t thread;
	pthread_mutex_t lock; /* streams, stop */
	pthread_cond_t quiet; /* a batch ended */
	struct list streams;  /* the one served last is last */
	bool stop;
	_Atomic uint32_t work; /* futex: rises with every batch queued */
	_Atomic bool asleep;
};

static struct soft_device devices[DEVICES_MAX];
static unsigned nr_devices;
static bool may_spin;

static pthread_rwlock_t regions_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct region **regions; /* sorted by va, disjoint */
static size_t nr_regions, room_regions;

/* ----------------------------------------------------------------- devices */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/*
 * The same in every process of this boot of the machine, and in its containers: a grant
 * names its device by it.  Without /proc the boot is left out, which does no harm, since
 * grants do not leave the machine.
 */
static void make_uuid(unsigned idx, uint8_t ret[16])
{
	_cleanup_(closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	uint64_t h[2] = { UINT64_C(0x736f667464657630), idx };
	char boot[64];
	ssize_t n = fd >= 0 ? read(fd, boot, sizeof(boot)) : 0;

	for (ssize_t i = 0; i < n; i++) {
		h[0] = mix(h[0] ^ (unsigned char)boot[i]);
		h[1] = mix(h[1] + h[0]);
	}
	h[0] = mix(h[0] + h[1]);
	h[1] = mix(h[1] ^ h[0]);
	memcpy(ret, h, 16);
	ret[6] = (uint8_t)((ret[6] & 0x0f) | 0x80); /* RFC 9562: version 8, made our own way */
	ret[8] = (uint8_t)((ret[8] & 0x3f) | 0x80);
}

static int soft_load(void)
{
	const char *env = secure_getenv("PST_SOFT_DEVICES");

	nr_devices = 1;
	if (env && *env) {
		if (env[0] >= '1' && env[0] <= '0' + DEVICES_MAX && !env[1])
			nr_devices = (unsigned)(env[0] - '0');
		else
			log_warn("PST_SOFT_DEVICES is not 1 to %d, ignoring", DEVICES_MAX);
	}
	may_spin = sysconf(_SC_NPROCESSORS_ONLN) > 1;
	for (unsigned i = 0; i < nr_devices; i++) {
		struct soft_device *d = &devices[i];

		d->idx = i;
		make_uuid(i, d->uuid);
		(void)pthread_mutex_init(&d->ctl, NULL);
		(void)pthread_mutex_init(&d->lock, NULL);
		(void)pthread_cond_init(&d->quiet, NULL);
		list_init(&d->streams);
	}
	return 0;
}

static unsigned soft_devices(void)
{
	return nr_devices;
}

static void soft_device_info(unsigned idx, struct pst_device *ret)
{
	ret->kind = PST_KIND_SOFT;
	ret->numa_node = -1;
	ret->total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	memcpy(ret->uuid, devices[idx].uuid, sizeof(ret->uuid));
	(void)snprintf(ret->name, sizeof(ret->name), "soft:%u", idx);
	(void)snprintf(ret->model, sizeof(ret->model), "software device in host memory");
}

/* ------------------------------------------------------------- allocations */

static struct region *region_unref(struct region *g)
{
	if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
		return NULL;
	if (g->hidden)
		(void)munmap(g->hidden, g->map_len);
	if (g->va)
		(void)munmap((void *)(uintptr_t)g->va, g->map_len);
	closep(&g->fd);
	free(g);
	return NULL;
}

static void region_unrefp(struct region **g)
{
	(void)region_unref(*g);
}

/* How many regions begin before addr; the lock is held. */
static size_t regions_before(uint64_t addr)
{
	size_t lo = 0, hi = nr_regions;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (regions[mid]->va < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* A region that shares at least a byte with the range; the lock is held. */
static struct region *region_at(uint64_t addr, uint64_t len)
{
	/* They are disjoint, so that the last to begin before the end reaches farthest. */
	size_t i = regions_before(addr + len);

	if (!i || regions[i - 1]->va + regions[i - 1]->map_len <= addr)
		return NULL;
	return regions[i - 1];
}

static int region_add(struct region *g)
{
	size_t i;
	int r = 0;

	(void)pthread_rwlock_wrlock(&regions_lock);
	if (nr_regions == room_regions) {
		size_t room = room_regions ? 2 * room_regions : 16;
		struct region **p = realloc(regions, room * sizeof(struct region *));

		if (p) {
			regions = p;
			room_regions = room;
		} else {
			r = err_set(ENOMEM, "no memory to describe an allocation");
		}
	}
	if (!r) {
		i = regions_before(g->va);
		memmove(&regions[i + 1], &regions[i], (nr_regions - i) * sizeof(struct region *));
		regions[i] = g;
		nr_regions++;
	}
	(void)pthread_rwlock_unlock(&regions_lock);
	return r;
}

static void region_del(struct region *g)
{
	size_t i;

	(void)pthread_rwlock_wrlock(&regions_lock);
	for (i = regions_before(g->va); i + 1 < nr_regions; i++)
		regions[i] = regions[i + 1];
	nr_regions--;
	if (!nr_regions) {
		free(regions);
		regions = NULL;
		room_regions = 0;
	}
	(void)pthread_rwlock_unlock(&regions_lock);
}

/* Takes fd over, also when it fails. */
static int region_new(unsigned device, uint64_t size, int fd, uint32_t rights, struct region **ret)
{
	_cleanup_(region_unrefp) struct region *g = calloc(1, sizeof(*g));
	int prot = PROT_READ | (rights & PST_RIGHT_WRITE ? PROT_WRITE : 0);
	void *p;

	if (!g) {
		closep(&fd);
		return err_set(ENOMEM, "no memory to describe an allocation");
	}
	g->refs = 1;
	g->device = device;
	g->size = size;
	g->map_len = align_up(size, (uint64_t)sysconf(_SC_PAGESIZE));
	g->fd = fd;
	g->rights = rights;
	g->buffer_id = mem_buffer_id();

	p = mmap(NULL, g->map_len, prot, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED) {
		g->hidden = p;
		p = mmap(NULL, g->map_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	}
	if (p == MAP_FAILED) {
		int e = errno;

		return err_set(e == EACCES || e == EPERM ? EACCES : ENOMEM,
			       "cannot map %" PRIu64 " bytes of soft:%u twice: %s; see free memory "
			       "and RLIMIT_AS (ulimit -v)",
			       size, device, err_name(e));
	}
	g->va = (uintptr_t)p;
	*ret = TAKE_PTR(g);
	return 0;
}

/* Takes over the caller's reference of the region. */
static int alloc_new(struct region *g, uint32_t flags, bool owned, struct mem_alloc **ret)
{
	_cleanup_(region_unrefp) struct region *ref = g;
	_cleanup_(freep) struct soft_alloc *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(ENOMEM, "no memory to describe an allocation");
	s->a = (struct mem_alloc){
		.ops = &mem_soft_ops,
		.device = g->device,
		.base.va = g->va,
		.size = g->size,
		.buffer_id = g->buffer_id,
		.flags = flags,
		.rights = g->rights,
		.owned = owned,
	};
	s->region = g;
	if (owned) {
		r = region_add(g);
		if (r < 0)
			return r;
	}
	ref = NULL;
	*ret = &TAKE_PTR(s)->a;
	return 0;
}

static bool soft_owns(uint64_t addr, uint64_t len)
{
	bool ours;

	(void)pthread_rwlock_rdlock(&regions_lock);
	ours = region_at(addr, len);
	(void)pthread_rwlock_unlock(&regions_lock);
	return ours;
}

/*
 * A device's memory is there when it is allocated: the first copy does not pay for pages,
 * and too much is an error here and not later.  Kernels before 5.14 do it page by page.
 */
static int region_populate(const struct region *g)
{
	(void)madvise(g->hidden, g->map_len, MADV_HUGEPAGE);
	if (madvise(g->hidden, g->map_len, MADV_POPULATE_WRITE) < 0 &&
	    (errno == ENOMEM || errno == EFAULT))
		return err_set(ENOMEM,
			       "soft:%u has no %" PRIu64 " bytes left: the machine's memory "
			       "is used up",
			       g->device, g->size);
	return 0;
}

static int soft_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct region *g = NULL;
	int fd, r;

	fd = memfd_new("penstock-soft", len);
	if (fd < 0)
		return fd;
	r = region_new(device, len, fd, PST_RIGHT_READ | PST_RIGHT_WRITE, &g);
	if (!g)
		return r;
	r = region_populate(g);
	if (r < 0) {
		(void)region_unref(g);
		return r;
	}
	return alloc_new(g, flags, true, ret);
}

static int soft_wrap(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct region *g;

	(void)pthread_rwlock_rdlock(&regions_lock);
	g = region_at(addr, len);
	if (g)
		g->refs++;
	(void)pthread_rwlock_unlock(&regions_lock);
	if (!g)
		return err_set(EFAULT, "soft knows no allocation at %#" PRIx64, addr);
	if (addr < g->va || addr - g->va > g->size || len > g->size - (addr - g->va)) {
		int r = err_set(ERANGE,
				"%" PRIu64 " bytes at %#" PRIx64 " reach past the allocation, "
				"which has %" PRIu64 " bytes at %#" PRIx64,
				len, addr, g->size, g->va);

		(void)region_unref(g);
		return r;
	}
	return alloc_new(g, flags, false, ret);
}

static int soft_import(const struct pst_grant *grant, struct mem_alloc **ret)
{
	struct region *g = NULL;
	unsigned device;
	int fd, r;

	for (device = 0; device < nr_devices; device++)
		if (!memcmp(devices[device].uuid, grant->uuid, sizeof(grant->uuid)))
			break;
	if (device == nr_devices)
		return err_set(ENODEV, "the grant is for a soft device that is not here; set "
				       "PST_SOFT_DEVICES as its owner does");
	r = memfd_check(grant->fd, grant->size, grant->rights);
	if (r < 0)
		return r;
	fd = memfd_again(grant->fd, grant->rights);
	if (fd < 0)
		return fd;
	r = region_new(device, grant->size, fd, grant->rights, &g);
	if (!g)
		return r;
	return alloc_new(g, PST_MEM_SHARED, true, ret);
}

static int soft_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret)
{
	const struct soft_alloc *s = container_of(a, struct soft_alloc, a);

	ret->fd = memfd_again(s->region->fd, rights);
	return MIN(ret->fd, 0);
}

/* Whole pages, so that what else lies in the first and the last one is shown too. */
static int soft_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
			      struct mem_dmabuf *ret)
{
	const struct soft_alloc *s = container_of(a, struct soft_alloc, a);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = align_down(off, page), end = align_up(off + len, page);
	int fd = udmabuf_new(s->region->fd, start, end - start);

	if (fd < 0)
		return fd;
	*ret = (struct mem_dmabuf){
		.fd = fd,
		.off = off - start,
		.size = end - start,
		.caching = PST_CACHING_CACHED,
	};
	return 0;
}

static void soft_free(struct mem_alloc *a)
{
	struct soft_alloc *s = container_of(a, struct soft_alloc, a);

	if (a->owned)
		region_del(s->region);
	(void)region_unref(s->region);
	free(s);
}

/* The thread reads and writes host memory as the CPU does: nothing has to be pinned. */
static int soft_pin(unsigned device, void *host, uint64_t len)
{
	(void)device;
	(void)host;
	(void)len;
	return 0;
}

static void soft_unpin(unsigned device, void *host, uint64_t len)
{
	(void)device;
	(void)host;
	(void)len;
}

/* -------------------------------------------------------------- the thread */

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * Tell the thread of new work.  The counter rises before asleep is read, and the thread
 * sets asleep before it sleeps on the counter's old value: one of the two notices.
 */
static void kick(struct soft_device *d)
{
	atomic_fetch_add(&d->work, 1);
	if (atomic_load(&d->asleep))
		(void)syscall(SYS_futex, &d->work, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Return when the counter of work is no longer what it was. */
static void idle(struct soft_device *d, uint32_t seen)
{
	uint64_t until = now_ns() + SPIN_NS;

	while (may_spin && now_ns() < until) {
		for (unsigned i = 0; i < 16; i++) {
			if (atomic_load(&d->work) != seen)
				return;
			cpu_relax();
		}
	}
	atomic_store(&d->asleep, true);
	while (atomic_load(&d->work) == seen)
		(void)syscall(SYS_futex, &d->work, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	atomic_store(&d->asleep, false);
}

/* A stream with work, in turn; the lock is held. */
static struct soft_stream *next_stream(struct soft_device *d)
{
	struct list *e;

	list_for_each (e, &d->streams) {
		struct soft_stream *st = list_entry(e, struct soft_stream, on_dev);

		if (atomic_load(&st->head) == atomic_load(&st->done))
			continue;
		list_del(e);
		list_add_tail(&d->streams, e);
		return st;
	}
	return NULL;
}

static void run_batch(struct soft_stream *st)
{
	uint64_t ticket = atomic_load(&st->done) + 1;
	const struct batch *b = &st->batches[ticket & (BATCHES_MAX - 1)];
	int err = fault_hit(FAULT_MEM_COPY);

	for (; st->piece_tail != b->end; st->piece_tail++) {
		const struct piece *p = &st->pieces[st->piece_tail & (st->nr_pieces - 1)];

		if (err)
			continue;
		if (b->dir == MEM_TO_DEVICE)
			memcpy(p->dev, p->host, p->len);
		else
			memcpy(p->host, p->dev, p->len);
	}
	st->results[ticket & (RESULTS_KEPT - 1)] = err;
	atomic_store(&st->done, ticket);

	/*
	 * One write serves all completions until the user looks: soft_poll() clears the mark
	 * before it reads done, so that a user who then sleeps is woken by what it missed.
	 */
	if (!atomic_exchange(&st->signalled, true))
		(void)eventfd_write(st->efd, 1);
}

static void *thread_main(void *arg)
{
	struct soft_device *d = arg;
	char name[16];

	(void)snprintf(name, sizeof(name), "pst-soft-%u", d->idx);
	(void)pthread_setname_np(pthread_self(), name);

	(void)pthread_mutex_lock(&d->lock);
	for (;;) {
		uint32_t seen = atomic_load(&d->work);
		struct soft_stream *st = next_stream(d);

		if (!st && d->stop)
			break;
		if (st)
			st->busy = true;
		(void)pthread_mutex_unlock(&d->lock);
		if (st)
			run_batch(st);
		else
			idle(d, seen);
		(void)pthread_mutex_lock(&d->lock);
		if (st) {
			st->busy = false;
			(void)pthread_cond_broadcast(&d->quiet);
		}
	}
	(void)pthread_mutex_unlock(&d->lock);
	return NULL;
}

/* ctl is held, no stream is left. */
static void thread_stop(struct soft_device *d)
{
	(void)pthread_mutex_lock(&d->lock);
	d->stop = true;
	(void)pthread_mutex_unlock(&d->lock);
	kick(d);
	(void)pthread_join(d->thread, NULL);
}

/* ----------------------------------------------------------------- streams */

static void stream_freep(struct soft_stream **st)
{
	if (!*st)
		return;
	closep(&(*st)->efd);
	free((*st)->pieces);
	free(*st);
}

static int soft_stream_new(unsigned device, struct mem_stream **ret)
{
	_cleanup_(stream_freep) struct soft_stream *st = NULL;
	struct soft_device *d = &devices[device];
	int e, r = 0;

	st = aligned_alloc(_Alignof(struct soft_stream), sizeof(*st));
	if (!st)
		return err_set(ENOMEM, "no memory for a stream");
	memset(st, 0, sizeof(*st));
	st->base.ops = &mem_soft_ops;
	st->dev = d;
	st->efd = -1;
	st->nr_pieces = PIECES_FIRST;
	list_init(&st->on_dev);
	st->pieces = malloc(st->nr_pieces * sizeof(*st->pieces));
	if (!st->pieces)
		return err_set(ENOMEM, "no memory for a stream");
	st->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (st->efd < 0) {
		e = errno;
		return err_set(e, "no descriptor for a stream: %s; see RLIMIT_NOFILE (ulimit -n)",
			       err_name(e));
	}

	(void)pthread_mutex_lock(&d->ctl);
	if (!d->nr_streams) {
		d->stop = false;
		r = thread_start(&d->thread, thread_main, d);
	}
	if (!r) {
		d->nr_streams++;
		(void)pthread_mutex_lock(&d->lock);
		list_add_tail(&d->streams, &st->on_dev);
		(void)pthread_mutex_unlock(&d->lock);
	}
	(void)pthread_mutex_unlock(&d->ctl);
	if (r < 0)
		return r;
	*ret = &TAKE_PTR(st)->base;
	return 0;
}

static void soft_stream_free(struct mem_stream *base)
{
	_cleanup_(stream_freep) struct soft_stream *st = (struct soft_stream *)base;
	struct soft_device *d = st->dev;

	(void)pthread_mutex_lock(&d->lock);
	while (st->busy || atomic_load(&st->done) != atomic_load(&st->head))
		(void)pthread_cond_wait(&d->quiet, &d->lock);
	list_del(&st->on_dev);
	(void)pthread_mutex_unlock(&d->lock);

	(void)pthread_mutex_lock(&d->ctl);
	if (!--d->nr_streams)
		thread_stop(d);
	(void)pthread_mutex_unlock(&d->ctl);
}

/* Make room for a batch that is larger than the whole ring, which is empty. */
static int grow(struct soft_stream *st, unsigned nr)
{
	uint64_t room = st->nr_pieces;
	struct piece *p;

	while (room < nr)
		room *= 2;
	p = malloc(room * sizeof(*p));
	if (!p)
		return err_set(ENOMEM, "no memory for a batch of %u copies", nr);
	free(st->pieces);
	st->pieces = p;
	st->nr_pieces = room;
	return 0;
}

static int soft_copy(struct mem_stream *base, enum mem_dir dir, const struct mem_copy *v,
		     unsigned nr, uint64_t *ret_ticket)
{
	struct soft_stream *st = (struct soft_stream *)base;
	uint64_t head = atomic_load(&st->head), done = atomic_load(&st->done);
	uint64_t tail, ticket = head + 1;
	struct batch *b;
	int r;

	if (nr > PIECES_MAX)
		return err_set(EINVAL, "%u copies in one batch; %u are the most", nr, PIECES_MAX);
	for (unsigned i = 0; i < nr; i++)
		if (v[i].alloc->device != st->dev->idx)
			return err_set(EINVAL, "memory of soft:%u on a stream of soft:%u",
				       v[i].alloc->device, st->dev->idx);

	if (head - done == BATCHES_MAX)
		return err_set(EAGAIN, "the stream has %u batches under way", BATCHES_MAX);
	/* The slot of a completed batch stays as it was until BATCHES_MAX later. */
	tail = done ? st->batches[done & (BATCHES_MAX - 1)].end : 0;
	if (st->piece_head - tail + nr > st->nr_pieces) {
		/* The thread reads the ring while anything is under way. */
		if (head != done)
			return err_set(EAGAIN, "the stream has %" PRIu64 " copies under way",
				       st->piece_head - tail);
		r = grow(st, nr);
		if (r < 0)
			return r;
	}

	for (unsigned i = 0; i < nr; i++) {
		const struct soft_alloc *s = container_of(v[i].alloc, struct soft_alloc, a);

		st->pieces[st->piece_head++ & (st->nr_pieces - 1)] = (struct piece){
			.dev = s->region->hidden + v[i].off,
			.host = v[i].host,
			.len = v[i].len,
		};
	}
	b = &st->batches[ticket & (BATCHES_MAX - 1)];
	b->end = st->piece_head;
	b->dir = dir;
	atomic_store(&st->head, ticket);
	kick(st->dev);
	*ret_ticket = ticket;
	return 0;
}

static int soft_poll(struct mem_stream *base, uint64_t ticket)
{
	struct soft_stream *st = (struct soft_stream *)base;
	uint64_t head = atomic_load(&st->head);
	int e;

	if (!ticket || ticket > head)
		return err_set(EINVAL, "ticket %" PRIu64 " was never given out", ticket);
	/* Against head and not done: the thread may be writing the result that comes next. */
	if (head - ticket >= RESULTS_KEPT)
		return err_set(EINVAL, "ticket %" PRIu64 " is older than the last %u", ticket,
			       RESULTS_KEPT);

	/* Before done is read; pairs with run_batch(). */
	if (atomic_load(&st->signalled))
		atomic_store(&st->signalled, false);
	if (ticket > atomic_load(&st->done))
		return 0;
	e = st->results[ticket & (RESULTS_KEPT - 1)];
	if (unlikely(e))
		return err_set(e, "the copy on soft:%u failed: %s", st->dev->idx, err_name(e));
	return 1;
}

static int soft_stream_fd(struct mem_stream *base)
{
	return ((struct soft_stream *)base)->efd;
}

const struct mem_ops mem_soft_ops = {
	.name = "soft",
	.kind = PST_KIND_SOFT,
	.caps = MEM_CAP_COPY | MEM_CAP_EXPORT,
	.load = soft_load,
	.devices = soft_devices,
	.device_info = soft_device_info,
	.owns = soft_owns,
	.alloc = soft_alloc,
	.wrap = soft_wrap,
	.import = soft_import,
	.export = soft_export,
	.export_dmabuf = soft_export_dmabuf,
	.free = soft_free,
	.pin = soft_pin,
	.unpin = soft_unpin,
	.stream_new = soft_stream_new,
	.stream_free = soft_stream_free,
	.copy = soft_copy,
	.poll = soft_poll,
	.stream_fd = soft_stream_fd,
};
