/* SPDX-License-Identifier: MIT */
/*
 * libpenstock - move bytes between files and host or accelerator memory by the
 * shortest path the machine allows, and say which path was taken.
 *
 * Rules that hold for every call below, so that they are not repeated:
 *
 *   - int results are >= 0 on success and -errno on failure; errno itself is left
 *     as it was.  pst_error_text() then holds a sentence with the cause and the cure.
 *   - ret_* arguments are written on success only.
 *   - *_free() and *_close() accept NULL and return NULL.
 *   - Different objects may be used from different threads at once; one object
 *     from one thread at a time, unless its comment says otherwise.  pst_mem and
 *     pst_file may be named in requests of any number of queues at once.
 *   - Lengths and offsets are bytes in uint64_t; the sum of an offset and a length
 *     must fit int64_t.  Deadlines are absolute CLOCK_MONOTONIC nanoseconds.
 *   - Structures of options start with their size, so that a program built against
 *     an older header runs on a newer library: set it to sizeof() and zero the rest.
 *     An option this library is too old to know is refused with -E2BIG.
 *   - No call is a cancellation point: a thread that is cancelled in one ends after it.
 *     pst_queue_reap() and others that wait do so to their end.
 *   - After fork() the child gets -EOWNERDEAD from every call on an object of its
 *     parent and from every call that would make a new one; exec() is fine.
 *   - The library prints nothing, installs no signal handler and leaves the caller's
 *     signal mask, environment and accelerator context as they were.  PST_LOG=debug
 *     in the environment, or pst_log_set(), shows what it does.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PST_VERSION_MAJOR 0
#define PST_VERSION_MINOR 1
#define PST_VERSION_PATCH 0

#ifndef PST_API
#define PST_API __attribute__((visibility("default")))
#endif

struct pst_mem;    /* a range of memory on one device */
struct pst_file;   /* an open file */
struct pst_queue;  /* requests in flight; one owner thread */
struct pst_window; /* a CPU mapping of device memory */
struct pst_peer;   /* another process or host; no call takes one yet */

/* ------------------------------------------------------------------ names */

/* Kinds of memory. */
enum pst_kind {
	PST_KIND_HOST = 1,   /* memory of this process that the CPU may touch */
	PST_KIND_SOFT = 2,   /* the software device: an accelerator without silicon */
	PST_KIND_CUDA = 3,   /* NVIDIA GPUs, through libcuda where it is installed */
	PST_KIND_GAUDI = 4,  /* Habana Gaudi; no provider in this version */
	PST_KIND_DMABUF = 5, /* a dma-buf descriptor; no provider in this version */
};

/*
 * Paths.  A completion carries a set of them, one bit for each hop that ran: a read
 * into device memory that was staged out of an O_DIRECT read has STAGED | DIRECT.
 */
enum pst_path {
	PST_PATH_DIRECT = 1,    /* file hop: O_DIRECT between the file and host memory */
	PST_PATH_CACHED = 2,    /* file hop: out of the page cache, never waiting for a disk */
	PST_PATH_BUFFERED = 3,  /* file hop: through the page cache, waiting where it must */
	PST_PATH_STAGED = 4,    /* device hop: by asynchronous copies from a pinned pool */
	PST_PATH_WINDOW = 5,    /* device hop: through a CPU mapping of device memory */
	PST_PATH_PAGECACHE = 6, /* device DMA straight from the page cache */
	PST_PATH_GATHER = 7,    /* device hop: staged, scattered by one device kernel */
	PST_PATH_GDS = 8,       /* cuFile, when it is really direct */
	PST_PATH_P2P = 9,       /* O_DIRECT into peer-to-peer pages of the device */
	PST_PATH_RDMA = 10,     /* the storage service reads or writes registered memory */
	PST_PATH_TCP = 11,      /* the storage service over a socket */
	PST_PATH_MAX = 15,      /* largest value a path can ever have */
};

/* The bit of a path in pst_done.paths. */
#define PST_PATH_BIT(path) (1u << (path))

/* Why a path that exists in principle was not the one used. */
enum pst_why {
	PST_WHY_NONE = 0,          /* the path used is the one wanted */
	PST_WHY_NO_DEVICE = 1,     /* the path needs an accelerator that is not here */
	PST_WHY_NO_DIRECT = 2,     /* this file takes no O_DIRECT; detail: errno, ERANGE for an
				    * alignment beyond 4 KiB of memory or 64 KiB of offset, or 0 */
	PST_WHY_UNALIGNED = 3,     /* offset, length or memory; detail: alignment in bytes */
	PST_WHY_NOT_RESIDENT = 4,  /* not (all) in the page cache */
	PST_WHY_MEMLOCK = 5,       /* memory could not be pinned; detail: errno */
	PST_WHY_NO_URING = 6,      /* io_uring is not to be had; detail: errno */
	PST_WHY_NO_PROVIDER = 7,   /* this kind of memory does not offer the path; detail: 0, or
				    * the PST_IO_* of the request that the path does not do */
	PST_WHY_NOT_PROVEN = 8,    /* the path gave wrong data or could not be proven */
	PST_WHY_NOT_REMOTE = 9,    /* the path is for remote files, this one is local */
	PST_WHY_DIRECTION = 10,    /* the path does not serve this operation */
	PST_WHY_NOT_STABLE = 11,   /* the path needs a file opened with PST_FILE_STABLE */
	PST_WHY_DIRECT_ERROR = 12, /* O_DIRECT failed on this file; detail: errno */
	PST_WHY_NO_WINDOW = 13,    /* no window on this memory is to be had; detail: errno */
	PST_WHY_NO_GDS = 14,       /* cuFile was not used; detail: errno, EAGAIN: not yet */
	PST_WHY_MIXED = 15,        /* other writes of the file go through the page cache just now */
	PST_WHY_MAX = 31,          /* largest value a reason can ever have */
};

/* Operations.  4 to 7 are reserved for PUT, GET, SEND and RECV between peers. */
enum pst_op {
	PST_OP_READ = 1,  /* file -> memory */
	PST_OP_WRITE = 2, /* memory -> file; writes under way must not overlap in the file.  By
			   * O_DIRECT as a whole, or through the page cache as a whole, and of one
			   * file never both at once: see PST_WHY_MIXED */
	PST_OP_SYNC = 3,  /* make earlier writes of this queue to the file durable */
};

/* ---------------------------------------------------------------- library */

/**
 * pst_version() - version of the library that is running
 *
 * Return: "major.minor.patch", a constant string.  Compare it with
 * PST_VERSION_* of the header that the program was built with.
 */
