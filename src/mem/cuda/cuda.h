/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the CUDA provider share.
 *
 *	cuda.c		the driver, devices, contexts, errors, the table of operations
 *	alloc.c	allocations and wraps, and the numbers that tell them apart
 *	part.c	handles of parts of an allocation, and scratch memory like it
 *	share.c	grants and dma-bufs
 *	pin.c	host memory registered with the driver
 *	copy.c	streams
 *	kernel.c	device kernels, as text that the driver compiles
 *	gather.c	the one for many small pieces, and its lists
 *	sum.c		the one for checksums
 *	late.c	what ends when no stream waits for a read
 *	facts.c	what a device is, in words
 *	order.c	order with the program's streams and other work
 *	feed.c		copies on the program's streams
 *
 * Every entry leaves the calling thread as it found it: the stack of contexts, and the
 * mode that says what is forbidden while somebody captures a graph.  struct cuda_scope
 * does that.  Contexts are the devices' primary ones, which the runtime API and so all
 * big frameworks use; one is held while something of ours lives in it and no longer.
 */
#ifndef PST_MEM_CUDA_H
#define PST_MEM_CUDA_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/list.h"
#include "mem/cuda/cuda_types.h"
#include "mem/mem.h"

struct cuda_api {
#define SYM(name, args) cu_result(*name) args;
#define OPT SYM
#include "mem/cuda/cuda_syms.h"
};

/* Filled by load(), constant afterwards. */
extern struct cuda_api cu;

enum cuda_kernel_state {
	KERNEL_UNKNOWN, /* not tried in this life of the context */
	KERNEL_READY,
	KERNEL_CANNOT,
};

/* A device kernel; kernel.c. */
struct cuda_kernel {
	const char *ptx;     /* its text; fixed */
	const char *name;    /* its name in the text; fixed */
	const char *without; /* what the lack of it means, for the log; fixed */
	enum cuda_kernel_state state;
	cu_module module;
	cu_func fn;        /* NULL: it is not started any more, but others may be running it */
	_Atomic bool none; /* the device cannot run it */
};

struct cuda_dev {
	unsigned idx;
	cu_device dev;
	struct pst_device info;
	bool read_only_register; /* CU_DEV_READ_ONLY_REGISTER */
	_Atomic cu_result lost;  /* the error that spoiled its context for good, or 0 */
	_Atomic uint64_t life;   /* of its context: each reset that we see begins another one */

	pthread_mutex_t lock; /* what follows */
	unsigned users;
	cu_ctx ctx;                /* retained while there are users */
	unsigned long long ctx_id; /* its number, or the last one's; 0 unknown */
	bool reset;                /* what ctx was is gone, and it was not retained since */
	struct cuda_order *orders; /* free ones, which have an event of the context */
	struct cuda_feed *feeds;   /* given back; streams may still run their copies */
	_Atomic bool no_feeds;     /* it has no stream memory operations */

	pthread_mutex_t feed_lock; /* mem_feed.lock; taken before all others of this provider */

	/*
	 * The members below belong to a held context.  The driver may compile for seconds under
	 * this lock; only threads that want a kernel take it.
	 */
	pthread_mutex_t kernel_lock;
	struct cuda_kernel gather, sum;

	atomic_uint nr_starting;  /* threads that start copies now, or wait for the driver to; */
#define CUDA_LET_NS NSEC_PER_MSEC /* allocations wait for them no longer */
};

/* The driver is initialized and has devices: 0, or -ENODEV with a sentence. */
int cuda_ready(void);

unsigned cuda_nr_devices(void);
struct cuda_dev *cuda_device(unsigned idx);

/* An attribute of the device; false where this driver does not know it. */
bool cuda_attribute(const struct cuda_dev *d, uint32_t attr, int *ret);

/* Hold the device's primary context; it may be made by this.  *ret_life: which one it is. */
int cuda_hold(struct cuda_dev *d, cu_ctx *ret, uint64_t *ret_life);
/*
 * Hold the context of one life, as cuda_hold() does.  Return -ENODEV if the context was reset
 * since.
 */
int cuda_hold_life(struct cuda_dev *d, uint64_t life, cu_ctx *ret);
void cuda_drop(struct cuda_dev *d);
/* Return true if the device has a primary context now, whoever holds it. */
bool cuda_has_context(const struct cuda_dev *d);

