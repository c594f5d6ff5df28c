/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the CUDA provider share.
 *
 *	cuda.c		driver, devices, contexts, errors, the table of operations
 *	alloc.c	allocations and wraps, and their numbers
 *	part.c	handles of parts of an allocation, and scratch memory of the same class
 *	share.c	grants and dma-bufs
 *	pin.c	host memory registered with the driver
 *	copy.c	streams
 *	kernel.c	device kernels, as text that the driver compiles
 *	gather.c	the kernel for many small pieces, and its lists
 *	sum.c		the kernel for checksums
 *	late.c	calls that must not run while a stream waits for a read
 *	facts.c	description of a device, in words
 *	order.c	order with the program's streams and other work
 *	feed.c		copies on the program's streams
 *
 * Every entry restores the calling thread's stack of contexts, and the mode that restricts calls
 * while a graph is captured: see struct cuda_scope.  Contexts are the devices' primary ones, which
 * the runtime API uses, and so do all big frameworks.  A primary context is retained only while an
 * object of the library lives in it.
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

/* Set by cuda_load(), constant afterwards. */
extern struct cuda_api cu;

enum cuda_kernel_state {
	KERNEL_UNKNOWN, /* not loaded in this life of the context */
	KERNEL_READY,
	KERNEL_CANNOT,
};

/* A device kernel; kernel.c. */
struct cuda_kernel {
	const char *ptx;     /* PTX text; fixed */
	const char *name;    /* name of the function in the text; fixed */
	const char *without; /* what happens without the kernel, for the log; fixed */
	enum cuda_kernel_state state;
	cu_module module;
	cu_func fn;        /* NULL: do not launch the kernel any more; earlier launches may run */
	_Atomic bool none; /* the device cannot run the kernel */
};

struct cuda_dev {
	unsigned idx;
	cu_device dev;
	struct pst_device info;
	bool read_only_register; /* CU_DEV_READ_ONLY_REGISTER */
	_Atomic cu_result lost;  /* error that made the context unusable, or CU_OK */
	_Atomic uint64_t life;   /* number of the context's life: incremented at each reset that is
				  * noticed */

	pthread_mutex_t lock; /* covers the members below */
	unsigned users;
	cu_ctx ctx;                /* retained while there are users */
	unsigned long long ctx_id; /* number of ctx, or of the last context; 0: unknown */
	bool reset;                /* ctx was reset, and not retained again since */
	struct cuda_order *orders; /* free orders, which have an event of the context */
	struct cuda_feed *feeds;   /* free feeds, whose copies streams may still run */
	_Atomic bool no_feeds;     /* the device has no stream memory operations */

	pthread_mutex_t feed_lock; /* mem_feed.lock; taken before all other locks of this
				    * provider */

	/*
	 * Covers the kernels, which belong to a retained context.  The driver may compile for
	 * seconds under this lock, but only threads that want a kernel take it.
	 */
	pthread_mutex_t kernel_lock;
	struct cuda_kernel gather, sum;

	atomic_uint nr_starting;  /* threads that start copies, or wait for the driver to do so */
#define CUDA_LET_NS NSEC_PER_MSEC /* longest time that allocations wait for nr_starting */
};

/* Initialize the driver.  Return 0, or -ENODEV with a sentence if there is no driver or no
 * device. */
int cuda_ready(void);

unsigned cuda_nr_devices(void);
struct cuda_dev *cuda_device(unsigned idx);

/* Get an attribute of the device.  Return false if the driver does not know the attribute. */
bool cuda_attribute(const struct cuda_dev *d, uint32_t attr, int *ret);

/* Retain the device's primary context; this may create the context.  Set *ret_life to the number of
 * the context's life. */
int cuda_hold(struct cuda_dev *d, cu_ctx *ret, uint64_t *ret_life);
/* cuda_hold() for one life of the context.  Return -ENODEV if the context was reset since. */
int cuda_hold_life(struct cuda_dev *d, uint64_t life, cu_ctx *ret);
void cuda_drop(struct cuda_dev *d);
/* Return true if the device has an active primary context, in the library or in the program. */
bool cuda_has_context(const struct cuda_dev *d);

