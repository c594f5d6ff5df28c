/* SPDX-License-Identifier: MIT */
/*
 * Make the n-th call at a named place fail, be short or be slow.
 *
 * Every provider has such places, so that our tests, and users' tests of their own error
 * handling, can go through paths that healthy hardware never takes.  PST_FAULT holds a
 * list of SITE:N:WHAT separated by commas.  SITE is "mem.copy" and the like (fault.c
 * has the list), N the call that is meant (1 is the first, 0 every one) and WHAT an
 * errno name ("EIO"), "short" or a delay ("50ms").  Ignored in set-uid programs.
 */
#ifndef PST_FAULT_H
#define PST_FAULT_H

#include "base/base.h"

enum fault_site {
	FAULT_MEM_ALLOC,   /* mem.alloc: any provider's alloc */
	FAULT_MEM_COPY,    /* mem.copy: the device copy of one batch */
	FAULT_MEM_STREAM,  /* mem.stream: making a stream */
	FAULT_MEM_PIN,     /* mem.pin: making host memory or a file fit for a device */
	FAULT_FILE_OPEN,   /* file.open: opening a file, or wrapping a descriptor */
	FAULT_IO_CTX,      /* file.context: making an I/O context */
	FAULT_FILE_READ,   /* file.read: one file operation; knows short */
	FAULT_FILE_WRITE,  /* file.write: as above */
	FAULT_FILE_SYNC,   /* file.sync: one sync */
	FAULT_FILE_PIN,    /* file.pin: registering memory with the kernel */
	FAULT_FILE_DIRECT, /* file.direct: opening with O_DIRECT */
	FAULT_FILE_URING,  /* file.uring: setting up io_uring */
	FAULT_GDS_PROBE,   /* gds.probe: the process that tries cuFile; short: it has a second */
	FAULT_SITE_NR,
};

#define FAULT_SHORT 0x10000 /* not an errno: less than was asked for */

extern _Atomic bool fault_active; /* false: no site is armed */

int fault_check(enum fault_site site);

/*
 * 0 to go on; a positive errno to fail with; FAULT_SHORT.  Sleeps where a delay is set.
 * One load and a predicted branch while nothing is armed.
 */
static inline int fault_hit(enum fault_site site)
{
	return unlikely(fault_active) ? fault_check(site) : 0;
}

/* Arm from text as in PST_FAULT; NULL or "" disarms all.  0 or -EINVAL.  For tests. */
int fault_set(const char *spec);

/* How often a site was passed since fault_set(). */
uint64_t fault_passed(enum fault_site site);

#endif
