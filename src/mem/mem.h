/* SPDX-License-Identifier: MIT */
/* Kinds of memory.  core/ uses devices only through struct mem_ops. */
#ifndef PST_MEM_H
#define PST_MEM_H

#include <penstock.h>

#include "base/base.h"
#include "base/list.h"

/*
 * An address in device memory.  A struct, so that it cannot be used as a pointer by accident: the
 * CPU must never access it.
 */
struct dev_addr {
	uint64_t va;
};

struct facts;
struct mem_ops;

/*
 * One allocation, as its provider knows it.  Created by alloc, wrap and import, ended by free.
 * Immutable in between, so any thread may read it.
 */
struct mem_alloc {
	const struct mem_ops *ops;
	unsigned device; /* index of the provider's device */
	struct dev_addr base;
	uint64_t size;      /* bytes of the whole allocation */
	uint64_t buffer_id; /* never used twice in a process */
	uint64_t life;      /* mem_life() of the device when the allocation was created */
	void *host;         /* address for the CPU, for memory with MEM_CAP_CPU; else NULL */
	uint32_t flags;     /* PST_MEM_* that apply */
	uint32_t rights;    /* PST_RIGHT_*; all rights unless the memory was imported */
	bool owned;         /* free returns the memory to the system; false for a wrap */
};

/* One piece of a batch of copies, between device memory and host memory, or between two allocations
 * of device memory. */
struct mem_copy {
	const struct mem_alloc *alloc;
	uint64_t off; /* offset in the allocation, bytes */
	void *host;
	/* NULL, or memory of the same kind, on any device, that is used instead of host.  Only for
	 * kinds with MEM_CAP_BETWEEN. */
	const struct mem_alloc *other;
	uint64_t other_off;
	uint64_t len;
	bool may_vanish; /* the program may unmap host, so a CPU must not fault on it */
};

enum mem_dir {
	MEM_TO_DEVICE,
	MEM_FROM_DEVICE,
};

#define MEM_SGL_BYTES KIB(16) /* bytes of room for a list of copies */
#define MEM_SGLS 16u          /* maximum lists in a batch */

/*
 * A list of copies (scatter-gather list) of one allocation, in pinned memory.  The device reads the
 * list itself.
 */
struct mem_sgl {
	const struct mem_alloc *alloc;
	uint64_t dev; /* device address of the list */
	uint64_t len; /* sum of the bytes that the list copies */
	unsigned nr;  /* number of entries; 0: there is no list */
};

/*
 * A stream: copies in order on one device, used by one thread at a time.  First member of a
 * provider's own struct.
 */
struct mem_stream {
	const struct mem_ops *ops;
};

/* An event on a stream of the program.  First member of a provider's own struct. */
struct mem_order {
	const struct mem_ops *ops;
};

/*
 * Copies to the device that are put on a stream of the program before their bytes are available.
 * The stream runs them in order, each after it was sent.  First member of a provider's own struct.
 */
struct mem_feed {
	const struct mem_ops *ops;
	uint32_t path; /* PST_PATH_* of its copies */
	/* A lock of the device.  Held from the moment when the read asks for slots until its last
	 * copy is on the stream, so that reads get slots in the order in which the device runs
	 * them. */
	pthread_mutex_t *lock;
};

/* A range of one allocation. */
struct mem_range {
	const struct mem_alloc *alloc;
	uint64_t off; /* offset in the allocation, bytes */
	uint64_t len; /* bytes, at least 1 */
};

#define MEM_RANGES 1024u /* maximum ranges of one sums_start() */

/*
 * Checksums of device memory that the device computes.  Used by one thread at a time.  First member
 * of a provider's own struct.
 */
struct mem_sums {
	const struct mem_ops *ops;
};

/* A resource whose end calls the driver and may wait for the program's streams; see mem_late(). */
struct mem_late {
	struct list link; /* used by the provider until run() is called */
	void (*run)(struct mem_late *l);
};