PST_API const char *pst_version(void);

/**
 * pst_error_text() - the sentence for the calling thread's last failure
 *
 * The text belongs to the library and stays valid until the thread's next failing call.
 *
 * Return: cause and cure in one sentence; "" before the first failure.
 */
PST_API const char *pst_error_text(void);

enum pst_log_level { PST_LOG_ERROR = 1, PST_LOG_WARN = 2, PST_LOG_INFO = 3, PST_LOG_DEBUG = 4 };

typedef void (*pst_log_fn)(void *arg, int level, const char *line);

/**
 * pst_log_set() - receive the library's log lines
 * @fn:    called with each line, without its newline, from any thread; it must not
 *         call the library.  NULL goes back to PST_LOG's setting.
 * @arg:   handed to @fn
 * @level: the most detailed level wanted, PST_LOG_ERROR to PST_LOG_DEBUG
 *
 * Without a callback the environment variable PST_LOG (error, warn, info, debug)
 * sends lines to standard error; it is ignored in set-uid programs.
 * Safe from any thread.  In a forked child of a process that used the library there
 * are no more lines, and this does nothing.
 */
PST_API void pst_log_set(pst_log_fn fn, void *arg, int level);

/* ---------------------------------------------------------------- devices */

#define PST_DEVICE_NAME_MAX 64

/* A device that holds memory.  uuid is what identifies it; an index may change. */
struct pst_device {
	size_t sz;                       /* sizeof(struct pst_device) */
	uint32_t kind;                   /* enum pst_kind */
	uint32_t index;                  /* among devices of its kind, from 0 */
	char name[PST_DEVICE_NAME_MAX];  /* what pst_mem_alloc() takes: "soft:0", "host" */
	char model[PST_DEVICE_NAME_MAX]; /* for people */
	char pci[16];                    /* "0000:17:00.0", or "" */
	uint8_t uuid[16];                /* all zero for the host */
	int32_t numa_node;               /* -1 when unknown */
	uint32_t reserved;
	uint64_t total; /* bytes of memory, 0 when unknown */
};

/**
 * pst_device_list() - the devices whose memory this library can serve
 * @ret_devs: filled with up to @max devices, host first; may be NULL when @max is 0
 * @max:      room in @ret_devs; each element's sz must be set before the call
 *
 * Return: how many there are, which may be more than @max; -EINVAL for a bad sz.
 */
PST_API int pst_device_list(struct pst_device *ret_devs, unsigned max);

/**
 * pst_device_find() - one device by name
 * @name: "host", "soft" (the first of its kind), "soft:0", "cuda:0", a PCI address
 *        ("0000:17:00.0") or a UUID (32 hex digits, dashes allowed)
 * @ret:  the device; its sz must be set before the call
 *
 * Return: 0, -EINVAL for a name of none of these forms, -ENODEV when there is no such
 * device here; the sentence then says what is missing.
 */
PST_API int pst_device_find(const char *name, struct pst_device *ret);

#define PST_DEVICE_TEXT_MAX 4096 /* bytes that are always enough for pst_device_text() */

/**
 * pst_device_text() - what is known of a device beyond struct pst_device
 * @device: a name as pst_device_find() takes it
 * @buf:    receives lines "name: value\n", always terminated; of no meaning on failure
 * @len:    of @buf, bytes
 *
 * For people and reports: names stay as they are, new ones may come.  Values are read
 * from the device's driver and from the kernel's files at each call; what neither tells, as
 * in some containers, is "unknown".  Makes no context on the device.  Safe from any thread.
 *
 * Return: bytes of the text without its end, 0 where nothing more is known; -EINVAL for a
 * NULL argument or a name of no known form; -ENODEV when there is no such device; -ENOSPC
 * when @buf is too small.
 */
PST_API int pst_device_text(const char *device, char *buf, size_t len);

/* ----------------------------------------------------------------- memory */

#define PST_MEM_SHARED (1u << 0) /* may be exported to another process */
#define PST_MEM_PINNED (1u << 1) /* wrap: the caller promises that the pages stay */
#define PST_MEM_LATER (1u << 2)  /* wrap: host memory that need not be there yet */

struct pst_mem_opts {
	size_t sz;      /* sizeof(struct pst_mem_opts) */
	uint32_t flags; /* PST_MEM_* */
	uint32_t kind;  /* wrap: enum pst_kind, 0 finds it out */
};

struct pst_mem_info {
	size_t sz;          /* sizeof(struct pst_mem_info) */
	uint32_t kind;      /* enum pst_kind */
	uint32_t flags;     /* PST_MEM_* in force */
	uint64_t addr;      /* address of the first byte, as the device's API knows it */
	uint64_t len;       /* bytes */
	uint64_t base;      /* of the allocation that holds the range */
	uint64_t size;      /* of that allocation */
	uint64_t buffer_id; /* of that allocation; never used twice in a process */
	char device[PST_DEVICE_NAME_MAX];
};

/**
 * pst_mem_alloc() - allocate memory on a device
 * @device:  a name as pst_device_find() takes it
 * @len:     bytes, at least 1; rounded up to pages inside
 * @opts:    NULL for the defaults
 * @ret_mem: the memory, to be freed with pst_mem_free()
 *
 * Host memory is zeroed and page aligned, and what a queue uses of it again and again is
 * registered with the kernel, as far as RLIMIT_MEMLOCK allows.  Device memory is as the device
 * gives it.
 *
 * Return: 0; -EINVAL for zero length or an unknown option; -ENODEV when there is no such
 * device; -ENOMEM when device, address space or RLIMIT_AS is exhausted; -EMFILE without
 * a free descriptor.
 */
PST_API int pst_mem_alloc(const char *device, uint64_t len, const struct pst_mem_opts *opts,
			  struct pst_mem **ret_mem);

