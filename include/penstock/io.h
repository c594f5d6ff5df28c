/* SPDX-License-Identifier: MIT */
/*
 * Requests and completions, and calls that wait for theirs; manual pages: pst_io(3),
 * pst_read(3), pst_why(3).
 */
#ifndef PENSTOCK_IO_H
#define PENSTOCK_IO_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

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

/* fail with -EOPNOTSUPP where `why' would be set, MEMLOCK apart: that changes the price and not
 * the path */
#define PST_IO_STRICT (1u << 0)
/* CRC-32C of the bytes, in piece order, in the completion; of no meaning where pieces overlap
 * in memory */
#define PST_IO_CRC32C (1u << 1)
#define PST_IO_DATASYNC (1u << 2) /* SYNC: fdatasync(2) is enough */
/* READ with a stream: later work on the stream waits for the bytes */
#define PST_IO_STREAM_WAIT (1u << 3)

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
 * One request: 128 bytes, fixed.  Zero what is not used.
 *
 * stream names a stream of the program as the device's own API does: for CUDA a CUstream,
 * which cudaStream_t is too.  The request begins when the work is done that was on the stream
 * at pst_queue_submit().  Later work does not wait.  With PST_IO_STREAM_WAIT it does: the read's
 * copies are on the stream when pst_queue_submit() returns, and the file is read at once.  NULL is
 * no stream, and not the default one.  A stream under capture is refused with -EBUSY.  pst_io(3)
 * has the rules.
 */
struct pst_io {
	uint32_t op;     /* enum pst_op */
	uint32_t flags;  /* PST_IO_* */
	uint64_t policy; /* PST_POLICY* */
	struct pst_file *file;
	struct pst_mem *mem;        /* NULL for SYNC */
	const struct pst_seg *segs; /* NULL: the inline piece below; else it must stay
				     * valid and unchanged until the completion */
	uint64_t nr_segs;           /* 0 with segs NULL, else 1 to PST_SEGS_MAX */
	uint64_t file_off;          /* the inline piece */
	uint64_t mem_off;
	uint64_t len;
	void *stream;         /* to be ordered with, see above; or NULL */
	uint64_t deadline_ns; /* 0: the queue's default; PST_NO_DEADLINE */
	uint64_t user_data;   /* comes back in the completion */
	uint64_t reserved[4]; /* 0 */
};

/* hardware or kernel may still touch the memory or, for a write, the file: pst_mem_drain() and
 * pst_file_drain() tell when they do not */
#define PST_DONE_BUSY (1u << 0)
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

/* ---------------------------------------------------- calls that wait */

/* A range of a file and of memory: 40 bytes, fixed.  Zero what is not used. */
struct pst_vec {
	struct pst_mem *mem; /* NULL: mem_off is an address, which is wrapped for the call */
	uint64_t mem_off;    /* in mem, or the address as pst_mem_wrap() takes it */
	uint64_t file_off;
	uint64_t len;      /* at least 1 */
	uint64_t reserved; /* 0 */
};

/* How a call goes about all of its ranges; members as those of struct pst_io. */
struct pst_call_opts {
	size_t sz;      /* sizeof(struct pst_call_opts) */
	uint32_t flags; /* PST_IO_STRICT, PST_IO_STREAM_WAIT (reads with a stream) */
	uint32_t reserved;
	uint64_t policy;      /* PST_POLICY* */
	uint64_t deadline_ns; /* 0: 300 seconds from now, and one more for each 10 MB */
	void *stream;         /* to be ordered with, or NULL; all memory is of its device */
};

#define PST_VECS_MAX (1u << 20) /* ranges of one call */

/**
 * pst_read() - read from a file into memory, and wait
 * @file:     open for reading; any thread
 * @file_off: first byte in the file
 * @mem:      the memory, or NULL: then @mem_off is an address
 * @mem_off:  first byte in @mem, or the address of memory as pst_mem_wrap() takes it
 * @len:      bytes, at least 1
 * @ret_done: how it went, also on failure; may be NULL
 *
 * For programs with one thing to read.  Requests in a queue overlap and cost less.  Ends
 * with -ETIMEDOUT after 300 seconds and one more for each 10 MB; pst_readv() takes options.
 *
 * The queue that a call makes stays for the next one, with its staging memory, and ends when it
 * is idle for a second, or when another queue lacks that memory.
 *
 * Return: bytes read, less than @len only at the end of the file; -errno as pst_queue_prep(),
 * pst_mem_wrap() and the completion have it; -ENOMEM, -EMFILE.  With PST_DONE_BUSY in
 * ret_done->flags the memory is still in use: where @mem is NULL it must stay allocated for good.
 */