/* A dma-buf that contains a range of device memory. */
struct mem_dmabuf {
	int fd;           /* closed by the caller */
	uint64_t off;     /* offset of the range in the dma-buf, bytes */
	uint64_t size;    /* bytes of the dma-buf: the whole pages that contain the range */
	uint32_t caching; /* enum pst_caching of a CPU mapping */
};

/*
 * The handle of one part of an allocation.  An allocation of one piece has one part.  Mapped memory
 * has one part for each handle of which it consists.  Secret, like a grant.
 */
struct mem_part {
	uint64_t off;        /* offset of the part in the allocation, bytes */
	uint64_t len;        /* bytes of the part */
	uint64_t handle_off; /* offset of the part in the memory that fd opens, bytes; 0 for ipc */
	int fd;              /* closed by the caller; -1: use ipc */
	uint8_t ipc[64];     /* zero if fd is not -1 */
	bool imported;       /* ipc was created by another process */
};

#define MEM_CAP_CPU (1u << 0)     /* the CPU may use the memory, so no device path is needed */
#define MEM_CAP_COPY (1u << 1)    /* the kind has stream_new, stream_free, copy and poll */
#define MEM_CAP_EXPORT (1u << 2)  /* the kind has export and import */
#define MEM_CAP_FD (1u << 3)      /* grants have a descriptor, and no vendor's handle */
#define MEM_CAP_PEER (1u << 4)    /* the memory is pages in another PCI device's BAR */
#define MEM_CAP_BETWEEN (1u << 5) /* copy() accepts pieces between two allocations */
/* Addresses of the kind may equal those of host memory, so owns() is not asked: a wrap must name
 * the kind. */
#define MEM_CAP_NAMED (1u << 6)
#define MEM_CAP_NO_MMAP (1u << 7) /* the driver lets no CPU map the kind's dma-bufs */

/*
 * One kind of memory.  A table is const and complete at compile time; a provider's state is in its
 * own file.  Any thread may call the members after load() returned 0.  Optional members may be
 * NULL. docs/MEMORY.md lists them, and what the library does without each: mostly -EOPNOTSUPP, but
 * 0 for load, pin, alive and sync.  Failures leave a sentence by err_set().
 */
struct mem_ops {
	const char *name; /* "host", "soft": the first part of device names */
	uint32_t kind;    /* enum pst_kind */
	uint32_t caps;    /* MEM_CAP_* */
	/* For error sentences: how bytes reach memory that no device copies and no CPU maps.  May
	 * be NULL. */
	const char *reach;

	/* Find the vendor's library and its devices; called once.  Return 0, or -ENODEV if there is
	 * none: that is common, and is logged at debug level only. */
	int (*load)(void);

	/* Return true if the process may have such memory.  Called before load() when an address is
	 * looked up, to avoid loading.  NULL: true. */
	bool (*present)(void);

	/* Return the number of devices.  Called after load(), and may search for devices.  If the
	 * number is 0, there is a sentence. */
	unsigned (*devices)(void);

	/* Get facts of device idx < devices().  The caller has set sz. */
	void (*device_info)(unsigned idx, struct pst_device *ret);

	/* Add more facts about a device, for people. */
	void (*device_text)(unsigned idx, struct facts *f);

	/* Return true if addr..addr+len is memory of this kind.  Called for every new buffer, so it
	 * must take less than a microsecond, and must not create a device context. */
	bool (*owns)(uint64_t addr, uint64_t len);

	/* Allocate len > 0 bytes.  flags: PST_MEM_SHARED or 0. */
	int (*alloc)(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret);

	/* Describe the allocation that contains addr..addr+len, for which owns() returned true. */
	int (*wrap)(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret);

	/* Open the memory of a grant.  mem_import() has checked the members that all kinds share.
	 * The caller keeps the descriptor. */
	int (*import)(const struct pst_grant *grant, struct mem_alloc **ret);