/*
 * cudaDeviceReset() ends the primary context although others retain it, and the next context has
 * the same handle.  Objects of an earlier life are gone, and the driver may crash if they are used.
 *
 * cuda_check_life() returns 0, or -ENODEV with a sentence if a reset was noticed since.
 * cuda_lives() also asks the driver; the caller must have retained the context.  Call it before an
 * object is destroyed.
 */
int cuda_check_life(struct cuda_dev *d, uint64_t life);
bool cuda_lives(struct cuda_dev *d, uint64_t life);

/* Makes a context current for a while, and lifts restrictions by graph captures of other
 * threads. */
struct cuda_scope {
	bool relaxed, pushed;
	uint32_t mode; /* the thread's own capture mode */
};

#define CUDA_SCOPE(name) _cleanup_(cuda_leave) struct cuda_scope name = { 0 }

/* Make ctx current.  Fails at once if the device is lost. */
int cuda_enter(struct cuda_scope *s, struct cuda_dev *d, cu_ctx ctx);
/* Make ctx current to destroy objects, even if the device is lost.  Failures are ignored. */
void cuda_enter_anyway(struct cuda_scope *s, cu_ctx ctx);
void cuda_leave(struct cuda_scope *s);

/*
 * Set the sentence for a driver's error, and return its -errno.  The format says what could not be
 * done: "allocate %d bytes".  Errors that make the context unusable mark the device as lost.
 */
int cuda_err(struct cuda_dev *d, cu_result err, const char *fmt, ...) _printf_(3, 4);

/* Log an error that happened while an object was destroyed, and ignore it. */
void cuda_ignore(struct cuda_dev *d, cu_result err, const char *what);

/* Return a name such as "CUDA_ERROR_OUT_OF_MEMORY". */
const char *cuda_err_name(cu_result err);

/* Return -EIO with a sentence if the device is lost, else 0. */
int cuda_check_lost(struct cuda_dev *d);

/* ------------------------------------------------------------- allocations */

/*
 * The driver numbers its allocations, but grants and regions need numbers that are unique across
 * all kinds of memory.  So each of the driver's allocations has a number of the library while it is
 * referenced, shared by all wraps of the allocation.
 */
struct cuda_id {
	struct list link;
	unsigned refs;
	uint64_t driver_id; /* CU_PTR_BUFFER_ID; for several chunks, a mix of their numbers */
	uint64_t key_base, key_size; /* 0 except for mapped memory, see id_get() */
	uint64_t base, size;
	uint64_t id; /* number from mem_buffer_id() */
};

enum cuda_how {
	CUDA_OWNED,
	CUDA_WRAPPED,
	CUDA_IPC,    /* imported by a 64-byte handle */
	CUDA_MAPPED, /* imported by a descriptor, and mapped */
};

struct cuda_ipc_map;

struct cuda_alloc {
	struct mem_alloc a;
	struct cuda_dev *d;
	cu_ctx ctx; /* the primary context, retained */
	enum cuda_how how;
	bool vmm;           /* memory of cuMemCreate */
	bool foreign;       /* the memory belongs to a context that is not the primary one */
	unsigned chunks;    /* number of chunks of cuMemCreate in the range */
	uint64_t first_id;  /* CU_PTR_BUFFER_ID at base; 0: unknown, or imported by IPC */
	struct cuda_id *id; /* NULL for imports */
	struct cuda_ipc_map *ipc;
	int fd;           /* descriptor of an import, to export it again; else -1 */
	uint64_t map_len; /* bytes mapped, for CUDA_MAPPED */
	struct mem_late late;
};

static inline struct cuda_alloc *cuda_alloc_of(const struct mem_alloc *a)
{
	return container_of((struct mem_alloc *)(uintptr_t)a, struct cuda_alloc, a);
}

