/* SPDX-License-Identifier: MIT */
/*
 * Fault injection: make the n-th call at a named site fail, be short or be slow.
 *
 * Every provider has such sites, so that tests (of users as well) can reach error paths that
 * healthy hardware never takes.  PST_FAULT is a list of SITE:N:WHAT separated by commas.  SITE is a
 * name such as "mem.copy" (fault.c has the list).  N is the number of the call: 1 is the first
 * call, 0 means every call.  WHAT is an errno name ("EIO"), "short", "wrong" or a delay ("50ms").
 * Set-uid programs ignore PST_FAULT.
 */
#ifndef PST_FAULT_H
#define PST_FAULT_H

#include "base/base.h"

enum fault_site {
	FAULT_MEM_ALLOC,   /* mem.alloc: any provider's alloc */
	FAULT_MEM_COPY,    /* mem.copy: the device copy of one batch; can be wrong */
	FAULT_MEM_STREAM,  /* mem.stream: making a stream */
	FAULT_MEM_PIN,     /* mem.pin: preparing host memory or a file for a device */
	FAULT_FILE_OPEN,   /* file.open: opening a file, or wrapping a descriptor */
	FAULT_IO_CTX,      /* file.context: making an I/O context */
	FAULT_FILE_READ,   /* file.read: one file operation; can be short */
	FAULT_FILE_WRITE,  /* file.write: one file operation; can be short */
	FAULT_FILE_SYNC,   /* file.sync: one sync */
	FAULT_FILE_PIN,    /* file.pin: registering memory with the kernel */
	FAULT_FILE_DIRECT, /* file.direct: opening with O_DIRECT */
	FAULT_FILE_URING,  /* file.uring: setting up io_uring */
	FAULT_GDS_PROBE,   /* gds.probe: the process that tries cuFile; short: its timeout is a
			    * second */
	FAULT_SITE_NR,
};

#define FAULT_SHORT 0x10000 /* not an errno: move fewer bytes than requested */
#define FAULT_WRONG 0x10001 /* not an errno: flip one bit of the copied bytes, and succeed */

extern _Atomic bool fault_active; /* true if at least one site is armed */

int fault_check(enum fault_site site);

/*
 * Return 0 to continue, a positive errno to fail with, FAULT_SHORT or FAULT_WRONG.  Sleep first if
 * a delay is set.  Costs a load and a predicted branch if no site is armed.
 */
static inline int fault_hit(enum fault_site site)
{
	return unlikely(fault_active) ? fault_check(site) : 0;
}

/* Arm sites from text in the form of PST_FAULT; NULL or "" disarms all.  Return 0 or -EINVAL.  For
 * tests. */
int fault_set(const char *spec);

/* Return how many calls a site had since fault_set(). */
uint64_t fault_passed(enum fault_site site);

#endif