	/* Set kind, uuid, size, fd and ipc of a grant for the allocation.  fd is new, and read-only
	 * if rights lack PST_RIGHT_WRITE. */
	int (*export)(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret);

	/* Return 0 if wrapped memory is still the same allocation, or -EFAULT with a sentence.
	 * NULL: unknown, or not needed. */
	int (*alive)(const struct mem_alloc *a);

	/* Call fn with the memory's context current in the calling thread, and without restrictions
	 * by graph captures, for a vendor's library that requires that.  Return fn's result, or
	 * -errno without a call.  NULL: the kind has no contexts. */
	int (*within)(const struct mem_alloc *a, int (*fn)(void *arg), void *arg);

	/* Wait until all work that this process gave to the device is done.  NULL: the device has
	 * no work of its own. */
	int (*sync)(const struct mem_alloc *a);

	/* Get the part that contains byte off, to map it without the vendor's library. */
	int (*export_part)(const struct mem_alloc *a, uint64_t off, struct mem_part *ret);

	/* Allocate scratch memory of the same class as a: by the same call of the driver, with the
	 * same properties.  An operation that works on it also works on a. */
	int (*alloc_like)(const struct mem_alloc *a, uint64_t len, struct mem_alloc **ret);

	/* Return a number for the class of a, unique within the device. */
	uint32_t (*alloc_class)(const struct mem_alloc *a);

	/*
	 * Prepare the memory for use by the CPU through a window: PST_RIGHT_READ for loads,
	 * PST_RIGHT_WRITE for stores.  If wait is false, return -EAGAIN if a device or other uses
	 * must end first; if true, the call may wait for the device.  After each call that returned
	 * 0, the caller calls cpu_end() with the same rights.  Uses may overlap.  If both members
	 * are NULL, the CPU may use a window at any time.
	 */
	int (*cpu_begin)(const struct mem_alloc *a, uint32_t rights, bool wait);
	void (*cpu_end)(const struct mem_alloc *a, uint32_t rights);

	/* Return true if the device's later work sees the stores of a network card without a flush,
	 * once the CPU has seen the card's completion.  Asked for each request, because the answer
	 * may change: a dma-buf that a device uses now must not be stored into.  NULL: false. */
	bool (*lands)(const struct mem_alloc *a);

	/* Export a range of the allocation as a dma-buf, for devices of other vendors. */
	int (*export_dmabuf)(const struct mem_alloc *a, uint64_t off, uint64_t len,
			     struct mem_dmabuf *ret);

	/* Free an allocation that nothing uses any more. */
	void (*free)(struct mem_alloc *a);

	/* Call l->run(), which calls unpin() or unpin_file().  While a stream of the program waits
	 * for a read, the call is deferred to the work queue.  The caller holds no lock that run()
	 * takes.  NULL: call it at once. */
	void (*late)(struct mem_late *l);

	/*
	 * Pin page-aligned host memory for asynchronous copies of the device.  The first *ret_len
	 * bytes are pinned, even after a failure; the caller unpins them, by late().  Return
	 * -ENODEV, without creating a context, if life() differs from the caller's life.
	 */
	int (*pin)(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len);
	void (*unpin)(unsigned device, void *host, uint64_t len);

	/*
	 * Prepare a shared, read-only mapping of a file for copies to the device, straight out of
	 * the page cache.  Return -EOPNOTSUPP if the device cannot.  The mapping must stay until
	 * unpin_file(); if the file shrinks before that, the device reads the old pages.  *ret_len
	 * and life as for pin().
	 */
	int (*pin_file)(unsigned device, uint64_t life, void *host, uint64_t len,
			uint64_t *ret_len);
	void (*unpin_file)(unsigned device, void *host, uint64_t len);

	/* Return how many bytes of the device all CPU mappings on the machine together may show; 0:
	 * unknown. */
	uint64_t (*aperture)(unsigned device);

