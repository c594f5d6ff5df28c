/* SPDX-License-Identifier: MIT */
/*
 * Files, and the providers that open them.
 *
 * Every open file is a struct file.  Its provider is a const struct file_ops: local files
 * (local.h), or a scheme, which opens names like scheme://rest.  Core and back ends use only the
 * members below and the wrappers at the end; they know no provider by name.
 *
 * Any number of threads may use an open file at once.  After open(), only direct_bad and warm
 * change.
 */
#ifndef PST_FILE_FILE_H
#define PST_FILE_FILE_H

#include <sys/types.h>

#include <penstock.h>

#include "base/base.h"

#define FILE_PROVIDERS_MAX 12u
#define FILE_SCHEME_MAX 16u /* maximum characters of a scheme */
#define FILE_PLACE_MAX 48u

/* Properties that core may count on. */
#define FILE_DIRECT (1u << 0)   /* IO_OP_DIRECT bypasses every cache */
#define FILE_NOWAIT (1u << 1)   /* IO_OP_NOWAIT works: -EAGAIN instead of waiting */
#define FILE_RESIDENT (1u << 2) /* all bytes are in memory that the CPU reads */
/* Any call on the file may hang, even starting an operation and free(). */
#define FILE_MAY_HANG (1u << 3)
#define FILE_STALE (1u << 4)  /* the file's cache may lack what another machine wrote */
#define FILE_SHARED (1u << 5) /* a device that other machines may write without notice */
#define FILE_AHEAD (1u << 6)  /* the file's cache reads ahead for sequential reads */
/* Operations with IO_OP_RDMA may also have IO_OP_DEVICE, and so access device memory. */
#define FILE_DEVICE (1u << 8)
/* The file has a cache that the CPU reads; resident() or IO_OP_NOWAIT tell which bytes are
 * there. */
#define FILE_CACHE (1u << 7)

struct file_ops;
struct io_backend;
struct names_ops;
struct pst_file;
struct writers;

/* An open file; a provider's own struct begins with it. */
struct file {
	const struct file_ops *ops;
	uint32_t flags;     /* PST_FILE_* */
	uint32_t caps;      /* FILE_* */
	uint32_t mem_align; /* alignments for IO_OP_DIRECT, bytes, powers of two; 0: no
			     * FILE_DIRECT */
	uint32_t off_align;
	uint32_t why; /* enum pst_why: why FILE_DIRECT is not set; PST_WHY_NONE if the file has
		       * no cache, or has PST_FILE_PLAIN */
	int detail;   /* errno that explains @why, or 0 */
	/* Shared by all files open on the same bytes (writers.c).  NULL: direct and cached writes
	 * may be in flight at once. */
	struct writers *writers;
	_Atomic bool direct_bad; /* IO_OP_DIRECT was refused for this file: never retry it */
	_Atomic int warm;        /* core's count of CACHED hits; see cached.c */
	uint8_t disk;            /* number of the disk that has the file, see disk.h */
	char name[16];           /* name of the file system or service, for messages */
};

struct mem_alloc;

/* State of a file: equal stamps mean that the file did not change in between. */
struct file_stamp {
	uint64_t size;
	uint64_t change[2]; /* a time, version or checksum, as the provider chooses */
};

/**
 * struct file_ops - a provider of files
 *
 * A table is const.  Any thread may call, and several may call for one file at once.  A failing
 * call sets a sentence for its -errno (err_set()), unless its comment says otherwise.  A NULL
 * member means "cannot"; the wrappers below answer for it.  @open and @free must not be NULL.
 *
 * A provider does not call core, and holds no lock of its own while it calls functions of io_inbox.
 */
struct file_ops {
	/** @scheme: the part before :// of the provider's names, [a-z][a-z0-9+.-]*; NULL for local
	 * files */
	const char *scheme;

	/**
	 * @backend: the kind of I/O context that takes operations on these files
	 *
	 * NULL: the system's (uring and threads), which take local files only.  Each queue and each
	 * engine worker creates a context of this kind at its first request on such a file (io.h,
	 * struct io_others).
	 */
	const struct io_backend *backend;

	/**
	 * @hop: the file hop for these files, a path of path_add() (core/ways/path.h)
	 *
	 * Completions name the hop.  The why() of its path accepts only files of this provider.  0:
	 * the files use the system's hops, which are direct, cached and buffered.
	 */
	uint32_t hop;

