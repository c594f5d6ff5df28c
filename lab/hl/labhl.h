/* SPDX-License-Identifier: MIT */
/*
 * Calls of tests to the kernel module labhl, by /dev/labhl: what tests/stub/gaudi_stub.h offers for
 * the double of libhl-thunk, for the real library above this module.
 */
#ifndef LABHL_H
#define LABHL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define LABHL_DEVICES 2
#define LABHL_PAGE (48ull << 20) /* bytes of a page of device memory, as Gaudi 2 has it */
#define LABHL_PCI_0 "0000:1d:00.0"
#define LABHL_PCI_1 "0000:1e:00.0"

struct labhl_state {
	/* Live objects. */
	__u32 contexts, handles, mappings, exports;
	/* Ever. */
	__u64 calls, exported, held; /* held: unmaps that an export refused */
	__u64 leaked;                /* handles and mappings at the close of a context */
};

enum labhl_call {
	LABHL_NONE,
	LABHL_ANY,
	LABHL_OPEN,
	LABHL_INFO,
	LABHL_ALLOC,
	LABHL_FREE,
	LABHL_MAP,
	LABHL_UNMAP,
	LABHL_EXPORT,
};

/* The nth call from now on fails with err, each one if nth is 0. */
struct labhl_fail {
	__u32 call; /* enum labhl_call */
	__u32 nth;
	__u32 err; /* positive errno */
	__u32 met; /* out: an earlier failure was met */
};

struct labhl_reset {
	__u32 device;
	__u32 begins; /* 0: the reset is over */
};

/* Bytes of device memory at an address, or of a dma-buf at an offset. */
struct labhl_copy {
	__u64 at;
	__u64 user; /* address of the caller's bytes */
	__u64 len;
	__s32 fd;    /* dma-buf; -1: at is a device address */
	__u32 store; /* write instead of read */
};

/* A dma-buf of the end of the PCI BAR, behind the accelerators' memory, which the CPU may map, as
 * drivers of GPUs let it. */
struct labhl_bar {
	__u64 len;
	__s32 fd; /* out */
	__u32 pad;
};

#define LABHL_BAR_LEN (64ull << 20) /* bytes for such dma-bufs, which overlap */

#define LABHL_STATE _IOR('L', 1, struct labhl_state)
#define LABHL_SET_FAIL _IOWR('L', 2, struct labhl_fail)
#define LABHL_SET_RESET _IOW('L', 3, struct labhl_reset)
#define LABHL_COPY _IOW('L', 4, struct labhl_copy)
#define LABHL_BAR _IOWR('L', 6, struct labhl_bar)
#define LABHL_SET_ID _IOW('L', 5, __u32) /* PCI device id that the devices tell from now on */

#endif