/**
 * pst_mem_wrap() - use memory that the caller allocated
 * @addr:    address of the first byte.  A number and not a pointer, because for an
 *           accelerator it must never be dereferenced.  It may lie inside an allocation.
 * @len:     bytes, at least 1
 * @opts:    NULL for the defaults
 * @ret_mem: the memory, to be given back with pst_mem_free()
 *
 * The memory stays the caller's and must stay allocated until pst_mem_free() and the end
 * of every request on it.  Host memory that is wrapped is not registered, so that
 * memory freed too early gives -EFAULT and not silence; PST_MEM_PINNED says that it will
 * stay mapped and makes requests cheaper.
 *
 * If another process shrinks the file behind wrapped host memory, or another thread unmaps or
 * protects it, requests that need it fail with -EFAULT and no signal is raised: the library
 * leaves such memory to the kernel.  A checksum costs a copy there that memory by
 * pst_mem_alloc() does without.
 *
 * With PST_MEM_LATER, which goes with PST_KIND_HOST alone, nobody looks whether the range is
 * accessible: addresses may be reserved now and get their memory later.  Requests that meet
 * addresses without memory fail with -EFAULT.
 *
 * The kernel's copy faults pages of a wrap in on the caller's thread.  Where that may hang, as
 * with a mapping of a file on FUSE or a network file system, pst_queue_submit() and
 * pst_queue_reap() may come back after the deadlines; fault such pages in first.
 *
 * Return: 0; -EINVAL for address 0, zero length or an overflow; -EFAULT when no device
 * knows the range and the CPU may not access all of it (freed or never allocated); -ERANGE
 * when it reaches past its allocation.
 */
PST_API int pst_mem_wrap(uint64_t addr, uint64_t len, const struct pst_mem_opts *opts,
			 struct pst_mem **ret_mem);

/**
 * pst_mem_free() - give memory back
 * @mem: may have requests in flight: the last of them frees it then
 *
 * Memory that completions reported PST_DONE_BUSY for stays allocated until it is quiet.
 * Wrapped memory is the caller's: call pst_mem_drain() before freeing it.
 *
 * Return: NULL.
 */
PST_API struct pst_mem *pst_mem_free(struct pst_mem *mem);

/**
 * pst_mem_drain() - wait until nothing can touch the memory any more
 * @mem:         the memory; no other thread may prepare requests on it meanwhile
 * @deadline_ns: when to stop waiting; 0 only looks
 *
 * Counts requests of every queue, completed or not.  Safe from any thread.  Requests
 * of a queue that its owner has not submitted count too.
 *
 * Return: 0 when quiet, -EBUSY when a request may still touch it at the deadline.
 */
PST_API int pst_mem_drain(struct pst_mem *mem, uint64_t deadline_ns);

/**
 * pst_mem_info() - facts of a piece of memory
 * @mem: the memory
 * @ret: filled in; its sz must be set before the call
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_mem_info(const struct pst_mem *mem, struct pst_mem_info *ret);

/**
 * pst_mem_ptr() - the pointer through which the CPU may use the memory
 * @mem: the memory
 *
 * Return: the pointer for host memory, NULL for every other kind.
 */
PST_API void *pst_mem_ptr(const struct pst_mem *mem);

/**
 * pst_mem_copy_in() - copy from a caller's buffer into memory of any kind
 * @mem: the target
 * @off: first byte in @mem
 * @src: host memory
 * @len: bytes
 *
 * Blocks until the bytes are there.  For set-up and checks; requests are the fast way.
 *
 * Return: 0; -ERANGE past the end of @mem; -EFAULT when host memory that it needs is not there
 * any more; -EIO when the device failed.
 */
PST_API int pst_mem_copy_in(struct pst_mem *mem, uint64_t off, const void *src, uint64_t len);

/**
 * pst_mem_copy_out() - copy from memory of any kind into a caller's buffer
 * @mem: the source
 * @off: first byte in @mem
 * @dst: host memory
 * @len: bytes
 *
 * Return: as pst_mem_copy_in().
 */
PST_API int pst_mem_copy_out(struct pst_mem *mem, uint64_t off, void *dst, uint64_t len);

/**
 * pst_mem_sync() - wait for what the memory's device was given to do
 * @mem: memory of any kind; the host's needs no waiting
 *
 * Work that this process gave to the device before the call is done when it returns, whatever
 * stream it is on.  A write that is submitted then takes the bytes which that work made, and
 * work that is started then sees the bytes of reads that have completed.  For CUDA this is the
 * work of the context that the memory belongs to, the device's primary one as a rule.  It waits
 * for more than a program needs that can name its stream, see struct pst_io.
 *
 * Takes as long as that work.  Not while a stream of the context is captured into a graph: CUDA
 * refuses and spoils the capture.  Safe from any thread.
 *
 * Return: 0; -EFAULT when wrapped memory was freed by its owner; -EBUSY while a stream is
 * captured; -EIO when the device failed.
 */
PST_API int pst_mem_sync(struct pst_mem *mem);

/* ----------------------------------------------------------------- grants */

#define PST_RIGHT_READ (1u << 0)
#define PST_RIGHT_WRITE (1u << 1)

/*
 * The right to use another process' memory.  fd and ipc open the whole allocation,
 * the neighbours of the range included: treat a grant as a secret.  The library
 * never logs one, never writes one to disk and never sends one to another uid.
 */
struct pst_grant {
	size_t sz;        /* sizeof(struct pst_grant) */
	uint32_t kind;    /* enum pst_kind */
	uint32_t rights;  /* PST_RIGHT_* */
	uint8_t uuid[16]; /* of the device */
	uint64_t size;    /* of the allocation */
	uint64_t off;     /* of the range in the allocation */
	uint64_t len;     /* of the range */
	int32_t fd;       /* owned by whoever holds the grant; -1 for none */
	uint32_t reserved;
	uint8_t ipc[64]; /* the vendor's handle; zero for host and soft */
};

/**
 * pst_mem_export() - make a grant for a range of memory
 * @mem:       host memory allocated with PST_MEM_SHARED, or device memory
 * @off:       first byte of the range in @mem
 * @len:       bytes
 * @rights:    PST_RIGHT_*
 * @ret_grant: the grant, to be ended with pst_grant_done(); its sz must be set
 *
 * Return: 0; -ERANGE past the end of @mem; -EINVAL for no or unknown rights; -EOPNOTSUPP
 * for memory that has no handle to export; -EMFILE without a free descriptor.
 */
PST_API int pst_mem_export(struct pst_mem *mem, uint64_t off, uint64_t len, uint32_t rights,
			   struct pst_grant *ret_grant);

/**
 * pst_mem_import() - use the memory that a grant names
 * @grant:   stays the caller's; its fd is duplicated
 * @ret_mem: the memory, to be freed with pst_mem_free()
 *
 * Nothing in @grant is believed: the descriptor's type and size are checked first.
 *
 * Return: 0; -EINVAL for a grant that does not check; -ENODEV when its device is not
 * here; -EACCES for rights that the descriptor does not give; -ENOMEM, -EMFILE.
 */
PST_API int pst_mem_import(const struct pst_grant *grant, struct pst_mem **ret_mem);

/**
 * pst_grant_done() - close what a grant holds and wipe it
 * @grant: may be NULL
 */
