/* SPDX-License-Identifier: MIT */
/*
 * File operations.
 *
 * A struct file is an open file, an io_op is one transfer between the file and host memory, and an
 * I/O context starts operations and reaps them, for one thread at a time.  Each I/O context belongs
 * to a back end.  The system's back ends serve any local file; a provider with its own back end has
 * its own contexts (file.h).
 */
#ifndef PST_FILE_IO_H
#define PST_FILE_IO_H

#include "file/file.h"

/* Maximum files that an I/O context registers; further files work unregistered. */
#define IO_NR_FILES 4096
#define IO_NR_BUFS 8192   /* maximum pieces of host memory that an I/O context registers */
#define IO_BUF_MAX MIB(8) /* bytes per piece; pinning a piece of small pages takes 0.3 ms */
#define IO_LEN_MAX GIB(1) /* maximum bytes of one operation; the kernel's limit is 2 GiB - 4 KiB */
#define IO_NO_IDX UINT32_MAX

/*
 * Host memory that is used for many operations.  I/O contexts may register it with the kernel in
 * pieces of IO_BUF_MAX bytes, so that operations do not pin it each time.
 */
struct io_buf {
	void *base;
	uint64_t len;
	uint32_t idx; /* first index in I/O contexts' tables */
	uint32_t nr;  /* consecutive indices, for the first nr pieces; 0: none was free */
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
	WRITERS_WAIT, /* an O_DIRECT write waits: no new page cache writes start */
};

#define IO_OP_DIRECT (1u << 0) /* needs FILE_DIRECT; buf, off and len are aligned */
/* READ with FILE_NOWAIT: only resident bytes, else -EAGAIN or a short count. */
#define IO_OP_NOWAIT (1u << 1)
/* Use the provider's hop (file_ops.hop) and not its fallback (file_ops.or_hop). */
#define IO_OP_RDMA (1u << 2)
/* Needs FILE_DEVICE: the memory is op->device, and buf is an address that no CPU may use. */
#define IO_OP_DEVICE (1u << 3)

/* One operation.  The caller owns it from reap to queue, the I/O context from queue to reap. */
struct io_op {
	struct file *file;
	struct io_buf *reg; /* registered memory that contains buf..buf+len, or NULL */
	void *buf;
	uint64_t off;                   /* bytes; offset in the file */
	uint64_t len;                   /* bytes, 1 to IO_LEN_MAX; 0 for a sync */
	const struct mem_alloc *device; /* device memory with IO_OP_DEVICE, else unused */
	uint64_t device_off;            /* bytes; offset of the operation in device */
	uint8_t kind;                   /* enum io_op_kind */
	uint8_t flags;                  /* IO_OP_* */
	uint8_t claim; /* enum writers_claim: which writes the operation excludes */
	/* For a provider's back end: the request's deadline, CLOCK_MONOTONIC ns, which ends its
	 * retries. */
	uint64_t deadline_ns;

	/* Results.  A short count means the end of the file (READ), bytes that are not resident
	 * (NOWAIT), or a stop inside a block (DIRECT WRITE); the I/O context has resumed all other
	 * short operations. */
	int64_t res;    /* bytes, or -errno */
	uint64_t moved; /* bytes moved before an error; = res on success */
	int pin_err;    /* errno of registering the memory, which was used unregistered; or 0 */
	/* Positive errno of io_uring if threads ran the operation instead, or 0. */
	int ring_err;
	bool pinned;      /* the operation used registered memory */
	int rdma_err;     /* positive errno: RDMA cannot serve the operation, but another hop
			   * may; 0: none */
	int rdma_mem_err; /* 0, or the errno of registering the memory for RDMA */

	/* Private to the I/O context. */
	bool canceled;
	uint16_t nr_doubts; /* retries after -EFAULT or -ECANCELED; see of_thread() */
	struct io_op *next, *prev;
	const struct io_fifo *in; /* the list that holds the operation, or NULL */
	void *ctx_data;
};

