/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the libcuda stub share.  One lock, stub.lock, guards all
 * tables; streams drop it while they copy bytes.
 */
#ifndef PST_CUDA_STUB_INT_H
#define PST_CUDA_STUB_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/list.h"
#include "cuda_stub.h"
#include "mem/mem.h"

/* Declare every function of the library's symbol list, to check the definitions against it. */
#define SYM(name, args) cu_result name args;
#define OPT SYM
#include "mem/cuda/cuda_syms.h"

/* Functions that only programs call, not the library. */
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
	bool gone;        /* a reset has ended the context; the next one has the same handle */
	unsigned reaches; /* peer access: a bit for each other device */
	unsigned long long id;
	unsigned streams, events, modules, ranges, registrations; /* live objects in it */
};

/* Backing memory: a memfd and the stub's mapping of it. */
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

/* Device addresses backed by an object. */
struct range {
	struct list link;
	enum range_kind kind;
	cu_ptr va;
	uint64_t lead; /* offset of the range in the object, bytes */
	uint64_t size, map_len;
	uint64_t id;
	int dev;
	cu_ctx ctx; /* context of the range; NULL: none */
	unsigned long long prot;
	struct obj *obj;
	char ipc[64];
	bool sync_memops; /* CU_PTR_SYNC_MEMOPS is set */
};

struct registration {
	struct list link;
	char *host;
	uint64_t len;
	unsigned flags;
	cu_ctx ctx;
	/* contains words that streams wait for; may stay registered until the context ends */
	bool words;
};

enum op_kind {
	OP_COPY,
	OP_KERNEL,
	OP_SET,
	OP_EVENT,
	OP_WAIT,       /* wait until a word reaches a value */
	OP_WRITE,      /* set a word to a value */
	OP_EVENT_WAIT, /* wait until an event has occurred */
	OP_AFTER,      /* wait until another stream has done seq operations */
	OP_CALL,       /* call a function of the program */
};

struct op {
	struct list link;
	enum op_kind kind;
	char *dst;
	const char *src;
	uint64_t len;
	struct obj *obj;  /* memory of the operation, with a reference */
	struct obj *from; /* source of a device-to-device copy, with a reference; else NULL */
	char *snapshot;   /* copy of host memory that was not registered */
	struct mem_sgl lists[MEM_SGLS];
	unsigned nr_lists;
	cu_ptr remainders; /* checksum kernel: results for the tiles of lists[0]; else 0 */
	bool fed;          /* lists[0] is the address of a struct cuda_fed, read by the kernel */
	struct CUevent_st *event;
	struct CUstream_st *after; /* stream to wait for, with a reference */
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
	unsigned flags;   /* 0 or CU_NON_BLOCKING */
	cu_stream handle; /* CU_LEGACY, CU_PER_THREAD; NULL: an explicit stream */
	pthread_t owner;  /* thread of a per-thread stream */
	pthread_t thread;
	pthread_cond_t work, idle; /* used with stub.lock */
	struct list ops;
	uint64_t queued, done; /* operations queued and done */
	bool busy, stop;
	bool capturing;
	unsigned nodes; /* nodes of the captured graph */
};

/* Kernels see registered host memory at another address than the CPU, as on devices where
 * CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM is 0. */
#define HOST_BIT (UINT64_C(1) << 60)

extern struct stub {
	pthread_mutex_t lock;
	bool initialized;
	int nr_devices;
	unsigned delay_us, register_us;
	bool hold, hold_sums;
	pthread_cond_t let_go; /* signaled when hold or hold_sums ends */
	unsigned lose_to, lose_from;
	cu_result poison[STUB_DEVICES_MAX];
	struct CUctx_st primary[STUB_DEVICES_MAX];
	struct list contexts, ranges, registrations, handles, reservations, streams, events;
	uint64_t used[STUB_DEVICES_MAX];
	uint64_t last_id, last_ctx_id;
	unsigned captures; /* captures in global mode */
	bool capture_spoilt;
	bool quiescing;          /* a call waits for all streams of a device */
	pthread_cond_t quiesced; /* signaled when quiescing ends */
	struct stub_cuda_state count;
} stub;

