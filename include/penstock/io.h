/* SPDX-License-Identifier: MIT */
/*
 * Requests, completions, and calls that wait until a request completes; manual pages:
 * pst_io(3), pst_read(3), pst_why(3).
 */
#ifndef PENSTOCK_IO_H
#define PENSTOCK_IO_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A run of equal pieces, for block tables and strided layers.  Piece i moves len bytes between
 * file_off + i * file_stride in the file and mem_off + i * mem_stride in the memory.
 */
struct pst_seg {
	uint64_t file_off;    /* first byte in the file */
	uint64_t mem_off;     /* first byte in pst_io.mem */
	uint64_t len;         /* bytes of one piece, at least 1 */
	uint64_t file_stride; /* bytes from piece to piece in the file; ignored if count < 2 */
	uint64_t mem_stride;  /* bytes from piece to piece in memory; ignored if count < 2 */
	uint64_t count;       /* number of pieces; 0 means 1 */
};

/* Maximum segments of one request. */
#define PST_SEGS_MAX (1u << 20)
/* Maximum pieces of one request. */
#define PST_PIECES_MAX (1u << 24)

/* Fail with -EOPNOTSUPP if the completion would have a reason (pst_done.why).  PST_WHY_MEMLOCK does
 * not count: the request then uses the wanted path, at a higher cost. */
#define PST_IO_STRICT (1u << 0)
/* Compute the CRC-32C of the bytes, in the order of the pieces, for the completion.  The value
 * is undefined if pieces overlap in memory. */
#define PST_IO_CRC32C (1u << 1)
/* For PST_OP_SYNC: sync as fdatasync(2) does. */
#define PST_IO_DATASYNC (1u << 2)
/* For PST_OP_READ with a stream: later work on the stream waits for the bytes. */
#define PST_IO_STREAM_WAIT (1u << 3)
/* For PST_OP_READ: compare the bytes of each piece in memory with the caller's checksum (crc32cs).
 * If a piece differs, or the file ends within a piece, the request fails with -EBADMSG, and
 * wrong_piece and prefix tell which piece.  Not with PST_IO_STREAM_WAIT. */
#define PST_IO_VERIFY (1u << 4)
/* With PST_IO_CRC32C: compute the checksum of the bytes that are in the memory once a read or write
 * has moved them; a device computes the checksum of its own memory.  Without this flag, the
 * checksum may be of bytes that passed through staging memory.  If a write's staged bytes differ
 * from those in the memory, the write fails with -EBADMSG, because it wrote wrong bytes.  A write
 * that ends before the comparison fails as well.  Not with PST_IO_STREAM_WAIT. */
#define PST_IO_CRC32C_MEM (1u << 5)

/* No deadline. */
#define PST_NO_DEADLINE UINT64_MAX

/*
 * A policy: 0 for automatic, else up to eight paths in the order of preference.  Each path has
 * four bits, the first path the lowest ones.  Only listed paths are tried.  For device memory,
 * list a device path together with file paths to restrict how the file is read:
 * PST_POLICY2(PST_PATH_STAGED, PST_PATH_DIRECT) stages, and reads the file by O_DIRECT only.
 */
#define PST_POLICY_AUTO UINT64_C(0)
#define PST_POLICY1(a) ((uint64_t)(a))
#define PST_POLICY2(a, b) ((uint64_t)(a) | (uint64_t)(b) << 4)
#define PST_POLICY3(a, b, c) (PST_POLICY2(a, b) | (uint64_t)(c) << 8)

/*
 * One request: 128 bytes, fixed.  Zero unused members.
 *
 * stream is a stream of the program in the device's own API: a CUstream or cudaStream_t for
 * CUDA.  The request begins after the work that was on the stream at pst_queue_submit(), and
 * later work does not wait for the request unless PST_IO_STREAM_WAIT is set.  NULL means no
 * stream, not the default stream.  pst_io(3) has the rules.
 */
struct pst_io {
	uint32_t op;     /* enum pst_op */
	uint32_t flags;  /* PST_IO_* */
	uint64_t policy; /* PST_POLICY* */
	struct pst_file *file;
	struct pst_mem *mem; /* NULL for SYNC */
	/* NULL: file_off, mem_off and len are the only piece.  Not NULL: the pieces, as segments
	 * that must stay valid and unchanged until the completion. */
	const struct pst_seg *segs;
	uint64_t nr_segs;     /* 1 to PST_SEGS_MAX; 0 if segs is NULL */
	uint64_t file_off;    /* first byte in the file, if segs is NULL */
	uint64_t mem_off;     /* first byte in mem, if segs is NULL */
	uint64_t len;         /* bytes, if segs is NULL */
	void *stream;         /* the device stream on which the request is ordered, or NULL */
	uint64_t deadline_ns; /* 0: the queue's default; PST_NO_DEADLINE: none */
	uint64_t user_data;   /* returned in the completion */
	/* With PST_IO_VERIFY: the CRC-32C of each piece, in the order of the pieces, which must
	 * stay valid and unchanged until the completion.  Otherwise NULL. */
	const uint32_t *crc32cs;
	uint64_t reserved[3]; /* 0 */
};

