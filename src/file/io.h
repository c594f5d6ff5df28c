/* SPDX-License-Identifier: MIT */
/*
 * File operations.
 *
 * A struct file is an open file, an io_op one transfer between it and host memory, and an I/O
 * context the place where one thread starts operations and gets them back.  Each I/O context
 * belongs to a back end.  Those of the system serve any local file; a provider with a back end of
 * its own has its own contexts (file.h).
 */
#ifndef PST_FILE_IO_H
#define PST_FILE_IO_H

#include "file/file.h"

#define IO_NR_FILES 4096  /* files that I/O contexts register; others work unregistered */
#define IO_NR_BUFS 8192   /* pieces of host memory that they register, IO_BUF_MAX bytes each */
#define IO_BUF_MAX MIB(8) /* pinning this many bytes in small pages takes 0.3 ms */
#define IO_LEN_MAX GIB(1) /* most bytes of one operation; the kernel's limit is 2 GiB - 4 KiB */
#define IO_NO_IDX UINT32_MAX

/*
 * Host memory that I/O contexts may register with the kernel so that operations need not pin it
 * each time, in pieces of IO_BUF_MAX bytes that are used again and again.
 */
struct io_buf {
	void *base;
	uint64_t len;
	uint32_t idx; /* first index in I/O contexts' tables */
	uint32_t nr;  /* consecutive indices, for the first pieces; 0: none was free */
};

int io_buf_new(void *base, uint64_t len, struct io_buf **ret);
/* Remove the memory from every I/O context's table; nothing may be in flight on it. */
void io_buf_free(struct io_buf *b);

enum io_op_kind {
	IO_READ,
	IO_WRITE,
	IO_FSYNC,
	IO_FDATASYNC,
};

enum writers_claim {
	WRITERS_NONE,
	WRITERS_DIRECT,
	WRITERS_PLAIN,
	WRITERS_WAIT, /* an O_DIRECT write waits: no new writes through the page cache begin */
};

#define IO_OP_DIRECT (1u << 0) /* needs FILE_DIRECT; buf, off and len are aligned */
/* Needs FILE_NOWAIT, for READ: only resident bytes, else -EAGAIN or short. */
#define IO_OP_NOWAIT (1u << 1)
/* By the hop of the provider, not by the one that stands in for it (file_ops.or_hop). */
#define IO_OP_RDMA (1u << 2)
/* Needs FILE_DEVICE: the memory is that of op->device, and buf an address that no CPU uses. */
#define IO_OP_DEVICE (1u << 3)

/* One operation.  The caller owns it from reap to queue, the I/O context from queue to reap. */
struct io_op {
	struct file *file;
	struct io_buf *reg; /* registered memory that holds buf..buf+len, or NULL */
	void *buf;
	uint64_t off;                   /* offset in the file */
	uint64_t len;                   /* 1 to IO_LEN_MAX; 0 for a sync */
	const struct mem_alloc *device; /* the device memory, if IO_OP_DEVICE is set */
	uint64_t device_off;            /* offset of the operation in device */
	uint8_t kind;                   /* enum io_op_kind */
	uint8_t flags;                  /* IO_OP_* */
	uint8_t claim;                  /* enum writers_claim of a write, from begin to end */
	/* For a provider's back end: the deadline of its request, CLOCK_MONOTONIC, until which the
	 * back end retries. */
	uint64_t deadline_ns;

	/* Results.  A short count is the end of the file (READ), where NOWAIT met bytes that are
	 * not resident, or where DIRECT stopped inside a block (WRITE); the I/O context has resumed
	 * every other. */
	int64_t res;    /* bytes, or -errno */
	uint64_t moved; /* bytes moved before an error; = res on success */
	int pin_err;    /* 0, or the errno of registering the memory, which was used unregistered */
	int ring_err;   /* 0, or the positive errno because of which threads did it instead of
			 * io_uring */
	bool pinned;    /* registered memory was used */
	int rdma_err;   /* 0, or the positive errno because of which IO_OP_RDMA could not serve the
			 * operation at all: another hop may */
	int rdma_mem_err; /* 0, or that of registering the memory for it */

