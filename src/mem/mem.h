/* SPDX-License-Identifier: MIT */
/*
 * Kinds of memory.  core/ knows devices only through the table below.
 */
#ifndef PST_MEM_H
#define PST_MEM_H

#include <penstock.h>

#include "base/base.h"
#include "base/list.h"

/*
 * An address in device memory.  Not a pointer, and not convertible to one by accident:
 * the CPU must never follow it.
 */
struct dev_addr {
	uint64_t va;
};

struct facts;
struct mem_ops;

/*
 * One allocation, as its provider knows it.  Made by alloc, wrap and import, ended by
 * free.  Immutable in between, so any thread may read it.
 */
struct mem_alloc {
	const struct mem_ops *ops;
	unsigned device; /* index among the provider's devices */
	struct dev_addr base;
	uint64_t size;      /* bytes; of the whole allocation */
	uint64_t buffer_id; /* never used twice in a process */
	uint64_t life;      /* what mem_life() of its device was when it was made */
	void *host;         /* the same bytes for the CPU: kind host only, else NULL */
	uint32_t flags;     /* PST_MEM_* in force */
	uint32_t rights;    /* PST_RIGHT_*: what an import may do; all for our own */
	bool owned;         /* free gives the bytes back; false for a wrap */
};

/* One piece of a batch of copies between device memory and host memory, or between two
 * allocations of device memory. */
struct mem_copy {
	const struct mem_alloc *alloc;
	uint64_t off; /* in the allocation, bytes */
	void *host;
	/* Memory that takes the place of host: of the same kind, on any device of it.  NULL: host
	 * is meant.  Only for kinds with MEM_CAP_BETWEEN. */
	const struct mem_alloc *other;
	uint64_t other_off;
	uint64_t len;
	bool may_vanish; /* host is the program's: a CPU that copies leaves it to the kernel */
};

enum mem_dir {
	MEM_TO_DEVICE,
	MEM_FROM_DEVICE,
};

#define MEM_SGL_BYTES KIB(16) /* room for a list of copies */
#define MEM_SGLS 16u          /* most lists of a batch */

/*
 * A list of copies (scatter-gather list) of one allocation, in pinned memory where the device
 * itself reads it.
 */
struct mem_sgl {
	const struct mem_alloc *alloc;
	uint64_t dev; /* its address for the device */
	uint64_t len; /* bytes that it copies */
	unsigned nr;  /* entries; 0: there is no list */
};

/*
 * An order of copies on one device, used by one thread at a time.  A provider's own
 * struct begins with this.
 */
struct mem_stream {
	const struct mem_ops *ops;
};

/* An event on a stream of the program.  A provider's own struct begins with this. */
struct mem_order {
	const struct mem_ops *ops;
};

/*
 * Copies to the device that are put on a stream of the program before their bytes are there.  The
 * stream runs them in order, each when it was sent.  A provider's own struct begins with this.
 */
struct mem_feed {
	const struct mem_ops *ops;
	uint32_t path; /* PST_PATH_* that its copies take */
	/* Of the device.  Held from the moment when the read asks for slots until its last copy is
	 * on the stream, so that reads get slots in the order in which a device queue has them. */
	pthread_mutex_t *lock;
};

/* Bytes of one allocation. */
struct mem_range {
	const struct mem_alloc *alloc;
	uint64_t off; /* in the allocation */
	uint64_t len; /* at least 1 */
};

#define MEM_RANGES 1024u /* most of one mem_sums_start() */

/*
 * Checksums of device memory, computed by the device; one thread uses it at a time.  A provider's
 * own struct begins with this.
 */
struct mem_sums {
	const struct mem_ops *ops;
};

/* Something to be ended by calls that may wait for the program's streams, see mem_late(). */
struct mem_late {
	struct list link; /* the provider's, until run() is called */
	void (*run)(struct mem_late *l);
};

/* A dma-buf that holds a range of device memory. */
struct mem_dmabuf {
	int fd;           /* the caller's to close */
	uint64_t off;     /* of the range in the dma-buf */
	uint64_t size;    /* of the dma-buf: the whole pages that hold the range */
	uint32_t caching; /* enum pst_caching that a CPU mapping of it would have */
};

/*
 * The handle of one part of an allocation: an allocation of one piece has one part, mapped
 * memory has one for each handle it was made of.  Secret, like a grant.
 */
struct mem_part {
	uint64_t off;        /* where the part begins in the allocation */
	uint64_t len;        /* bytes of the allocation that it holds */
	uint64_t handle_off; /* where these begin in the memory that fd opens; 0 for ipc */
	int fd;              /* the caller's to close, or -1 */
	uint8_t ipc[64];     /* zero when there is fd */
	bool imported;       /* ipc was made by another process */
};

