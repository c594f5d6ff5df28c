/* SPDX-License-Identifier: MIT */
/*
 * Stubs of libSynapse.so and libscal.so over our libhl-thunk.so stub, for tests; see
 * gaudi_stub.h.  Each stream has a thread that plays its engine.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/list.h"
#include "mem/gaudi/gaudi_types.h"
#include "stub/gaudi_stub.h"

#define SYM(ret, name, args) ret name args;
#define OPT SYM
#include "mem/gaudi/hlthunk_syms.h"
#define SYM(ret, name, args) ret name args;
#define OPT SYM
#include "mem/gaudi/synapse_syms.h"
#define SYM(ret, name, args) ret name args;
#define OPT SYM
#include "mem/gaudi/scal_syms.h"

#define ALIGN 128u       /* alignment of allocations, bytes; less than a page */
#define INFO_LEN 72      /* bytes of synDeviceInfoV2 */
#define POOL_INFO_LEN 72 /* bytes of scal_memory_pool_infoV2 */

struct range {
	struct list link;
	uint64_t at, len;
};

struct op {
	struct list link;
	uint64_t src, dst, len;
	bool to_device;
};

struct stream {
	struct list link;
	pthread_t thread;
	struct list ops;
	uint64_t queued, done;
	bool stop, lost;
};

struct event {
	struct list link;
	struct stream *of; /* NULL: the event was not recorded */
	uint64_t seq;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static _Atomic bool initialized;
static bool hold;
static _Atomic int fd = -1; /* descriptor of the acquired device */
static char pci_of[16];
static uint64_t pool_handle, pool_map;
static struct list mallocs = LIST_INIT(mallocs), maps = LIST_INIT(maps);
static struct list streams = LIST_INIT(streams), events = LIST_INIT(events);
static struct stub_syn_state count;

static __attribute__((noreturn, format(printf, 1, 2))) void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)fputs("stub libSynapse: ", stderr);
	(void)vfprintf(stderr, fmt, ap);
	(void)fputc('\n', stderr);
	va_end(ap);
	abort();
}

/* Check a call that needs the device; return the code that it has to return at once. */
static syn_status enter(const char *name, uint32_t id)
{
	int e = stub_gaudi_injected(name);

	if (e)
		return (syn_status)e;
	if (!initialized)
		return SYN_UNINITIALIZED;
	if (fd < 0 || id)
		return SYN_NO_DEVICE;
	return stub_gaudi_dead(fd) ? SYN_DEVICE_RESET : SYN_OK;
}

#define ENTER(id)                                    \
	do {                                         \
		syn_status _e = enter(__func__, id); \
		if (_e != SYN_OK)                    \
			return _e;                   \
	} while (0)

/* ------------------------------------------------------------------ ranges */

static void range_add(struct list *l, uint64_t at, uint64_t len)
{
	struct range *r = calloc(1, sizeof(*r));

	if (!r)
		die("out of memory");
	r->at = at;
	r->len = len;
	list_add_tail(l, &r->link);
}

/* Return the range that contains [at, at + len).  Call it with the lock held. */
static struct range *range_of(struct list *l, uint64_t at, uint64_t len)
{
	struct list *e;

	list_for_each (e, l) {
		struct range *r = list_entry(e, struct range, link);

		if (at >= r->at && at - r->at <= r->len && len <= r->len - (at - r->at))
			return r;
	}
	return NULL;
}

static bool range_del(struct list *l, uint64_t at)
{
	struct range *r = range_of(l, at, 1);

	if (!r || r->at != at)
		return false;
	list_del(&r->link);
	free(r);
	return true;
}

static unsigned ranges_end(struct list *l)
{
	unsigned nr = 0;

	while (!list_empty(l)) {
		struct range *r = list_first(l, struct range, link);

		list_del(&r->link);
		free(r);
		nr++;
	}
	return nr;
}

/* ------------------------------------------------------------------ device */

syn_status synInitialize(void)
{
	syn_status e = (syn_status)stub_gaudi_injected(__func__);

	if (e != SYN_OK)
		return e;
	if (initialized)
		return SYN_ALREADY_INITIALIZED;
	initialized = true;
	return SYN_OK;
}

syn_status synDeviceGetCount(uint32_t *ret)
{
	const char *env = getenv("STUB_GAUDI_DEVICES");

	if (!initialized)
		return SYN_UNINITIALIZED;
	*ret = env && *env ? (uint32_t)atoi(env) : 1;
	return SYN_OK;
}