	/**
	 * @or_hop: the file hop when @hop cannot serve or fails midway; 0: none
	 *
	 * If set, operations by @hop have the flag IO_OP_RDMA, and operations by @or_hop do not.
	 */
	uint32_t or_hop;

	/**
	 * @rdma_err: tell whether RDMA reaches the file now
	 *
	 * NULL: RDMA never reaches files of this provider.
	 *
	 * Return: 0 if it does, or a positive errno that pst_why_text() explains.
	 */
	int (*rdma_err)(const struct file *f);

	/**
	 * @lower: name the file that holds the bytes of this one now
	 * @f:   a file of this provider
	 * @op:  PST_OP_* of the request that asks
	 * @ret: an open file, which may be used until lower_put()
	 *
	 * For providers that choose among other files, such as tiers.  A request calls this when it
	 * starts, and then runs on the file beneath, with that file's caps, alignment, hops, proofs
	 * and reasons.  The next request may get another file.  The file beneath is open in the
	 * same mode as @f, and its provider has no @lower.  A table with @lower has neither
	 * @backend nor @hop, and its files have no FILE_* flag except FILE_MAY_HANG.
	 *
	 * Does not block: a lock of the queue is held.  If files hold their own bytes, @lower and
	 * @lower_put are NULL.
	 *
	 * Return: 0; -EAGAIN: not yet; the request retries each millisecond until its deadline.
	 * Any other -errno has a sentence and fails the request.
	 */
	int (*lower)(struct file *f, uint32_t op, struct pst_file **ret);

	/**
	 * @lower_put: the request that called @lower has nothing in flight any more
	 *
	 * Does not block, and closes no file: a thread of the provider closes it.
	 */
	void (*lower_put)(struct file *f, uint32_t op, struct pst_file *beneath);

	/**
	 * @open: open a file
	 * @name:  the whole name, including scheme://
	 * @flags: PST_FILE_*, already validated
	 * @mode:  permission bits if the file is created
	 *
	 * May block, but must fail if a service does not answer.  @ret->ops is this table.  Store
	 * all flags, even those without meaning here.  Do not set FILE_DIRECT with PST_FILE_PLAIN.
	 *
	 * Return: 0; -ENOENT, -EACCES, -EEXIST, -EISDIR and the like, as open(2) gives them.
	 */
	int (*open)(const char *name, uint32_t flags, uint32_t mode, struct file **ret);

	/**
	 * @free: close the file
	 *
	 * Nothing is in flight on it.  May block if the file has FILE_MAY_HANG: a spawned thread
	 * makes the call then.
	 */
	void (*free)(struct file *f);

	/** @names: calls about files that are not open (names.h); NULL: there are none */
	const struct names_ops *names;

	/** @size: return the current size in bytes.  May block.  NULL: -EOPNOTSUPP */
	int (*size)(const struct file *f, uint64_t *ret_size);

	/**
	 * @again: open the same file a second time, for reading
	 *
	 * For files that are open for writing only: writes by IO_OP_DIRECT are compared with a
	 * plain read.  PST_FILE_PLAIN is set, @ret->ops is this table.  NULL: such writes do not
	 * use IO_OP_DIRECT.
	 */
	int (*again)(const struct file *f, struct file **ret);

	/**
	 * @peek: read without leaving the bytes in a cache
	 *
	 * May block.  NULL: no path is proven by comparing bytes.
	 *
	 * Return: bytes, fewer at the end of the file only; -errno without a sentence.
	 */
	int64_t (*peek)(const struct file *f, void *buf, uint64_t off, uint64_t len);

	/**
	 * @read_now: read bytes of a cache that the CPU reads, or of memory
	 *
	 * Does not block.  Called for files with FILE_NOWAIT; @len is at most IO_LEN_MAX.  NULL:
	 * -EAGAIN.
	 *
	 * Return: bytes, which may be fewer than @len anywhere; -errno without a sentence.
	 */
	int64_t (*read_now)(const struct file *f, void *buf, uint64_t off, uint64_t len);

	/**
	 * @resident: tell whether a cache that the CPU reads has all bytes of a range
	 *
	 * Does not block.  Bytes after the end of the file count as resident.  NULL: unknown.
	 *
	 * Return: 1 or 0; -1 if unknown.  No sentence.
	 */
	int (*resident)(const struct file *f, uint64_t off, uint64_t len);