/* Hardware or kernel may still touch the memory or, for a write, the file.  Wait until they do not,
 * with pst_mem_drain() and pst_file_drain(). */
#define PST_DONE_BUSY (1u << 0)
/* pst_done.crc32c is valid. */
#define PST_DONE_CRC32C (1u << 1)
/* The memory was registered with the kernel. */
#define PST_DONE_PINNED (1u << 2)
/* The path was proven by comparing this request's own bytes. */
#define PST_DONE_PROOF (1u << 3)

/* One completion: 64 bytes, fixed. */
struct pst_done {
	uint64_t user_data;   /* user_data of the request */
	int64_t res;          /* bytes moved, or -errno; fewer than requested only if a read
			       * met the end of the file: the rest of the memory may then have
			       * been overwritten */
	uint64_t prefix;      /* bytes moved before the first gap, even if res < 0 */
	uint32_t paths;       /* bit set of PST_PATH_BIT() */
	uint32_t why;         /* enum pst_why */
	int32_t detail;       /* meaning depends on @why: pst_why(3) */
	uint32_t flags;       /* PST_DONE_* */
	uint32_t crc32c;      /* CRC-32C of the bytes, if flags has PST_DONE_CRC32C */
	uint32_t op;          /* enum pst_op */
	uint64_t wrong_piece; /* with -EBADMSG of PST_IO_VERIFY: index of the first piece that
			       * differs; else 0 */
	uint64_t reserved;    /* 0 */
};

/* ---------------------------------------------------- calls that wait */

/* A range of a file and of memory: 40 bytes, fixed.  Zero unused members. */
struct pst_vec {
	struct pst_mem *mem; /* NULL: mem_off is an address, wrapped during the call */
	uint64_t mem_off;    /* first byte in mem, or an address as pst_mem_wrap() takes it */
	uint64_t file_off;   /* first byte in the file */
	uint64_t len;        /* bytes, at least 1 */
	uint64_t reserved;   /* 0 */
};

/* Options for all ranges of a call; the members are those of struct pst_io. */
struct pst_call_opts {
	size_t sz;            /* sizeof(struct pst_call_opts) */
	uint32_t flags;       /* PST_IO_STRICT; PST_IO_STREAM_WAIT for reads with a stream */
	uint32_t reserved;    /* 0 */
	uint64_t policy;      /* PST_POLICY* */
	uint64_t deadline_ns; /* 0: 300 seconds from now, plus a second for each 10 MB */
	void *stream;         /* a stream of the device that has all of the memory, or NULL */
};

/* Maximum ranges of one call. */
#define PST_VECS_MAX (1u << 20)

/**
 * pst_read() - read from a file into memory, and wait
 * @file:     open for reading; any thread
 * @file_off: first byte in the file
 * @mem:      the memory, or NULL: then @mem_off is an address
 * @mem_off:  first byte in @mem, or the address of memory as pst_mem_wrap() takes it
 * @len:      bytes, at least 1
 * @ret_done: the completion, also after a failure; may be NULL
 *
 * Use a queue for many reads: its requests overlap and cost less.  The call fails with
 * -ETIMEDOUT after 300 seconds plus a second for each 10 MB; pst_readv() has options.
 *
 * The library keeps the call's queue and its staging memory for the next call, and frees both
 * after an idle second, or when another queue needs the memory.
 *
 * Return: bytes read, less than @len only at the end of the file; -ENOMEM; -EMFILE; any other
 * -errno of pst_queue_prep(), pst_mem_wrap() or a completion.  With PST_DONE_BUSY in
 * ret_done->flags the memory is still in use; if @mem is NULL, never free the memory then.
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
 * @ret_done: the completion, also after a failure; may be NULL
 *
 * The bytes are durable only after pst_file_sync().
 *
 * Return: @len, or -errno as pst_read(); after a failure ret_done->prefix bytes are written.
 */
PST_API int64_t pst_write(struct pst_file *file, uint64_t file_off, struct pst_mem *mem,
			  uint64_t mem_off, uint64_t len, struct pst_done *ret_done);