/* Create an empty description that retains the device's context; freed by cuda_alloc_free(). */
int cuda_alloc_new(struct cuda_dev *d, enum cuda_how how, struct cuda_alloc **ret);
void cuda_alloc_free(struct cuda_alloc *c);
void cuda_alloc_freep(struct cuda_alloc **c);

/* Return 0 if c is still the same allocation; -EFAULT if not, or -ENODEV after a reset, with a
 * sentence. */
int cuda_alive(const struct cuda_alloc *c);

/* Check that the memory is alive, and make the context current to which it belongs. */
int cuda_enter_of(struct cuda_scope *s, struct cuda_alloc *c);
int cuda_within(const struct mem_alloc *a, int (*fn)(void *arg), void *arg);

bool cuda_owns(uint64_t addr, uint64_t len);
int cuda_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret);
int cuda_wrap(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret);
void cuda_free(struct mem_alloc *a);

/*
 * Map len bytes of the memory of a handle at new addresses, and store the base in c, which is
 * CUDA_MAPPED.  The mapping keeps the memory alive.  rights: PST_RIGHT_*. Return -EINVAL if the
 * handle has fewer bytes, or if len is not a multiple of the driver's page size.
 */
int cuda_map(struct cuda_alloc *c, cu_handle handle, uint64_t len, uint32_t rights);

/* -------------------------------------------------------------------- part */

int cuda_export_part(const struct mem_alloc *a, uint64_t off, struct mem_part *ret);
int cuda_alloc_like(const struct mem_alloc *a, uint64_t len, struct mem_alloc **ret);
uint32_t cuda_alloc_class(const struct mem_alloc *a);

/* ------------------------------------------------------------------- share */

/* Return the IPC handle of plain memory.  Return -EOPNOTSUPP for memory without one. */
int cuda_export_ipc(struct cuda_alloc *c, uint8_t ret_ipc[64]);
/* Create a descriptor of the chunk of mapped memory at an address.  Return -EOPNOTSUPP for memory
 * without one. */
int cuda_export_fd(struct cuda_alloc *c, uint64_t va, int *ret_fd);

int cuda_import(const struct pst_grant *grant, struct mem_alloc **ret);
int cuda_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret);
int cuda_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
		       struct mem_dmabuf *ret);
/* Close an import.  If @lives is true, the context is current; if false, a reset has ended the
 * memory. */
void cuda_ipc_close(struct cuda_alloc *c, bool lives);

/* -------------------------------------------------------------------- late */

/* Call l->run() when no stream waits for a read: now or later. */
void cuda_late(struct mem_late *l);
/* Return true if the caller may make calls that wait for streams; it then calls cuda_now_end().
 * Return false if a stream waits for a read, or is about to.  Never blocks, so callers may hold any
 * lock. */
bool cuda_now_begin(void);
void cuda_now_end(void);
/* Announce that a stream is about to wait for a read.  Block until no call is running that waits
 * for streams, and until the time @until for deferred work.  Return the barrier's number for
 * cuda_barrier_end(). */
uint64_t cuda_barrier_begin(uint64_t until);
void cuda_barrier_end(uint64_t nr);

/* --------------------------------------------------------------------- pin */

int cuda_pin(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len);
/*
 * cuda_pin() for a thread that serves reads: return -EAGAIN at once while the driver pins or unpins
 * pages of a file, because the driver may serve one thread at a time.
 */
int cuda_pin_now(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len);
int cuda_pin_file(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len);
void cuda_unpin(unsigned device, void *host, uint64_t len);

/*
 * Return how many bytes of host..host+len lie in one registration, from the first byte on.
 * *ret_dev is the address by which kernels reach them for this direction of copies, or 0 if they
 * cannot.  Return 0 if the first byte is not registered; *ret_len is then the number of bytes that
 * are not.
 */
uint64_t cuda_pin_find(const void *host, uint64_t len, enum mem_dir dir, cu_ptr *ret_dev,
		       uint64_t *ret_len);
/* Keep registrations unchanged during several look-ups, until cuda_pins_drop(). */
void cuda_pins_hold(void);
void cuda_pins_drop(void);
uint64_t cuda_pin_find_held(const void *host, uint64_t len, enum mem_dir dir, cu_ptr *ret_dev,
			    uint64_t *ret_len);