#define MEM_CAP_CPU (1u << 0)     /* the CPU may use the memory: no device hop is needed */
#define MEM_CAP_COPY (1u << 1)    /* stream_new, stream_free, copy and poll are there */
#define MEM_CAP_EXPORT (1u << 2)  /* export and import are there */
#define MEM_CAP_FD (1u << 3)      /* grants hold a descriptor, and no vendor's handle */
#define MEM_CAP_PEER (1u << 4)    /* the CPU uses pages in another PCI device's BAR */
#define MEM_CAP_BETWEEN (1u << 5) /* copy takes pieces between two allocations */
/* Addresses of the kind may equal those of host memory, so a wrap finds it only if the wrap names
 * the kind. */
#define MEM_CAP_NAMED (1u << 6)
#define MEM_CAP_NO_MMAP (1u << 7) /* its driver lets no CPU map its dma-bufs */

/*
 * One kind of memory.  A table is const and complete at compile time; a provider's state
 * lives in its own file.  Calls come from any thread after load()
 * returned 0.  Optional members may be NULL.  docs/MEMORY.md lists them, and what the library
 * does without each: mostly -EOPNOTSUPP, but 0 for load, pin, alive and sync.
 * Failures leave a sentence by err_set().
 */
struct mem_ops {
	const char *name; /* "host", "soft": the first part of device names */
	uint32_t kind;    /* enum pst_kind */
	uint32_t caps;    /* MEM_CAP_* */
	/* How bytes get there where no device copies and no CPU maps them, for errors; may be
	 * NULL. */
	const char *reach;

	/* Find the vendor's library and its devices; called once.  0, or -ENODEV where
	 * there is none: that is the common case, and logged at debug level only. */
	int (*load)(void);

	/* May somebody in this process have such memory?  Asked before load(), about addresses,
	 * and false spares that.  NULL: yes. */
	bool (*present)(void);

	/* How many devices, after load().  May find them only now; 0 leaves a sentence. */
	unsigned (*devices)(void);

	/* Facts of device idx < devices(); sz is set by the caller's wrapper. */
	void (*device_info)(unsigned idx, struct pst_device *ret);

	/* More facts about a device, for people. */
	void (*device_text)(unsigned idx, struct facts *f);

	/* Is addr..addr+len ours?  Asked for every new buffer: below a microsecond, and it
	 * must not create a device context. */
	bool (*owns)(uint64_t addr, uint64_t len);

	/* Allocate len > 0 bytes, flags PST_MEM_SHARED or 0. */
	int (*alloc)(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret);

	/* Describe the allocation that holds addr..addr+len, which owns() said is ours. */
	int (*wrap)(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret);

	/* Open the memory of a grant, after mem_import() checked the members that all kinds
	 * share.  The fd stays the caller's. */
	int (*import)(const struct pst_grant *grant, struct mem_alloc **ret);

	/* Fill kind, uuid, size, fd and ipc of a grant for the allocation; fd is new and
	 * opened read-only where rights lack PST_RIGHT_WRITE. */
	int (*export)(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret);

	/* Is wrapped memory still the same allocation?  0, or -EFAULT with a sentence.  NULL:
	 * that cannot be told, or need not. */
	int (*alive)(const struct mem_alloc *a);

	/* Call fn with the context of the memory current in the calling thread and nothing of
	 * it forbidden by captures, for a library of the vendor's that wants that.  Returns fn's
	 * result, or -errno without a call.  NULL: the kind has no contexts. */
	int (*within)(const struct mem_alloc *a, int (*fn)(void *arg), void *arg);

	/* Wait until all work that this process gave to the device is done.  NULL: it has no
	 * work of its own. */
	int (*sync)(const struct mem_alloc *a);

	/* The part that holds byte off, for mapping it without the vendor's library. */
	int (*export_part)(const struct mem_alloc *a, uint64_t off, struct mem_part *ret);

	/* Scratch memory of the same class as a: made by the same call of the driver, with the
	 * same properties.  An operation that works with it works with a. */
	int (*alloc_like)(const struct mem_alloc *a, uint64_t len, struct mem_alloc **ret);

	/* A number for that class, unique within the device. */
	uint32_t (*alloc_class)(const struct mem_alloc *a);

