/* SPDX-License-Identifier: MIT */
/*
 * Calls of tests to the libcuda.so.1 that is built here, beyond the driver's own.
 * They find these functions by dlsym(); where there is none, the library is a real one.
 *
 * Environment: STUB_CUDA_DEVICES (1 to 8, 0 for none), STUB_CUDA_FAIL (as
 * stub_cuda_fail()), STUB_CUDA_DELAY_US (before each operation of a stream),
 * STUB_CUDA_REGISTER_US (of each registration of host memory).
 */
#ifndef PST_CUDA_STUB_H
#define PST_CUDA_STUB_H

#include <stdbool.h>

#include "mem/cuda/cuda_types.h"

#define STUB_DEVICES_MAX 8
#define STUB_TOTAL (UINT64_C(8) << 30) /* bytes of a device */
#define STUB_CHUNK (UINT64_C(2) << 20) /* granularity of mapped memory */

struct stub_cuda_state {
	/* Live objects. */
	unsigned ctx_refs[STUB_DEVICES_MAX]; /* of primary contexts */
	unsigned sync_memops;                /* of the ranges */
	unsigned contexts, streams, events, ranges, handles, reservations, registrations, modules;
	unsigned stalled;   /* calls, by stub_cuda_stall() */
	unsigned syncing;   /* calls of cuCtxSynchronize() that wait */
	unsigned held_sums; /* streams that wait by stub_cuda_hold_sums() */
	/* Of the calling thread. */
	unsigned depth;
	cu_ctx current;
	uint32_t mode;
	/* Ever. */
	uint64_t calls, kernels, batched, copies, between, words, largest_registration;
	uint64_t between_by_host; /* copies between devices that do not reach each other */
	uint64_t held;            /* looks of streams at words that they have to wait for */
	uint64_t refused;         /* questions about memory that had an error for an answer */
	unsigned contexts_made;
};

void stub_cuda_state(struct stub_cuda_state *ret);

/* "NAME:N:CODE": the N-th call of NAME from now on gives CODE, each one with N 0.  NAME "*"
 * is any.  NULL: none.  True when an earlier one was met. */
bool stub_cuda_fail(const char *spec);

void stub_cuda_delay_us(unsigned us);

/* With true, streams begin no copy, kernel or fill until false. */
void stub_cuda_hold(bool hold);

/* The same for kernels for checksums alone. */
void stub_cuda_hold_sums(bool hold);

/* So many bytes at the end of each copy to a device, and from one, do not arrive. */
void stub_cuda_lose(unsigned to, unsigned from);

/* Calls of NAME do not return until another name is given, or NULL.  "NAME:N": the next N do.
 * "NAME#N": only the next N do not. */
void stub_cuda_stall(const char *name);

/* The context of a device is spoilt: every call in it gives the code from now on. */
void stub_cuda_poison(int dev, cu_result code);

/* Bytes of device memory, read or written. */
bool stub_cuda_peek(cu_ptr ptr, void *buf, size_t len);
bool stub_cuda_poke(cu_ptr ptr, const void *buf, size_t len);

/* A new descriptor of what holds the byte at ptr, and where in it that is; -1 for none. */
int stub_cuda_fd(cu_ptr ptr, uint64_t *ret_off);

#endif