/* Flags of a call: its preconditions and its failures on demand. */
enum {
	IN_CTX = 1,   /* needs a current context */
	UNSAFE = 2,   /* fails during a capture, unless the thread is in relaxed mode */
	ANYTIME = 4,  /* allowed before cuInit() */
	ENDS = 8,     /* frees something: always does so, then returns the injected error */
	SURE = 16,    /* never fails on demand */
	BY_NAME = 32, /* fails on demand by its name, not by "*" */
};

/* Check the call's preconditions and injected errors.  Return the code that the call has to
 * return at once, or CU_OK.  Call it without the lock. */
cu_result stub_enter(const char *name, unsigned flags);
/* Return the result of a call that frees something (ENDS). */
cu_result stub_late(void);

/* Block while stub_cuda_stall() names @name. */
void stub_stall_at(const char *name);

#define ENTER(flags)                                        \
	do {                                                \
		cu_result _e = stub_enter(__func__, flags); \
		if (_e != CU_OK)                            \
			return _e;                          \
	} while (0)

/* End the process: the caller broke a rule that a real driver does not check. */
__attribute__((noreturn, format(printf, 1, 2))) void stub_abort(const char *fmt, ...);

cu_ctx stub_current(void);

/* Return the range that contains ptr, or NULL. Call it with the lock held. */
struct range *stub_range_at(cu_ptr ptr);
static inline char *stub_bytes(const struct range *r, cu_ptr ptr)
{
	return r->obj->bytes + r->lead + (ptr - r->va);
}
/* Return 1 if the bytes lie inside one registration, 0 if in none, -1 if partly in one. */
int stub_registered(const void *host, uint64_t len, struct registration **ret);
void stub_obj_unref(struct obj *o);

/* Wait until all streams of a device are idle; all other calls block until then. */
void stub_quiesce(int dev);
/* Wait until all streams of a context are idle.  Call it with the lock held. */
void stub_wait_ctx(cu_ctx ctx);

/* Return the stream of a handle, which may name an implicit stream; NULL: no context for it.
 * Call it with the lock held. */
struct CUstream_st *stub_stream(cu_stream handle);
/*
 * Like stub_stream(), for a call that queues an operation.  *ret is NULL if the stream is being
 * captured: then the operation becomes a node of the graph instead.
 */
cu_result stub_use(cu_stream handle, struct CUstream_st **ret);
void stub_queue(struct CUstream_st *st, struct op op);
void stub_append(struct CUstream_st *st, struct op op);
void stub_wait_idle(struct CUstream_st *st);
struct CUstream_st *stub_stream_new(cu_ctx ctx, unsigned flags);
/* End a stream after its queued operations; drops the lock while it waits. */
void stub_stream_end(struct CUstream_st *st);
/* Wait until a word reaches the operation's value; drops the lock while it waits. */
void stub_wait_word(struct CUstream_st *st, const struct op *op);
/* Sleep for 20 us without the lock. */
void stub_nap(void);
void stub_write_word(struct CUstream_st *st, const struct op *op);
/* Return the number of live explicit streams. */
unsigned stub_streams_made(void);
/* End the implicit streams of an ending context and its registrations with words; drops the lock
 * while it waits. */
void stub_implicit_end(cu_ctx ctx);
/* End all objects of a context that a reset ends.  Call them with the lock held; they drop it
 * while they wait. */
void stub_reset_streams(cu_ctx ctx);
void stub_reset_handles(cu_ctx ctx);
void stub_reset_memory(cu_ctx ctx);

/* Defined in libcuda_mem.c. */
struct obj *stub_obj_new(int fd, int dev, uint64_t size, uint32_t types);
int stub_bytes_new(const char *kind, int dev, uint32_t types, uint64_t size);
bool stub_name_of(const char *path, const char *format, int *dev, unsigned *types);
void stub_range_free(struct range *r);

#endif