PST_API void pst_grant_done(struct pst_grant *grant);

/**
 * pst_grant_send() - hand a grant to the process at the other end of a socket
 * @sock:        a connected AF_UNIX SOCK_STREAM or SOCK_SEQPACKET socket
 * @grant:       stays the caller's
 * @deadline_ns: when to give up; 0 tries once
 *
 * Return: 0; -EACCES when the peer runs under another uid, or under one that stands for all users
 * without a number in this user namespace; -EPROTOTYPE when @sock is not a connected AF_UNIX
 * socket; -ETIMEDOUT; -EPIPE when the peer is gone.
 */
PST_API int pst_grant_send(int sock, const struct pst_grant *grant, uint64_t deadline_ns);

/**
 * pst_grant_recv() - receive a grant
 * @sock:        as in pst_grant_send()
 * @ret_grant:   the grant, to be ended with pst_grant_done(); its sz must be set
 * @deadline_ns: when to give up; 0 tries once
 *
 * Return: 0; -EACCES as pst_grant_send(); -EBADMSG for bytes that are no grant; -ETIMEDOUT; -EPIPE
 * when the peer is gone.
 */
PST_API int pst_grant_recv(int sock, struct pst_grant *ret_grant, uint64_t deadline_ns);

/* ---------------------------------------------------------------- windows */

/*
 * A window is device memory in the address space of the CPU: stores and loads through
 * it go over the bus, one by one, and no device queue is involved.  Small stores take a
 * tenth of a microsecond, loads one; a device copy takes five or more to start.
 *
 * What the CPU stores is seen by device work started after the store was fenced:
 * pst_window_store() ends with the fence, users of the pointer call pst_window_fence().
 * Work that runs already may see it late, in pieces, or in another order.
 */

enum pst_caching {
	PST_CACHING_WC = 1,     /* write combining: stores gather, loads go to the device */
	PST_CACHING_CACHED = 2, /* as ordinary memory; the hardware keeps it coherent */
	PST_CACHING_DEVICE = 3, /* neither gathered nor cached */
};

#define PST_WINDOW_READ_ONLY (1u << 0) /* only loads */
#define PST_WINDOW_UNFENCED (1u << 1)  /* pst_window_store() leaves the fence to the caller */

struct pst_window_opts {
	size_t sz;           /* sizeof(struct pst_window_opts) */
	uint32_t flags;      /* PST_WINDOW_* */
	uint32_t caching;    /* enum pst_caching that it must have; 0: any */
	const char *backend; /* the one to use; NULL: the first that works */
	const char *kernel;  /* the instructions to copy with, one of pst_window_kernels(), for
			      * tests and tools; NULL: the fastest here, by measurement */
};

struct pst_window_info {
	size_t sz;        /* sizeof(struct pst_window_info) */
	uint64_t len;     /* bytes */
	uint32_t caching; /* enum pst_caching */
	uint32_t rights;  /* PST_RIGHT_* */
	uint32_t state;   /* enum pst_state: PROVEN when data went through this class of
			   * window both ways and was compared on the device's side */
	uint32_t reserved;
	char backend[16]; /* "gdrdrv", "dmabuf", "nvrm", "soft" */
	char store[16];   /* the kernel that pst_window_store() uses for long copies:
			   * one of pst_window_kernels() */
	char load[16];    /* the one of pst_window_load() */
};

/**
 * pst_window_open() - map device memory for the CPU
 * @mem:        device memory with any history: allocated, wrapped, imported
 * @off:        first byte in @mem; any alignment
 * @len:        bytes, at least 1
 * @opts:       NULL for the defaults
 * @ret_window: the window, to be closed with pst_window_close()
 *
 * Backends are tried in order: gdrdrv (where its kernel module is loaded), dmabuf (where the
 * driver lets the CPU map one), nvrm (NVIDIA's own driver interface, no module needed), soft.
 * The first window of a class of memory on a device is proven on memory of its own.  The
 * window keeps the memory: it stays valid after pst_mem_free() of @mem, and for
 * wrapped memory the bytes stay mapped, if of no use, after their owner freed them.
 * A forked child does not inherit the mapping.  Windows may overlap.
 *
 * Return: 0; -EINVAL for a zero length or an unknown option; -ERANGE past the end of @mem;
 * -EACCES for rights that the grant of the memory does not give; -EOPNOTSUPP when no
 * backend can (the sentence says why of each) or for a kernel that this CPU or this
 * mapping cannot; -ENOMEM, -EMFILE.
 */
PST_API int pst_window_open(struct pst_mem *mem, uint64_t off, uint64_t len,
			    const struct pst_window_opts *opts, struct pst_window **ret_window);

/**
 * pst_window_open_grant() - map what a grant names, without a device context
 * @grant:      stays the caller's
 * @opts:       NULL for the defaults
 * @ret_window: the window on the grant's range, to be closed with pst_window_close()
 *
 * For a process that stores into or loads from the memory of another and loads no vendor
 * library for it.  Without a device context nothing can be proven by data here, so
 * state is PST_STATE_POSSIBLE; everything else about the handle is checked.
 *
 * Return: as pst_window_open(), and -EINVAL for a grant that does not check.
 */
PST_API int pst_window_open_grant(const struct pst_grant *grant, const struct pst_window_opts *opts,
				  struct pst_window **ret_window);

/**
 * pst_window_close() - unmap a window
 * @window: no thread may be using its pointer any more
 *
 * Return: NULL.
 */
PST_API struct pst_window *pst_window_close(struct pst_window *window);

/**
 * pst_window_ptr() - where the CPU finds the bytes
 * @window: the window
 *
 * The compiler must not invent accesses: use volatile, atomics or non-temporal
 * intrinsics, and pst_window_fence() afterwards.  The kernel may write there too: read(2)
 * into it works, O_DIRECT does not.
 *
 * Return: the address of the first byte.
 */
PST_API void *pst_window_ptr(const struct pst_window *window);

/**
 * pst_window_info() - facts of a window
 * @window: the window
 * @ret:    filled in; its sz must be set before the call
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_window_info(const struct pst_window *window, struct pst_window_info *ret);

/**
 * pst_window_store() - copy into device memory by the CPU
 * @window: the window; any number of threads may copy at once
 * @off:    first byte in the window; any alignment
 * @src:    host memory, any alignment
 * @len:    bytes
 *
 * The stores are fenced when it returns, which costs a short one most of its time.  Who has
 * several to make opens the window with PST_WINDOW_UNFENCED and calls pst_window_fence() behind
 * the last; until then they may reach the device in any order.
 *
 * Return: 0; -ERANGE past the end of @window; -EACCES when it is read-only.
 */