/*
 * cudaDeviceReset() ends the primary context under those who hold it, and the next one has the same
 * handle.  What was made in an earlier life of the context is gone, and the driver may crash on it.
 *
 * cuda_check_life() is 0, or -ENODEV with a sentence where a reset was seen since.  cuda_lives()
 * asks the driver, for those who hold the context: before something is ended.
 */
int cuda_check_life(struct cuda_dev *d, uint64_t life);
bool cuda_lives(struct cuda_dev *d, uint64_t life);

/* A context made current for a while, with nothing forbidden by others' captures. */
struct cuda_scope {
	bool relaxed, pushed;
	uint32_t mode; /* the thread's own */
};

#define CUDA_SCOPE(name) _cleanup_(cuda_leave) struct cuda_scope name = { 0 }

/* Fails at once where the device is lost. */
int cuda_enter(struct cuda_scope *s, struct cuda_dev *d, cu_ctx ctx);
/* For ending things: also where the device is lost, as far as it goes. */
void cuda_enter_anyway(struct cuda_scope *s, cu_ctx ctx);
void cuda_leave(struct cuda_scope *s);

/*
 * The sentence and the errno for a driver's error.  The format says what could not be
 * done: "allocate %d bytes".  Errors that spoil the context mark the device as lost.
 */
int cuda_err(struct cuda_dev *d, cu_result err, const char *fmt, ...) _printf_(3, 4);

/* An error while ending something, which nobody can do anything about. */
void cuda_ignore(struct cuda_dev *d, cu_result err, const char *what);

/* "CUDA_ERROR_OUT_OF_MEMORY" */
const char *cuda_err_name(cu_result err);

/* -EIO with the sentence of a device that is lost, else 0. */
int cuda_check_lost(struct cuda_dev *d);

/* ------------------------------------------------------------- allocations */

/*
 * The driver numbers its allocations; grants and regions need numbers that are unique
 * across all kinds of memory.  So each of the driver's has one of ours while somebody holds
 * it, shared by all wraps of the same allocation.
 */
struct cuda_id {
	struct list link;
	unsigned refs;
	uint64_t driver_id;          /* CU_PTR_BUFFER_ID; of several chunks: mixed */
	uint64_t key_base, key_size; /* 0 but for mapped memory, see id_get() */
	uint64_t base, size;
	uint64_t id; /* mem_buffer_id() */
};

enum cuda_how {
	CUDA_OWNED,
	CUDA_WRAPPED,
	CUDA_IPC,    /* opened by a 64-byte handle */
	CUDA_MAPPED, /* imported by descriptor and mapped here */
};

struct cuda_ipc_map;

struct cuda_alloc {
	struct mem_alloc a;
	struct cuda_dev *d;
	cu_ctx ctx; /* the primary one; held */
	enum cuda_how how;
	bool vmm;           /* memory of cuMemCreate */
	bool foreign;       /* of a context that is not the primary one */
	unsigned chunks;    /* of cuMemCreate that the range consists of */
	uint64_t first_id;  /* the driver's number of what lies at base; 0 unknown; not of IPC */
	struct cuda_id *id; /* NULL for imports */
	struct cuda_ipc_map *ipc;
	int fd;           /* what an import was opened by, to hand it on; -1 */
	uint64_t map_len; /* CUDA_MAPPED */
	struct mem_late late;
};

static inline struct cuda_alloc *cuda_alloc_of(const struct mem_alloc *a)
{
	return container_of((struct mem_alloc *)(uintptr_t)a, struct cuda_alloc, a);
}

/* An empty description that holds the device's context; freed by cuda_alloc_freep(). */
int cuda_alloc_new(struct cuda_dev *d, enum cuda_how how, struct cuda_alloc **ret);
void cuda_alloc_free(struct cuda_alloc *c);
void cuda_alloc_freep(struct cuda_alloc **c);

/* Is it still the same allocation?  0; -EFAULT, or -ENODEV after a reset, with a sentence. */
int cuda_alive(const struct cuda_alloc *c);

/* The memory lives, and the context is current that it belongs to. */
int cuda_enter_of(struct cuda_scope *s, struct cuda_alloc *c);
int cuda_within(const struct mem_alloc *a, int (*fn)(void *arg), void *arg);

bool cuda_owns(uint64_t addr, uint64_t len);
int cuda_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret);
int cuda_wrap(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret);
void cuda_free(struct mem_alloc *a);

