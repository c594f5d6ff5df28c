/* SPDX-License-Identifier: MIT */
/*
 * Files, and the providers that open them.
 *
 * A file is a struct file, whatever it lies on.  Its provider is a const struct file_ops.  Local
 * files (local.h) are the first.  The provider of a scheme opens names like scheme://rest.
 * Core and back ends know a file by the members below and by the wrappers at the end, and no
 * provider by its name.
 *
 * An open file may be used by any number of threads at once.  Its members do not change after
 * open(), but for direct_bad and warm.
 */
#ifndef PST_FILE_FILE_H
#define PST_FILE_FILE_H

#include <sys/types.h>

#include <penstock.h>

#include "base/base.h"

#define FILE_PROVIDERS_MAX 12u
#define FILE_SCHEME_MAX 16u /* characters */
#define FILE_PLACE_MAX 48u

/* Properties that core may count on. */
#define FILE_DIRECT (1u << 0)   /* IO_OP_DIRECT bypasses every cache on the way to the bytes */
#define FILE_NOWAIT (1u << 1)   /* IO_OP_NOWAIT works: an operation that would wait gives -EAGAIN */
#define FILE_RESIDENT (1u << 2) /* every byte is in memory that the CPU reads */
/* Any call on the file may hang too, also starting an operation and free(). */
#define FILE_MAY_HANG (1u << 3)
#define FILE_STALE (1u << 4)  /* its cache may lack what another machine wrote */
#define FILE_SHARED (1u << 5) /* a device that other machines may write without notice */
#define FILE_AHEAD (1u << 6)  /* its cache reads ahead for sequential reads */
/* Operations with IO_OP_RDMA may have IO_OP_DEVICE: they reach the memory of a device. */
#define FILE_DEVICE (1u << 8)
/* Has a cache that the CPU reads; resident() or NOWAIT tell its bytes. */
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
	uint32_t mem_align; /* alignment of IO_OP_DIRECT in bytes, a power of two; 0 without it */
	uint32_t off_align;
	uint32_t why; /* enum pst_why: why FILE_DIRECT is missing.  NONE: there is no cache to
		       * bypass, or PST_FILE_PLAIN was given */
	int detail;   /* of why */
	/* Shared by all files open on the same bytes (writers.c); NULL: writes of every kind may be
	 * in flight at once. */
	struct writers *writers;
	_Atomic bool direct_bad; /* an IO_OP_DIRECT operation was refused, so none is tried again */
	_Atomic int warm;        /* how often CACHED hit, for core; see cached.c */
	uint8_t disk;            /* number of its disk, see disk.h */
	char name[16];           /* name of the file system or service, for messages */
};

struct mem_alloc;

/* Two equal stamps mean that the file has not changed in between. */
struct file_stamp {
	uint64_t size;
	uint64_t change[2]; /* a time, version or checksum, as the provider chooses */
};

/**
 * struct file_ops - a provider of files
 *
 * A table is const.  Calls come from any thread, several at once, on one file too.  A call leaves
 * a sentence with each -errno (err_set()), unless its comment says otherwise.  A NULL member means
 * "cannot"; the wrappers below answer for it.  @open and @free may not be NULL.
 *
 * A provider does not call core, and holds no lock of its own while it calls the functions that
 * an I/O context is given.
 */
struct file_ops {
	/** @scheme: of names like scheme://rest, [a-z][a-z0-9+.-]*; NULL for local files */
	const char *scheme;

	/**
	 * @backend: the kind of I/O context that takes operations on these files
	 *
	 * NULL: those of the system, uring and threads, which take local files only.  A queue, or
	 * a worker of an engine, makes its own at the first request on such a file (io.h, struct
	 * io_others).
	 */
	const struct io_backend *backend;

	/**
	 * @hop: the file hop for these files, a path of path_add() (core/ways/path.h)
	 *
	 * Completions name the hop.  The why() of its path takes files of this provider alone.  0:
	 * the files take the hops of the system, which are direct, cached and buffered.
	 */
	uint32_t hop;

	/**
	 * @or_hop: the file hop where @hop cannot serve, or fails in the middle; 0: none
	 *
	 * Operations by @hop then have the flag of that hop (IO_OP_RDMA), and others have not.
	 */
	uint32_t or_hop;

	/**
	 * @rdma_err: 0 where the file is reached by RDMA now, else why not
	 *
	 * NULL: files of the provider never are.
	 *
	 * Return: 0 or a positive errno, of which pst_why_text() has the meaning.
	 */
	int (*rdma_err)(const struct file *f);

	/**
	 * @lower: name the file that holds the bytes of this one now
	 * @f:   a file of this provider
	 * @op:  PST_OP_* of the request that asks
	 * @ret: an open file, which may be used until lower_put()
	 *
	 * For providers that choose among other files, as tiers do.  A request asks when it starts,
	 * and is a request on that file from then on: caps, alignment, hops, proofs and reasons are
	 * those of the file beneath, and the next request may get another one.  The file beneath is
	 * open for what this one is open for, and has no @lower itself.  A table with @lower has
	 * neither @backend nor @hop, and its files no FILE_* but FILE_MAY_HANG.
	 *
	 * Does not block: a lock of the queue is held.  NULL, as is @lower_put: files hold their
	 * own bytes.
	 *
	 * Return: 0; -EAGAIN: not now, and the request asks again each millisecond until its
	 * deadline; another -errno with a sentence, with which the request fails.
	 */
	int (*lower)(struct file *f, uint32_t op, struct pst_file **ret);

	/**
	 * @lower_put: nothing of the request that asked is under way any more
	 *
	 * Does not block, and closes no file: a thread of the provider's does that.
	 */
	void (*lower_put)(struct file *f, uint32_t op, struct pst_file *beneath);

