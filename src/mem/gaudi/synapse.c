/* SPDX-License-Identifier: MIT */
/*
 * Attach mode: memory of a device that SynapseAI has opened in this process.
 *
 * A process has at most one device with SynapseAI at a time.  If the program has acquired it, the
 * program releases it.  Otherwise the library acquires it, and releases it after the last use.
 *
 * All memory of synDeviceMalloc() is in one pool (pool.c).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dl.h"
#include "base/err.h"
#include "base/log.h"
#include "mem/gaudi/gaudi.h"

/* Allocations have whole pages, so that an export contains no other memory. */
#define PAGE UINT64_C(4096)

struct syn_api syn;

#define SONAME "libSynapse.so"

DL_NOTE(SONAME, "gaudi", "copies to and from the memory of Gaudi accelerators");

static const struct dl_lib library = {
	.what = "SynapseAI",
	.soname = SONAME,
	.path = GAUDI_DIR SONAME,
	.env = "PST_LIBSYNAPSE",
};

static const struct dl_sym syms[] = {
#define SYM(ret, name, args) DL_SYM(struct syn_api, name, true),
#define OPT(ret, name, args) DL_SYM(struct syn_api, name, false),
#include "mem/gaudi/synapse_syms.h"
};

/* Covers loading, and the syn_* members of devices.  Lock order: syn_lock, a device's syn_calls,
 * the device's lock. */
static pthread_mutex_t syn_lock = PTHREAD_MUTEX_INITIALIZER;
static bool syn_loaded;

/* Host memory that was pinned for the device. */
struct host_pin {
	struct list link;
	struct gaudi_dev *d;
	uint64_t life;
	char *host;
	uint64_t len;
};

static pthread_mutex_t pins_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list pins = LIST_INIT(pins);

/* ------------------------------------------------------------------ library */

bool syn_present(void)
{
	static _Atomic unsigned long long absent;

	return dl_present(&library, &absent);
}

/* Load libSynapse, under the lock. */
static int syn_load(void)
{
	int r = syn_loaded ? 0 : dl_load(&library, &syn, syms, ARRAY_SIZE(syms));

	syn_loaded = r == 0;
	return r;
}

const char *syn_err_name(syn_status e)
{
	static _Thread_local char number[24];

	switch (e) {
	case SYN_INVALID_ARGUMENT:
		return "synInvalidArgument";
	case SYN_OUT_OF_HOST_MEMORY:
		return "synOutOfHostMemory";
	case SYN_OUT_OF_DEVICE_MEMORY:
		return "synOutOfDeviceMemory";
	case SYN_NO_DEVICE:
		return "synNoDeviceFound";
	case SYN_NO_MEMORY_ON_DEVICE:
		return "synFailedToAllocateDeviceMemory";
	case SYN_DEVICE_RESET:
		return "synDeviceReset";
	case SYN_UNSUPPORTED:
		return "synUnsupported";
	case SYN_ALREADY_ACQUIRED:
		return "synDeviceAlreadyAcquired";
	case SYN_BUSY:
		return "synBusy";
	case SYN_FAIL:
		return "synFail";
	case SYN_UNINITIALIZED:
		return "synUninitialized";
	case SYN_TERMINATED:
		return "synSynapseTerminated";
	case SYN_NOT_MAPPED:
		return "synMappingNotFound";
	case SYN_TIMEOUT:
		return "synTimeout";
	default:
		(void)snprintf(number, sizeof(number), "synStatus %" PRIu32, e);
		return number;
	}
}

static int syn_errno(syn_status e)
{
	switch (e) {
	case SYN_INVALID_ARGUMENT:
		return EINVAL;
	case SYN_OUT_OF_HOST_MEMORY:
	case SYN_OUT_OF_DEVICE_MEMORY:
	case SYN_NO_MEMORY_ON_DEVICE:
	case SYN_OUT_OF_RESOURCES:
		return ENOMEM;
	case SYN_NO_DEVICE:
	case SYN_DEVICE_RESET:
	case SYN_TERMINATED:
	case SYN_UNINITIALIZED:
		return ENODEV;
	case SYN_UNSUPPORTED:
		return EOPNOTSUPP;
	case SYN_ALREADY_ACQUIRED:
	case SYN_BUSY:
	case SYN_ALL_TAKEN:
		return EBUSY;
	case SYN_TIMEOUT:
		return ETIMEDOUT;
	default:
		return EIO;
	}
}

