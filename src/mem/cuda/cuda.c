/* SPDX-License-Identifier: MIT */
/*
 * The NVIDIA driver, its devices and contexts.  cuda.h describes the other files.
 *
 * The library is loaded with the other providers.  But the driver is initialized only when the
 * program asks for a device, wraps memory that the driver knows, or imports CUDA memory.  So a
 * program that only moves host memory does not pay for the driver, and may still fork.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/dl.h"
#include "base/err.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/sysfs.h"
#include "mem/cuda/cuda.h"

#define DEVICES_MAX 64

struct cuda_api cu;

#define SONAME "libcuda.so.1"

DL_NOTE(SONAME, "cuda", "memory of NVIDIA GPUs");

static const struct dl_lib library = {
	.what = "NVIDIA driver",
	.soname = SONAME,
	.env = "PST_LIBCUDA",
};

static const struct dl_sym syms[] = {
#define SYM(name, args) DL_SYM(struct cuda_api, name, true),
#define OPT(name, args) DL_SYM(struct cuda_api, name, false),
#include "mem/cuda/cuda_syms.h"
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cuda_dev devices[DEVICES_MAX];
static unsigned nr_devices;
static char why_none[200]; /* sentence that tells why nr_devices is 0 */

/* ------------------------------------------------------------------ errors */

const char *cuda_err_name(cu_result err)
{
	static _Thread_local char number[24];
	const char *name = NULL;

	if (cu.cuGetErrorName(err, &name) == CU_OK && name)
		return name;
	(void)snprintf(number, sizeof(number), "error %" PRIu32, err);
	return number;
}

/* Return true if every later call in the same context would return the same error. */
static bool is_sticky(cu_result err)
{
	switch (err) {
	case CU_DEINITIALIZED:
	case CU_DEVICE_UNAVAILABLE:
	case CU_ECC_UNCORRECTABLE:
	case CU_NVLINK_UNCORRECTABLE:
	case CU_CONTAINED:
	case CU_ILLEGAL_ADDRESS:
	case CU_LAUNCH_TIMEOUT:
	case CU_ASSERT:
	case CU_UNKNOWN:
		return true;
	case CU_CONTEXT_IS_DESTROYED:
		return !cu.cuCtxGetId; /* with cuCtxGetId(), retain() recognizes a new context */
	default:
		/* Errors 714 to 719: stack error, illegal instruction, misaligned address, wrong
		 * address space, wrong program counter, launch failed. */
		return err > CU_HOST_NOT_REGISTERED && err <= CU_LAUNCH_FAILED;
	}
}

static int to_errno(cu_result err)
{
	switch (err) {
	case CU_INVALID_VALUE:
	case CU_INVALID_HANDLE:
	case CU_INVALID_CONTEXT:
		return EINVAL;
	case CU_OUT_OF_MEMORY:
		return ENOMEM;
	case CU_DEINITIALIZED:
	case CU_DEVICE_UNAVAILABLE:
	case CU_NO_DEVICE:
	case CU_INVALID_DEVICE:
	case CU_NOT_INITIALIZED:
	case CU_STUB_LIBRARY:
		return ENODEV;
	case CU_HOST_ALREADY_REGISTERED:
	case CU_ALREADY_MAPPED:
		return EBUSY;
	case CU_NOT_FOUND:
		return EFAULT;
	case CU_NOT_PERMITTED:
		return EPERM;
	case CU_NOT_SUPPORTED:
		return EOPNOTSUPP;
	default:
		return EIO;
	}
}

static void mark_lost(struct cuda_dev *d, cu_result err)
{
	cu_result none = CU_OK;

	if (!atomic_compare_exchange_strong(&d->lost, &none, err))
		return;
	/* At the end of the process every call returns this error, so do not call it a loss. */
	if (err == CU_DEINITIALIZED)
		log_debug("the NVIDIA driver has shut down");
	else
		log_error("%s is lost for this process: %s", d->info.name, cuda_err_name(err));
}

static int was_reset(const struct cuda_dev *d)
{
	return err_set(ENODEV,
		       "%s was reset, as by cudaDeviceReset(), and all that was in its memory is "
		       "gone; free the pst_mem of before, allocate anew, and wrap that",
		       d->info.name);
}