	/**
	 * @open: open a file
	 * @name:  all of it, scheme:// included
	 * @flags: PST_FILE_*, checked for sense
	 * @mode:  of a file that is created
	 *
	 * May block, but not for ever: a service that does not answer is an error.  @ret->ops is
	 * this table.  Flags that mean nothing here are kept all the same.  There is no FILE_DIRECT
	 * with PST_FILE_PLAIN.
	 *
	 * Return: 0; -ENOENT, -EACCES, -EEXIST, -EISDIR and the like, as open(2) gives them.
	 */
	int (*open)(const char *name, uint32_t flags, uint32_t mode, struct file **ret);

	/**
	 * @free: close it
	 *
	 * Nothing is in flight on it.  May block where FILE_MAY_HANG says so: then it has a thread
	 * of its own.
	 */
	void (*free)(struct file *f);

	/** @names: calls about files that are not open (names.h); NULL: there are none */
	const struct names_ops *names;

	/** @size: bytes now.  May block.  NULL: -EOPNOTSUPP */
	int (*size)(const struct file *f, uint64_t *ret_size);

	/**
	 * @again: open the same file a second time, for reading
	 *
	 * For files that are open for writing only: writes by IO_OP_DIRECT are compared with a
	 * plain read.  PST_FILE_PLAIN is set, @ret->ops is this table.  NULL: such writes go
	 * without IO_OP_DIRECT.
	 */
	int (*again)(const struct file *f, struct file **ret);

	/**
	 * @peek: read, and leave no trace in a cache
	 *
	 * May block.  NULL: nothing is compared with the bytes beneath.
	 *
	 * Return: bytes, fewer at the end of the file only; -errno without a sentence.
	 */
	int64_t (*peek)(const struct file *f, void *buf, uint64_t off, uint64_t len);

	/**
	 * @read_now: read bytes of a cache that the CPU reads, or of memory
	 *
	 * Does not block.  For files with FILE_NOWAIT, and @len at most IO_LEN_MAX.  NULL: -EAGAIN.
	 *
	 * Return: bytes, which may be fewer than @len anywhere; -errno without a sentence.
	 */
	int64_t (*read_now)(const struct file *f, void *buf, uint64_t off, uint64_t len);

	/**
	 * @resident: are all bytes of a range in a cache that the CPU reads?
	 *
	 * Does not block.  Bytes of the range behind the end of the file count as resident.
	 * NULL: nobody can tell.
	 *
	 * Return: 1, 0; -1 where it cannot be told now.  No sentence.
	 */
	int (*resident)(const struct file *f, uint64_t off, uint64_t len);

	/**
	 * @ends_at: does the file end there, or before?
	 *
	 * Asked after a short IO_OP_NOWAIT.  Does not block: false where it would.  NULL: false.
	 */
	bool (*ends_at)(const struct file *f, uint64_t off);

	/**
	 * @stamp: something that differs once the file was changed, and the size
	 *
	 * As far as this machine knows.  Does not block.  NULL: it cannot be told, and wrong bytes
	 * are not held against a path.
	 *
	 * Return: 0; -errno without a sentence.
	 */
	int (*stamp)(const struct file *f, struct file_stamp *ret);

	/**
	 * @place: name the place that a file shares with others, a mount for example
	 *
	 * IO_OP_DIRECT is proven once for each place.  @size is FILE_PLACE_MAX; a longer name
	 * is hashed, not cut.  NULL: all files of the provider are one place.
	 *
	 * Return: true if the name means the same in every process, and after a restart.
	 */
	bool (*place)(const struct file *f, char *buf, size_t size);

	/**
	 * @memory: name the device memory that holds the bytes, and keep it
	 * @ret:     the allocation; byte 0 of the file is at @ret_off in it, and all of the file
	 *           is there
	 * @ret_off: bytes
	 * @ret_len: bytes of the file
	 *
	 * A device that reaches that memory copies by itself (core/ways/peer.c).  The memory stays
	 * until memory_put(), which may be called from another thread.  Does not block.  NULL, as
	 * is @memory_put: no device memory holds them.
	 *
	 * Return: 0; -EOPNOTSUPP; -ESTALE where the file has lost its memory; -EPIPE.  No
	 * sentence.
	 */
	int (*memory)(struct file *f, const struct mem_alloc **ret, uint64_t *ret_off,
		      uint64_t *ret_len);

	/** @memory_put: the caller of memory() no longer uses it */
	void (*memory_put)(struct file *f);
};

extern const struct file_ops local_file_ops;

/**
 * file_provider_add() - make a provider known
 * @ops: complete, and there for ever
 *
 * Any thread, any time; files are opened by it from then on.
 *
 * Return: 0; -EINVAL for a table that is not complete or a scheme that is none; -EEXIST where the
 * scheme is taken; -ENOSPC beyond FILE_PROVIDERS_MAX.
 */
int file_provider_add(const struct file_ops *ops);

/*
 * Find the provider of a name like scheme://rest, and load its module if needed.  Return 0;
 * -EPROTONOSUPPORT for a scheme that no provider has; errors of loading a module.
 */
int file_provider_find(const char *name, const struct file_ops **ret);

/* Return true if a provider has the scheme. */
bool file_provider_has(const char *scheme, size_t len);

/**
 * file_open() - open a file by its name
 *
 * As file_ops.open.  A name without scheme:// is a path of a local file.  The provider of another
 * name may be in a module (module.h), which is loaded by the first such name.
 *
 * Return: 0; -EPROTONOSUPPORT for a scheme that no provider has; errors of loading a module; the
 * provider's errors.
 */
int file_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret);

/* Wrappers: each answers for a member that is NULL, as its comment above says. */
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
