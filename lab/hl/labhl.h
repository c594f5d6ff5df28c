/* SPDX-License-Identifier: MIT */
/*
 * Ioctls on /dev/labhl, by which tests control the kernel module labhl.  Tests with the real
 * libhl-thunk use them as tests with the stub use tests/stub/gaudi_stub.h.
 */
#ifndef LABHL_H
#define LABHL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define LABHL_DEVICES 2
#define LABHL_PAGE (48ull << 20) /* bytes of a page of device memory, as on Gaudi 2 */
#define LABHL_PCI_0 "0000:1d:00.0"
#define LABHL_PCI_1 "0000:1e:00.0"

struct labhl_state {
	/* The number of each kind of object that exists now. */
	__u32 contexts, handles, mappings, exports;
	/* Totals since the module was loaded. */
	__u64 calls, exported, held; /* held: unmaps refused because of an export */
	__u64 leaked;                /* handles and mappings that closed contexts still had */
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

/* Make the nth call from now on fail with err; 0: every call. */
struct labhl_fail {
	__u32 call; /* enum labhl_call */
	__u32 nth;
	__u32 err; /* positive errno */
	__u32 met; /* out: 1 if the previously set failure occurred */
};

struct labhl_reset {
	__u32 device;
	__u32 begins; /* 1: begin a reset; 0: end it */
};

/* Copy bytes at a device address, or at an offset of a dma-buf. */
struct labhl_copy {
	__u64 at;
	__u64 user; /* user address of the bytes */
	__u64 len;
	__s32 fd;    /* dma-buf; -1: copy at a device address */
	__u32 store; /* 1: write; 0: read */
};

/* Export a dma-buf of the end of the PCI BAR, after the accelerators' memory.  The CPU may map it,
 * as with GPU drivers. */
struct labhl_bar {
	__u64 len;
	__s32 fd; /* out: descriptor of the dma-buf */
	__u32 pad;
};

#define LABHL_BAR_LEN (64ull << 20) /* bytes available for such dma-bufs, which may overlap */

#define LABHL_STATE _IOR('L', 1, struct labhl_state)
#define LABHL_SET_FAIL _IOWR('L', 2, struct labhl_fail)
#define LABHL_SET_RESET _IOW('L', 3, struct labhl_reset)
#define LABHL_COPY _IOW('L', 4, struct labhl_copy)
#define LABHL_BAR _IOWR('L', 6, struct labhl_bar)
#define LABHL_SET_ID _IOW('L', 5, __u32) /* Set the PCI device id that the devices report. */

#endif