	/* Return a number that changes when a reset of the device is noticed: the reset has ended
	 * its memory, streams and pinned memory.  Cheap, without a call of the driver.  NULL:
	 * constant. */
	uint64_t (*life)(unsigned device);

	int (*stream_new)(unsigned device, struct mem_stream **ret);
	/* Free a stream; wait for its copies in flight. */
	void (*stream_free)(struct mem_stream *st);

	/*
	 * Start nr copies, after all earlier ones of the stream.  v may be reused on return, but
	 * host memory must stay until the ticket is done.  Tickets of a stream increase.  Return 0;
	 * -EAGAIN if too many batches are in flight (poll first); another -errno if nothing was
	 * started.
	 */
	int (*copy)(struct mem_stream *st, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
		    uint64_t *ret_ticket);

	/*
	 * Write copies of one allocation as a list into room, which has MEM_SGL_BYTES bytes, is
	 * page aligned and pinned, and must stay until the copies are done.  Return 1; 0 if a list
	 * is not possible for these copies; -errno.  If sgl_write and sgl_copy are NULL, the device
	 * reads no lists.
	 */
	int (*sgl_write)(unsigned device, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
			 void *room, struct mem_sgl *ret);

	/* copy() for all copies of nr <= MEM_SGLS lists.  The memory is checked again, because a
	 * list may have waited.  Return -EOPNOTSUPP if the device cannot read lists after all. */
	int (*sgl_copy)(struct mem_stream *st, const struct mem_sgl *v, unsigned nr,
			uint64_t *ret_ticket);

	/* Return the path of the last batch that copy() started: PST_PATH_STAGED, or
	 * PST_PATH_GATHER for one device kernel.  NULL: always PST_PATH_STAGED. */
	uint32_t (*copied_by)(const struct mem_stream *st);

	/* Return 1 if the ticket is done, 0 if it is in flight, -errno if it failed. */
	int (*poll)(struct mem_stream *st, uint64_t ticket);

	/* Return a descriptor that becomes readable some time after a ticket is done; reading
	 * resets it.  NULL: the stream can only be polled. */
	int (*stream_fd)(struct mem_stream *st);

	/*
	 * Prepare checksums of device memory.  Return -EOPNOTSUPP if this device computes none.  If
	 * the four sums_*() are NULL, no device of the kind does.
	 */
	int (*sums_new)(unsigned device, struct mem_sums **ret);
	/* Free s; wait for checksums that were started. */
	void (*sums_free)(struct mem_sums *s);

	/* Start to compute the CRC-32C of each of nr <= MEM_RANGES ranges of the device.
	 * sums_poll() must have ended all earlier ones. */
	int (*sums_start)(struct mem_sums *s, const struct mem_range *v, unsigned nr);

	/* Return 1 and the checksums in ret; 0 while they are being computed; -errno if they
	 * failed. */
	int (*sums_poll)(struct mem_sums *s, uint32_t *ret);

	/*
	 * Order with the program's streams; NULL: the kind has no streams.  A stream is named by
	 * its handle in the device's own API, which must be valid.  order_check(), order_new(),
	 * feed_check() and feed_new() are called in the thread that named the stream, because some
	 * handles mean another stream in each thread.
	 *
	 * order_check: return 0 if order_new() is possible; -EBUSY while the stream is captured
	 * into a graph; -EINVAL for a stream of another device; -EOPNOTSUPP.  Puts nothing on the
	 * stream.
	 */
	int (*order_check)(unsigned device, void *stream);

	/* Record an event at the stream's current end. */
	int (*order_new)(unsigned device, void *stream, struct mem_order **ret);

	/* Return 1 if the work before the event is done, 0 if not yet, -errno if it never will
	 * be. */
	int (*order_poll)(struct mem_order *o);

	/* Free an order, even if the stream has not reached the event. */
	void (*order_free)(struct mem_order *o);