/*
 * Map len bytes of what a handle names, which the mapping keeps, at addresses of our own: the
 * base of an allocation that is CUDA_MAPPED.  rights: PST_RIGHT_*.  -EINVAL where the
 * handle has fewer bytes or len is no multiple of the driver's pages.
 */
int cuda_map(struct cuda_alloc *c, cu_handle handle, uint64_t len, uint32_t rights);

/* -------------------------------------------------------------------- part */

int cuda_export_part(const struct mem_alloc *a, uint64_t off, struct mem_part *ret);
int cuda_alloc_like(const struct mem_alloc *a, uint64_t len, struct mem_alloc **ret);
uint32_t cuda_alloc_class(const struct mem_alloc *a);

/* ------------------------------------------------------------------- share */

/* The handle of plain memory.  -EOPNOTSUPP for memory that has none. */
int cuda_export_ipc(struct cuda_alloc *c, uint8_t ret_ipc[64]);
/* A new descriptor of the chunk of mapped memory at an address.  -EOPNOTSUPP as above. */
int cuda_export_fd(struct cuda_alloc *c, uint64_t va, int *ret_fd);

int cuda_import(const struct pst_grant *grant, struct mem_alloc **ret);
int cuda_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret);
int cuda_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
		       struct mem_dmabuf *ret);
/* A context is current, or lives is false: the memory went with its context. */
void cuda_ipc_close(struct cuda_alloc *c, bool lives);

/* -------------------------------------------------------------------- late */

/* run() of l, at once or later: not while a stream waits for a read. */
void cuda_late(struct mem_late *l);
/* True: call what waits for streams, then cuda_now_end().  False: a stream waits, or soon does.
 * Waits for nobody, so under any lock. */
bool cuda_now_begin(void);
void cuda_now_end(void);
/* A stream is about to wait; this waits for calls that streams keep waiting, and until then for
 * what is put off.  Returns its number. */
uint64_t cuda_barrier_begin(uint64_t until);
void cuda_barrier_end(uint64_t nr);

/* --------------------------------------------------------------------- pin */

int cuda_pin(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len);
/*
 * Pin as cuda_pin() does, for a thread that serves reads: return -EAGAIN at once while the driver
 * pins or unpins pages of a file, since it may handle one piece at a time.
 */
int cuda_pin_now(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len);
int cuda_pin_file(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len);
void cuda_unpin(unsigned device, void *host, uint64_t len);

/*
 * How much of host..host+len lies in one registration, and through which address kernels
 * reach it, for the given direction of a copy (0: not at all).  0 bytes: the first is not
 * registered by us, and *ret_len says how many are not.
 */
uint64_t cuda_pin_find(const void *host, uint64_t len, enum mem_dir dir, cu_ptr *ret_dev,
		       uint64_t *ret_len);
/* Hold registrations for several look-ups in a row: none comes or goes until cuda_pins_drop(). */
void cuda_pins_hold(void);
void cuda_pins_drop(void);
uint64_t cuda_pin_find_held(const void *host, uint64_t len, enum mem_dir dir, cu_ptr *ret_dev,
			    uint64_t *ret_len);
/* The device was reset, its lock is held: forget what was registered in its context.  Returns how
 * many held it for that. */
unsigned cuda_pins_forget(struct cuda_dev *d);

/* ----------------------------------------------------------------- streams */

int cuda_stream_new(unsigned device, struct mem_stream **ret);
void cuda_stream_free(struct mem_stream *base);
int cuda_copy(struct mem_stream *base, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
	      uint64_t *ret_ticket);
int cuda_sgl_write(unsigned device, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
		   void *room, struct mem_sgl *ret);
int cuda_sgl_copy(struct mem_stream *base, const struct mem_sgl *v, unsigned nr,
		  uint64_t *ret_ticket);
int cuda_poll(struct mem_stream *base, uint64_t ticket);
uint32_t cuda_copied_by(const struct mem_stream *base);

/* ------------------------------------------------------------------- order */

int cuda_order_check(unsigned device, void *stream);
int cuda_order_new(unsigned device, void *stream, struct mem_order **ret);
int cuda_order_poll(struct mem_order *base);
void cuda_order_free(struct mem_order *base);
int cuda_sync(const struct mem_alloc *a);
/* The device's context, which is current, may end; none is in use, the lock is held. */
void cuda_orders_let_go(struct cuda_dev *d);
/* Forget the orders of a context that a reset has ended; the lock is held. */
void cuda_orders_forget(struct cuda_dev *d);
/* Make the stream's context current, and see that it can be ordered with: 0; -EBUSY while it is
 * captured; -EINVAL. */