int gaudi_syn_err(struct gaudi_dev *d, syn_status e, const char *what)
{
	if (e == SYN_DEVICE_RESET) {
		(void)pthread_mutex_lock(&d->lock);
		gaudi_lost(d);
		(void)pthread_mutex_unlock(&d->lock);
		return err_set(ENODEV,
			       "%s was reset while it should %s, and its memory is gone; free the "
			       "memory of before, acquire the device and allocate anew",
			       d->name, what);
	}
	return err_set(syn_errno(e), "SynapseAI cannot %s on %s: %s", what, d->name,
		       syn_err_name(e));
}

/* ------------------------------------------------------------------ device */

/* Find SynapseAI's number of the device, under the lock.  Return false if this process has not
 * acquired it. */
static bool syn_find(const struct gaudi_dev *d, uint32_t *ret)
{
	char pci[32] = "";
	uint32_t nr = 0;

	if (syn.synDeviceGetCount(&nr) != SYN_OK)
		return false;
	for (uint32_t id = 0; id < MIN(nr, GAUDI_DEVICES_MAX); id++)
		if (syn.synDeviceGetPCIBusId(pci, sizeof(pci), id) == SYN_OK &&
		    gaudi_by_pci(pci) == d) {
			*ret = id;
			return true;
		}
	return false;
}

/* Acquire the device, under the lock. */
static int syn_acquire(struct gaudi_dev *d)
{
	syn_status e = syn.synInitialize();

	if (e == SYN_OK || e == SYN_ALREADY_INITIALIZED)
		e = syn.synDeviceAcquire(&d->syn_id, d->pci);
	switch (e) {
	case SYN_OK:
		d->syn_ours = true;
		return 0;
	case SYN_ALREADY_ACQUIRED:
		return err_set(EBUSY,
			       "this process uses another device with SynapseAI, which has one at "
			       "a time; release that, or start another process for %s",
			       d->name);
	case SYN_BUSY:
	case SYN_ALL_TAKEN:
	case SYN_NO_DEVICE:
		return err_set(EBUSY,
			       "SynapseAI cannot acquire %s (%s): %s; end the process that has it "
			       "open (fuser %s)",
			       d->name, d->pci, syn_err_name(e), d->dev);
	default:
		return gaudi_syn_err(d, e, "acquire the device");
	}
}

/* Release a device that was reset, under the lock. */
static void syn_forget(struct gaudi_dev *d)
{
	(void)pthread_rwlock_wrlock(&d->syn_calls);
	if (d->syn_ours)
		(void)syn.synDeviceRelease(d->syn_id); /* this also ends the objects on the
						        * device */
	(void)pthread_rwlock_unlock(&d->syn_calls);
	d->syn_ours = false;
	d->syn_users = 0;
}

int gaudi_syn_hold(struct gaudi_dev *d, uint64_t *ret_life)
{
	int r;

	(void)pthread_mutex_lock(&syn_lock);
	r = syn_load();
	if (r == 0 && d->syn_users && d->syn_life != atomic_load(&d->life))
		syn_forget(d);
	if (r == 0 && !d->syn_users) {
		d->syn_life = atomic_load(&d->life);
		if (!syn_find(d, &d->syn_id))
			r = syn_acquire(d);
	}
	if (r == 0) {
		d->syn_users++;
		*ret_life = d->syn_life;
	}
	(void)pthread_mutex_unlock(&syn_lock);
	return r;
}

int gaudi_syn_enter(struct gaudi_dev *d, uint64_t life)
{
	int r;

	(void)pthread_rwlock_rdlock(&d->syn_calls);
	r = gaudi_check_life(d, life);
	if (r < 0)
		(void)pthread_rwlock_unlock(&d->syn_calls);
	return r;
}

void gaudi_syn_leave(struct gaudi_dev *d)
{
	(void)pthread_rwlock_unlock(&d->syn_calls);
}

void gaudi_syn_drop(struct gaudi_dev *d, uint64_t life)
{
	syn_status e = SYN_OK;

	(void)pthread_mutex_lock(&syn_lock);
	if (life == d->syn_life && !--d->syn_users && d->syn_ours) {
		e = syn.synDeviceRelease(d->syn_id);
		d->syn_ours = false;
	}
	(void)pthread_mutex_unlock(&syn_lock);
	if (e != SYN_OK)
		log_warn("SynapseAI does not release %s: %s, ignoring", d->name, syn_err_name(e));
}

/* ------------------------------------------------------------------ memory */

/* Allocate the memory of a buffer.  The caller has called gaudi_syn_hold() and
 * gaudi_syn_enter(). */