PST_API int pst_window_store(struct pst_window *window, uint64_t off, const void *src,
			     uint64_t len);

/**
 * pst_window_load() - copy out of device memory by the CPU
 * @window: the window; any number of threads may copy at once
 * @off:    first byte in the window; any alignment
 * @dst:    host memory, any alignment
 * @len:    bytes
 *
 * Loads go past what the caller stored before through another pointer only after
 * pst_window_fence(); within pst_window_store() and _load() order is kept.
 *
 * Return: 0; -ERANGE past the end of @window.
 */
PST_API int pst_window_load(struct pst_window *window, uint64_t off, void *dst, uint64_t len);

/**
 * pst_window_fence() - order the calling thread's stores through window pointers
 *
 * Everything stored before is on its way to the device before anything that is stored after.
 */
PST_API void pst_window_fence(void);

/**
 * pst_window_kernels() - the instructions that windows could copy with on this CPU
 * @ret_names: filled with up to @max constant strings, the preferred first: "avx512",
 *             "avx2", "movdir64b", "sse4.1", "sse2", "neon", "strict" (aligned words of at
 *             most 8 bytes), "memcpy"; may be NULL when @max is 0
 * @max:       room in @ret_names
 *
 * "movdir64b" and "sse2" only store and "sse4.1" only loads: forced, they leave the other
 * direction as it would be without.  Windows of PST_CACHING_DEVICE take "strict" alone.
 * Any thread.
 *
 * Return: how many there are, which may be more than @max.
 */
PST_API int pst_window_kernels(const char **ret_names, unsigned max);

struct pst_window_backend {
	size_t sz;      /* sizeof(struct pst_window_backend) */
	char name[16];  /* "nvrm" */
	uint32_t state; /* enum pst_state */
	int32_t err;    /* positive errno when impossible, else 0 */
	char text[232]; /* why not, and what to do about it; "" when possible */
};

/**
 * pst_window_backends() - what could open windows on a device
 * @device: a name as pst_device_find() takes it
 * @ret:    filled with up to @max backends in the order in which they are tried; each
 *          element's sz must be set before the call; may be NULL when @max is 0
 * @max:    room in @ret
 *
 * Opens a window of each on a little memory of the device, and proves it.
 *
 * Return: how many there are for this kind of device, which may be more than @max; -ENODEV,
 * -EINVAL.
 */
PST_API int pst_window_backends(const char *device, struct pst_window_backend *ret, unsigned max);

/* ------------------------------------------------------------------ files */

#define PST_FILE_READ (1u << 0)   /* open for reading */
#define PST_FILE_WRITE (1u << 1)  /* open for writing */
#define PST_FILE_CREATE (1u << 2) /* create it if it is missing, mode 0666 less umask */
#define PST_FILE_EXCL (1u << 3)   /* with CREATE: fail if it exists */
#define PST_FILE_TRUNC (1u << 4)  /* empty it */
#define PST_FILE_STABLE \
	(1u << 5)                /* nobody changes it while it is open here, so that devices
				   * may read its page cache directly */
#define PST_FILE_PLAIN (1u << 6) /* never O_DIRECT; such requests say no `why' */

struct pst_file_opts {
	size_t sz;      /* sizeof(struct pst_file_opts) */
	uint32_t mode;  /* of a created file; 0 means 0666 less umask */
	uint32_t flags; /* 0 */
};

struct pst_file_info {
	size_t sz;          /* sizeof(struct pst_file_info) */
	uint64_t size;      /* bytes now */
	uint32_t flags;     /* PST_FILE_* */
	uint32_t direct;    /* 1 when O_DIRECT is possible */
	uint32_t mem_align; /* O_DIRECT: of the memory address, bytes; 0 without */
	uint32_t off_align; /* O_DIRECT: of file offset and length, bytes; 0 without */
	uint32_t why;       /* enum pst_why: why O_DIRECT is not possible */
	int32_t detail;     /* of why */
	char fs[16];        /* file system: "ext4", "xfs", "tmpfs", "fuse", ... or hex magic */
};

/**
 * pst_file_open() - open a regular file or a block device
 * @path:     as open(2) takes it
 * @flags:    PST_FILE_*; READ, WRITE or both
 * @opts:     NULL for the defaults
 * @ret_file: the file, to be closed with pst_file_close()
 *
 * Opens the file twice where the file system takes O_DIRECT, once with and once without.
 *
 * Return: 0; -EINVAL for flags that make no sense; -EISDIR, -ENXIO (a FIFO, socket or
 * character device), -ENOENT, -EACCES, -EMFILE, -ENFILE and what open(2) says else.
 */
PST_API int pst_file_open(const char *path, uint32_t flags, const struct pst_file_opts *opts,
			  struct pst_file **ret_file);

/**
 * pst_file_wrap() - use a descriptor that the caller opened
 * @fd:       a regular file or block device; it is duplicated and stays the caller's
 * @flags:    PST_FILE_STABLE and PST_FILE_PLAIN or 0; direction comes from the descriptor
 * @ret_file: the file, to be closed with pst_file_close()
 *
 * Return: 0; -EBADF; -ENXIO for anything but a regular file or block device; -EINVAL for
 * a descriptor opened with O_APPEND or O_PATH; -EMFILE.
 */
PST_API int pst_file_wrap(int fd, uint32_t flags, struct pst_file **ret_file);

/**
 * pst_file_close() - close a file
 * @file: may have requests in flight: the last of them closes it then
 *
 * Does not sync; prepare a PST_OP_SYNC for that.
 *
 * Return: NULL.
 */
PST_API struct pst_file *pst_file_close(struct pst_file *file);

/**
 * pst_file_info() - facts of a file
 * @file: the file
 * @ret:  filled in; its sz must be set before the call
 *
 * Return: 0, -EINVAL for a bad sz, or what fstat(2) says.
 */
PST_API int pst_file_info(const struct pst_file *file, struct pst_file_info *ret);

/* --------------------------------------------------------------- requests */

/*
 * A run of equal pieces.  Piece i of count moves len bytes between file_off +
 * i * file_stride and mem_off + i * mem_stride: block tables, strided layers.
 */
struct pst_seg {
	uint64_t file_off;    /* in the file */
	uint64_t mem_off;     /* in io.mem */
	uint64_t len;         /* of one piece, at least 1 */
	uint64_t file_stride; /* ignored when count < 2 */
	uint64_t mem_stride;  /* ignored when count < 2 */
	uint64_t count;       /* pieces; 0 means 1 */
};