int cuda_stream_enter(struct cuda_scope *s, struct cuda_dev *d, cu_stream st, cu_ctx *ret_ctx);

/* -------------------------------------------------------------------- feed */

int cuda_feed_check(const struct mem_alloc *a, void *stream);
int cuda_feed_new(const struct mem_alloc *a, void *stream, unsigned max_tiles, uint64_t until,
		  struct mem_feed **ret);
int cuda_feed_put(struct mem_feed *base);
int cuda_feed_seal(struct mem_feed *base);
int cuda_feed_list(const struct mem_feed *base, const struct mem_copy *v, unsigned nr, void *room,
		   struct mem_sgl *ret);
uint64_t cuda_feed_send(struct mem_feed *base, const struct mem_sgl *list);
void cuda_feed_end(struct mem_feed *base);
int cuda_feed_poll(const struct mem_feed *base, uint64_t nr);
void cuda_feed_check_lost(struct mem_feed *base);
void cuda_feed_free(struct mem_feed *base);
/* The counterparts of cuda_orders_let_go() and cuda_orders_forget() for feeds. */
void cuda_feeds_let_go(struct cuda_dev *d);
void cuda_feeds_forget(struct cuda_dev *d);

/* ----------------------------------------------------------------- kernels */

void cuda_kernels_init(struct cuda_dev *d);
/* The function of a kernel, which is loaded by this; NULL where the device does not run it, and not
 * again in this life of the context.  The device's context is current. */
cu_func cuda_kernel(struct cuda_dev *d, struct cuda_kernel *k);
/* A launch failed: it is not started any more. */
void cuda_kernel_fails(struct cuda_dev *d, struct cuda_kernel *k, cu_result err);
/* Is one loaded?  The last user of the context is gone, or the lock is held. */
bool cuda_kernels_any(const struct cuda_dev *d);
/* The device's context ends; current: it is there, and current. */
void cuda_kernels_end(struct cuda_dev *d, bool current);

/* --------------------------------------------------------------------- sum */

int cuda_sums_new(unsigned device, struct mem_sums **ret);
void cuda_sums_free(struct mem_sums *base);
int cuda_sums_start(struct mem_sums *base, const struct mem_range *v, unsigned nr);
int cuda_sums_poll(struct mem_sums *base, uint32_t *ret);

/* ------------------------------------------------------------------ gather */

/* One tile for the kernel: at most CUDA_TILE bytes, moved by one block of threads. */
struct cuda_tile {
	uint64_t dst, src, len, reserved;
};

#define CUDA_TILE KIB(16)

/* Where the kernel finds a list that is written after the launch. */
struct cuda_fed {
	uint64_t tiles; /* their address for the device */
	uint32_t nr, reserved;
};

/* The tiles of copies, written from *at on; false where no kernel reaches one of their pieces, or
 * they would pass end. */
bool cuda_tiles_put(enum mem_dir dir, const struct mem_copy *v, unsigned nr, struct cuda_tile **at,
		    const struct cuda_tile *end);

/*
 * Have the kernel move the tiles of nr <= MEM_SGLS lists; the device's context is current.  0;
 * -EOPNOTSUPP where the device does not run it, and not again in this life of the context;
 * another -errno when the device is lost.
 */
int cuda_gather(struct cuda_dev *d, const struct mem_sgl *v, unsigned nr, cu_stream st);
/* Does the device run the kernel?  Loads it; the device's context is current. */
bool cuda_has_gather(struct cuda_dev *d);
/* Launch it for one list of at most max_tiles, which the struct cuda_fed at an address names when
 * the kernel runs. */
cu_result cuda_gather_fed(struct cuda_dev *d, cu_ptr list, unsigned max_tiles, cu_stream st);

/* ------------------------------------------------------------------- facts */

void cuda_device_text(unsigned idx, struct facts *f);
uint64_t cuda_aperture(unsigned device);

/* Its parts that read files; facts that these do not tell are "unknown", and 0 as a size. */
void cuda_driver_version(const char *sys, const char *proc, char *ret, size_t len);
const char *cuda_module_kind(const char *proc, const char *taint);
uint64_t cuda_bar_size(const char *resource);

#endif