	/*
	 * Copies on the program's stream; NULL: its streams cannot wait for a read.  feed_new(),
	 * feed_put() and feed_seal() call the driver.  The members after them never wait, so
	 * callers may hold any lock.
	 *
	 * feed_check: return 0 if feed_new() is possible; errors as order_check().
	 */
	int (*feed_check)(const struct mem_alloc *a, void *stream);

	/* Begin copies into a, each with at most max_tiles tiles.  The call may wait, until the
	 * time @until of now_ns(), for resources that are being freed. */
	int (*feed_new)(const struct mem_alloc *a, void *stream, unsigned max_tiles, uint64_t until,
			struct mem_feed **ret);

	/* Put one more copy on the stream.  Return 1; 0 if the feed has ended; -EAGAIN until the
	 * stream has run an earlier copy; another -errno if no further copy can be put. */
	int (*feed_put)(struct mem_feed *f);

	/* Finish putting copies on the stream.  Called once, before feed_free(), even if feed_put()
	 * failed. */
	int (*feed_seal)(struct mem_feed *f);

	/* Write copies as a list into room, as sgl_write() does, but without checking the memory:
	 * only the stream's work may free the memory.  Return 0, or -EIO if the device cannot reach
	 * the bytes. */
	int (*feed_list)(const struct mem_feed *f, const struct mem_copy *v, unsigned nr,
			 void *room, struct mem_sgl *ret);

	/* Let the next copy move the list.  Return the copy's number.  Not called after feed_end();
	 * the caller holds a lock for both. */
	uint64_t (*feed_send)(struct mem_feed *f, const struct mem_sgl *list);

	/* Disable the copies that were not sent, or that the stream has not reached: they move
	 * nothing.  A second call does nothing. */
	void (*feed_end)(struct mem_feed *f);

	/* Return 1 if the copy is done; 0 if not yet; -errno if it never will be. */
	int (*feed_poll)(const struct mem_feed *f, uint64_t nr);

	/* Ask the driver whether the stream still runs; feed_poll() then returns an error if not.
	 * May hang. */
	void (*feed_check_lost)(struct mem_feed *f);

	/* Free a feed that has ended and is sealed, even if the stream has not run its copies. */
	void (*feed_free)(struct mem_feed *f);
};

extern const struct mem_ops mem_cuda_ops, mem_dmabuf_ops, mem_gaudi_ops, mem_host_ops,
	mem_p2pmem_ops, mem_soft_ops;

#define MEM_PROVIDERS_MAX 8u

/* Add a kind of memory, before the first call of the library.  Return 0; -EEXIST if its kind or
 * name is taken; -ENOSPC beyond MEM_PROVIDERS_MAX. */
int mem_provider_add(const struct mem_ops *ops);

/* Return the table of a kind without loading it; NULL: this build does not have the kind. */
const struct mem_ops *mem_kind(uint32_t kind);
/* Return the provider of a kind, loaded; NULL with a sentence if its load() failed. */
const struct mem_ops *mem_provider(uint32_t kind);
/* Return true if the machine has a device of that kind. */
bool mem_has(uint32_t kind);
/* Return the provider whose memory addr..addr+len is, or NULL. */
const struct mem_ops *mem_owner(uint64_t addr, uint64_t len);
/* Return the name of a kind, such as "host" or "cuda". */
const char *mem_kind_name(uint32_t kind);
/* Get all facts of a device. */
void mem_device_info(const struct mem_ops *ops, unsigned device, struct pst_device *ret);

/* Remember the allocation's device.  Any thread. */
void mem_used_add(const struct mem_alloc *a);
/* List the PCI addresses of remembered devices, up to max.  Return their number.  Devices without a
 * PCI address are left out. */
unsigned mem_used_pci(char (*ret)[sizeof(((struct pst_device *)0)->pci)], unsigned max);

/* List the devices whose memory can be allocated, host first.  Fill up to max entries, and return
 * the number of devices. */
int mem_list(struct pst_device *ret, unsigned max);