	/*
	 * The CPU is about to use the memory through a window, with PST_RIGHT_READ for loads and
	 * PST_RIGHT_WRITE for stores.  Without wait, -EAGAIN says that a device or other uses
	 * must end first; with it, the call may wait for the device.  Each call that returned 0 is
	 * followed by cpu_end() with the same rights.  Calls may overlap.  NULL, as is cpu_end():
	 * the CPU may use a window at any time.
	 */
	int (*cpu_begin)(const struct mem_alloc *a, uint32_t rights, bool wait);
	void (*cpu_end)(const struct mem_alloc *a, uint32_t rights);

	/* Return true if the device's later work sees what a network card has stored in the memory
	 * once the CPU has seen the card's completion, without a flush.  NULL: it may not. */
	bool (*lands)(const struct mem_alloc *a);

	/* A dma-buf of a range of the allocation, for devices of other vendors. */
	int (*export_dmabuf)(const struct mem_alloc *a, uint64_t off, uint64_t len,
			     struct mem_dmabuf *ret);

	/* End an allocation of ours; nothing uses it any more. */
	void (*free)(struct mem_alloc *a);

	/* Call l->run(), which calls unpin() or unpin_file(): at once, or on the work queue when no
	 * stream of the program waits for a read of ours.  No lock that run() takes is held.
	 * NULL: at once. */
	void (*late)(struct mem_late *l);

	/*
	 * Make page-aligned host memory fit for asynchronous copies of the device.  *ret_len bytes
	 * from the beginning are pinned, also on failure: the caller unpins them, by late().
	 * -ENODEV, and no context is made, once life() is another number than the caller's.
	 */
	int (*pin)(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len);
	void (*unpin)(unsigned device, void *host, uint64_t len);

	/*
	 * Make a shared, read-only mapping of a file fit for copies to the device, straight out
	 * of the page cache.  -EOPNOTSUPP where the device cannot.  The mapping stays until
	 * unpin_file(); if the file shrinks meanwhile, the device reads what its pages were.
	 * *ret_len and life as above.
	 */
	int (*pin_file)(unsigned device, uint64_t life, void *host, uint64_t len,
			uint64_t *ret_len);
	void (*unpin_file)(unsigned device, void *host, uint64_t len);

	/* Bytes of it that all CPU mappings on the machine may show at a time; 0: unknown. */
	uint64_t (*aperture)(unsigned device);

	/* Another number once a reset of the device was seen, which ended its memory, streams and
	 * pinned memory.  Cheap, and asks no driver.  NULL: always the same. */
	uint64_t (*life)(unsigned device);

	int (*stream_new)(unsigned device, struct mem_stream **ret);
	/* Waits for the copies still under way. */
	void (*stream_free)(struct mem_stream *st);

	/*
	 * Start nr copies, in order after all earlier ones of the stream.  v is copied;
	 * host memory must stay until the ticket is done.  Tickets of a stream rise.
	 * 0; -EAGAIN when too many batches are under way (poll first); else nothing started.
	 */
	int (*copy)(struct mem_stream *st, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
		    uint64_t *ret_ticket);

	/*
	 * Write copies of one allocation as a list into room: MEM_SGL_BYTES bytes, page aligned and
	 * pinned, which stay until the copies are done.  1; 0 where these copies cannot go by a
	 * list; -errno.  NULL, as is the next: the device reads no lists.
	 */
	int (*sgl_write)(unsigned device, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
			 void *room, struct mem_sgl *ret);

	/* As copy(), for all copies of nr <= MEM_SGLS lists.  The memory is looked at again, since
	 * a list may have waited.  -EOPNOTSUPP: the device reads no lists after all. */
	int (*sgl_copy)(struct mem_stream *st, const struct mem_sgl *v, unsigned nr,
			uint64_t *ret_ticket);

	/* How the last batch that copy() took goes: PST_PATH_STAGED, or PST_PATH_GATHER by one
	 * device kernel.  NULL: always the former. */
	uint32_t (*copied_by)(const struct mem_stream *st);

	/* 1 when the ticket is done, 0 while it is under way, -errno when it failed. */
	int (*poll)(struct mem_stream *st, uint64_t ticket);

	/* Becomes readable some time after a ticket got done; reading it resets it.  NULL: the
	 * stream can only be polled. */
	int (*stream_fd)(struct mem_stream *st);

	/*
	 * Checksums of device memory; NULL, as are the next three: the kind computes none.
	 * -EOPNOTSUPP where this device does not.
	 */
	int (*sums_new)(unsigned device, struct mem_sums **ret);
	/* Waits for what was started. */
	void (*sums_free)(struct mem_sums *s);

	/* Start to compute the CRC-32C of each of nr <= MEM_RANGES ranges of the device.  Whatever
	 * was started before has been polled to its end. */
	int (*sums_start)(struct mem_sums *s, const struct mem_range *v, unsigned nr);

