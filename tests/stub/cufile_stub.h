/* SPDX-License-Identifier: MIT */
/*
 * Functions of our libcufile.so.0 stub that the real library lacks.  Tests find them by
 * dlsym().
 *
 * A text sets it up, KEY=VALUE[,KEY=VALUE...]: STUB_CUFILE in the environment when it is loaded,
 * then each stub_cufile_set().
 *
 *	version=1150	cuFileGetVersion() returns it; from 1190 on statistics are longer
 *	mode=compat	path of the data: compat, nvfs, p2pdma or c2c
 *	udev=1		0: file registrations fail, as without a udev database
 *	pin=BYTES	bound on registered bytes; 0: no bound
 *	lie=WHAT	nodata: success, but no bytes move; wrong: one bit is flipped; short: half
 *			of the bytes move; more: a larger count is returned; claims: compat, but
 *			counted as nvfs; once: one wrong transfer, then right ones; none
 *	fail=NAME:N:CODE  the N-th call of NAME from now on returns CODE, with N 0 every call;
 *			NAME "*" is every function, "entry" an entry of a batch.  CODE from 5000
 *			on is the library's code, a smaller one an errno, or a CUresult if there
 *			is no such errno
 *	hang=NAME:N	the N-th call of NAME blocks until stub_cufile_release()
 *	noise=0		1: print on file registrations, as the real library does
 */
#ifndef PST_CUFILE_STUB_H
#define PST_CUFILE_STUB_H

#include <stdbool.h>
#include <stdint.h>

struct stub_cufile_state {
	/* Current state. */
	long uses; /* opens of the driver not yet closed */
	unsigned files, bufs;
	unsigned moving;     /* transfers and batch entries in progress */
	unsigned hung;       /* calls that hang */
	uint64_t registered; /* registered bytes */
	bool strict;         /* the driver was opened without the compat mode */
	bool log_here;       /* the log is in the opener's current directory */
	/* Totals since the start. */
	unsigned opens, params, levels;
	uint64_t calls, reads, writes, bounced, busy;
};

/* Set keys from @text; abort on a syntax error. */
void stub_cufile_set(const char *text);

/* Restore the state after loading for the next test.  Closes the driver, no matter which caller
 * opened it. */
void stub_cufile_reset(void);

void stub_cufile_state(struct stub_cufile_state *ret);

/* Let all hung calls continue, and remove "hang". */
void stub_cufile_release(void);

/* Return true if a call failed by "fail". */
bool stub_cufile_met(void);

#endif
