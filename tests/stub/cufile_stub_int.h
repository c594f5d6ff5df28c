/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of the stub.  One lock guards every table; it is not held while bytes
 * move or a call hangs.
 */
#ifndef PST_CUFILE_STUB_INT_H
#define PST_CUFILE_STUB_INT_H

#include <pthread.h>

#include "base/base.h"
#include "base/list.h"
#include "mem/cuda/cuda_types.h"
#include "bench/cufile/batch_types.h"
#include "cuda_stub.h"
#include "cufile_stub.h"

/* Every function of the list under its own name, checked against its signature there. */
#define SYM(type, name, args) type name args;
#define OPT SYM
#include "gds/cufile/cufile_syms.h"
#define SYM(type, name, args) type name args;
#define OPT SYM
#include "bench/cufile/batch_syms.h"

/* And of libcuda. */
#define SYM(name, args) cu_result name args;
#define OPT SYM
#include "mem/cuda/cuda_syms.h"
cu_result cuCtxGetCurrent(cu_ctx *ret);
cu_result cuLaunchHostFunc(cu_stream st, void (*fn)(void *), void *arg);

enum stub_mode {
	MODE_COMPAT,
	MODE_NVFS,
	MODE_P2PDMA,
	MODE_C2C,
};

enum stub_lie {
	LIE_NONE,
	LIE_NODATA,
	LIE_WRONG,
	LIE_SHORT,
	LIE_MORE,
	LIE_CLAIMS,
	LIE_ONCE, /* wrong, and right from then on */
};

struct file {
	struct list link;
	uintptr_t id; /* the handle; not an address, as the real one's is not */
	int fd;       /* the caller's */
	int plain;    /* the same file without O_DIRECT */
	int flags;    /* of fd */
	unsigned moving;
};

struct buf {
	struct list link;
	uint64_t base, len;
	unsigned moving;
};

struct counts {
	uint64_t ops, p2p, nvfs, posix, unaligned, failed;
};

extern struct cufile_stub {
	pthread_mutex_t lock;
	int version;
	enum stub_mode mode;
	enum stub_lie lie;
	bool udev, noise;
	uint64_t pin;
	int level;
	bool started;
	struct list files, bufs, batches;
	struct counts counts[STUB_DEVICES_MAX][2]; /* reads and writes */
	struct stub_cufile_state state;
} cf;

/* At the start of a call, with the lock not held; the code to return at once. */
int stub_call(const char *name);
#define CALL() stub_call(__func__)

static inline struct cuf_error stub_error(int code)
{
	if (code && code < CUF_BASE)
		return (struct cuf_error){ CUF_CUDA_DRIVER_ERROR, code };
	return (struct cuf_error){ code, 0 };
}

/* The caller broke a rule that the real library does not check, and dies of. */
__attribute__((noreturn, format(printf, 1, 2))) void stub_cufile_abort(const char *fmt, ...);

/* Open the driver if nobody has: as registering does. */
int stub_implicit_open(void);
bool stub_strict(void);

/* The lock is held. */
struct file *stub_file(cuf_handle handle);
struct buf *stub_buf(uint64_t base);
void stub_files_end(void);
void stub_batches_end(void);

/* One transfer: bytes, or -errno, or -code. */
struct move {
	cuf_handle file;
	uint64_t base;
	off_t file_off, base_off;
	size_t len;
	bool write;
};
ssize_t stub_move(const struct move *m);

#endif
