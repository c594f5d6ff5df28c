/* SPDX-License-Identifier: MIT */
/*
 * What the files of the stub share.  One lock, stub.lock, guards every table; it is not held
 * while a stream moves bytes.
 */
#ifndef PST_CUDA_STUB_INT_H
#define PST_CUDA_STUB_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/list.h"
#include "cuda_stub.h"

/* Every function of the list under its own name, checked against its signature there. */
#define SYM(name, args) cu_result name args;
#define OPT SYM
#include "base/vendor/cuda_syms.h"

/* And what only programs use. */
cu_result cuCtxCreate_v2(cu_ctx *ret, unsigned flags, cu_device dev);
cu_result cuCtxDestroy_v2(cu_ctx ctx);
cu_result cuCtxGetCurrent(cu_ctx *ret);
cu_result cuMemAllocManaged(cu_ptr *ret, size_t len, unsigned flags);
cu_result cuMemAllocAsync(cu_ptr *ret, size_t len, cu_stream st);
cu_result cuStreamBeginCapture_v2(cu_stream st, uint32_t mode);
cu_result cuStreamEndCapture(cu_stream st, void **ret_graph);

struct CUctx_st {
	struct list link;
	int dev;
	unsigned refs;
	bool primary;
	unsigned streams, events, modules, ranges, registrations; /* that live in it */
};

/* Bytes: a memfd and the mapping through which the stub reaches them. */
struct obj {
	unsigned refs;
	int fd;
	int dev;
	char *bytes;
	uint64_t size;
	uint32_t handle_types;
};

enum range_kind {
	RANGE_PLAIN,
	RANGE_IPC,
	RANGE_MAPPED,
	RANGE_MANAGED,
	RANGE_POOL,
};

/* Addresses with bytes behind them. */
struct range {
	struct list link;
	enum range_kind kind;
	cu_ptr va;
	uint64_t lead; /* bytes of the object before the first */
	uint64_t size, map_len;
	uint64_t id;
	int dev;
	cu_ctx ctx; /* NULL: of none */
	unsigned long long prot;
	struct obj *obj;
	char ipc[64];
};

struct registration {
	struct list link;
	char *host;
	uint64_t len;
	unsigned flags;
	cu_ctx ctx;
};

/* Registered host memory has another address for kernels, as on devices where
 * CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM is 0. */
#define HOST_BIT (UINT64_C(1) << 60)

extern struct stub {
	pthread_mutex_t lock;
	bool initialized;
	int nr_devices;
	unsigned delay_us;
	cu_result poison[STUB_DEVICES_MAX];
	struct CUctx_st primary[STUB_DEVICES_MAX];
	struct list contexts, ranges, registrations, handles, reservations, streams, events;
	uint64_t used[STUB_DEVICES_MAX];
	uint64_t last_id;
	unsigned captures; /* in global mode */
	bool capture_spoilt;
	struct stub_cuda_state count;
} stub;

/* What a call needs and where it is allowed. */
enum {
	IN_CTX = 1,    /* a current context */
	UNSAFE = 2,    /* not while somebody captures, unless the thread is relaxed */
	ANYTIME = 4,   /* before cuInit() too */
	ENDS = 8,      /* ends something: does so, and gives the injected error afterwards */
	SURE = 16,     /* never fails on demand */
	BY_NAME = 32,  /* fails on demand only when it is named */
};

/* At the start of every call, with the lock not held; the code to return at once. */
cu_result stub_enter(const char *name, unsigned flags);
/* For calls with ENDS: what to return. */
cu_result stub_late(void);

#define ENTER(flags)                                                                               \
	do {                                                                                       \
		cu_result _e = stub_enter(__func__, flags);                                        \
		if (_e != CU_OK)                                                                   \
			return _e;                                                                 \
	} while (0)

/* The caller broke a rule that a real driver does not check: end the process. */
__attribute__((noreturn, format(printf, 1, 2))) void stub_abort(const char *fmt, ...);

cu_ctx stub_current(void);

/* The lock is held. */
struct range *stub_range_at(cu_ptr ptr);
static inline char *stub_bytes(const struct range *r, cu_ptr ptr)
{
	return r->obj->bytes + r->lead + (ptr - r->va);
}
/* 1: inside one registration; 0: in none; -1: partly. */
int stub_registered(const void *host, uint64_t len, struct registration **ret);
void stub_obj_unref(struct obj *o);

/* Wait until nothing moves on a device. */
void stub_quiesce(int dev);

#endif