#define PST_SEGS_MAX (1u << 20)   /* segments in one request */
#define PST_PIECES_MAX (1u << 24) /* pieces in one request */

#define PST_IO_STRICT \
	(1u << 0) /* fail with -EOPNOTSUPP where `why' would be set, MEMLOCK
				   * apart: that changes the price and not the path */
#define PST_IO_CRC32C \
	(1u << 1)                    /* CRC-32C of the bytes, in piece order, in the completion;
				   * of no meaning where pieces overlap in memory */
#define PST_IO_DATASYNC (1u << 2)    /* SYNC: fdatasync(2) is enough */
#define PST_IO_STREAM_WAIT (1u << 3) /* READ with a stream: it waits for the bytes, see below */

#define PST_NO_DEADLINE UINT64_MAX

/*
 * A policy: 0 for automatic, else up to eight paths in order of preference, four bits
 * each, the first lowest.  Only listed paths are tried.  For device memory a file hop
 * in the list restricts the file hop of the device path named with it:
 * PST_POLICY2(PST_PATH_STAGED, PST_PATH_DIRECT) stages and takes O_DIRECT only.
 */
#define PST_POLICY_AUTO UINT64_C(0)
#define PST_POLICY1(a) ((uint64_t)(a))
#define PST_POLICY2(a, b) ((uint64_t)(a) | (uint64_t)(b) << 4)
#define PST_POLICY3(a, b, c) (PST_POLICY2(a, b) | (uint64_t)(c) << 8)

/*
 * Order with a stream of the program.  io.stream names it as the device's own API does: for
 * CUDA a CUstream, which cudaStream_t is too, also CU_STREAM_LEGACY (1) and
 * CU_STREAM_PER_THREAD (2) of the context and the thread that call pst_queue_submit().  NULL is
 * no stream, and not the default one.
 *
 * The request begins when the work is done that was on the stream at pst_queue_submit().  Later
 * work does not wait: it must not use what is read, nor overwrite what is written, before
 * the completion.  A SYNC has no memory, and takes no stream.  Requests of one pst_queue_submit()
 * that name the same stream begin together.  What they name must be on its device.
 *
 * With PST_IO_STREAM_WAIT later work on the stream of a READ does wait, until the bytes are in
 * memory or the request has ended otherwise: the completion tells which.  The stream goes on
 * without pst_queue_reap(), also at the deadline, so that the program may wait for it instead.  A
 * request that is late or cancelled, or whose queue is freed, lets it go at once, but while
 * the device copies for it: then when that ends, after at most 100 ms.  If it did not end, the
 * completion says PST_DONE_BUSY, and what the stream does then must leave the memory alone.
 *
 * A stream that waits occupies a queue of the device, and what else is in that queue waits
 * too: kernels and copies of other streams may be late, and if a copy of the request itself
 * comes to stand there, only its deadline ends it.  So use the flag with a short deadline;
 * one stream of a device waits at a time, and a read that would make another wait meanwhile,
 * or comes by another queue, completes with -EBUSY.
 *
 * The stream must be valid until pst_queue_submit() returns, and its context until the completion.
 * One that is being captured into a graph cannot be named: pst_queue_prep() or the completion
 * says -EBUSY, and the capture stays as it was.
 */

/* One request: 128 bytes, fixed.  Zero what is not used. */
struct pst_io {
	uint32_t op;     /* enum pst_op */
	uint32_t flags;  /* PST_IO_* */
	uint64_t policy; /* PST_POLICY* */
	struct pst_file *file;
	struct pst_mem *mem;        /* NULL for SYNC */
	struct pst_peer *peer;      /* NULL */
	const void *key;            /* NULL */
	const struct pst_seg *segs; /* NULL: the inline piece below; else it must stay
				     * valid and unchanged until the completion */
	uint64_t nr_segs;           /* 0 with segs NULL, else 1 to PST_SEGS_MAX */
	uint64_t file_off;          /* the inline piece */
	uint64_t mem_off;
	uint64_t len;
	void *stream;         /* to be ordered with, see above; or NULL */
	uint64_t deadline_ns; /* 0: the queue's default; PST_NO_DEADLINE */
	uint64_t user_data;   /* comes back in the completion */
	uint64_t reserved[2]; /* 0 */
};

#define PST_DONE_BUSY \
	(1u << 0)                 /* hardware or kernel may still touch the memory or, for
				    * a write, the file; see pst_mem_drain() */
#define PST_DONE_CRC32C (1u << 1) /* crc32c is valid */
#define PST_DONE_PINNED (1u << 2) /* the memory was registered with the kernel */
#define PST_DONE_PROOF (1u << 3)  /* this request proved its path with its own data */

/* One completion: 64 bytes, fixed. */
struct pst_done {
	uint64_t user_data;
	int64_t res;     /* bytes moved: less than asked only where a read met the end of
			     * the file (memory behind it may have been overwritten); or
			     * -errno */
	uint64_t prefix; /* bytes complete from the first piece on, also when res < 0 */
	uint32_t paths;  /* set of PST_PATH_BIT() */
	uint32_t why;    /* enum pst_why */
	int32_t detail;  /* of why */
	uint32_t flags;  /* PST_DONE_* */
	uint32_t crc32c;
	uint32_t op; /* enum pst_op */
	uint64_t reserved[2];
};

/**
 * pst_done_text() - a completion in words
 * @done: the completion
 * @buf:  receives the text, always terminated
 * @len:  of @buf, at least 1
 *
 * Return: @buf.
 */
PST_API const char *pst_done_text(const struct pst_done *done, char *buf, size_t len);

/**
 * pst_path_name() - the name of one path
 * @path: enum pst_path
 *
 * Return: "direct", "staged", ...; "unknown" for anything else.
 */
PST_API const char *pst_path_name(uint32_t path);

/**
 * pst_why_name() - the short name of a reason
 * @why: enum pst_why
 *
 * Return: "no-direct", "unaligned", ...; "unknown" for anything else.
 */
PST_API const char *pst_why_name(uint32_t why);

/**
 * pst_why_text() - a reason and its cure as a sentence
 * @why:    enum pst_why
 * @detail: the completion's detail
 * @buf:    receives the text, always terminated
 * @len:    of @buf, at least 1
 *
 * Return: @buf.
 */
PST_API const char *pst_why_text(uint32_t why, int32_t detail, char *buf, size_t len);

/* ----------------------------------------------------------------- queues */

#define PST_BACKEND_AUTO 0u /* io_uring where it is to be had, else threads */
#define PST_BACKEND_URING 1u
#define PST_BACKEND_THREADS 2u

