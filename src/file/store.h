/* SPDX-License-Identifier: MIT */
/*
 * Ways to a file.  A store_file is an open file, a store_op one transfer between it and
 * host memory, a lane the place where one thread starts operations and takes them back.
 * Any lane takes operations on any file.
 */
#ifndef PST_STORE_H
#define PST_STORE_H

#include <sys/types.h>

#include <penstock.h>

#include "base/base.h"

#define STORE_NR_FILES 4096	/* files that lanes can register; more work, unregistered */
#define STORE_NR_BUFS 8192	/* pieces of host memory likewise, STORE_BUF_MAX bytes each */
#define STORE_BUF_MAX MIB(8)	/* to pin as many small pages takes 0.3 ms */
#define STORE_IO_MAX GIB(1)	/* bytes of one operation; the kernel's limit is 2 GiB - 4 KiB */
#define STORE_NO_IDX UINT32_MAX

/* An open file.  Immutable after open but for the last three; any thread may read it. */
struct store_file {
	int fd;			/* without O_DIRECT; always there */
	int fd_direct;		/* the same file with O_DIRECT, or -1 */
	uint32_t mem_align;	/* of fd_direct: power of two, bytes; 0 without */
	uint32_t off_align;
	uint32_t idx;		/* in lanes' tables: 2 * idx is fd, 2 * idx + 1 fd_direct */
	uint32_t gen;		/* of this use of idx */
	uint32_t flags;		/* PST_FILE_* */
	uint32_t why;		/* enum pst_why: why fd_direct is -1; NONE with PST_FILE_PLAIN */
	int detail;		/* of why */
	uint32_t fs_magic;	/* statfs(2) f_type */
	uint64_t fs_id;		/* statfs(2) f_fsid; 0 for a block device */
	bool memory_fs;		/* tmpfs, ramfs, hugetlbfs: everything is resident */
	bool may_hang;		/* FUSE and its like: starting an operation may block */
	bool stale;		/* its page cache may lack what another machine wrote */
	bool block_device;
	dev_t dev;		/* of the file system, or of the block device itself */
	ino_t ino;
	char fs[16];		/* name for people */
	_Atomic bool direct_bad;/* an O_DIRECT operation was refused: use fd from now on */
	_Atomic int warm;	/* core's memory of how often CACHED hit; see plan.c */
	struct cufile_file *cufile; /* gds/cufile/file.c's, and under its lock */
	void (*forget)(struct store_file *f); /* set by who keeps such for it: the file goes */
	struct writers *writers; /* of all who have the same file open here */
};

/*
 * Open and close (file.c).  flags are PST_FILE_*, already checked for sense; mode is of a
 * created file.  store_file_free() is called once nothing is in flight on the file; it
 * takes it out of every lane's table.
 */
int store_file_open(const char *path, uint32_t flags, uint32_t mode, struct store_file **ret);
int store_file_wrap(int fd, uint32_t flags, struct store_file **ret);
void store_file_free(struct store_file *f);
int store_file_size(const struct store_file *f, uint64_t *ret_size);

/*
 * Read for a look (peek.c): through the page cache, which has afterwards no more of the file
 * than before.  Bytes, fewer at the end of the file; -errno.
 */
int64_t store_file_peek(const struct store_file *f, void *buf, uint64_t off, uint64_t len);

/*
 * Host memory that lanes may register with the kernel so that operations need not pin it each
 * time, in pieces of STORE_BUF_MAX bytes that are used again and again.
 */
struct store_buf {
	void *base;
	uint64_t len;
	uint32_t idx;		/* first place in lanes' tables */
	uint32_t nr;		/* places in a row, for the first pieces; 0: none was free */
};

int store_buf_new(void *base, uint64_t len, struct store_buf **ret);
/* Nothing is in flight on it; it is taken out of every lane's table. */
void store_buf_free(struct store_buf *b);

enum store_kind {
	STORE_READ,
	STORE_WRITE,
	STORE_FSYNC,
	STORE_FDATASYNC,
};

enum store_claim {
	STORE_CLAIM_NONE,
	STORE_CLAIM_DIRECT,
	STORE_CLAIM_PLAIN,
	STORE_CLAIM_WAIT, /* of an O_DIRECT write: no new ones through the page cache begin */
};

#define STORE_OP_DIRECT (1u << 0) /* through fd_direct: buf, off and len are aligned */
#define STORE_OP_NOWAIT (1u << 1) /* READ: only what is resident; else -EAGAIN or short */

/* One operation.  The caller's from reap on, the lane's from queue to reap. */
struct store_op {
	struct store_file *file;
	struct store_buf *sbuf;	/* registered memory that holds buf..buf+len, or NULL */
	void *buf;
	uint64_t off;		/* in the file */
	uint64_t len;		/* 1 to STORE_IO_MAX; 0 for a sync */
	uint8_t kind;		/* enum store_kind */
	uint8_t flags;		/* STORE_OP_* */

