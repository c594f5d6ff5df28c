/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the libcufile stub share.  One lock guards all tables; it is
 * dropped while bytes move or a call hangs.
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

/* Declare every function of the library's symbol list, to check the definitions against it. */
#define SYM(type, name, args) type name args;
#define OPT SYM
#include "gds/cufile/cufile_syms.h"
#define SYM(type, name, args) type name args;
#define OPT SYM
#include "bench/cufile/batch_syms.h"

/* Functions of the libcuda stub. */
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
	LIE_ONCE, /* wrong for one transfer, then right */
};

struct file {
	struct list link;
	uintptr_t id; /* the handle; not an address, as in the real library */
	int fd;       /* the caller's descriptor */
	int plain;    /* a descriptor of the same file without O_DIRECT */
	int flags;    /* open flags of fd */
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
	struct counts counts[STUB_DEVICES_MAX][2]; /* [0]: reads, [1]: writes */
	struct stub_cufile_state state;
} cf;

/* Count the call, hang it if asked, and return the code that it has to fail with, or 0.  Call it
 * without the lock. */
int stub_call(const char *name);
#define CALL() stub_call(__func__)

static inline struct cuf_error stub_error(int code)
{
	if (code && code < CUF_BASE)
		return (struct cuf_error){ CUF_CUDA_DRIVER_ERROR, code };
	return (struct cuf_error){ code, 0 };
}

/* End the process: the caller broke a rule that the real library does not check, but crashes on. */
__attribute__((noreturn, format(printf, 1, 2))) void stub_cufile_abort(const char *fmt, ...);

/* Open the driver if it is closed, as a registration does. */
int stub_implicit_open(void);
bool stub_strict(void);

/* Call these with the lock held. */
struct file *stub_file(cuf_handle handle);
struct buf *stub_buf(uint64_t base);
void stub_files_end(void);
void stub_batches_end(void);

/* One transfer.  stub_move() returns bytes, -errno or a negative library code. */
struct move {
	cuf_handle file;
	uint64_t base;
	off_t file_off, base_off;
	size_t len;
	bool write;
};
ssize_t stub_move(const struct move *m);

#endif
