/* SPDX-License-Identifier: MIT */
/*
 * Functions of our libcuda.so.1 stub that the real library lacks.  Tests find them by dlsym();
 * if dlsym() finds none, the library is the real one.
 *
 * Environment: STUB_CUDA_DEVICES (1 to 8, 0 for none), STUB_CUDA_FAIL (see stub_cuda_fail()),
 * STUB_CUDA_DELAY_US (a delay before each operation of a stream), STUB_CUDA_REGISTER_US (the
 * duration of each registration of host memory).
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
	unsigned ctx_refs[STUB_DEVICES_MAX]; /* references to primary contexts */
	unsigned sync_memops;                /* ranges with CU_PTR_SYNC_MEMOPS */
	unsigned contexts, streams, events, ranges, handles, reservations, registrations, modules;
	unsigned stalled;   /* calls that stub_cuda_stall() holds up */
	unsigned syncing;   /* calls waiting in cuCtxSynchronize() */
	unsigned held_sums; /* streams that stub_cuda_hold_sums() holds up */
	/* State of the calling thread. */
	unsigned depth;
	cu_ctx current;
	uint32_t mode;
	/* Totals since the start. */
	uint64_t calls, kernels, batched, copies, between, words, largest_registration;
	uint64_t between_by_host; /* copies between devices that do not reach each other */
	uint64_t held;            /* polls by streams of words that they wait for */
	uint64_t refused;         /* queries of memory that returned an error */
	unsigned contexts_made;
};

void stub_cuda_state(struct stub_cuda_state *ret);

/* Make calls fail: "NAME:N:CODE" makes the N-th call of NAME from now on return CODE, or every
 * call if N is 0.  NAME "*" stands for every function.  NULL ends the failures.  Return true if
 * a call failed by the previous setting. */
bool stub_cuda_fail(const char *spec);

void stub_cuda_delay_us(unsigned us);

/* Hold up (true) or release (false) copies, kernels and fills of all streams. */
void stub_cuda_hold(bool hold);

/* Like stub_cuda_hold(), but only for checksum kernels. */
void stub_cuda_hold_sums(bool hold);

/* Drop the last @to bytes of each copy to a device and the last @from bytes of each copy from
 * one. */
void stub_cuda_lose(unsigned to, unsigned from);

/* Block calls of NAME until the next stub_cuda_stall().  "NAME:N" lets the next N calls return
 * first.  "NAME#N" blocks only the next N calls.  NULL blocks none. */
void stub_cuda_stall(const char *name);

/* Make every later call in a context of this device return @code, as after a sticky error. */
void stub_cuda_poison(int dev, cu_result code);

/* Read or write bytes of device memory. */
bool stub_cuda_peek(cu_ptr ptr, void *buf, size_t len);
bool stub_cuda_poke(cu_ptr ptr, const void *buf, size_t len);

/* Return a new descriptor of the object with the byte at ptr, and the byte's offset in the
 * object; -1: there is none. */
int stub_cuda_fd(cu_ptr ptr, uint64_t *ret_off);

#endif