/*
 * Claim the file for a write before queueing it, and release the claim after reap() (writers.c). If
 * writers_begin() returns false, the write must not start yet: poll, as nothing wakes the caller.
 * A write with IO_OP_DIRECT may drop that flag and begin again.
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

/* Claim a file for an O_DIRECT write that is not an io_op, and release the claim. */
struct writers;
bool writers_direct(struct writers *w);
void writers_direct_done(struct writers *w);
/* For providers: return the writers object of a file.  If two names or nodes lead to the same
 * bytes, pass the same dev and ino for both.  Two other files with the same dev and ino only wait
 * for each other's writes. */
int writers_get(dev_t dev, ino_t ino, struct writers **ret);
void writers_put(struct writers *w);

struct io_backend;

/* The first member of each back end's own context struct. */
struct io_ctx {
	const struct io_backend *ops;
	unsigned depth;  /* maximum operations queued and in flight */
	unsigned nr_ops; /* queued or in flight now */
	int ring_err;    /* positive errno of io_uring that made threads replace it; 0: none */
};

/*
 * One back end.  An I/O context has one user at a time: either core holds the lock of the queue
 * that owns it, or an engine worker owns it.  Only wait() is called without that lock, while nobody
 * else uses the I/O context.
 *
 * A provider's back end has neither check nor wait: a request creates its context when needed, and
 * users wait for its eventfd.  ctx_new(), queue(), flush(), reap(), cancel() and arm() must not
 * wait for a service.  op->buf may be a window on a device: a back end's thread that stores there
 * must return the operation under a lock, or fence its stores.
 */
struct io_backend {
	const char *name; /* "uring", "threads" */
	uint32_t backend; /* PST_BACKEND_* */
	bool now;         /* reads with IO_OP_NOWAIT end within flush() */

	/* Check whether the back end works here.  Return 0, or -errno with a sentence.  Calls after
	 * the first are cheap. */
	int (*check)(void);

	/* Create a context; depth is 1 to 8192. */
	int (*ctx_new)(unsigned depth, struct io_ctx **ret);
	/* Free a context without operations in flight. */
	void (*ctx_free)(struct io_ctx *ctx);

	/* Queue an operation.  Return 0, or -EAGAIN if depth operations are in the context. */
	int (*queue)(struct io_ctx *ctx, struct io_op *op);

	/* Start all queued operations.  Return 0, or -errno if the kernel refused.  After
	 * -EAGAIN or -ENOMEM they stay queued: call again later. */
	int (*flush)(struct io_ctx *ctx);

	/* Return at most max finished operations, and resume short ones; never blocks. */
	unsigned (*reap)(struct io_ctx *ctx, struct io_op **ret, unsigned max);

	/* Sleep until min operations can be reaped or the deadline (CLOCK_MONOTONIC ns, or
	 * PST_NO_DEADLINE) passes.  May return early.  Return 0, -ETIMEDOUT or -EINTR; another
	 * -errno if waiting itself fails, as in a sandbox that forbids it. */
	int (*wait)(struct io_ctx *ctx, unsigned min, uint64_t deadline_ns);

	/* Cancel a queued or running operation.  reap() still returns it, with its result or
	 * -ECANCELED, or never if the kernel hangs.  The next flush() tells the kernel, so many
	 * cancels cost few system calls. */
	void (*cancel)(struct io_ctx *ctx, struct io_op *op);

	/* While armed, write to efd when an operation can be reaped; arm() itself writes if one
	 * already can.  efd is an eventfd, the same in each call.  Only the first call can fail. */
	int (*arm)(struct io_ctx *ctx, int efd, bool armed);
};

/*
 * The I/O contexts of providers that one user has, at most one per kind of back end.  All zero:
 * none.  Like an I/O context, they have one user at a time.
 */
struct io_others {
	unsigned nr;
	unsigned turn; /* index of the context to reap first; advances at each reap */
	struct io_ctx *ctx[FILE_PROVIDERS_MAX];
};