syn_status synDeviceAcquire(uint32_t *ret_id, const char *busid)
{
	syn_status e = (syn_status)stub_gaudi_injected(__func__);
	int dev;

	if (e != SYN_OK)
		return e;
	if (!initialized)
		return SYN_UNINITIALIZED;
	if (fd >= 0)
		return SYN_ALREADY_ACQUIRED;
	dev = hlthunk_open(HL_DONT_CARE, busid);
	if (dev < 0)
		return dev == -EBUSY || dev == -EAGAIN ? SYN_BUSY : SYN_NO_DEVICE;
	pool_handle = hlthunk_device_memory_alloc(dev, STUB_GAUDI_POOL, 0, false, false);
	pool_map = pool_handle ? hlthunk_device_memory_map(dev, pool_handle, 0) : 0;
	if (!pool_map) {
		bool dead = stub_gaudi_dead(dev); /* the device was reset since it was opened */

		if (pool_handle)
			(void)hlthunk_device_memory_free(dev, pool_handle);
		(void)hlthunk_close(dev);
		return dead ? SYN_BUSY : SYN_OUT_OF_DEVICE_MEMORY;
	}
	fd = dev;
	(void)snprintf(pci_of, sizeof(pci_of), "%s", busid);
	(void)pthread_mutex_lock(&lock);
	count.acquired = 1;
	(void)pthread_mutex_unlock(&lock);
	*ret_id = 0;
	return SYN_OK;
}

static void stream_end(struct stream *s);

/* End all objects on a released device. */
static void device_empty(void)
{
	bool dead = stub_gaudi_dead(fd);
	unsigned nr;

	(void)pthread_mutex_lock(&lock);
	nr = ranges_end(&mallocs) + ranges_end(&maps) + count.streams + count.events;
	/* A reset ends the objects itself, so they are no leak. */
	if (!dead)
		count.leaked += nr;
	while (!list_empty(&streams)) {
		struct stream *s = list_first(&streams, struct stream, link);

		(void)pthread_mutex_unlock(&lock);
		stream_end(s);
		(void)pthread_mutex_lock(&lock);
	}
	while (!list_empty(&events)) {
		struct event *ev = list_first(&events, struct event, link);

		list_del(&ev->link);
		free(ev);
	}
	count.mallocs = count.host_maps = count.events = 0;
	(void)pthread_mutex_unlock(&lock);
}

syn_status synDeviceRelease(uint32_t id)
{
	if (fd < 0 || id)
		return SYN_NO_DEVICE;
	device_empty();
	if (!stub_gaudi_dead(fd) && hlthunk_memory_unmap(fd, pool_map) == 0)
		(void)hlthunk_device_memory_free(fd, pool_handle);
	(void)hlthunk_close(fd);
	fd = -1;
	(void)pthread_mutex_lock(&lock);
	count.acquired = 0;
	(void)pthread_mutex_unlock(&lock);
	return SYN_OK;
}

syn_status synDeviceGetInfoV2(uint32_t id, struct syn_device_info *ret)
{
	struct syn_device_info info = {
		.dram_size = STUB_GAUDI_POOL - STUB_GAUDI_LEAD,
		.dram_enabled = 1,
		.fd = (uint32_t)fd,
		.hbm_base = pool_map + STUB_GAUDI_LEAD,
	};

	ENTER(id);
	memcpy(ret, &info, INFO_LEN);
	return SYN_OK;
}

syn_status synDeviceGetPCIBusId(char *ret, int len, uint32_t id)
{
	if (!initialized)
		return SYN_UNINITIALIZED;
	if (fd < 0 || id)
		return SYN_NO_DEVICE;
	(void)snprintf(ret, (size_t)len, "%s", pci_of);
	return SYN_OK;
}

/* ------------------------------------------------------------------ memory */

syn_status synDeviceMalloc(uint32_t id, uint64_t size, uint64_t wish, uint32_t flags, uint64_t *ret)
{
	/* Never place an allocation at the beginning of a page. */
	uint64_t at = pool_map + STUB_GAUDI_LEAD + ALIGN;
	uint64_t end = pool_map + STUB_GAUDI_POOL;
	struct list *e;

	ENTER(id);
	if (wish || flags || !size)
		return SYN_INVALID_ARGUMENT;
	(void)pthread_mutex_lock(&lock);
	list_for_each (e, &mallocs) {
		struct range *r = list_entry(e, struct range, link);

		at = MAX(at, align_up(r->at + r->len, ALIGN) + ALIGN);
	}
	if (size > end - at) {
		(void)pthread_mutex_unlock(&lock);
		return SYN_OUT_OF_DEVICE_MEMORY;
	}
	range_add(&mallocs, at, size);
	count.mallocs++;
	(void)pthread_mutex_unlock(&lock);
	*ret = at;
	return SYN_OK;
}