PST_API int64_t pst_read(struct pst_file *file, uint64_t file_off, struct pst_mem *mem,
			 uint64_t mem_off, uint64_t len, struct pst_done *ret_done);

/**
 * pst_write() - write from memory to a file, and wait
 * @file:     open for writing; any thread
 * @file_off: first byte in the file
 * @mem:      the memory, or NULL: then @mem_off is an address
 * @mem_off:  as in pst_read()
 * @len:      bytes, at least 1
 * @ret_done: how it went, also on failure; may be NULL
 *
 * Durable only after pst_file_sync().
 *
 * Return: @len, or -errno as pst_read(); then ret_done->prefix bytes are written.
 */
PST_API int64_t pst_write(struct pst_file *file, uint64_t file_off, struct pst_mem *mem,
			  uint64_t mem_off, uint64_t len, struct pst_done *ret_done);

/**
 * pst_readv() - read many ranges of a file into many pieces of memory, and wait
 * @file:     open for reading; any thread
 * @vecs:     the ranges, in any order; they must not overlap in memory
 * @nr:       how many, 1 to PST_VECS_MAX
 * @opts:     NULL for the defaults
 * @ret_done: all of them in one, also on failure: paths is the union, prefix counts in the
 *            order of @vecs, why is the first reason met, and user_data is the index of the
 *            first range that is not whole, of those in the request that failed if one
 *            did, or @nr; may be NULL
 *
 * A model loader reads three hundred tensors into as many allocations by one call.  Ranges
 * in one allocation become one request, as do all of the host's addresses, and requests run side
 * by side.  A range is short only where it reaches past the end of the file; those behind it may
 * be read or not.
 *
 * Return: bytes that are there without a gap, in the order of @vecs; -errno of the first range
 * that failed, as pst_read(), and then ret_done->prefix bytes are good.  If ranges are refused
 * before anything moves, the errno is that of one of them.  -EINVAL, -E2BIG also for options that a
 * call does not take.
 */
PST_API int64_t pst_readv(struct pst_file *file, const struct pst_vec *vecs, unsigned nr,
			  const struct pst_call_opts *opts, struct pst_done *ret_done);

/**
 * pst_writev() - write many pieces of memory to many ranges of a file, and wait
 * @file:     open for writing; any thread
 * @vecs:     the ranges, in any order; they must not overlap in the file
 * @nr:       how many, 1 to PST_VECS_MAX
 * @opts:     NULL for the defaults; PST_IO_STREAM_WAIT is for reads
 * @ret_done: as in pst_readv()
 *
 * Return: the sum of bytes, or -errno of the first range that failed, as pst_readv().
 */
PST_API int64_t pst_writev(struct pst_file *file, const struct pst_vec *vecs, unsigned nr,
			   const struct pst_call_opts *opts, struct pst_done *ret_done);

/**
 * pst_mem_crc32c() - compute the CRC-32C of ranges of memory, where they lie
 * @vecs: the ranges, in any order; file_off is 0
 * @nr:   how many, 1 to PST_VECS_MAX
 * @opts: NULL for the defaults; deadline_ns and stream are used, flags and policy are 0
 * @ret:  a checksum for each range, in the order of @vecs; undefined after a failure
 *
 * The device itself reads device memory, so the checksum tells what arrived there, whichever way it
 * came.  It is that of RFC 3720, as in pst_done.crc32c.  With a stream the bytes are those that the
 * work gives which is on the stream at the call.  Any thread.
 *
 * Return: 0; -EINVAL, -ERANGE, -EACCES, -EFAULT as pst_readv(); -EOPNOTSUPP where the device
 * computes none; -ETIMEDOUT, and then the device may read the memory for a while; -ENOMEM; -EIO
 * when the device failed.
 */
PST_API int pst_mem_crc32c(const struct pst_vec *vecs, unsigned nr,
			   const struct pst_call_opts *opts, uint32_t *ret);

/* -------------------------------------------------------------- in words */

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
 * pst_paths_text() - the names of a set of paths
 * @paths: set of PST_PATH_BIT(), as in pst_done.paths
 * @buf:   receives the names, the device's hop first: "staged+direct"; "" for none
 * @len:   of @buf, at least 1
 *
 * Return: @buf.
 */
PST_API const char *pst_paths_text(uint32_t paths, char *buf, size_t len);

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

#ifdef __cplusplus
}
#endif
#endif
