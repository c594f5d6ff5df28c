/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of the stub.  One lock, stub.lock, guards every table; it is not held
 * while a stream moves bytes.
 */
#ifndef PST_CUDA_STUB_INT_H
#define PST_CUDA_STUB_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/list.h"
#include "cuda_stub.h"
#include "mem/mem.h"

/* Every function of the list under its own name, checked against its signature there. */
#define SYM(name, args) cu_result name args;
#define OPT SYM
#include "mem/cuda/cuda_syms.h"

/* And what only programs use. */
cu_result cuCtxCreate_v2(cu_ctx *ret, unsigned flags, cu_device dev);
cu_result cuCtxDestroy_v2(cu_ctx ctx);
cu_result cuDevicePrimaryCtxReset_v2(cu_device dev);
cu_result cuCtxGetCurrent(cu_ctx *ret);
cu_result cuCtxGetDevice(cu_device *ret);
cu_result cuMemAllocManaged(cu_ptr *ret, size_t len, unsigned flags);
cu_result cuMemAllocAsync(cu_ptr *ret, size_t len, cu_stream st);
cu_result cuStreamBeginCapture_v2(cu_stream st, uint32_t mode);
cu_result cuStreamEndCapture(cu_stream st, void **ret_graph);
cu_result cuStreamQuery(cu_stream st);
cu_result cuStreamCreateWithPriority(cu_stream *ret, unsigned flags, int priority);
cu_result cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest);
cu_result cuLaunchHostFunc(cu_stream st, void (*fn)(void *), void *arg);
cu_result cuMemsetD8Async(cu_ptr dst, unsigned char value, size_t len, cu_stream st);

struct CUctx_st {
	struct list link;
	int dev;
	unsigned refs;
	bool primary;
	bool gone;        /* a reset has ended it; the next one has the same handle */
	unsigned reaches; /* a bit for each other device */
	unsigned long long id;
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
	bool sync_memops; /* CU_PTR_SYNC_MEMOPS */
};

struct registration {
	struct list link;
	char *host;
	uint64_t len;
	unsigned flags;
	cu_ctx ctx;
	bool words; /* streams wait for words in it: it may last as long as its context */
};

enum op_kind {
	OP_COPY,
	OP_KERNEL,
	OP_SET,
	OP_EVENT,
	OP_WAIT,       /* until a word has a value */
	OP_WRITE,      /* a word gets a value */
	OP_EVENT_WAIT, /* until a stream has come to an event */
	OP_AFTER,      /* until another stream has come so far */
	OP_CALL,       /* a function of the program */
};

struct op {
	struct list link;
	enum op_kind kind;
	char *dst;
	const char *src;
	uint64_t len;
	struct obj *obj;  /* held */
	struct obj *from; /* of a copy between two allocations: the source, held; else NULL */
	char *snapshot;   /* of host memory that is not registered */
	struct mem_sgl lists[MEM_SGLS];
	unsigned nr_lists;
	cu_ptr remainders; /* of the kernel for checksums, whose tiles are the first list; else 0 */
	bool fed;          /* the first list is where a struct cuda_fed says when the kernel runs */
	struct CUevent_st *event;
	struct CUstream_st *after; /* held */
	uint64_t seq;
	_Atomic uint32_t *word;
	uint32_t value;
	void (*fn)(void *);
	void *arg;
};

struct CUstream_st {
	struct list link;
	cu_ctx ctx;
	unsigned refs;
	unsigned flags;   /* CU_NON_BLOCKING */
	cu_stream handle; /* CU_LEGACY, CU_PER_THREAD, or NULL for one that was made */
	pthread_t owner;  /* of one per thread */
	pthread_t thread;
	pthread_cond_t work, idle; /* with stub.lock */
	struct list ops;
	uint64_t queued, done; /* operations */
	bool busy, stop;
	bool capturing;
	unsigned nodes; /* of the graph that is captured */
};

