/* SPDX-License-Identifier: MIT */
/*
 * A double of the NVIDIA driver's device files, for tests: /dev/nvidiactl, /dev/nvidiaN and
 * /proc/driver/nvidia.  A test links nvrm_stub.c and has open(), ioctl(), mmap() and fopen()
 * wrapped.  It keeps the driver's rules as far as they are known: what the driver answers
 * with an error gives that error; what it forgives, or answers with a wrong mapping, ends
 * the process with a message.
 *
 * Device memory is that of the libcuda of this folder: a memfd whose name says what it is,
 * "stub-cuda-plain-DEVICE-0" or "stub-cuda-vmm-DEVICE-TYPES".  A descriptor of the latter is
 * an exported object; the former is an object of the client that an IPC handle names.
 *
 * CUDA's device i is neither card i, nor /dev/nvidia<i>, nor instance i.
 */
#ifndef PST_NVRM_STUB_H
#define PST_NVRM_STUB_H

#include <stdbool.h>
#include <stdint.h>

#include "window/nvrm/nvrm_types.h"

#define STUB_OBJECT 0x5c000000u /* of a client of libcuda: and the descriptor's number */
#define STUB_GPUS 2u

extern struct stub_nvrm {
	/* Properties of the driver; to be set while nobody uses it. */
	char version[64];
	uint32_t reply;           /* to who asks for it */
	int ctl_errno, gpu_errno; /* of open(); 0: it works */
	unsigned gpu_closed;      /* bits of devices whose file alone does not open */
	uint32_t refuse, status;  /* this escape, control or class always gives this status */
	uint32_t partition;       /* of what is imported */
	uint16_t max_objects;     /* a descriptor has room for */
	unsigned objects;         /* a descriptor holds */
	uint8_t type;             /* of what is imported */
	bool read_only;           /* all memory */
	bool other_uuid;          /* devices have others than libcuda says */
	bool no_proc, proc_unknown;
	unsigned cards; /* that are listed; 0: all */
	uint32_t caching;
	bool elsewhere; /* mappings show other memory */

	/* The n-th call of open(), ioctl() and mmap() from now on fails: 0 for none. */
	unsigned fail_at;
	int fail_errno; /* 0: escapes fail by a status */
	bool failed;    /* it was met */

	/* Ever. */
	unsigned calls, gpu_opens, maps;
} stub_nvrm;

/* As it is at first. */
void stub_nvrm_reset(void);

/* Clients, objects, mappings and descriptors that this process has. */
unsigned stub_nvrm_left(void);
/* Of device files; what the driver has besides is not counted. */
unsigned stub_nvrm_descriptors(void);

/* Address and UUID of CUDA's device, as the libcuda of this folder has them. */
void stub_nvrm_device(unsigned device, char pci[16], uint8_t uuid[16]);

#endif