syn_status synDeviceFree(uint32_t id, uint64_t va, uint32_t flags)
{
	bool was;

	ENTER(id);
	(void)flags;
	(void)pthread_mutex_lock(&lock);
	was = range_del(&mallocs, va);
	count.mallocs -= was;
	(void)pthread_mutex_unlock(&lock);
	if (!was)
		die("free of no memory");
	return SYN_OK;
}

syn_status synHostMap(uint32_t id, uint64_t size, const void *host)
{
	ENTER(id);
	if (!size)
		return SYN_INVALID_ARGUMENT;
	(void)pthread_mutex_lock(&lock);
	range_add(&maps, (uintptr_t)host, size);
	count.host_maps++;
	(void)pthread_mutex_unlock(&lock);
	return SYN_OK;
}

syn_status synHostUnmap(uint32_t id, const void *host)
{
	bool was;

	if (fd < 0 || id)
		return SYN_NO_DEVICE;
	(void)pthread_mutex_lock(&lock);
	was = range_del(&maps, (uintptr_t)host);
	count.host_maps -= was;
	(void)pthread_mutex_unlock(&lock);
	return was ? SYN_OK : SYN_NOT_MAPPED;
}

/* ------------------------------------------------------------------ streams */

/* Copy bytes; return false if a reset ended the device. */
static bool move_bytes(const struct op *o)
{
	char *device;

	if (!stub_gaudi_dma(fd, true))
		return false;
	device = stub_gaudi_bytes(o->to_device ? o->dst : o->src, o->len);
	if (!device)
		die("a copy of no memory");
	if (o->to_device)
		memcpy(device, (const void *)(uintptr_t)o->src, o->len);
	else
		memcpy((void *)(uintptr_t)o->dst, device, o->len);
	return stub_gaudi_dma(fd, false);
}

static void *stream_main(void *arg)
{
	struct stream *s = arg;

	(void)pthread_mutex_lock(&lock);
	while (!s->stop || !list_empty(&s->ops)) {
		struct op *o;
		bool moved;

		if (list_empty(&s->ops) || (hold && !stub_gaudi_dead(fd))) {
			(void)pthread_cond_wait(&change, &lock);
			continue;
		}
		o = list_first(&s->ops, struct op, link);
		list_del(&o->link);
		(void)pthread_mutex_unlock(&lock);
		moved = move_bytes(o);
		free(o);
		(void)pthread_mutex_lock(&lock);
		s->lost |= !moved;
		s->done++;
		count.copies++;
		(void)pthread_cond_broadcast(&change);
	}
	(void)pthread_mutex_unlock(&lock);
	return NULL;
}

syn_status synStreamCreateGeneric(syn_stream *ret, uint32_t id, uint32_t flags)
{
	struct stream *s;

	ENTER(id);
	if (flags)
		return SYN_INVALID_ARGUMENT;
	s = calloc(1, sizeof(*s));
	if (!s)
		die("out of memory");
	list_init(&s->ops);
	if (pthread_create(&s->thread, NULL, stream_main, s) != 0) {
		free(s);
		return SYN_OUT_OF_RESOURCES;
	}
	(void)pthread_mutex_lock(&lock);
	count.streams++;
	list_add_tail(&streams, &s->link);
	(void)pthread_mutex_unlock(&lock);
	*ret = s;
	return SYN_OK;
}

static void stream_end(struct stream *s)
{
	(void)pthread_mutex_lock(&lock);
	s->stop = true;
	count.streams--;
	list_del(&s->link);
	(void)pthread_cond_broadcast(&change);
	(void)pthread_mutex_unlock(&lock);
	(void)pthread_join(s->thread, NULL);
	free(s);
}

syn_status synStreamDestroy(syn_stream st)
{
	struct stream *s = st;

	(void)pthread_mutex_lock(&lock);
	if (s->done < s->queued && !stub_gaudi_dead(fd)) {
		(void)pthread_mutex_unlock(&lock);
		return SYN_BUSY;
	}
	(void)pthread_mutex_unlock(&lock);
	stream_end(s);
	return SYN_OK;
}

syn_status synStreamSynchronize(syn_stream st)
{
	struct stream *s = st;
	uint64_t until;
	bool lost;

	ENTER(0);
	(void)pthread_mutex_lock(&lock);
	until = s->queued;
	while (s->done < until)
		(void)pthread_cond_wait(&change, &lock);
	lost = s->lost;
	(void)pthread_mutex_unlock(&lock);
	return lost ? SYN_DEVICE_RESET : SYN_OK;
}