static int syn_malloc(struct gaudi_dev *d, struct gaudi_buf *b)
{
	struct syn_device_info info = { 0 };
	syn_status e;

	/* Allocate one page more, because SynapseAI's addresses may be in the middle of a page. */
	e = syn.synDeviceMalloc(d->syn_id, b->size + PAGE, 0, 0, &b->handle);
	if (e == SYN_OK && !b->handle)
		e = SYN_OUT_OF_DEVICE_MEMORY;
	if (e != SYN_OK)
		return gaudi_syn_err(d, e, "allocate memory");
	b->va = align_up(b->handle, PAGE);
	if (syn.synDeviceGetInfoV2(d->syn_id, &info) == SYN_OK) {
		(void)pthread_mutex_lock(&d->lock);
		d->total = info.dram_size;
		(void)pthread_mutex_unlock(&d->lock);
	}
	return 0;
}

int gaudi_syn_alloc(struct gaudi_dev *d, uint64_t len, struct gaudi_buf **ret)
{
	struct gaudi_buf *b;
	uint64_t life = 0;
	int r = gaudi_syn_hold(d, &life);

	if (r < 0)
		return r;
	b = gaudi_buf_new(GAUDI_SYNAPSE, d);
	if (!b) {
		gaudi_syn_drop(d, life);
		return -ENOMEM;
	}
	b->life = life;
	b->owned = true;
	b->size = align_up(len, PAGE);
	r = gaudi_syn_enter(d, life);
	if (r == 0) {
		r = syn_malloc(d, b);
		gaudi_syn_leave(d);
	}
	if (r < 0) {
		free(b);
		gaudi_syn_drop(d, life);
		return r;
	}
	*ret = b;
	return 0;
}

/* Return true if the range is memory of the device.  The caller has called gaudi_syn_hold(). */
static bool is_in_device(struct gaudi_dev *d, uint64_t life, uint64_t va, uint64_t len)
{
	struct syn_device_info info = { 0 };
	syn_status e;

	if (gaudi_syn_enter(d, life) < 0)
		return false;
	e = syn.synDeviceGetInfoV2(d->syn_id, &info);
	gaudi_syn_leave(d);
	return e == SYN_OK && va >= info.hbm_base && len <= info.dram_size &&
	       va - info.hbm_base <= info.dram_size - len;
}

/* Return true if SynapseAI has acquired the device in this process. */
static bool is_attached(const struct gaudi_dev *d)
{
	uint32_t id;
	bool is;

	(void)pthread_mutex_lock(&syn_lock);
	is = syn_load() == 0 && (d->syn_users || syn_find(d, &id));
	(void)pthread_mutex_unlock(&syn_lock);
	return is;
}

int gaudi_syn_wrap(uint64_t va, uint64_t len, struct gaudi_buf **ret)
{
	for (unsigned i = 0; gaudi_mode() == GAUDI_MODE_SYNAPSE && i < gaudi_nr_devices(); i++) {
		struct gaudi_dev *d = gaudi_device(i);
		struct gaudi_buf *b;
		uint64_t life = 0;
		int r;

		if (!is_attached(d))
			continue;
		r = gaudi_syn_hold(d, &life);
		if (r < 0)
			return r;
		if (!is_in_device(d, life, va, len)) {
			gaudi_syn_drop(d, life);
			continue;
		}
		b = gaudi_buf_new(GAUDI_SYNAPSE, d);
		if (!b) {
			gaudi_syn_drop(d, life);
			return -ENOMEM;
		}
		b->life = life;
		b->va = va;
		b->size = len;
		*ret = b;
		return 0;
	}
	return err_set(EFAULT,
		       "no Gaudi memory is known at %#" PRIx64 "; allocate it by pst_mem_alloc() "
		       "or by SynapseAI in this process, or import it by the descriptor of its "
		       "device",
		       va);
}

void gaudi_syn_free(struct gaudi_buf *b)
{
	struct gaudi_dev *d = b->d;
	syn_status e = SYN_OK;

	if (b->owned && gaudi_syn_enter(d, b->life) == 0) {
		e = syn.synDeviceFree(d->syn_id, b->handle, 0);
		gaudi_syn_leave(d);
	}
	if (e != SYN_OK)
		log_warn("SynapseAI does not free memory of %s: %s, ignoring", d->name,
			 syn_err_name(e));
	gaudi_syn_drop(d, b->life);
	free(b);
}

/* ------------------------------------------------------------------ the pool */