	/**
	 * @ends_at: tell whether the file ends at @off or before it
	 *
	 * Called after a short IO_OP_NOWAIT.  Does not block, but returns false instead.  NULL:
	 * false.
	 */
	bool (*ends_at)(const struct file *f, uint64_t off);

	/**
	 * @stamp: return the size, and values that change whenever the file does
	 *
	 * Uses only what this machine knows.  Does not block.  NULL: changes cannot be detected, so
	 * wrong bytes do not disable a path.
	 *
	 * Return: 0; -errno without a sentence.
	 */
	int (*stamp)(const struct file *f, struct file_stamp *ret);

	/**
	 * @place: name what the file shares with others, for example a mount
	 *
	 * IO_OP_DIRECT is proven once for each place.  @size is FILE_PLACE_MAX; a longer name
	 * is hashed, not cut.  NULL: all files of the provider share one place.
	 *
	 * Return: true if the name means the same in every process, and after a restart.
	 */
	bool (*place)(const struct file *f, char *buf, size_t size);

	/**
	 * @memory: return the device memory that holds the bytes, and hold a reference
	 * @ret:     the allocation, which holds the whole file
	 * @ret_off: bytes from the start of the allocation to byte 0 of the file
	 * @ret_len: bytes of the file
	 *
	 * A device that can access that memory copies by itself (core/ways/peer.c).  The memory
	 * stays until memory_put(), which any thread may call.  Does not block.  If no
	 * device memory holds the bytes, @memory and @memory_put are NULL.
	 *
	 * Return: 0; -EOPNOTSUPP; -ESTALE if the file has lost its memory; -EPIPE.  No sentence.
	 */
	int (*memory)(struct file *f, const struct mem_alloc **ret, uint64_t *ret_off,
		      uint64_t *ret_len);

	/** @memory_put: the caller of memory() no longer uses the memory */
	void (*memory_put)(struct file *f);
};

extern const struct file_ops local_file_ops;

/**
 * file_provider_add() - make a provider known
 * @ops: complete, and never freed
 *
 * Any thread may call this at any time; later opens use the provider.
 *
 * Return: 0; -EINVAL for an incomplete table or a malformed scheme; -EEXIST if the scheme is taken;
 * -ENOSPC beyond FILE_PROVIDERS_MAX.
 */
int file_provider_add(const struct file_ops *ops);

/*
 * Find the provider of a name like scheme://rest, and load its module if needed.  Return 0;
 * -EPROTONOSUPPORT if no provider has the scheme; errors of loading a module.
 */
int file_provider_find(const char *name, const struct file_ops **ret);

/* Return true if a provider has the scheme. */
bool file_provider_has(const char *scheme, size_t len);

/**
 * file_open() - open a file by its name
 *
 * As file_ops.open.  A name without scheme:// is a path of a local file.  The provider of a scheme
 * may be in a module (module.h), which the first such name loads.
 *
 * Return: 0; -EPROTONOSUPPORT if no provider has the scheme; errors of loading a module; the
 * provider's errors.
 */
int file_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret);

/* Wrappers of the members above; each handles a NULL member as the member's comment says. */
void file_free(struct file *f); /* NULL is ignored */
int file_size(const struct file *f, uint64_t *ret_size);
int file_again(const struct file *f, struct file **ret);
int64_t file_peek(const struct file *f, void *buf, uint64_t off, uint64_t len);
int file_stamp(const struct file *f, struct file_stamp *ret);
bool file_place(const struct file *f, char *buf, size_t size);

/* Return true if the file has not changed since the stamp; false if unknown. */
bool file_still(const struct file *f, const struct file_stamp *stamp);

/* Return 1, 0, or -1 if unknown. */
static inline int file_resident(const struct file *f, uint64_t off, uint64_t len)
{
	if (f->caps & FILE_RESIDENT)
		return 1;
	return f->ops->resident ? f->ops->resident(f, off, len) : -1;
}

static inline int64_t file_read_now(const struct file *f, void *buf, uint64_t off, uint64_t len)
{
	return f->ops->read_now ? f->ops->read_now(f, buf, off, len) : -EAGAIN;
}

static inline bool file_ends_at(const struct file *f, uint64_t off)
{
	return f->ops->ends_at && f->ops->ends_at(f, off);
}

#endif