	/* Results.  A short count is the end of the file (READ), or where NOWAIT met what is
	 * not resident; the lane has resumed every other. */
	int64_t res;		/* bytes, or -errno */
	uint64_t moved;		/* bytes moved before an error; = res on success */
	int pin_err;		/* 0, or errno of registering sbuf: it went unregistered */
	bool pinned;		/* sbuf was used registered */
	uint8_t claim;		/* enum store_claim: a write's, from begin to end */

	/* The lane's own. */
	bool canceled;
	bool doubted; /* its -EFAULT, once */
	struct store_op *next, *prev;
	const struct store_fifo *in; /* the list that it is on, or NULL */
	void *lane_data;
};

/*
 * Before a write is queued, and once it is back from reap() (writers.c).  While begin says
 * false it must not start: one with STORE_OP_DIRECT may drop that flag and begin as another, and
 * each asks again later.  Nobody tells when.
 */
bool store_write_begin(struct store_op *op);
/* After false, for one that keeps STORE_OP_DIRECT: it gets its turn. */
void store_write_wait(struct store_op *op);
void store_write_end(struct store_op *op);

/* The same for O_DIRECT writes that are no store_op. */
struct writers;
bool writers_direct(struct writers *w);
void writers_direct_done(struct writers *w);
/* For file.c. */
int writers_get(dev_t dev, ino_t ino, struct writers **ret);
void writers_put(struct writers *w);

struct store_ops;

/* A provider's own struct begins with this. */
struct store_lane {
	const struct store_ops *ops;
	unsigned depth;		/* most operations queued and in flight */
	unsigned nr_ops;	/* queued or in flight now */
};

/*
 * One way to a file.  A lane has one user at a time: core holds the lock of the queue
 * that owns it, or it belongs to an engine's worker.  wait() alone is called without
 * that lock, while nobody else uses the lane.
 */
struct store_ops {
	const char *name;	/* "uring", "threads" */
	uint32_t store;		/* PST_BACKEND_* */

	/* Is it to be had here?  0 or -errno with a sentence; cheap after the first call. */
	int (*check)(void);

	/* depth is 1 to 8192. */
	int (*lane_new)(unsigned depth, struct store_lane **ret);
	/* Nothing is in flight any more. */
	void (*lane_free)(struct store_lane *l);

	/* Take one operation; 0 or -EAGAIN when depth are there already. */
	int (*queue)(struct store_lane *l, struct store_op *op);

	/* Start all that was queued.  0 or -errno when the kernel refused (-EAGAIN,
	 * -ENOMEM: they stay queued, call again later). */
	int (*flush)(struct store_lane *l);

	/* Take what is done, at most max; never blocks.  Resumes short counts. */
	unsigned (*reap)(struct store_lane *l, struct store_op **ret, unsigned max);

	/* Sleep until reap() has work or the deadline (absolute, PST_NO_DEADLINE) passed.
	 * 0, -ETIMEDOUT or -EINTR.  May return early. */
	int (*wait)(struct store_lane *l, unsigned min, uint64_t deadline_ns);

	/* Ask for an end of op, which is queued or in flight: it still comes out of reap(), with
	 * its result or -ECANCELED, or never if the kernel hangs.  The next flush() tells the
	 * kernel, so that many take few system calls.  Costs the same however many others
	 * there are. */
	void (*cancel)(struct store_lane *l, struct store_op *op);

	/* While armed, write to efd (an eventfd, fixed at the first call) when reap() gets
	 * work.  What is done already at arming counts: it writes at once.  Only the first call
	 * can fail. */
	int (*arm)(struct store_lane *l, int efd, bool armed);
};

extern const struct store_ops store_uring_ops, store_threads_ops;

/* PST_BACKEND_AUTO: uring if its check() passes, else threads; *ret_err then holds the
 * errno that check() gave, 0 otherwise.  NULL with a sentence when what was asked
 * for is not to be had. */
const struct store_ops *store_pick(uint32_t store, int *ret_err);

/* Wrappers with fault injection. */
int store_lane_new(const struct store_ops *ops, unsigned depth, struct store_lane **ret);
void store_lane_free(struct store_lane *l);

/*
 * Shared by the providers (op.c).  store_op_begin() prepares the results.
 * store_op_advance() takes the result of one system call and says whether the
 * operation is finished (true, op->res is set) or must go on from op->moved (false); a
 * direct read that stopped at an unaligned offset goes on without STORE_OP_DIRECT, since
 * only the end of the file can be there.
 */
void store_op_begin(struct store_op *op);
bool store_op_advance(struct store_op *op, int64_t res);

/* What a provider that keeps tables per lane must do when a file or buffer goes (lane.c).
 * A lane that registers things is listed from lane_new to lane_free. */
struct store_tables {
	struct store_tables *next;
	void (*forget_file)(struct store_tables *t, uint32_t idx);
	void (*forget_buf)(struct store_tables *t, uint32_t idx, unsigned nr);
};
void store_tables_add(struct store_tables *t);
void store_tables_del(struct store_tables *t);

#endif
