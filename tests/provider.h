/* SPDX-License-Identifier: MIT */
/*
 * A provider of files for tests: test:///path is the local file /path, with an I/O context that
 * uses neither io_uring nor the library's threads.  By a seeded plan it delays operations,
 * splits them, completes them out of order, fails the n-th step, refuses O_DIRECT, and lets
 * operations hang until the plan changes.
 *
 * A file with a gate holds each operation until the test opens the gate, with a result that the
 * test chooses.
 *
 * twin:///path is a second provider of the same kind, with its own kind of I/O contexts.
 *
 * Tests of the public API need no change: linked with -Wl,--wrap=pst_file_open, every path that
 * they open becomes test:///path.  PST_TEST_PLAN changes the plan: "seed=7,delay=2000,split",
 * and "bare" for files without optional capabilities.
 */
#ifndef PST_TESTS_PROVIDER_H
#define PST_TESTS_PROVIDER_H

#include <stdatomic.h>

#include "file/file.h"

extern const struct file_ops test_file_ops, twin_file_ops;

struct test_plan {
	uint64_t seed;      /* of the random numbers; 0 is taken as 1 */
	uint32_t caps;      /* mask: FILE_* of the local file that new files have */
	unsigned delay_us;  /* longest random delay before each step, us */
	bool split;         /* reads and writes without NOWAIT take several steps */
	bool refuse_direct; /* O_DIRECT operations give -EINVAL */
	bool deaf;          /* cancel() does not reach hanging operations */
	unsigned fail_nth;  /* the n-th step from now on fails; 0: none */
	int fail_err;       /* result of the step that fails, -errno */
	int open_err;       /* result of every open(), -errno; 0: none */
	int ctx_err;        /* result of making an I/O context, -errno; 0: none */
	int sync_err;       /* result of queueing a sync, -errno; 0: none */
	uint8_t disk;       /* disk number of new files, see file/disk.h */
	uint64_t hang_off;  /* operations that begin at this offset hang; UINT64_MAX: none */
};

#define TEST_PLAN                                          \
	{                                                  \
		.caps = UINT32_MAX, .hang_off = UINT64_MAX \
	}

/* A gate has a bar for each kind of operation. */
enum test_bar { TEST_BAR_READ, TEST_BAR_WRITE, TEST_BAR_SYNC, TEST_BARS };

/* The result of an operation at a bar. */
enum test_result {
	TEST_SHUT,  /* the bar holds the operation */
	TEST_DONE,  /* the operation's real result */
	TEST_SHORT, /* half of the bytes, then end of file or -ENOSPC */
	TEST_ERROR, /* -EIO, no bytes move */
};

/* Zero-initialized: all bars are shut. */
struct test_gate {
	bool deaf;                   /* constant: cancel() does not reach held operations */
	atomic_uint held[TEST_BARS]; /* operations held now */
	atomic_uint told[TEST_BARS]; /* cancels of held operations, if deaf */
	atomic_uint result[TEST_BARS];
	atomic_uint files; /* open files, including closed ones that the library still uses */
};

/* Give files that this thread opens from now on this gate, which must outlive them.  NULL: none. */
void test_gate_use(struct test_gate *gate);
/* Set the result at a bar; held operations continue with it.  TEST_SHUT holds later operations. */
void test_gate_set(struct test_gate *gate, enum test_bar bar, enum test_result result);

/* Use this plan from now on; operations that hang only by an earlier plan continue. */
void test_provider_plan(const struct test_plan *plan);

/* Return true if fn is the function of the provider's threads. */
bool test_provider_runs(void *(*fn)(void *));

/* Return the number of I/O contexts, hanging operations, steps so far, and open files. */
unsigned test_provider_ctxs(void);
unsigned test_provider_hanging(void);
uint64_t test_provider_steps(void);
unsigned test_provider_files(void);

#endif