	/* Private to the I/O context. */
	bool canceled;
	uint16_t nr_doubts; /* how often its -EFAULT or -ECANCELED was retried */
	struct io_op *next, *prev;
	const struct io_fifo *in; /* the list that contains it, or NULL */
	void *ctx_data;
};

/*
 * Calls before a write is queued, and once it is back from reap() (writers.c).  While begin says
 * false the write must not start.  One with IO_OP_DIRECT may drop that flag and begin again.  Each
 * asks again later: there is no wake-up; the caller polls.
 */
bool writers_begin(struct io_op *op);
/* Reserve a turn for a write that keeps IO_OP_DIRECT, after writers_begin() returned false. */
void writers_wait(struct io_op *op);
void writers_unclaim(struct io_op *op);

static inline void writers_end(struct io_op *op)
{
	if (op->claim != WRITERS_NONE)
		writers_unclaim(op);
}

/* The counterpart for O_DIRECT writes that are no io_op. */
struct writers;
bool writers_direct(struct writers *w);
void writers_direct_done(struct writers *w);
/* For providers: get the writers of a file.  Two files with equal numbers have the same bytes;
 * others may collide, which only costs time. */
int writers_get(dev_t dev, ino_t ino, struct writers **ret);
void writers_put(struct writers *w);

struct io_backend;

/* A back end's own struct begins with this. */
struct io_ctx {
	const struct io_backend *ops;
	unsigned depth;  /* most operations queued and in flight */
	unsigned nr_ops; /* queued or in flight now */
	int ring_err;    /* 0, or the positive errno because of which threads replaced its
			  * io_uring */
};

/*
 * One back end.  An I/O context has one user at a time: core holds the lock of the queue
 * that owns it, or it belongs to an engine's worker.  Only wait() is called without
 * that lock, while nobody else uses the I/O context.
 *
 * That of a provider needs neither check nor wait: its contexts are made where a request needs
 * them, and waited for by their eventfd.  ctx_new(), queue(), flush(), reap(), cancel() and arm()
 * do not wait for a service.  op->buf may be a window on a device: threads of its own that store
 * there hand the operation back under a lock, or fence their stores.
 */
struct io_backend {
	const char *name; /* "uring", "threads" */
	uint32_t backend; /* PST_BACKEND_* */
	bool now;         /* reads with IO_OP_NOWAIT end within flush() */

	/* Check whether the back end works here.  Return 0, or -errno with a sentence; cheap after
	 * the first call. */
	int (*check)(void);

	/* depth is 1 to 8192. */
	int (*ctx_new)(unsigned depth, struct io_ctx **ret);
	/* Free a context without operations in flight. */
	void (*ctx_free)(struct io_ctx *ctx);

	/* Queue an operation.  Return 0, or -EAGAIN if depth operations are in the context. */
	int (*queue)(struct io_ctx *ctx, struct io_op *op);

	/* Start all queued operations.  Return 0, or -errno if the kernel refused (-EAGAIN,
	 * -ENOMEM: they stay queued, call again later). */
	int (*flush)(struct io_ctx *ctx);

	/* Return finished operations, at most max; never blocks.  Resumes short ones. */
	unsigned (*reap)(struct io_ctx *ctx, struct io_op **ret, unsigned max);

	/* Sleep until reap() has work or the deadline (absolute, PST_NO_DEADLINE) passed.
	 * 0, -ETIMEDOUT or -EINTR; another -errno where waiting itself fails, as in a
	 * sandbox that forbids it.  May return early. */
	int (*wait)(struct io_ctx *ctx, unsigned min, uint64_t deadline_ns);

	/* Cancel an operation that is queued or in flight: reap() still returns it, with its result
	 * or -ECANCELED, or never if the kernel hangs.  The next flush() tells the kernel, so that
	 * many cancels take few system calls. */
	void (*cancel)(struct io_ctx *ctx, struct io_op *op);

	/* While armed, write to efd (an eventfd, fixed at the first call) when reap() gets
	 * work.  If some is there already, arm() writes at once.  Only the first call
	 * can fail. */
	int (*arm)(struct io_ctx *ctx, int efd, bool armed);
};