/* Find a device as pst_device_find() does, and return its provider and index. */
int mem_find(const char *name, const struct mem_ops **ret_ops, unsigned *ret_device);

/* Return a new number for mem_alloc.buffer_id. */
uint64_t mem_buffer_id(void);

/* Wrappers of the members: they return -EOPNOTSUPP for NULL, inject faults, and do checks that all
 * kinds share. */
int mem_alloc(const struct mem_ops *ops, unsigned device, uint64_t len, uint32_t flags,
	      struct mem_alloc **ret);
int mem_wrap(uint64_t addr, uint64_t len, uint32_t kind, uint32_t flags, struct mem_alloc **ret);
int mem_import(const struct pst_grant *grant, struct mem_alloc **ret);
int mem_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret);
void mem_free(struct mem_alloc *a);
int mem_stream_new(const struct mem_ops *ops, unsigned device, struct mem_stream **ret);
void mem_stream_free(struct mem_stream *st);
int mem_copy_check(const struct mem_ops *ops, enum mem_dir dir, const struct mem_copy *v,
		   unsigned nr);

static inline int mem_copy(struct mem_stream *st, enum mem_dir dir, const struct mem_copy *v,
			   unsigned nr, uint64_t *ret_ticket)
{
	int r = mem_copy_check(st->ops, dir, v, nr);

	return r < 0 ? r : st->ops->copy(st, dir, v, nr, ret_ticket);
}

/* Return 0 also if the device reads no lists. */
int mem_sgl_write(const struct mem_ops *ops, unsigned device, enum mem_dir dir,
		  const struct mem_copy *v, unsigned nr, void *room, struct mem_sgl *ret);
int mem_sgl_copy(struct mem_stream *st, const struct mem_sgl *v, unsigned nr, uint64_t *ret_ticket);

static inline int mem_poll(struct mem_stream *st, uint64_t ticket)
{
	return st->ops->poll(st, ticket);
}

static inline uint32_t mem_copied_by(const struct mem_stream *st)
{
	return st->ops->copied_by ? st->ops->copied_by(st) : (uint32_t)PST_PATH_STAGED;
}

/* Check whether a request for the memory may name the stream, or make it wait.  The other order_*()
 * and feed_*() have no wrappers. */
int mem_stream_check(const struct mem_alloc *a, void *stream, bool wait);

/* The function behind pst_device_text(). */
int mem_device_text(const struct mem_ops *ops, unsigned device, char *buf, size_t len);

/* Flags that decide whether memory must become a dma-buf (dmabuf_want.c). */
#define MEM_DMABUF_FLAGS (PST_MEM_DMABUF | PST_MEM_NO_DMABUF)
int mem_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
		      struct mem_dmabuf *ret);
/* Return the program's flags, with the flag that PST_DMABUF adds. */
uint32_t mem_dmabuf_flags(const struct mem_ops *ops, uint32_t flags);
/* Apply MEM_DMABUF_FLAGS to new memory.  Return 0; or -EOPNOTSUPP with a sentence, after freeing
 * the memory. */
int mem_dmabuf_want(uint32_t flags, struct mem_alloc **a);

static inline int mem_alive(const struct mem_alloc *a)
{
	return a->ops->alive ? a->ops->alive(a) : 0;
}

/*
 * Return true if the device can copy by itself.  If not, only paths that use its address or an
 * export move bytes.
 */
static inline bool mem_copies(const struct mem_ops *ops)
{
	return ops->caps & MEM_CAP_COPY;
}

static inline uint64_t mem_life(const struct mem_ops *ops, unsigned device)
{
	return ops->life ? ops->life(device) : 0;
}

static inline int mem_cpu_begin(const struct mem_alloc *a, uint32_t rights, bool wait)
{
	return a->ops->cpu_begin ? a->ops->cpu_begin(a, rights, wait) : 0;
}

