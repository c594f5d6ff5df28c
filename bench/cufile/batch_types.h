/* SPDX-License-Identifier: MIT */
/*
 * Types of cuFile's batches, in addition to gds/cufile/cufile_types.h.
 * tests/unit/test-cufile-abi.c compares them with <cufile.h> where that is installed.
 */
#ifndef BENCH_CUFILE_BATCH_TYPES_H
#define BENCH_CUFILE_BATCH_TYPES_H

#include "gds/cufile/cufile_types.h"

#define CUF_BATCH 1 /* value of cuf_io_params.mode */

typedef void *cuf_batch;

/* State of a batch entry; one bit is set. */
enum {
	CUF_WAITING = 0x01,
	CUF_PENDING = 0x02,
	CUF_INVALID = 0x04,
	CUF_CANCELED = 0x08,
	CUF_COMPLETE = 0x10,
	CUF_TIMEOUT = 0x20,
	CUF_FAILED = 0x40,
};

struct cuf_io_params {
	int mode; /* always CUF_BATCH */
	struct {
		void *base;
		off_t file_off, base_off;
		size_t len;
	} batch; /* the only member of a union */
	cuf_handle file;
	int opcode;
	void *cookie;
};

struct cuf_io_event {
	void *cookie;
	int status;
	size_t ret; /* bytes, or a negative error converted to size_t */
};

_Static_assert(sizeof(struct cuf_io_params) == 64 &&
		       offsetof(struct cuf_io_params, batch.base) == 8 &&
		       offsetof(struct cuf_io_params, batch.file_off) == 16 &&
		       offsetof(struct cuf_io_params, batch.base_off) == 24 &&
		       offsetof(struct cuf_io_params, batch.len) == 32 &&
		       offsetof(struct cuf_io_params, file) == 40 &&
		       offsetof(struct cuf_io_params, opcode) == 48 &&
		       offsetof(struct cuf_io_params, cookie) == 56,
	       "CUfileIOParams_t");
_Static_assert(sizeof(struct cuf_io_event) == 24 && offsetof(struct cuf_io_event, status) == 8 &&
		       offsetof(struct cuf_io_event, ret) == 16,
	       "CUfileIOEvents_t");

#endif