/*
 * The I/O contexts of providers that one user has, beside the system's: at most one of each kind.
 * All zero: none.  As for an I/O context, there is one user at a time.
 */
struct io_others {
	unsigned nr;
	unsigned turn; /* index of the context to reap first; it changes each time */
	struct io_ctx *ctx[FILE_PROVIDERS_MAX];
};

/*
 * Add a context of that kind. @efd is the user's eventfd for arm(), always the same one. @armed is
 * the initial state.  Return 0; -EBUSY if a later call may succeed; the errors of ctx_new() and
 * arm().
 */
int io_others_add(struct io_others *o, const struct io_backend *kind, unsigned depth, int efd,
		  bool armed);
void io_others_free(struct io_others *o);
/* Do what the member of struct io_backend does, for all contexts. */
int io_others_flush(struct io_others *o);
unsigned io_others_reap(struct io_others *o, struct io_op **ret, unsigned max);
void io_others_arm(struct io_others *o, int efd, bool armed);
/* Operations queued or in flight. */
unsigned io_others_nr_ops(const struct io_others *o);
/* Find the context of that kind, or return NULL. */
struct io_ctx *io_others_find(const struct io_others *o, const struct io_backend *kind);

/* Return the I/O context for an operation; NULL: io_others_add() must create it. */
static inline struct io_ctx *io_ctx_for(struct io_ctx *system, const struct io_others *o,
					const struct io_op *op)
{
	const struct io_backend *kind = op->file->ops->backend;

	return likely(!kind) ? system : io_others_find(o, kind);
}

/* uring_or_threads is for users who leave the choice to us: uring, until the kernel refuses the
 * ring.  Then threads take over what the kernel has not taken, and all that comes later. */
extern const struct io_backend uring_backend, uring_or_threads_backend, threads_backend;

/* Return true if threads may replace this back end after ctx_new() returned this error, for a user
 * with PST_BACKEND_AUTO. */
bool io_backend_is_refused(const struct io_backend *ops, int r);

/* PST_BACKEND_AUTO: uring_or_threads if uring's check() passes, else threads; *ret_err then
 * holds the errno that check() gave, 0 otherwise.  NULL with a sentence when this machine lacks
 * the back end. */
const struct io_backend *io_backend_pick(uint32_t backend, int *ret_err);

/* Wrappers with fault injection. */
int io_ctx_new(const struct io_backend *ops, unsigned depth, struct io_ctx **ret);
void io_ctx_free(struct io_ctx *ctx);

/*
 * Shared by the back ends (op.c).  io_op_begin() prepares the results.
 * io_op_advance() takes the result of one system call and says whether the
 * operation is finished (true, op->res is set) or must go on from op->moved (false); a
 * direct read that stopped at an unaligned offset goes on without IO_OP_DIRECT, since
 * only the end of the file can be there.
 */
static inline void io_op_begin(struct io_op *op)
{
	op->res = 0;
	op->moved = 0;
	op->pin_err = op->ring_err = op->rdma_err = op->rdma_mem_err = 0;
	op->pinned = false;
	op->canceled = false;
	op->nr_doubts = 0;
	op->next = op->prev = NULL;
	op->in = NULL;
}

/* io_op_advance() for a call that did not move all of the rest. */
bool io_op_advance_part(struct io_op *op, int64_t res);

static inline bool io_op_advance(struct io_op *op, int64_t res)
{
	if (unlikely(res <= 0 || (uint64_t)res < op->len - op->moved))
		return io_op_advance_part(op, res);
	op->moved += (uint64_t)res;
	op->res = (int64_t)op->moved;
	return true;
}

/* The duties of a back end when a file or buffer goes that its I/O contexts have in tables (ctx.c).
 * Such a context is listed from ctx_new to ctx_free. */
struct ctx_tables {
	struct ctx_tables *next;
	void (*forget_file)(struct ctx_tables *t, uint32_t idx);
	void (*forget_buf)(struct ctx_tables *t, uint32_t idx, unsigned nr);
};
void ctx_tables_add(struct ctx_tables *t);
void ctx_tables_del(struct ctx_tables *t);

#endif