static inline void mem_cpu_end(const struct mem_alloc *a, uint32_t rights)
{
	if (a->ops->cpu_end)
		a->ops->cpu_end(a, rights);
}

static inline int mem_within(const struct mem_alloc *a, int (*fn)(void *arg), void *arg)
{
	return a->ops->within ? a->ops->within(a, fn, arg) : fn(arg);
}

static inline int mem_sync(const struct mem_alloc *a)
{
	return a->ops->sync ? a->ops->sync(a) : 0;
}

int mem_export_part(const struct mem_alloc *a, uint64_t off, struct mem_part *ret);
int mem_alloc_like(const struct mem_alloc *a, uint64_t len, struct mem_alloc **ret);
/* Return an injected fault of mem.copy, as a positive errno or 0, for kinds that cannot inject
 * wrong copies. */
int mem_copy_fault(void);
/* Return 0 if the provider has only one class. */
uint32_t mem_alloc_class(const struct mem_alloc *a);
/* Pin memory.  Do nothing for kinds without pin. */
int mem_pin(const struct mem_ops *ops, unsigned device, uint64_t life, void *host, uint64_t len,
	    uint64_t *ret_len);
void mem_late(const struct mem_ops *ops, struct mem_late *l);
void mem_unpin(const struct mem_ops *ops, unsigned device, void *host, uint64_t len);
int mem_pin_file(const struct mem_ops *ops, unsigned device, uint64_t life, void *host,
		 uint64_t len, uint64_t *ret_len);
void mem_unpin_file(const struct mem_ops *ops, unsigned device, void *host, uint64_t len);
uint64_t mem_aperture(const struct mem_ops *ops, unsigned device);

/* Return the stream's descriptor to sleep on, or -1 if it can only be polled. */
int mem_stream_fd(struct mem_stream *st);

/* Copy and wait: host memory by the CPU, device memory by a temporary stream. */
int mem_copy_sync(const struct mem_alloc *a, enum mem_dir dir, uint64_t off, void *host,
		  uint64_t len);

/* Copy device memory and wait, on a stream of the caller. */
int mem_copy_wait(struct mem_stream *st, const struct mem_alloc *a, enum mem_dir dir, uint64_t off,
		  void *host, uint64_t len);
/* mem_copy_wait() for host memory that the program may unmap during the copy. */
int mem_copy_wait_program(struct mem_stream *st, const struct mem_alloc *a, enum mem_dir dir,
			  uint64_t off, void *host, uint64_t len);

/* The functions behind pst_grant_send() and pst_grant_recv() (grant.c). */
int grant_send(int sock, const struct pst_grant *grant, uint64_t deadline_ns);
int grant_recv(int sock, struct pst_grant *ret, uint64_t deadline_ns);

#define GRANT_LEN 128u

/*
 * Convert a grant to bytes and back, for sockets that also carry other messages.  The caller sends
 * the descriptor as ancillary data, and keeps it.  Return 0; -EINVAL and -E2BIG, or -EBADMSG of
 * grant_get(), with a sentence.
 */
int grant_put(const struct pst_grant *grant, uint8_t to[GRANT_LEN]);
int grant_get(const uint8_t from[GRANT_LEN], int fd, struct pst_grant *ret);
/* Return true if the grant's bytes say that a descriptor is sent with it. */
bool grant_has_fd(const uint8_t from[GRANT_LEN]);

/*
 * Copy a caller's grant of any size, and check its consistency.  Return 0 or -EINVAL.  The copy is
 * secret too: wipe it with grant_wipe().
 */
int grant_copy(struct pst_grant *ret, const struct pst_grant *grant);
/* Check that a grant of this library's size is consistent.  Return 0 or -EINVAL. */
int grant_check(const struct pst_grant *grant);
void grant_wipe(struct pst_grant *grant);

/* Return true if a caller's grant is large enough, by its sz, to be filled or ended. */
bool grant_has_room(const struct pst_grant *grant);

#endif
