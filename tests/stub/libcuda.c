/* SPDX-License-Identifier: MIT */
/*
 * A stub of libcuda.so.1 without a driver, for tests: the same calls and rules.
 *
 * Device memory has addresses that the CPU cannot access, each thread has a stack of contexts,
 * and each stream is a thread.  A call that the real driver answers with an error gets that
 * error; a call with undefined behaviour in the real driver ends the process with a message.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cuda_stub_int.h"

#define STACK_MAX 32

struct stub stub = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.quiesced = PTHREAD_COND_INITIALIZER,
	.let_go = PTHREAD_COND_INITIALIZER,
	.contexts = LIST_INIT(stub.contexts),
	.ranges = LIST_INIT(stub.ranges),
	.registrations = LIST_INIT(stub.registrations),
	.handles = LIST_INIT(stub.handles),
	.reservations = LIST_INIT(stub.reservations),
	.streams = LIST_INIT(stub.streams),
	.events = LIST_INIT(stub.events),
};

static _Thread_local cu_ctx stack[STACK_MAX];
static _Thread_local unsigned depth;
static _Thread_local uint32_t capture_mode = CU_CAPTURE_GLOBAL;
static _Thread_local cu_result late;

static struct {
	char name[64]; /* "": no function; "*": every function */
	uint64_t n, seen;
	cu_result code;
	bool met;
} fail;

static char stalled[64];     /* name of the blocked function, or "" */
static unsigned stall_later; /* calls to let through first */
static unsigned stall_most;  /* calls to block at most; 0: all */
static unsigned stall_gen;   /* changes with each stub_cuda_stall() */
static pthread_cond_t stall_over = PTHREAD_COND_INITIALIZER;

void stub_abort(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)fputs("stub libcuda: ", stderr);
	(void)vfprintf(stderr, fmt, ap);
	(void)fputc('\n', stderr);
	va_end(ap);
	abort();
}

cu_ctx stub_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

/* Return the code that this call has to fail with, or CU_OK.  Call it with the lock held. */
static cu_result injected(const char *name, bool by_name)
{
	bool any = !strcmp(fail.name, "*") && !by_name;

	if (!fail.name[0] || (!any && strcmp(fail.name, name) != 0))
		return CU_OK;
	fail.seen++;
	if (fail.n && fail.seen != fail.n)
		return CU_OK;
	fail.met = true;
	return fail.code;
}

/* Block this call, whose name is the stalled one, until the next stub_cuda_stall(). */
static void stall(void)
{
	unsigned gen = stall_gen;

	if (stall_later) {
		stall_later--;
		return;
	}
	if (stall_most && !--stall_most)
		stalled[0] = '\0';
	while (stall_gen == gen)
		(void)pthread_cond_wait(&stall_over, &stub.lock);
}

void stub_stall_at(const char *name)
{
	(void)pthread_mutex_lock(&stub.lock);
	stub.count.stalled++;
	if (!strcmp(stalled, name))
		stall();
	stub.count.stalled--;
	(void)pthread_mutex_unlock(&stub.lock);
}

cu_result stub_enter(const char *name, unsigned flags)
{
	cu_ctx ctx = stub_current();
	cu_result e = CU_OK;

	late = CU_OK;
	(void)pthread_mutex_lock(&stub.lock);
	stub.count.calls++;
	stub.count.stalled++;
	if (!strcmp(stalled, name))
		stall();
	stub.count.stalled--;
	while (stub.quiescing)
		(void)pthread_cond_wait(&stub.quiesced, &stub.lock);
	if (!stub.initialized && !(flags & ANYTIME))
		e = CU_NOT_INITIALIZED;
	else if (flags & IN_CTX && !ctx)
		e = CU_INVALID_CONTEXT;
	else if (flags & IN_CTX && ctx->gone)
		e = CU_CONTEXT_IS_DESTROYED;
	else if (flags & IN_CTX && stub.poison[ctx->dev])
		e = stub.poison[ctx->dev];
	else if (flags & UNSAFE && stub.captures && capture_mode != CU_CAPTURE_RELAXED) {
		stub.capture_spoilt = true;
		e = CU_CAPTURE_UNSUPPORTED;
	} else if (!(flags & SURE))
		e = injected(name, flags & BY_NAME);
	(void)pthread_mutex_unlock(&stub.lock);
	if (flags & ENDS && e != CU_NOT_INITIALIZED && e != CU_INVALID_CONTEXT) {
		late = e;
		return CU_OK;
	}
	return e;
}

cu_result stub_late(void)
{
	return late;
}

/* ----------------------------------------------------------------- control */