syn_status synDeviceSynchronize(uint32_t id)
{
	ENTER(id);
	return SYN_OK;
}

syn_status synMemCopyAsync(syn_stream st, uint64_t src, uint64_t size, uint64_t dst, uint32_t dir)
{
	bool to_device = dir == SYN_HOST_TO_DRAM;
	struct stream *s = st;
	struct op *o;

	ENTER(0);
	if (dir > SYN_DRAM_TO_HOST)
		return SYN_INVALID_ARGUMENT;
	(void)pthread_mutex_lock(&lock);
	if (!range_of(&mallocs, to_device ? dst : src, size)) {
		(void)pthread_mutex_unlock(&lock);
		return SYN_INVALID_ARGUMENT;
	}
	if (!range_of(&maps, to_device ? src : dst, size)) {
		(void)pthread_mutex_unlock(&lock);
		return SYN_NOT_MAPPED;
	}
	o = calloc(1, sizeof(*o));
	if (!o)
		die("out of memory");
	*o = (struct op){ .src = src, .dst = dst, .len = size, .to_device = to_device };
	list_add_tail(&s->ops, &o->link);
	s->queued++;
	(void)pthread_cond_broadcast(&change);
	(void)pthread_mutex_unlock(&lock);
	return SYN_OK;
}

/* ------------------------------------------------------------------ events */

syn_status synEventCreate(syn_event *ret, uint32_t id, uint32_t flags)
{
	struct event *ev;

	ENTER(id);
	if (flags)
		return SYN_INVALID_ARGUMENT;
	ev = calloc(1, sizeof(*ev));
	if (!ev)
		die("out of memory");
	(void)pthread_mutex_lock(&lock);
	count.events++;
	list_add_tail(&events, &ev->link);
	(void)pthread_mutex_unlock(&lock);
	*ret = ev;
	return SYN_OK;
}

syn_status synEventDestroy(syn_event event)
{
	struct event *ev = event;

	(void)pthread_mutex_lock(&lock);
	count.events--;
	list_del(&ev->link);
	(void)pthread_mutex_unlock(&lock);
	free(ev);
	return SYN_OK;
}

syn_status synEventRecord(syn_event event, syn_stream st)
{
	struct event *ev = event;
	struct stream *s = st;

	ENTER(0);
	(void)pthread_mutex_lock(&lock);
	ev->of = s;
	ev->seq = s->queued;
	(void)pthread_mutex_unlock(&lock);
	return SYN_OK;
}

syn_status synEventQuery(syn_event event)
{
	struct event *ev = event;
	syn_status e = SYN_OK;

	ENTER(0);
	(void)pthread_mutex_lock(&lock);
	if (ev->of && ev->of->lost)
		e = SYN_DEVICE_RESET;
	else if (ev->of && ev->of->done < ev->seq)
		e = SYN_BUSY;
	(void)pthread_mutex_unlock(&lock);
	return e;
}

/* ------------------------------------------------------------------ libscal */

int scal_get_handle_from_fd(int dev, void **ret)
{
	if (stub_gaudi_injected(__func__) || fd < 0 || dev != fd)
		return -1;
	*ret = &pool_map;
	return 0;
}

int scal_get_pool_handle_by_name(void *handle, const char *name, void **ret)
{
	if (stub_gaudi_injected(__func__) || handle != &pool_map ||
	    strcmp(name, SCAL_USER_POOL) != 0)
		return -1;
	*ret = &pool_handle;
	return 0;
}

int scal_pool_get_infoV2(void *pool, struct scal_pool_info *ret)
{
	struct scal_pool_info info = {
		.scal = &pool_map,
		.name = SCAL_USER_POOL,
		.base = pool_map + STUB_GAUDI_LEAD,
		.size = STUB_GAUDI_POOL - STUB_GAUDI_LEAD,
		.map_base = pool_map,
	};

	if (stub_gaudi_injected(__func__) || pool != &pool_handle)
		return -1;
	memcpy(ret, &info, POOL_INFO_LEN);
	return 0;
}

/* ------------------------------------------------------------------ tests */

void stub_syn_state(struct stub_syn_state *ret)
{
	(void)pthread_mutex_lock(&lock);
	*ret = count;
	(void)pthread_mutex_unlock(&lock);
}

void stub_syn_hold(bool on)
{
	(void)pthread_mutex_lock(&lock);
	hold = on;
	(void)pthread_cond_broadcast(&change);
	(void)pthread_mutex_unlock(&lock);
}