static int pool_where(struct gaudi_dev *d, uint64_t va, int *ret_fd, uint64_t *ret_map_base)
{
	struct syn_device_info info = { 0 };
	struct scal_pool_info pool = { 0 };
	syn_status e = syn.synDeviceGetInfoV2(d->syn_id, &info);
	int r;

	if (e != SYN_OK)
		return gaudi_syn_err(d, e, "name the device's descriptor");
	r = gaudi_pool_find((int)info.fd, &pool);
	if (r < 0)
		return r;
	if (va < pool.base || va - pool.base >= pool.size || pool.map_base > pool.base)
		return err_set(EFAULT,
			       "%#" PRIx64 " is not in the memory pool of SynapseAI, which has "
			       "%" PRIu64 " bytes at %#" PRIx64 "; was it freed?",
			       va, pool.size, pool.base);
	*ret_fd = (int)info.fd;
	*ret_map_base = pool.map_base;
	return 0;
}

int gaudi_syn_where(const struct gaudi_buf *b, uint64_t va, int *ret_fd, uint64_t *ret_map_base)
{
	int r = gaudi_syn_enter(b->d, b->life);

	if (r < 0)
		return r;
	r = pool_where(b->d, va, ret_fd, ret_map_base);
	gaudi_syn_leave(b->d);
	return r;
}

/* ------------------------------------------------------------------ host memory */

int gaudi_syn_sync(const struct mem_alloc *a)
{
	struct gaudi_dev *d = gaudi_buf_of(a)->d;
	syn_status e;
	int r = gaudi_syn_enter(d, a->life);

	if (r < 0)
		return r;
	e = syn.synDeviceSynchronize(d->syn_id);
	gaudi_syn_leave(d);
	return e == SYN_OK ? 0 : gaudi_syn_err(d, e, "finish its work");
}

static int syn_host_map(struct gaudi_dev *d, const struct host_pin *p)
{
	syn_status e;
	int r = gaudi_syn_enter(d, p->life);

	if (r < 0)
		return r;
	e = syn.synHostMap(d->syn_id, p->len, p->host);
	gaudi_syn_leave(d);
	return e == SYN_OK ? 0 : gaudi_syn_err(d, e, "map host memory");
}

int gaudi_syn_pin(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len)
{
	struct gaudi_dev *d = gaudi_device(device);
	struct host_pin *p;
	int r = gaudi_check_life(d, life);

	*ret_len = 0;
	if (r < 0)
		return r;
	p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(ENOMEM, "no memory to describe pinned memory");
	p->d = d;
	p->host = host;
	p->len = len;
	r = gaudi_syn_hold(d, &p->life);
	if (r == 0) {
		r = syn_host_map(d, p);
		if (r < 0)
			gaudi_syn_drop(d, p->life);
	}
	if (r < 0) {
		free(p);
		return r;
	}
	(void)pthread_mutex_lock(&pins_lock);
	list_add_tail(&pins, &p->link);
	(void)pthread_mutex_unlock(&pins_lock);
	*ret_len = len;
	return 0;
}

void gaudi_syn_unpin(unsigned device, void *host, uint64_t len)
{
	struct gaudi_dev *d = gaudi_device(device);
	struct host_pin *p = NULL;
	syn_status e = SYN_OK;
	struct list *at;

	(void)len;
	(void)pthread_mutex_lock(&pins_lock);
	/* Take the first one, which is the oldest: memory may have been pinned again after a
	 * reset. */
	list_for_each (at, &pins) {
		p = list_entry(at, struct host_pin, link);
		if (p->d == d && p->host == host)
			break;
		p = NULL;
	}
	if (p)
		list_del(&p->link);
	(void)pthread_mutex_unlock(&pins_lock);
	if (!p)
		return;
	if (gaudi_syn_enter(d, p->life) == 0) {
		e = syn.synHostUnmap(d->syn_id, p->host);
		gaudi_syn_leave(d);
	}
	if (e != SYN_OK)
		log_warn("SynapseAI does not unmap host memory: %s, ignoring", syn_err_name(e));
	gaudi_syn_drop(d, p->life);
	free(p);
}

bool gaudi_syn_pinned(const struct gaudi_dev *d, uint64_t life, const char *host, uint64_t len)
{
	bool in = false;
	struct list *at;

	(void)pthread_mutex_lock(&pins_lock);
	list_for_each (at, &pins) {
		const struct host_pin *p = list_entry(at, struct host_pin, link);

		if (p->d == d && p->life == life && host >= p->host &&
		    (uint64_t)(host - p->host) <= p->len &&
		    len <= p->len - (uint64_t)(host - p->host)) {
			in = true;
			break;
		}
	}
	(void)pthread_mutex_unlock(&pins_lock);
	return in;
}