/* Return true if the error may mean that the context was reset. */
static bool is_of_reset(cu_result err)
{
	return err == CU_CONTEXT_IS_DESTROYED || err == CU_INVALID_CONTEXT ||
	       err == CU_INVALID_HANDLE;
}

int cuda_err(struct cuda_dev *d, cu_result err, const char *fmt, ...)
{
	uint64_t life = atomic_load(&d->life);
	char what[160];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	log_debug("%s could not %s: %s", d->info.name, what, cuda_err_name(err));
	if (is_of_reset(err) &&
	    (!cuda_lives(d, life) || (err == CU_CONTEXT_IS_DESTROYED && !is_sticky(err))))
		return was_reset(d);
	if (is_sticky(err))
		mark_lost(d, err);
	return err_set(to_errno(err), "%s could not %s: %s", d->info.name, what,
		       cuda_err_name(err));
}

void cuda_ignore(struct cuda_dev *d, cu_result err, const char *what)
{
	if (likely(err == CU_OK))
		return;
	if (is_sticky(err))
		mark_lost(d, err);
	else
		log_warn("%s could not %s: %s, ignoring", d->info.name, what, cuda_err_name(err));
}

int cuda_check_lost(struct cuda_dev *d)
{
	cu_result err = atomic_load(&d->lost);

	if (likely(err == CU_OK))
		return 0;
	if (err == CU_CONTEXT_IS_DESTROYED)
		return err_set(ENODEV,
			       "the context of %s was ended, as by cudaDeviceReset(), and a driver "
			       "older than CUDA 12.0 does not tell a new one from it; restart the "
			       "process",
			       d->info.name);
	return err_set(to_errno(err),
		       "%s was lost to %s in this process, by a kernel or the hardware; restart "
		       "the process",
		       d->info.name, cuda_err_name(err));
}

/* ---------------------------------------------------------------- contexts */

static void relax(struct cuda_scope *s)
{
	s->mode = CU_CAPTURE_RELAXED;
	s->relaxed = cu.cuThreadExchangeStreamCaptureMode(&s->mode) == CU_OK;
}

int cuda_enter(struct cuda_scope *s, struct cuda_dev *d, cu_ctx ctx)
{
	cu_result e;
	int r = cuda_check_lost(d);

	if (unlikely(r < 0))
		return r;
	relax(s);
	e = cu.cuCtxPushCurrent_v2(ctx);
	s->pushed = e == CU_OK;
	if (likely(s->pushed))
		return 0;
	/*
	 * Do not mark the device as lost: the context may belong to the program and may have ended.
	 */
	return err_set(to_errno(e), "a context on %s cannot be made current: %s", d->info.name,
		       cuda_err_name(e));
}

void cuda_enter_anyway(struct cuda_scope *s, cu_ctx ctx)
{
	relax(s);
	s->pushed = cu.cuCtxPushCurrent_v2(ctx) == CU_OK;
}

void cuda_leave(struct cuda_scope *s)
{
	cu_ctx ctx;

	if (s->pushed)
		(void)cu.cuCtxPopCurrent_v2(&ctx);
	if (s->relaxed)
		(void)cu.cuThreadExchangeStreamCaptureMode(&s->mode);
	*s = (struct cuda_scope){ 0 };
}

/*
 * Release the context, under the lock.  Nothing uses the context any more, so no thread can take
 * kernel_lock.
 */
static void let_go(struct cuda_dev *d)
{
	CUDA_SCOPE(outer);

	relax(&outer);
	if (!d->reset && (cuda_kernels_any(d) || d->orders || d->feeds)) {
		CUDA_SCOPE(inner);

		cuda_enter_anyway(&inner, d->ctx);
		cuda_kernels_end(d, inner.pushed);
		if (inner.pushed) {
			cuda_orders_let_go(d);
			cuda_feeds_let_go(d);
		}
	}
	cuda_kernels_end(d, false);
	d->ctx = NULL;
	d->reset = false;
	cuda_ignore(d, cu.cuDevicePrimaryCtxRelease_v2(d->dev), "release its context");
}

