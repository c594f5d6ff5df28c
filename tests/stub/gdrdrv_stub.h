/* SPDX-License-Identifier: MIT */
/*
 * A stub of /dev/gdrdrv in user space, over the memory of the libcuda stub.
 *
 * The linker's --wrap redirects open(), close(), ioctl(), mmap() and munmap() here.  Requests
 * are decoded by number and offset, without the library's declarations.  The stub keeps the
 * module's rules: a file lives while a descriptor or a mapping refers to it, and its end unpins
 * all its memory; only the process that opened a file may use it; a mapping begins at a page of
 * 64 KiB.
 */
#ifndef PST_GDRDRV_STUB_H
#define PST_GDRDRV_STUB_H

#include <stdbool.h>
#include <stdint.h>

/* Settings, to be made before a call.  stub_gdrdrv_reset() sets a module 2.6 without failures. */
extern struct stub_gdrdrv {
	int open_errno;            /* errno of open(); 0: it succeeds */
	uint32_t version, minimum; /* major << 16 | minor */
	bool persistent;
	uint32_t type;    /* type of mappings: 1 WC, 2 cached, 3 device; 0: not reported */
	uint32_t types;   /* bit set (1 << type) of types that a caller may request */
	int pin_errno;    /* errno of pins; 0: they succeed */
	bool lies;        /* mappings show other memory than was pinned */
	unsigned fail_at; /* the n-th call fails with EIO; 0: none */

	/* Counts. */
	unsigned calls; /* calls that can fail on demand */
	unsigned pinned_v1, pinned_v2, asked_types;
	unsigned files, pins, maps; /* live objects */
	char broken[128];           /* the first rule that a caller broke */
} stub_gdrdrv;

void stub_gdrdrv_reset(void);

#endif
