/* SPDX-License-Identifier: MIT */
/*
 * A stub of the NVIDIA driver's files /dev/nvidiactl, /dev/nvidiaN and /proc/driver/nvidia.  A
 * test links nvrm_stub.c, with open(), ioctl(), mmap() and fopen() wrapped.  The stub keeps
 * the driver's known rules: a call that the driver refuses gets the driver's error; a call that
 * the driver accepts although it is wrong ends the process with a message.
 *
 * Device memory is the memory of the libcuda stub: a memfd with a descriptive name,
 * "stub-cuda-plain-DEVICE-0" or "stub-cuda-vmm-DEVICE-TYPES".  A descriptor of a "vmm" memfd is
 * an exported object; a "plain" memfd is the client's object that an IPC handle names.
 *
 * CUDA device i has other numbers as a card, as /dev/nvidiaN and as an instance.
 */
#ifndef PST_NVRM_STUB_H
#define PST_NVRM_STUB_H

#include <stdbool.h>
#include <stdint.h>

#include "window/nvrm/nvrm_types.h"

#define STUB_OBJECT 0x5c000000u /* object handle of a libcuda client: this | descriptor */
#define STUB_GPUS 2u

extern struct stub_nvrm {
	/* Properties of the driver; set them before its use. */
	char version[64];
	uint32_t reply;           /* reply to a version query */
	int ctl_errno, gpu_errno; /* errno of open(); 0: it succeeds */
	unsigned gpu_closed;      /* bit i: open() of GPU i's file fails with ENOENT */
	uint32_t refuse, status;  /* the escape, control or class @refuse gets @status */
	uint32_t partition;       /* partition of the imported object */
	uint16_t max_objects;     /* maximum objects of an export descriptor */
	unsigned objects;         /* objects in an export descriptor */
	uint8_t type;             /* type of the imported object */
	bool read_only;           /* all memory is read-only */
	bool other_uuid;          /* GPU UUIDs differ from libcuda's */
	bool no_proc, proc_unknown;
	unsigned cards; /* cards in the list; 0: STUB_GPUS */
	uint32_t caching;
	bool elsewhere; /* mappings show unrelated memory */

	/* Make the n-th call of open(), ioctl() and mmap() from now on fail; 0: none. */
	unsigned fail_at;
	int fail_errno; /* 0: escapes fail with a status instead */
	bool failed;    /* a call failed by fail_at */

	/* Totals since the reset. */
	unsigned calls, gpu_opens, maps;
} stub_nvrm;

/* Restore the initial state. */
void stub_nvrm_reset(void);

/* Return the number of clients, objects, mappings and device descriptors that this process has. */
unsigned stub_nvrm_left(void);
/* Return the number of descriptors of device files only. */
unsigned stub_nvrm_descriptors(void);

/* Get the PCI address and UUID of a CUDA device, as the libcuda stub reports them. */
void stub_nvrm_device(unsigned device, char pci[16], uint8_t uuid[16]);

#endif
