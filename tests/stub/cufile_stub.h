/* SPDX-License-Identifier: MIT */
/*
 * Calls of tests to the libcufile.so.0 that is built here, beyond the library's own.
 * They find these functions by dlsym().
 *
 * It is set up by text, KEY=VALUE and commas between them: first by STUB_CUFILE in the
 * environment, when it is loaded, then by stub_cufile_set().
 *
 *	version=1150	what cuFileGetVersion() says; the statistics grow with 1190
 *	mode=compat	compat, nvfs, p2pdma or c2c: the way that files have
 *	udev=1		0: no file can be registered, as without a udev database
 *	pin=BYTES	that can be registered; 0 is no bound
 *	lie=WHAT	nodata: success without bytes; wrong: one bit is; short: half; more: says
 *			more than was asked; claims: compat, but counted as nvfs; once: as
 *			wrong, and right from then on; none
 *	fail=NAME:N:CODE  the N-th call of NAME from now on gives CODE, each with N 0; NAME "*"
 *			is any.  From 5000 on the library's code, below an errno or, where there
 *			is none, a CUresult.  "entry" is an entry of a batch.
 *	hang=NAME:N	that call does not return until stub_cufile_release()
 *	noise=0		1: prints, as the real one does when it registers files
 */
#ifndef PST_CUFILE_STUB_H
#define PST_CUFILE_STUB_H

#include <stdbool.h>
#include <stdint.h>

struct stub_cufile_state {
	/* Now. */
	long uses; /* of the driver */
	unsigned files, bufs;
	unsigned moving;     /* transfers and entries under way */
	unsigned hung;       /* calls */
	uint64_t registered; /* bytes */
	bool strict;         /* the driver was opened so */
	bool log_here;       /* the log lies in the directory of whoever opened */
	/* Ever. */
	unsigned opens, params, levels;
	uint64_t calls, reads, writes, bounced, busy;
};

/* Aborts when the text is wrong. */
void stub_cufile_set(const char *text);

/* As it was after loading: for the next test.  The driver is closed, whoever had it open. */
void stub_cufile_reset(void);

void stub_cufile_state(struct stub_cufile_state *ret);

/* Calls that hang go on, and no more do. */
void stub_cufile_release(void);

/* Was "fail" met? */
bool stub_cufile_met(void);

#endif