/* Registered host memory has another address for kernels, as on devices where
 * CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM is 0. */
#define HOST_BIT (UINT64_C(1) << 60)

extern struct stub {
	pthread_mutex_t lock;
	bool initialized;
	int nr_devices;
	unsigned delay_us, register_us;
	bool hold, hold_sums;
	pthread_cond_t let_go; /* one of hold, hold_sums has ended */
	unsigned lose_to, lose_from;
	cu_result poison[STUB_DEVICES_MAX];
	struct CUctx_st primary[STUB_DEVICES_MAX];
	struct list contexts, ranges, registrations, handles, reservations, streams, events;
	uint64_t used[STUB_DEVICES_MAX];
	uint64_t last_id, last_ctx_id;
	unsigned captures; /* in global mode */
	bool capture_spoilt;
	bool quiescing;          /* a call waits for streams, */
	pthread_cond_t quiesced; /* and others for its end */
	struct stub_cuda_state count;
} stub;

/* The needs of a call, and the places where it is allowed. */
enum {
	IN_CTX = 1,   /* a current context */
	UNSAFE = 2,   /* not while somebody captures, unless the thread is relaxed */
	ANYTIME = 4,  /* before cuInit() too */
	ENDS = 8,     /* ends something: does so, and gives the injected error afterwards */
	SURE = 16,    /* never fails on demand */
	BY_NAME = 32, /* fails on demand only when it is named */
};

/* At the start of every call, with the lock not held; the code to return at once. */
cu_result stub_enter(const char *name, unsigned flags);
/* For calls with ENDS: what to return. */
cu_result stub_late(void);

/* Do not return while stub_cuda_stall() names this. */
void stub_stall_at(const char *name);

#define ENTER(flags)                                        \
	do {                                                \
		cu_result _e = stub_enter(__func__, flags); \
		if (_e != CU_OK)                            \
			return _e;                          \
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

/* Wait until nothing moves on a device.  All other calls wait for that, too. */
void stub_quiesce(int dev);
/* In a context; the lock is held. */
void stub_wait_ctx(cu_ctx ctx);

/* The lock is held.  The stream of a handle, which may be one that nobody made; NULL without a
 * context for it. */
struct CUstream_st *stub_stream(cu_stream handle);
/*
 * The same for a call that gives the stream something to do.  *ret is NULL where it goes into a
 * graph that is captured and not to the stream.
 */
cu_result stub_use(cu_stream handle, struct CUstream_st **ret);
void stub_queue(struct CUstream_st *st, struct op op);
void stub_append(struct CUstream_st *st, struct op op);
void stub_wait_idle(struct CUstream_st *st);
struct CUstream_st *stub_stream_new(cu_ctx ctx, unsigned flags);
/* Waits for what it has to do; drops the lock meanwhile. */
void stub_stream_end(struct CUstream_st *st);
/* Until a word is what the stream waits for; drops the lock meanwhile. */
void stub_wait_word(struct CUstream_st *st, const struct op *op);
/* A moment without the lock. */
void stub_nap(void);
void stub_write_word(struct CUstream_st *st, const struct op *op);
/* How many streams programs have made and not ended. */
unsigned stub_streams_made(void);
/* A context ends, and with it what nobody made or ended; drops the lock meanwhile. */
void stub_implicit_end(cu_ctx ctx);
/* A reset ends it, and all that is in it; the lock is held, and dropped meanwhile. */
void stub_reset_streams(cu_ctx ctx);
void stub_reset_handles(cu_ctx ctx);
void stub_reset_memory(cu_ctx ctx);

/* libcuda_mem.c's */
struct obj *stub_obj_new(int fd, int dev, uint64_t size, uint32_t types);
int stub_bytes_new(const char *kind, int dev, uint32_t types, uint64_t size);
bool stub_name_of(const char *path, const char *format, int *dev, unsigned *types);
void stub_range_free(struct range *r);

#endif