bool stub_cuda_fail(const char *spec)
{
	unsigned long long n = 0;
	unsigned code = 0;
	bool met;

	(void)pthread_mutex_lock(&stub.lock);
	met = fail.met;
	memset(&fail, 0, sizeof(fail));
	if (spec && *spec) {
		if (sscanf(spec, "%63[^:]:%llu:%u", fail.name, &n, &code) != 3)
			stub_abort("\"%s\" is not NAME:N:CODE", spec);
		fail.n = n;
		fail.code = code;
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return met;
}

void stub_cuda_delay_us(unsigned us)
{
	(void)pthread_mutex_lock(&stub.lock);
	stub.delay_us = us;
	(void)pthread_mutex_unlock(&stub.lock);
}

void stub_cuda_hold(bool hold)
{
	(void)pthread_mutex_lock(&stub.lock);
	stub.hold = hold;
	(void)pthread_cond_broadcast(&stub.let_go);
	(void)pthread_mutex_unlock(&stub.lock);
}

void stub_cuda_hold_sums(bool hold)
{
	(void)pthread_mutex_lock(&stub.lock);
	stub.hold_sums = hold;
	(void)pthread_cond_broadcast(&stub.let_go);
	(void)pthread_mutex_unlock(&stub.lock);
}

void stub_cuda_lose(unsigned to, unsigned from)
{
	(void)pthread_mutex_lock(&stub.lock);
	stub.lose_to = to;
	stub.lose_from = from;
	(void)pthread_mutex_unlock(&stub.lock);
}

void stub_cuda_stall(const char *name)
{
	char *number;

	(void)pthread_mutex_lock(&stub.lock);
	(void)snprintf(stalled, sizeof(stalled), "%s", name ? name : "");
	stall_gen++;
	stall_later = stall_most = 0;
	number = strpbrk(stalled, ":#");
	if (number) {
		*(*number == ':' ? &stall_later : &stall_most) = (unsigned)atoi(number + 1);
		*number = '\0';
	}
	(void)pthread_cond_broadcast(&stall_over);
	(void)pthread_mutex_unlock(&stub.lock);
}

void stub_cuda_poison(int dev, cu_result code)
{
	(void)pthread_mutex_lock(&stub.lock);
	stub.poison[dev] = code;
	(void)pthread_mutex_unlock(&stub.lock);
}

static unsigned length(const struct list *head)
{
	unsigned n = 0;
	struct list *e;

	list_for_each (e, head)
		n++;
	return n;
}

void stub_cuda_state(struct stub_cuda_state *ret)
{
	struct list *e;

	(void)pthread_mutex_lock(&stub.lock);
	*ret = stub.count;
	for (int i = 0; i < STUB_DEVICES_MAX; i++)
		ret->ctx_refs[i] = stub.primary[i].refs;
	ret->contexts = length(&stub.contexts);
	ret->streams = stub_streams_made();
	ret->events = length(&stub.events);
	ret->ranges = length(&stub.ranges);
	ret->sync_memops = 0;
	list_for_each (e, &stub.ranges)
		ret->sync_memops += list_entry(e, struct range, link)->sync_memops;
	ret->handles = length(&stub.handles);
	ret->reservations = length(&stub.reservations);
	ret->registrations = length(&stub.registrations);
	ret->depth = depth;
	ret->current = stub_current();
	ret->mode = capture_mode;
	(void)pthread_mutex_unlock(&stub.lock);
}

/* ------------------------------------------------------------------ driver */

static int number(const char *name, int otherwise)
{
	const char *s = getenv(name);

	return s && *s ? atoi(s) : otherwise;
}

cu_result cuInit(unsigned flags)
{
	static bool armed;

	if (!armed) {
		armed = true;
		(void)stub_cuda_fail(getenv("STUB_CUDA_FAIL"));
		stub_cuda_delay_us((unsigned)number("STUB_CUDA_DELAY_US", 0));
		stub.register_us = (unsigned)number("STUB_CUDA_REGISTER_US", 0);
	}
	ENTER(ANYTIME);
	if (flags)
		return CU_INVALID_VALUE;
	(void)pthread_mutex_lock(&stub.lock);
	stub.nr_devices = MIN(number("STUB_CUDA_DEVICES", 1), STUB_DEVICES_MAX);
	stub.initialized = stub.nr_devices > 0;
	for (int i = 0; i < STUB_DEVICES_MAX; i++) {
		stub.primary[i].dev = i;
		stub.primary[i].primary = true;
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return stub.initialized ? CU_OK : CU_NO_DEVICE;
}

cu_result cuGetErrorName(cu_result err, const char **ret)
{
	static const struct {
		cu_result code;
		const char *name;
	} names[] = {
		{ CU_OK, "CUDA_SUCCESS" },
		{ CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
		{ CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" },
		{ CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE" },
		{ CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
		{ CU_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED" },
		{ CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS" },
		{ CU_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE" },
		{ CU_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		if (names[i].code == err) {
			*ret = names[i].name;
			return CU_OK;
		}
	*ret = NULL;
	return CU_INVALID_VALUE;
}

cu_result cuDriverGetVersion(int *ret)
{
	ENTER(ANYTIME);
	*ret = 13000;
	return CU_OK;
}

cu_result cuDeviceGetCount(int *ret)
{
	ENTER(0);
	*ret = stub.nr_devices;
	return CU_OK;
}

cu_result cuDeviceGet(cu_device *ret, int ordinal)
{
	ENTER(0);
	if (ordinal < 0 || ordinal >= stub.nr_devices)
		return CU_INVALID_DEVICE;
	*ret = ordinal;
	return CU_OK;
}

cu_result cuDeviceGetName(char *ret, int len, cu_device dev)
{
	ENTER(0);
	(void)snprintf(ret, (size_t)len, "Stub device %d", dev);
	return CU_OK;
}

static void uuid_of(struct cu_uuid *ret, cu_device dev)
{
	memcpy(ret->bytes, "stub cuda device", 16);
	ret->bytes[0] = (char)('0' + dev);
}

cu_result cuDeviceGetUuid(struct cu_uuid *ret, cu_device dev)
{
	ENTER(0);
	uuid_of(ret, dev);
	return CU_OK;
}

cu_result cuDeviceGetUuid_v2(struct cu_uuid *ret, cu_device dev)
{
	ENTER(0);
	uuid_of(ret, dev);
	return CU_OK;
}

cu_result cuDeviceGetPCIBusId(char *ret, int len, cu_device dev)
{
	ENTER(0);
	/* Report a PCI domain that no machine has, so that a search of sysfs finds no device. */
	(void)snprintf(ret, (size_t)len, "FFF%X:%02X:00.0", (unsigned)dev, 0x17 + (unsigned)dev);
	return CU_OK;
}

cu_result cuDeviceTotalMem_v2(size_t *ret, cu_device dev)
{
	ENTER(0);
	(void)dev;
	*ret = STUB_TOTAL;
	return CU_OK;
}

cu_result cuDeviceGetAttribute(int *ret, uint32_t attr, cu_device dev)
{
	ENTER(0);
	(void)dev;
	switch (attr) {
	case CU_DEV_COMPUTE_MAJOR:
		*ret = 9;
		break;
	case CU_DEV_ASYNC_ENGINES:
		*ret = 3;
		break;
	case CU_DEV_GDR_ORDERING:
		*ret = CU_ORDERING_OWNER;
		break;
	case CU_DEV_UNIFIED_ADDRESSING:
	case CU_DEV_HOST_REGISTER:
	case CU_DEV_GDR_FLUSH:
	case CU_DEV_VMM:
	case CU_DEV_HANDLE_FD:
	case CU_DEV_READ_ONLY_REGISTER:
	case CU_DEV_GDR:
	case CU_DEV_DMA_BUF:
		*ret = 1;
		break;
	default:
		*ret = 0;
	}
	return CU_OK;
}

/* ---------------------------------------------------------------- contexts */

static void check_empty(const struct CUctx_st *c)
{
	if (c->streams || c->events || c->modules || c->ranges || c->registrations)
		stub_abort("a context of device %d ends with %u streams, %u events, %u modules, "
			   "%u allocations and %u registrations in it",
			   c->dev, c->streams, c->events, c->modules, c->ranges, c->registrations);
}

cu_result cuDevicePrimaryCtxRetain(cu_ctx *ret, cu_device dev)
{
	struct CUctx_st *c = &stub.primary[dev];

	ENTER(UNSAFE);
	if (dev < 0 || dev >= stub.nr_devices)
		return CU_INVALID_DEVICE;
	(void)pthread_mutex_lock(&stub.lock);
	if (!c->refs || c->gone) {
		stub.count.contexts_made++;
		c->id = ++stub.last_ctx_id;
	}
	if (!c->refs++)
		list_add_tail(&stub.contexts, &c->link);
	c->gone = false;
	(void)pthread_mutex_unlock(&stub.lock);
	*ret = c;
	return CU_OK;
}

cu_result cuDevicePrimaryCtxGetState(cu_device dev, unsigned *ret_flags, int *ret_active)
{
	ENTER(SURE);
	(void)pthread_mutex_lock(&stub.lock);
	*ret_flags = 0;
	*ret_active = stub.primary[dev].refs && !stub.primary[dev].gone;
	(void)pthread_mutex_unlock(&stub.lock);
	return CU_OK;
}

/* The handle stays valid: threads keep it on their stacks, and callers still release their
 * references. */
cu_result cuDevicePrimaryCtxReset_v2(cu_device dev)
{
	struct CUctx_st *c = &stub.primary[dev];

	ENTER(UNSAFE);
	(void)pthread_mutex_lock(&stub.lock);
	if (c->refs && !c->gone) {
		stub_reset_streams(c);
		stub_reset_handles(c);
		stub_reset_memory(c);
		c->streams = c->events = c->modules = c->ranges = c->registrations = 0;
		c->reaches = 0;
		c->gone = true;
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return CU_OK;
}

cu_result cuCtxGetId(cu_ctx ctx, unsigned long long *ret)
{
	cu_result e = CU_OK;

	ENTER(BY_NAME);
	(void)pthread_mutex_lock(&stub.lock);
	if (ctx->gone)
		e = CU_CONTEXT_IS_DESTROYED;
	else
		*ret = ctx->id;
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device dev)
{
	struct CUctx_st *c = &stub.primary[dev];

	ENTER(UNSAFE | ENDS);
	(void)pthread_mutex_lock(&stub.lock);
	if (!c->refs)
		stub_abort("the primary context of device %d was released too often", dev);
	if (!--c->refs) {
		c->reaches = 0;
		for (unsigned i = 0; i < depth; i++)
			if (stack[i] == c)
				stub_abort("a context is released while it is current");
		stub_implicit_end(c);
		check_empty(c);
		list_del(&c->link);
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return stub_late();
}

static bool context_lives(cu_ctx ctx)
{
	struct list *e;
	bool found = false;

	(void)pthread_mutex_lock(&stub.lock);
	list_for_each (e, &stub.contexts)
		found |= list_entry(e, struct CUctx_st, link) == ctx;
	(void)pthread_mutex_unlock(&stub.lock);
	return found;
}

/* Inject a failure only if the test names this call, not for "*": cleanup code needs this call to
 * enter its context. */
cu_result cuCtxPushCurrent_v2(cu_ctx ctx)
{
	ENTER(BY_NAME);
	if (!ctx || !context_lives(ctx))
		return CU_INVALID_CONTEXT;
	if (depth == STACK_MAX)
		stub_abort("%d contexts on the stack of a thread", STACK_MAX);
	stack[depth++] = ctx;
	return CU_OK;
}

/* Never fail on demand: the caller could not restore its stack. */
cu_result cuCtxPopCurrent_v2(cu_ctx *ret)
{
	ENTER(SURE);
	if (!depth)
		return CU_INVALID_CONTEXT;
	*ret = stack[--depth];
	return CU_OK;
}

/* Give the current context access to memory of another one, which lasts until the context ends. */
cu_result cuCtxEnablePeerAccess(cu_ctx other, unsigned flags)
{
	cu_result e = CU_OK;
	cu_ctx ctx;

	ENTER(IN_CTX);
	ctx = stub_current();
	if (flags)
		return CU_INVALID_VALUE;
	if (!other || !context_lives(other) || other->dev == ctx->dev)
		return CU_INVALID_CONTEXT;
	(void)pthread_mutex_lock(&stub.lock);
	if (!number("STUB_CUDA_PEERS", 1))
		e = CU_PEER_UNSUPPORTED;
	else if (ctx->reaches & 1u << other->dev)
		e = CU_PEER_ALREADY_ENABLED;
	else
		ctx->reaches |= 1u << other->dev;
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

cu_result cuCtxGetCurrent(cu_ctx *ret)
{
	ENTER(SURE);
	*ret = stub_current();
	return CU_OK;
}

cu_result cuCtxGetDevice(cu_device *ret)
{
	ENTER(IN_CTX | SURE);
	*ret = stub_current()->dev;
	return CU_OK;
}

cu_result cuCtxCreate_v2(cu_ctx *ret, unsigned flags, cu_device dev)
{
	struct CUctx_st *c;

	ENTER(UNSAFE);
	(void)flags;
	c = calloc(1, sizeof(*c));
	if (!c)
		return CU_OUT_OF_MEMORY;
	c->dev = dev;
	(void)pthread_mutex_lock(&stub.lock);
	c->id = ++stub.last_ctx_id;
	stub.count.contexts_made++;
	list_add_tail(&stub.contexts, &c->link);
	(void)pthread_mutex_unlock(&stub.lock);
	stack[depth++] = *ret = c;
	return CU_OK;
}

cu_result cuCtxDestroy_v2(cu_ctx ctx)
{
	ENTER(UNSAFE | ENDS);
	if (stub_current() == ctx)
		depth--;
	(void)pthread_mutex_lock(&stub.lock);
	stub_implicit_end(ctx);
	check_empty(ctx);
	list_del(&ctx->link);
	(void)pthread_mutex_unlock(&stub.lock);
	free(ctx);
	return stub_late();
}

cu_result cuThreadExchangeStreamCaptureMode(uint32_t *mode)
{
	uint32_t old = capture_mode;

	ENTER(SURE);
	if (*mode > CU_CAPTURE_RELAXED)
		return CU_INVALID_VALUE;
	capture_mode = *mode;
	*mode = old;
	return CU_OK;
}