bool cuda_has_context(const struct cuda_dev *d)
{
	unsigned flags = 0;
	int active = 1;

	return cu.cuDevicePrimaryCtxGetState(d->dev, &flags, &active) != CU_OK || active;
}

/* Return true if a reset has ended the retained context; under the lock. */
static bool is_reset(const struct cuda_dev *d)
{
	unsigned long long id = 0;

	if (!cuda_has_context(d))
		return true;
	return d->ctx_id && cu.cuCtxGetId(d->ctx, &id) == CU_OK && id != d->ctx_id;
}

/* Discard everything that lived in a context that was reset; under the lock. */
static _cold_ void forget(struct cuda_dev *d)
{
	log_warn("%s was reset, as by cudaDeviceReset(): what was in its memory is gone",
		 d->info.name);
	atomic_fetch_add(&d->life, 1);
	atomic_store(&d->lost, CU_OK);
	d->reset = true;
	(void)pthread_mutex_lock(&d->kernel_lock);
	cuda_kernels_end(d, false);
	(void)pthread_mutex_unlock(&d->kernel_lock);
	cuda_orders_forget(d);
	cuda_feeds_forget(d);
	d->users -= cuda_pins_forget(d);
}

/* Check whether the context was reset; under the lock. */
static void notice_reset(struct cuda_dev *d)
{
	if (d->users && !d->reset && is_reset(d))
		forget(d);
	if (!d->users && d->reset)
		let_go(d);
}

int cuda_check_life(struct cuda_dev *d, uint64_t life)
{
	return likely(atomic_load(&d->life) == life) ? 0 : was_reset(d);
}

bool cuda_lives(struct cuda_dev *d, uint64_t life)
{
	(void)pthread_mutex_lock(&d->lock);
	notice_reset(d);
	(void)pthread_mutex_unlock(&d->lock);
	return atomic_load(&d->life) == life;
}

/* Retain the primary context, under the lock. */
static cu_result retain(struct cuda_dev *d)
{
	uint64_t start = now_ns();
	unsigned long long id = 0;
	cu_result e = cu.cuDevicePrimaryCtxRetain(&d->ctx, d->dev);

	log_info("%s: the context took %.1f ms", d->info.name, as_ms(now_ns() - start));
	if (e != CU_OK)
		return e;
	if (cu.cuCtxGetId && cu.cuCtxGetId(d->ctx, &id) != CU_OK)
		id = 0;
	/* The current context is not the one that had the error. */
	if (id && d->ctx_id && id != d->ctx_id)
		atomic_store(&d->lost, CU_OK);
	d->ctx_id = id;
	/* After a reset the reference that was retained before still counts, so release it. */
	if (d->reset)
		cuda_ignore(d, cu.cuDevicePrimaryCtxRelease_v2(d->dev), "release its context");
	d->reset = false;
	return CU_OK;
}

/* Retain the context if necessary, and count a user; under the lock. */
static int hold(struct cuda_dev *d, cu_ctx *ret)
{
	cu_result e = CU_OK;
	int r;

	if (!d->users || d->reset)
		e = retain(d);
	r = cuda_check_lost(d);
	if (e == CU_OK && r == 0) {
		d->users++;
		*ret = d->ctx;
	} else if (e == CU_OK && !d->users) {
		let_go(d);
	}
	if (r < 0)
		return r;
	if (e == CU_OK)
		return 0;
	/* Do not mark the device as lost: the call may succeed once others have freed memory. */
	return err_set(to_errno(e), "%s gives no context: %s%s", d->info.name, cuda_err_name(e),
		       e == CU_DEVICE_UNAVAILABLE ? "; another process may have it to itself" : "");
}

int cuda_hold(struct cuda_dev *d, cu_ctx *ret, uint64_t *ret_life)
{
	CUDA_SCOPE(scope);
	int r;

	relax(&scope);
	(void)pthread_mutex_lock(&d->lock);
	notice_reset(d);
	r = hold(d, ret);
	*ret_life = d->life;
	(void)pthread_mutex_unlock(&d->lock);
	return r;
}