#define PST_QUEUE_FD_ONCE (1u << 0) /* pst_queue_fd() holds for one sleep; see there */

struct pst_queue_opts {
	size_t sz;           /* sizeof(struct pst_queue_opts) */
	uint32_t depth;      /* requests in flight, 1 to 4096; 0 means 128 */
	uint32_t store;      /* PST_STORE_* */
	uint32_t timeout_ms; /* deadline of requests that name none; 0 means 300,000 */
	uint32_t flags;      /* PST_QUEUE_* */
};

/**
 * pst_queue_new() - create a queue
 * @opts:      NULL for the defaults
 * @ret_queue: the queue, to be freed with pst_queue_free()
 *
 * Allocates all that preparing, submitting and reaping need.
 *
 * Return: 0; -EINVAL for an option out of range; -EPERM or -ENOSYS when @opts asks for
 * io_uring and the machine forbids it; -ENOMEM; -EMFILE; -EAGAIN when no thread can be
 * started.
 */
PST_API int pst_queue_new(const struct pst_queue_opts *opts, struct pst_queue **ret_queue);

/**
 * pst_queue_free() - end a queue
 * @queue: requests in flight are cancelled and their completions dropped
 *
 * Waits at most 100 ms for requests under way.  What a request uses that neither ends nor
 * can be cancelled is kept until it is quiet, see pst_mem_drain().
 *
 * Return: NULL.
 */
PST_API struct pst_queue *pst_queue_free(struct pst_queue *queue);

/**
 * pst_queue_prep() - put a request into a queue
 * @queue: the queue
 * @io:    copied; io->segs is not
 *
 * Checks everything that can be checked without touching the file, and starts nothing.
 *
 * Return: 0; -EAGAIN when the queue holds its depth of requests, and for nothing else: submit,
 * reap at least one and try again; where pst_queue_reap() with a min of 1 gives 0, all of them are
 * requests that ended early and are not quiet yet (PST_DONE_BUSY), and only time or a deeper
 * queue helps; -EINVAL for
 * an unknown op or flag, a zero length, more than PST_SEGS_MAX segments or PST_PIECES_MAX
 * pieces, a reserved field that is not 0, or a stream of another device; -ERANGE for
 * a piece past the end of the memory; -EOVERFLOW for an offset plus length beyond
 * int64_t; -EBADF for a direction the file was not opened for; -EACCES for a right that the
 * grant of the memory does not give; -EBUSY while io->stream is captured; -EOPNOTSUPP for
 * what this version has not, and for a stream where the memory's kind or its driver knows
 * no order with one; and, at the queue's first request for a device, -EBUSY when the bound
 * of staging memory has no room for one more queue, also after waiting for a second, see
 * pst_limits_set(), and what starting the device's engine met: -ENOMEM, -EMFILE, -EBUSY (no
 * thread: raise the limit of processes), -EIO (it failed its proof).  Reaping does not help
 * against -EBUSY: fail the request, or try again after a pause.
 */
PST_API int pst_queue_prep(struct pst_queue *queue, const struct pst_io *io);

/**
 * pst_queue_submit() - start what was prepared
 * @queue: the queue
 *
 * Never blocks on a disk.  Small reads that the page cache holds may be done on return; beyond
 * 1 MiB of them pst_queue_reap() copies, and looks at deadlines in between.
 *
 * Return: how many requests were started; the rest stay prepared.  -errno only when
 * none could be.
 */
PST_API int pst_queue_submit(struct pst_queue *queue);

/**
 * pst_queue_reap() - take completions
 * @queue:       the queue
 * @ret_done:    room for @max completions
 * @min:         wait until there are so many, or nothing more is in flight
 * @max:         at least 1, at least @min
 * @deadline_ns: when to stop waiting; 0 only looks, PST_NO_DEADLINE waits
 *
 * Every request that was submitted completes exactly once, at the latest at its own
 * deadline (-ETIMEDOUT).  A signal does not end the wait.
 *
 * Return: how many were taken, 0 to @max; -EINVAL for bad arguments.
 */
PST_API int pst_queue_reap(struct pst_queue *queue, struct pst_done *ret_done, unsigned min,
			   unsigned max, uint64_t deadline_ns);

/**
 * pst_queue_fd() - a descriptor to sleep on
 * @queue: the queue
 *
 * Readable (poll, select, epoll) when pst_queue_reap() has something to do; every pst_queue_reap()
 * arms it anew.  So: submit, reap what is there, sleep, and again.  A wake-up may find
 * nothing, and io_uring's completions may end an epoll_wait(2) with EINTR: go round the
 * loop.  Never read or close it.
 *
 * Being armed has its price: system calls for what is there at once.  With PST_QUEUE_FD_ONCE
 * only this call arms, and pst_queue_submit() and pst_queue_reap() end it: so submit, reap what
 * is there and, if something is still in flight, call this and sleep.  It returns the same descriptor
 * each time.  Whatever woke, call pst_queue_reap(), also with nothing in flight: where it finds
 * nothing, the descriptor is not readable any more.
 *
 * Return: an eventfd that lives as long as the queue; -EAGAIN when the thread that looks
 * after its deadlines cannot be started; -ENOMEM or another -errno of the kernel's when it does
 * not take the descriptor.  After a failure pst_queue_reap() still waits as ever.
 */
PST_API int pst_queue_fd(struct pst_queue *queue);

/**
 * pst_queue_cancel() - end requests early
 * @queue:     the queue
 * @user_data: every request with this value is meant
 *
 * Each still completes exactly once: with its own result if it was done, else with
 * -ECANCELED, at the latest 100 ms from now.
 *
 * Return: how many requests were asked to end, -ENOENT when none matched.
 */
PST_API int pst_queue_cancel(struct pst_queue *queue, uint64_t user_data);

struct pst_stats {
	size_t sz;                        /* sizeof(struct pst_stats) */
	uint64_t requests;                /* completed */
	uint64_t errors;                  /* of these with res < 0 */
	uint64_t timeouts;                /* of these with -ETIMEDOUT */
	uint64_t canceled;                /* of these with -ECANCELED */
	uint64_t fallbacks;               /* of these with a reason why */
	uint64_t inflight;                /* requests not yet completed */
	uint64_t busy;                    /* completed, but not quiet yet */
	uint64_t bytes[PST_PATH_MAX + 1]; /* by path; a byte counts on every hop it took */
	uint64_t why[PST_WHY_MAX + 1];    /* requests by reason */
	uint64_t pool_bytes;              /* staging memory held now, all devices; above
					       * pool_limit only for some time after that
					       * was lowered */
	uint64_t pool_limit;              /* most that it may become, see pst_limits_set() */
	uint64_t pages_bytes;             /* page cache pinned now for devices to read */
	uint64_t pages_ns;                /* time that pinning it took so far, nanoseconds */
	uint64_t pages_limit;             /* most of it that may be pinned */
};