	/* 1, and ret has the checksums; 0 while they are under way; -errno: there will be none. */
	int (*sums_poll)(struct mem_sums *s, uint32_t *ret);

	/*
	 * Order with the program's streams; NULL: the kind knows none.  A stream is named by the
	 * handle that the device's own API has for it, which must be valid.  order_check(),
	 * order_new(), feed_check() and feed_new() are called in the thread that named it: some
	 * handles mean another stream in each.
	 *
	 * order_check: would order_new() be possible?  0; -EBUSY while the stream is captured into
	 * a graph; -EINVAL for one of another device; -EOPNOTSUPP.  Puts nothing on the stream.
	 */
	int (*order_check)(unsigned device, void *stream);

	/* Record an event: the point that the stream has reached. */
	int (*order_new)(unsigned device, void *stream, struct mem_order **ret);

	/* 1 when the work before the event is done, 0 before that, -errno when it never will be. */
	int (*order_poll)(struct mem_order *o);

	/* The stream may not have come to the event yet. */
	void (*order_free)(struct mem_order *o);

	/*
	 * Copies on the program's stream; NULL: it cannot wait for a read.  The three calls that
	 * put something on the stream call the driver; those after them wait for nothing, so they
	 * may be made under any lock.
	 *
	 * feed_check: would feed_new() be possible?  Errors as order_check().
	 */
	int (*feed_check)(const struct mem_alloc *a, void *stream);

	/* Begin copies into a, each with at most max_tiles tiles.  The call may wait for what
	 * others give back, until that time of now_ns(). */
	int (*feed_new)(const struct mem_alloc *a, void *stream, unsigned max_tiles, uint64_t until,
			struct mem_feed **ret);

	/* Put one more copy on the stream.  1; 0 when the feed has ended; -EAGAIN until the stream
	 * has run an earlier copy; -errno: no further copy can be put. */
	int (*feed_put)(struct mem_feed *f);

	/* All copies are on the stream: once, before feed_free(), also after feed_put() failed. */
	int (*feed_seal)(struct mem_feed *f);

	/* Write copies as a list into room, as sgl_write() does, without a look at the memory: only
	 * the stream's work may free it.  0; -EIO when the device does not reach the bytes. */
	int (*feed_list)(const struct mem_feed *f, const struct mem_copy *v, unsigned nr,
			 void *room, struct mem_sgl *ret);

	/* Have the next copy move the list.  Returns its number.  Not after feed_end(); the caller
	 * has a lock for both. */
	uint64_t (*feed_send)(struct mem_feed *f, const struct mem_sgl *list);

	/* The copies that were not sent move nothing, nor do those that the stream has not come to.
	 * A second call does nothing. */
	void (*feed_end)(struct mem_feed *f);

	/* 1 when the copy is done; 0 before that; -errno when it never will be. */
	int (*feed_poll)(const struct mem_feed *f, uint64_t nr);

	/* Ask the driver whether the stream still runs; feed_poll() tells.  May hang. */
	void (*feed_check_lost)(struct mem_feed *f);

	/* Ended and sealed; the stream may not have run the copies yet. */
	void (*feed_free)(struct mem_feed *f);
};

extern const struct mem_ops mem_cuda_ops, mem_dmabuf_ops, mem_gaudi_ops, mem_host_ops,
	mem_p2pmem_ops, mem_soft_ops;

#define MEM_PROVIDERS_MAX 8u

/* One more kind of memory, before the first call of the library.  0; -EEXIST where its kind or its
 * name is taken; -ENOSPC beyond MEM_PROVIDERS_MAX. */
int mem_provider_add(const struct mem_ops *ops);

/* The table of a kind, which may not be loaded; NULL: this build has none. */
const struct mem_ops *mem_kind(uint32_t kind);
/* The provider of a kind whose load() succeeded, or NULL with a sentence. */
const struct mem_ops *mem_provider(uint32_t kind);
/* Return true if the machine has a device of that kind. */
bool mem_has(uint32_t kind);
/* The provider that knows an allocation there, or NULL. */
const struct mem_ops *mem_owner(uint64_t addr, uint64_t len);
/* "host", "cuda", ... */
const char *mem_kind_name(uint32_t kind);
/* All that is known of a device. */
void mem_device_info(const struct mem_ops *ops, unsigned device, struct pst_device *ret);

/* All devices whose memory can be allocated, host first: fills up to max, returns how many there
 * are. */
int mem_list(struct pst_device *ret, unsigned max);

/* As pst_device_find(), with what is needed to go on. */
int mem_find(const char *name, const struct mem_ops **ret_ops, unsigned *ret_device);