int cuda_hold_life(struct cuda_dev *d, uint64_t life, cu_ctx *ret)
{
	CUDA_SCOPE(scope);
	int r;

	relax(&scope);
	(void)pthread_mutex_lock(&d->lock);
	notice_reset(d);
	r = cuda_check_life(d, life);
	if (r == 0)
		r = hold(d, ret);
	(void)pthread_mutex_unlock(&d->lock);
	return r;
}

void cuda_drop(struct cuda_dev *d)
{
	(void)pthread_mutex_lock(&d->lock);
	if (d->users == 1)
		notice_reset(d);
	if (!--d->users)
		let_go(d);
	(void)pthread_mutex_unlock(&d->lock);
}

/* ----------------------------------------------------------------- devices */

bool cuda_attribute(const struct cuda_dev *d, uint32_t attr, int *ret)
{
	return cu.cuDeviceGetAttribute(ret, attr, d->dev) == CU_OK;
}

/* Initialize a device.  Return 0, or the driver's error if not even its handle, name or UUID is
 * known. */
static cu_result device_init(struct cuda_dev *d, unsigned idx)
{
	struct pst_device *info = &d->info;
	struct cu_uuid uuid;
	char pci[32] = "";
	size_t total = 0;
	cu_result e;
	int v;

	d->idx = idx;
	(void)pthread_mutex_init(&d->lock, NULL);
	cuda_kernels_init(d);
	(void)pthread_mutex_init(&d->feed_lock, NULL);
	e = cu.cuDeviceGet(&d->dev, (int)idx);
	if (e != CU_OK)
		return e;
	/* The second form also tells apart the parts of a divided device (MIG). */
	if (cu.cuDeviceGetUuid_v2)
		e = cu.cuDeviceGetUuid_v2(&uuid, d->dev);
	else
		e = cu.cuDeviceGetUuid(&uuid, d->dev);
	if (e != CU_OK)
		return e;

	info->kind = PST_KIND_CUDA;
	info->numa_node = -1;
	memcpy(info->uuid, uuid.bytes, sizeof(info->uuid));
	(void)snprintf(info->name, sizeof(info->name), "cuda:%u", idx);
	if (cu.cuDeviceGetName(info->model, sizeof(info->model), d->dev) != CU_OK)
		(void)snprintf(info->model, sizeof(info->model), "NVIDIA device");
	info->model[sizeof(info->model) - 1] = '\0';
	if (cu.cuDeviceTotalMem_v2(&total, d->dev) == CU_OK)
		info->total = total;
	if (cu.cuDeviceGetPCIBusId(pci, sizeof(pci), d->dev) == CU_OK) {
		/* sysfs uses lower-case letters. */
		for (char *p = pci; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		if (strlen(pci) < sizeof(info->pci)) {
			memcpy(info->pci, pci, strlen(pci) + 1);
			info->numa_node = sysfs_numa_node(pci);
		}
	}
	d->read_only_register = cuda_attribute(d, CU_DEV_READ_ONLY_REGISTER, &v) && v;
	return CU_OK;
}

static void say_none(const char *what, cu_result err)
{
	const char *cure = "";

	if (err == CU_NO_DEVICE)
		cure = "; CUDA_VISIBLE_DEVICES and /dev/nvidia* decide what it sees";
	(void)snprintf(why_none, sizeof(why_none), "the NVIDIA driver is here, but %s: %s%s", what,
		       cuda_err_name(err), cure);
}

static void init(void)
{
	uint64_t start = now_ns();
	cu_result e;
	int nr = 0;

	fds_grow();
	e = cu.cuInit(0);
	log_info("cuInit took %.1f ms", as_ms(now_ns() - start));
	if (e != CU_OK) {
		say_none("cuInit failed", e);
		return;
	}
	e = cu.cuDeviceGetCount(&nr);
	if (e == CU_OK && nr <= 0)
		e = CU_NO_DEVICE;
	if (e != CU_OK) {
		say_none("it shows no device", e);
		return;
	}
	if (nr > DEVICES_MAX) {
		log_warn("%d CUDA devices, ignoring all but %d", nr, DEVICES_MAX);
		nr = DEVICES_MAX;
	}
	for (unsigned i = 0; i < (unsigned)nr; i++) {
		e = device_init(&devices[i], i);
		if (e != CU_OK) {
			say_none("a device does not answer", e);
			return;
		}
	}
	nr_devices = (unsigned)nr;
}

int cuda_ready(void)
{
	(void)pthread_once(&once, init);
	return nr_devices ? 0 : err_set(ENODEV, "%s", why_none);
}

unsigned cuda_nr_devices(void)
{
	return cuda_ready() < 0 ? 0 : nr_devices;
}

struct cuda_dev *cuda_device(unsigned idx)
{
	return &devices[idx];
}

/* Return true if CUDA's library is in the process: a program with CUDA memory has loaded it. */
static bool cuda_present(void)
{
	static _Atomic unsigned long long absent;

	return dl_present(&library, &absent);
}

static int cuda_load(void)
{
	return dl_load(&library, &cu, syms, ARRAY_SIZE(syms));
}

static void cuda_device_info(unsigned idx, struct pst_device *ret)
{
	size_t sz = ret->sz;

	*ret = devices[idx].info;
	ret->sz = sz;
	ret->index = idx;
}

/* Called for each small read, so it must be cheap.  The library's own memory lives until its
 * pst_mem is freed or the device is reset; a reset was noticed if @life differs. */
static int cuda_is_alive(const struct mem_alloc *a)
{
	struct cuda_alloc *c = cuda_alloc_of(a);

	return c->how == CUDA_WRAPPED ? cuda_alive(c) : cuda_check_life(c->d, a->life);
}

static uint64_t cuda_life(unsigned idx)
{
	return atomic_load(&devices[idx].life);
}

/* mem_ops.lands: false for older devices, which need cuFlushGPUDirectRDMAWrites(). */
static bool cuda_lands(const struct mem_alloc *a)
{
	int ordering = 0;

	return cuda_attribute(&devices[a->device], CU_DEV_GDR_ORDERING, &ordering) &&
	       ordering >= CU_ORDERING_OWNER;
}

const struct mem_ops mem_cuda_ops = {
	.name = "cuda",
	.kind = PST_KIND_CUDA,
	.caps = MEM_CAP_COPY | MEM_CAP_EXPORT | MEM_CAP_BETWEEN,
	.load = cuda_load,
	.present = cuda_present,
	.devices = cuda_nr_devices,
	.device_info = cuda_device_info,
	.device_text = cuda_device_text,
	.owns = cuda_owns,
	.alloc = cuda_alloc,
	.wrap = cuda_wrap,
	.import = cuda_import,
	.export = cuda_export,
	.alive = cuda_is_alive,
	.within = cuda_within,
	.sync = cuda_sync,
	.export_part = cuda_export_part,
	.alloc_like = cuda_alloc_like,
	.alloc_class = cuda_alloc_class,
	.lands = cuda_lands,
	.export_dmabuf = cuda_export_dmabuf,
	.free = cuda_free,
	.late = cuda_late,
	.pin = cuda_pin,
	.unpin = cuda_unpin,
	.pin_file = cuda_pin_file,
	.unpin_file = cuda_unpin,
	.aperture = cuda_aperture,
	.life = cuda_life,
	.stream_new = cuda_stream_new,
	.stream_free = cuda_stream_free,
	.copy = cuda_copy,
	.sgl_write = cuda_sgl_write,
	.sgl_copy = cuda_sgl_copy,
	.poll = cuda_poll,
	.copied_by = cuda_copied_by,
	.sums_new = cuda_sums_new,
	.sums_free = cuda_sums_free,
	.sums_start = cuda_sums_start,
	.sums_poll = cuda_sums_poll,
	.order_check = cuda_order_check,
	.order_new = cuda_order_new,
	.order_poll = cuda_order_poll,
	.order_free = cuda_order_free,
	.feed_check = cuda_feed_check,
	.feed_new = cuda_feed_new,
	.feed_put = cuda_feed_put,
	.feed_seal = cuda_feed_seal,
	.feed_list = cuda_feed_list,
	.feed_send = cuda_feed_send,
	.feed_end = cuda_feed_end,
	.feed_poll = cuda_feed_poll,
	.feed_check_lost = cuda_feed_check_lost,
	.feed_free = cuda_feed_free,
};