/**
 * pst_readv() - read many ranges of a file into many pieces of memory, and wait
 * @file:     open for reading; any thread
 * @vecs:     the ranges, in any order; they must not overlap in memory
 * @nr:       number of ranges, 1 to PST_VECS_MAX
 * @opts:     NULL for the defaults
 * @ret_done: one completion for all ranges, also after a failure; may be NULL.  paths is the
 *            union of their paths.  prefix counts bytes in the order of @vecs.  why is the
 *            first reason that was met.  user_data is the index of the first incomplete
 *            range (of the request that failed, if one did), or @nr
 *
 * Ranges in one allocation become one request.  All host addresses together become one, too.  The
 * requests run in parallel.  A range is short only if it reaches past the end of the file; the
 * ranges after it may or may not be read.
 *
 * Return: the number of bytes before the first gap, in the order of @vecs; or -errno of the first
 * range that failed, as pst_read(), and ret_done->prefix bytes are valid.  If ranges are refused
 * before anything moves, the errno is that of any refused range.  -EINVAL or -E2BIG for invalid
 * options.
 */
PST_API int64_t pst_readv(struct pst_file *file, const struct pst_vec *vecs, unsigned nr,
			  const struct pst_call_opts *opts, struct pst_done *ret_done);

/**
 * pst_writev() - write many pieces of memory to many ranges of a file, and wait
 * @file:     open for writing; any thread
 * @vecs:     the ranges, in any order; they must not overlap in the file
 * @nr:       number of ranges, 1 to PST_VECS_MAX
 * @opts:     NULL for the defaults; without PST_IO_STREAM_WAIT, which is for reads
 * @ret_done: as in pst_readv()
 *
 * Return: the sum of bytes, or -errno of the first range that failed, as pst_readv().
 */
PST_API int64_t pst_writev(struct pst_file *file, const struct pst_vec *vecs, unsigned nr,
			   const struct pst_call_opts *opts, struct pst_done *ret_done);

/**
 * pst_mem_crc32c() - compute the CRC-32C of ranges of memory
 * @vecs: the ranges, in any order; file_off must be 0
 * @nr:   number of ranges, 1 to PST_VECS_MAX
 * @opts: NULL for the defaults; only deadline_ns and stream may be set
 * @ret:  a checksum for each range, in the order of @vecs; undefined after a failure
 *
 * The device that has the memory computes the checksums, so they cover the bytes that arrived
 * there.  The polynomial is that of RFC 3720, as in pst_done.crc32c.  With a stream, the checksum
 * begins after the work that was on the stream at the call.  Any thread.
 *
 * Return: 0; -EINVAL, -ERANGE, -EACCES, -EFAULT as pst_readv(); -EOPNOTSUPP if the device has no
 * checksums; -ETIMEDOUT, and the device may still read the memory; -ENOMEM; -EIO if the device
 * failed.
 */
PST_API int pst_mem_crc32c(const struct pst_vec *vecs, unsigned nr,
			   const struct pst_call_opts *opts, uint32_t *ret);

/* -------------------------------------------------------------- in words */

/**
 * pst_done_text() - describe a completion in words
 * @done: the completion
 * @buf:  receives the text, always terminated
 * @len:  size of @buf in bytes, at least 1
 *
 * Return: @buf.
 */
PST_API const char *pst_done_text(const struct pst_done *done, char *buf, size_t len);

/**
 * pst_path_name() - return the name of one path
 * @path: enum pst_path
 *
 * Return: "direct", "staged", ...; "unknown" for anything else.
 */
PST_API const char *pst_path_name(uint32_t path);

/**
 * pst_paths_text() - list the names of a set of paths
 * @paths: set of PST_PATH_BIT(), as in pst_done.paths
 * @buf:   receives the names, that of the device's path first: "staged+direct"; "" for none
 * @len:   size of @buf in bytes, at least 1
 *
 * Return: @buf.
 */
PST_API const char *pst_paths_text(uint32_t paths, char *buf, size_t len);

/**
 * pst_why_name() - return the short name of a reason
 * @why: enum pst_why
 *
 * Return: "no-direct", "unaligned", ...; "unknown" for anything else.
 */
PST_API const char *pst_why_name(uint32_t why);

/**
 * pst_why_text() - describe a reason and its cure in a sentence
 * @why:    enum pst_why
 * @detail: pst_done.detail
 * @buf:    receives the text, always terminated
 * @len:    size of @buf in bytes, at least 1
 *
 * Return: @buf.
 */
PST_API const char *pst_why_text(uint32_t why, int32_t detail, char *buf, size_t len);

#ifdef __cplusplus
}
#endif
#endif
