/* SPDX-License-Identifier: MIT */
/*
 * A /dev/gdrdrv without a kernel module, over the memory of the stub of libcuda.
 *
 * The linker's --wrap leads open(), close(), ioctl(), mmap() and munmap() here.  Requests are
 * taken apart by number and offset, without the library's own declarations.  The rules are
 * the module's: a file lives as long as a descriptor or a mapping holds it and unpins all when
 * it ends; only its opener may use it; a mapping begins with a page of 64 KiB.
 */
#ifndef PST_GDRDRV_STUB_H
#define PST_GDRDRV_STUB_H

#include <stdbool.h>
#include <stdint.h>

/* Set before a call; stub_gdrdrv_reset() makes it a module of 2.6 in its usual state. */
extern struct stub_gdrdrv {
	int open_errno;            /* 0: it opens */
	uint32_t version, minimum; /* major << 16 | minor */
	bool persistent;
	uint32_t type;    /* of mappings: 1 WC, 2 cached, 3 device; 0: says none */
	uint32_t types;   /* bits 1 << type that may be asked for */
	int pin_errno;    /* 0: it pins */
	bool lies;        /* maps other memory than was pinned */
	unsigned fail_at; /* the n-th call fails with EIO; 0: none */

	/* Counts of events. */
	unsigned calls; /* that could have failed */
	unsigned pinned_v1, pinned_v2, asked_types;
	unsigned files, pins, maps; /* that are there now */
	char broken[128];           /* the first rule that was broken */
} stub_gdrdrv;

void stub_gdrdrv_reset(void);

#endif