/* A number for mem_alloc.buffer_id. */
uint64_t mem_buffer_id(void);

/* Wrappers: -EOPNOTSUPP for NULL members, fault injection, checks common to all kinds. */
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

/* 0 where the device reads no lists, too. */
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

/* May a request for the memory name the stream, or make it wait?  The other order_*() and feed_*()
 * are called through the table. */
int mem_stream_check(const struct mem_alloc *a, void *stream, bool wait);

/* As pst_device_text(). */
int mem_device_text(const struct mem_ops *ops, unsigned device, char *buf, size_t len);

/* Whether memory becomes a dma-buf (dmabuf_want.c). */
#define MEM_DMABUF_FLAGS (PST_MEM_DMABUF | PST_MEM_NO_DMABUF)
int mem_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
		      struct mem_dmabuf *ret);
/* Flags of a program's memory, with what PST_DMABUF adds. */
uint32_t mem_dmabuf_flags(const struct mem_ops *ops, uint32_t flags);
/* Heed the flags for new memory.  0, or -EOPNOTSUPP with a sentence, and the memory is freed. */
int mem_dmabuf_want(uint32_t flags, struct mem_alloc **a);

static inline int mem_alive(const struct mem_alloc *a)
{
	return a->ops->alive ? a->ops->alive(a) : 0;
}

/*
 * Return true if the device can copy by itself.  If not, paths that need its address or an export
 * move bytes.
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
/* The fault at mem.copy for kinds without wrong copies on demand: 0 or a positive errno. */
int mem_copy_fault(void);
/* 0 where the provider has only one. */
uint32_t mem_alloc_class(const struct mem_alloc *a);
/* Pin memory; kinds without pin take every memory as it is. */
int mem_pin(const struct mem_ops *ops, unsigned device, uint64_t life, void *host, uint64_t len,
	    uint64_t *ret_len);
void mem_late(const struct mem_ops *ops, struct mem_late *l);
void mem_unpin(const struct mem_ops *ops, unsigned device, void *host, uint64_t len);
int mem_pin_file(const struct mem_ops *ops, unsigned device, uint64_t life, void *host,
		 uint64_t len, uint64_t *ret_len);
void mem_unpin_file(const struct mem_ops *ops, unsigned device, void *host, uint64_t len);
uint64_t mem_aperture(const struct mem_ops *ops, unsigned device);

/* The stream's descriptor to sleep on, -1 when it can only be polled. */
int mem_stream_fd(struct mem_stream *st);

/* Copy and wait: host memory by the CPU, device memory by a stream of its own. */
int mem_copy_sync(const struct mem_alloc *a, enum mem_dir dir, uint64_t off, void *host,
		  uint64_t len);

/* Copy as mem_copy_sync() does for device memory, on a stream that the caller has. */
int mem_copy_wait(struct mem_stream *st, const struct mem_alloc *a, enum mem_dir dir, uint64_t off,
		  void *host, uint64_t len);
/* As mem_copy_wait(), where @host is the program's and may vanish. */
int mem_copy_wait_program(struct mem_stream *st, const struct mem_alloc *a, enum mem_dir dir,
			  uint64_t off, void *host, uint64_t len);

/* Grants over a socket (grant.c): pst_grant_send(), pst_grant_recv(). */
int grant_send(int sock, const struct pst_grant *grant, uint64_t deadline_ns);
int grant_recv(int sock, struct pst_grant *ret, uint64_t deadline_ns);

#define GRANT_LEN 128u

/*
 * A grant as bytes, for sockets that carry other messages too.  Its descriptor travels beside them
 * and stays the caller's.  0; -EINVAL and -E2BIG, or -EBADMSG of grant_get(), with a sentence.
 */
int grant_put(const struct pst_grant *grant, uint8_t to[GRANT_LEN]);
int grant_get(const uint8_t from[GRANT_LEN], int fd, struct pst_grant *ret);
/* Return true if the grant says that a descriptor travels with it. */
bool grant_has_fd(const uint8_t from[GRANT_LEN]);

/*
 * A caller's grant of any size, checked by itself: 0 or -EINVAL.  The copy is secret too: wipe it
 * with grant_wipe().
 */
int grant_copy(struct pst_grant *ret, const struct pst_grant *grant);
/* Check that a grant of this library's size is consistent in itself.  Return 0 or -EINVAL. */
int grant_check(const struct pst_grant *grant);
void grant_wipe(struct pst_grant *grant);

/* Is a caller's grant, as its sz says, large enough to be filled or ended? */
bool grant_has_room(const struct pst_grant *grant);

#endif