/**
 * pst_stats() - counters
 * @queue: a queue, or NULL for the whole process since it started
 * @ret:   filled in; its sz must be set before the call
 *
 * Safe from any thread.
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_stats(struct pst_queue *queue, struct pst_stats *ret);

/* ------------------------------------------------------------------ limits */

/* How much memory this process may pin for devices. */
struct pst_limits {
	size_t sz;            /* sizeof(struct pst_limits) */
	uint64_t pool_bytes;  /* staging memory, all devices together; 0: what PST_POOL says,
			       * else 256 MiB for each device in use */
	uint64_t pages_bytes; /* page cache of files opened with PST_FILE_STABLE; 0: what
			       * PST_PAGES says, else half of the machine's memory */
};

/**
 * pst_limits_set() - bound the memory that may be pinned
 * @limits: bounds for the whole process; NULL for the defaults
 *
 * Before or after devices are in use.  These are bounds: memory is pinned as it is needed, in
 * the background and at most 64 MiB at a time, and stays pinned for the next time.  Each
 * queue that stages for a device is sure of two slots (of 256 KiB to 4 MiB each, as the
 * device was measured) and the devices share what is left evenly.
 *
 * Lowering breaks nothing that is under way.  Staging memory above the bound is given back
 * at once where it is idle, else when the requests that use it are through.  Page cache above
 * its bound stays pinned until its file is closed.
 *
 * An environment variable that names a number of bytes ("64G", "512M"), PST_POOL or
 * PST_PAGES, holds from the start, and is then the most that a program may set: that is
 * the administrator's word.  They are ignored in set-uid programs.  Safe from any thread.
 *
 * Return: 0; -EPERM for more than the environment allows; -EBUSY when queues are sure of
 * more staging memory than @limits would allow; -EINVAL, -E2BIG for a bad sz.  Nothing is
 * changed then.
 */
PST_API int pst_limits_set(const struct pst_limits *limits);

/**
 * pst_limits_get() - the bounds that the program set
 * @ret: filled in, with 0 where it set none; its sz must be set before the call.  What
 *       holds is in pst_stats(): pool_limit and pages_limit.
 *
 * Safe from any thread.
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_limits_get(struct pst_limits *ret);

/* -------------------------------------------------------- what is possible */

enum pst_state {
	PST_STATE_IMPOSSIBLE = 0, /* not here; why says what is missing */
	PST_STATE_POSSIBLE = 1,   /* could run, not yet proven with data */
	PST_STATE_PROVEN = 2,     /* ran, and its data was compared */
};

struct pst_path_info {
	size_t sz;      /* sizeof(struct pst_path_info) */
	uint32_t path;  /* enum pst_path */
	uint32_t state; /* enum pst_state */
	uint32_t why;   /* enum pst_why */
	int32_t detail; /* of why */
};

/**
 * pst_path_check() - could a path serve this file and this memory?
 * @file: the file
 * @mem:  the memory
 * @op:   PST_OP_READ or PST_OP_WRITE
 * @path: enum pst_path
 * @ret:  the answer; its sz must be set before the call
 *
 * Moves nothing.  Residency and alignment of a request are not looked at.
 *
 * Return: 0, or -EINVAL for an unknown path or operation.
 */
PST_API int pst_path_check(struct pst_file *file, struct pst_mem *mem, uint32_t op, uint32_t path,
			   struct pst_path_info *ret);

/* One thing that a direct way between a file and a GPU needs, as pst_checks() found it. */
enum pst_check_state {
	PST_CHECK_MISSING = 0,  /* it is in the way; the text has the cure */
	PST_CHECK_UNKNOWN = 1,  /* cannot be told from here; the text says why */
	PST_CHECK_OK = 2,       /* as it should be */
	PST_CHECK_UNNEEDED = 3, /* not there, but what stands in for it is */
};

struct pst_check {
	size_t sz;      /* sizeof(struct pst_check) */
	char name[16];  /* "udev" */
	uint32_t state; /* enum pst_check_state */
	int32_t err;    /* positive errno that the machine gave, or 0 */
	char text[488]; /* what was found, and what to do about it if it is in the way */
};

#define PST_CHECK_TRIAL (1u << 0) /* also read through cuFile, and compare */

/**
 * pst_checks() - what a direct way between a file and a GPU needs, and what of it is here
 * @device: a name as pst_device_find() takes it; NULL: look at the file's side alone
 * @path:   a file, or without PST_CHECK_TRIAL a directory: then what is said holds for new files
 *          in it
 * @flags:  PST_CHECK_TRIAL
 * @ret:    filled with up to @max checks, from the library down to the wires between disk and
 *          GPU; each element's sz must be set before the call; may be NULL when @max is 0
 * @max:    room in @ret
 *
 * The checks are called "gpu", "library", "nvidia-fs", "p2pdma", "filesystem", "disk", "udev",
 * "direct-io", "iommu", "acs", "distance" and, with PST_CHECK_TRIAL, "trial"; a later version may
 * have more.  "nvidia-fs" and "p2pdma" stand in for each other.  They explain; what decides is
 * the trial: bytes read by a process of its own through cuFile, which is told to refuse what has
 * no direct way, and compared with a plain read.  It may take seconds, at most 30, and leaves the
 * calling process without cuFile.  Nothing is written, and no setting of the machine changed.
 *
 * What requests in this process met is not here but in pst_path_check().  Any thread.
 *
 * Return: how many checks there are, which may be more than @max; -ENODEV for an unknown
 * device, -EINVAL for one that is no NVIDIA GPU, for a bad sz or flag, or for a trial without a
 * device or without a file that has bytes; -ENXIO when @path is neither a regular file, a block
 * device nor a directory; and what opening it gives.
 */
PST_API int pst_checks(const char *device, const char *path, uint32_t flags, struct pst_check *ret,
		       unsigned max);

/**
 * pst_store_check() - is a store to be had on this machine?
 * @store: PST_BACKEND_URING or PST_BACKEND_THREADS
 *
 * Return: 0, or -errno of what forbids it with the sentence in pst_error_text().
 */
PST_API int pst_store_check(uint32_t store);

#ifdef __cplusplus
}
#endif
#endif