/* Forget registrations in a context that a reset has ended; under the device's lock.  Return how
 * many of them retained the context. */
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
/* Destroy objects of free orders, because the device's current context may end; under the lock. */
void cuda_orders_let_go(struct cuda_dev *d);
/* Forget objects of free orders, because a reset has ended the context; under the lock. */
void cuda_orders_forget(struct cuda_dev *d);
/* Make the stream's context current, and check that order with the stream is possible.  Return 0;
 * -EBUSY while the stream is captured into a graph; -EINVAL. */
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
/* The same as cuda_orders_let_go() and cuda_orders_forget(), for feeds. */
void cuda_feeds_let_go(struct cuda_dev *d);
void cuda_feeds_forget(struct cuda_dev *d);

/* ----------------------------------------------------------------- kernels */

void cuda_kernels_init(struct cuda_dev *d);
/* Return the function of a kernel, loading it first if necessary.  Return NULL if the device cannot
 * run it; that is not tried again in this life of the context.  The device's context must be
 * current. */
cu_func cuda_kernel(struct cuda_dev *d, struct cuda_kernel *k);
/* Stop launching a kernel whose launch failed. */
void cuda_kernel_fails(struct cuda_dev *d, struct cuda_kernel *k, cu_result err);
/* Return true if a kernel is loaded.  Call while nobody uses the context, or locked. */
bool cuda_kernels_any(const struct cuda_dev *d);
/* Unload kernels because the device's context ends; if @current is false, the context is already
 * gone. */
void cuda_kernels_end(struct cuda_dev *d, bool current);

/* --------------------------------------------------------------------- sum */

int cuda_sums_new(unsigned device, struct mem_sums **ret);
void cuda_sums_free(struct mem_sums *base);
int cuda_sums_start(struct mem_sums *base, const struct mem_range *v, unsigned nr);
int cuda_sums_poll(struct mem_sums *base, uint32_t *ret);

/* ------------------------------------------------------------------ gather */

/* One tile for the kernel: at most CUDA_TILE bytes, moved by one block of threads.  len is in
 * bytes. */
struct cuda_tile {
	uint64_t dst, src, len, reserved;
};

#define CUDA_TILE KIB(16)

/* Descriptor by which the kernel finds a list that is written after the launch. */
struct cuda_fed {
	uint64_t tiles; /* device address of the tiles */
	uint32_t nr, reserved;
};

/* Write the tiles of copies from *at on.  Return false if a kernel cannot reach one of the pieces,
 * or if the tiles would pass @end. */
bool cuda_tiles_put(enum mem_dir dir, const struct mem_copy *v, unsigned nr, struct cuda_tile **at,
		    const struct cuda_tile *end);

/*
 * Launch the kernel for the tiles of nr <= MEM_SGLS lists.  The device's context must be current.
 * Return 0; -EOPNOTSUPP if the device cannot run it in this life of the context; another -errno if
 * the device is lost.
 */
int cuda_gather(struct cuda_dev *d, const struct mem_sgl *v, unsigned nr, cu_stream st);
/* Return true if the device runs the kernel; loads it.  The device's context must be current. */
bool cuda_has_gather(struct cuda_dev *d);
/* Launch the kernel for one list of at most max_tiles.  The kernel finds the list when it runs, by
 * the struct cuda_fed at device address list. */
cu_result cuda_gather_fed(struct cuda_dev *d, cu_ptr list, unsigned max_tiles, cu_stream st);

/* ------------------------------------------------------------------- facts */

void cuda_device_text(unsigned idx, struct facts *f);
uint64_t cuda_aperture(unsigned device);

/* Parts of cuda_device_text() that read files.  Unknown facts are "unknown", or 0 for a size. */
void cuda_driver_version(const char *sys, const char *proc, char *ret, size_t len);
const char *cuda_module_kind(const char *proc, const char *taint);
uint64_t cuda_bar_size(const char *resource);

#endif