/*
 * Add a context of that kind.  @efd is the user's eventfd for arm(), the same in each call.  @armed
 * is the initial state.  Return 0; -EBUSY if a later call may succeed; the errors of ctx_new() and
 * arm().
 */
int io_others_add(struct io_others *o, const struct io_backend *kind, unsigned depth, int efd,
		  bool armed);
void io_others_free(struct io_others *o);
/* Call the member of that name in struct io_backend for all contexts. */
int io_others_flush(struct io_others *o);
unsigned io_others_reap(struct io_others *o, struct io_op **ret, unsigned max);
void io_others_arm(struct io_others *o, int efd, bool armed);
/* Return the number of operations queued or in flight. */
unsigned io_others_nr_ops(const struct io_others *o);
/* Find the context of that kind, or return NULL. */
struct io_ctx *io_others_find(const struct io_others *o, const struct io_backend *kind);

/* Return the I/O context for an operation; NULL: create it with io_others_add(). */
static inline struct io_ctx *io_ctx_for(struct io_ctx *system, const struct io_others *o,
					const struct io_op *op)
{
	const struct io_backend *kind = op->file->ops->backend;

	return likely(!kind) ? system : io_others_find(o, kind);
}

/* uring_or_threads is for PST_BACKEND_AUTO: io_uring until the kernel refuses the ring.  From then
 * on, threads run what the kernel has not taken and all later operations. */
extern const struct io_backend uring_backend, uring_or_threads_backend, threads_backend;

/* Return true if threads may replace this back end after ctx_new() returned r.  For users with
 * PST_BACKEND_AUTO. */
bool io_backend_is_refused(const struct io_backend *ops, int r);

/* Return the back end for a PST_BACKEND_* value; NULL with a sentence if this machine lacks it.
 * PST_BACKEND_AUTO: uring_or_threads if uring's check() passes, else threads; *ret_err is then the
 * errno of check(), otherwise 0. */
const struct io_backend *io_backend_pick(uint32_t backend, int *ret_err);

/* Wrappers with fault injection. */
int io_ctx_new(const struct io_backend *ops, unsigned depth, struct io_ctx **ret);
void io_ctx_free(struct io_ctx *ctx);

/*
 * Shared by the back ends (op.c).  io_op_begin() resets the results.  io_op_advance() takes the
 * result of one system call.  io_op_advance() returns true, with op->res set, if the operation is
 * finished; else continue from op->moved.  A direct read that stops at an unaligned offset
 * continues without IO_OP_DIRECT, because only the end of the file can be there.
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

/* Evaluate a system call that did not move all remaining bytes; otherwise as io_op_advance(). */
bool io_op_advance_part(struct io_op *op, int64_t res);

/*
 * Copy into the operation's memory, or out of it, for back ends that receive or send bytes of their
 * own.  Registered memory stays mapped; the kernel copies other memory, which may vanish.
 *
 * Return: 0; -errno.
 */
int io_op_store(const struct io_op *op, void *to, const void *from, uint64_t len);
int io_op_load(const struct io_op *op, void *to, const void *from, uint64_t len);

static inline bool io_op_advance(struct io_op *op, int64_t res)
{
	if (unlikely(res <= 0 || (uint64_t)res < op->len - op->moved))
		return io_op_advance_part(op, res);
	op->moved += (uint64_t)res;
	op->res = (int64_t)op->moved;
	return true;
}

/* Functions of a back end that clear table entries when a file or buffer is freed (ctx.c). An I/O
 * context with tables is on a list from ctx_new to ctx_free. */
struct ctx_tables {
	struct ctx_tables *next;
	void (*forget_file)(struct ctx_tables *t, uint32_t idx);
	void (*forget_buf)(struct ctx_tables *t, uint32_t idx, unsigned nr);
};
void ctx_tables_add(struct ctx_tables *t);
void ctx_tables_del(struct ctx_tables *t);

#endif
