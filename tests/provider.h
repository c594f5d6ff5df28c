/* SPDX-License-Identifier: MIT */
/*
 * A provider of files for tests: test:///path is the local file there, by an I/O context that has
 * nothing of the kernel's.  By a seeded plan it delays operations, splits them, completes them out
 * of order, fails the n-th step of one, refuses O_DIRECT, and hangs until it is told to go on.
 *
 * A file with a gate keeps each operation until the test lets it go, with a result of the test's
 * choice.
 *
 * twin:///path is the same again: a second provider, with I/O contexts of another kind.
 *
 * Tests of the public API run on it without knowing: linked with -Wl,--wrap=pst_file_open, every
 * path that they open becomes test:///path.  PST_TEST_PLAN changes the plan: seed=7,delay=2000 and
 * split, and bare for files that can do nothing but move bytes.
 */
#ifndef PST_TESTS_PROVIDER_H
#define PST_TESTS_PROVIDER_H

#include <stdatomic.h>

#include "file/file.h"

extern const struct file_ops test_file_ops, twin_file_ops;

struct test_plan {
	uint64_t seed;      /* 0 is 1 */
	uint32_t caps;      /* FILE_* that files opened from now on have, if the file below has */
	unsigned delay_us;  /* each step waits so long at most */
	bool split;         /* reads and writes that may wait take several steps */
	bool refuse_direct; /* -EINVAL for O_DIRECT */
	bool deaf;          /* cancel() does not reach operations that hang */
	unsigned fail_nth;  /* step from now on, 0: none */
	int fail_err;       /* -errno */
	int open_err;       /* -errno of every open(), 0: none */
	int ctx_err;        /* -errno of every I/O context to come */
	int sync_err;       /* -errno with which I/O contexts refuse to take syncs, 0: none */
	uint8_t disk; /* on which files lie that are opened from now on, as file/disk.h counts */
	uint64_t hang_off; /* operations that begin there hang; UINT64_MAX: none */
};

#define TEST_PLAN                                          \
	{                                                  \
		.caps = UINT32_MAX, .hang_off = UINT64_MAX \
	}

/* Operations of one kind meet at one bar of a gate. */
enum test_bar { TEST_BAR_READ, TEST_BAR_WRITE, TEST_BAR_SYNC, TEST_BARS };

/* The result of an operation that passes. */
enum test_result {
	TEST_SHUT,  /* it does not pass */
	TEST_DONE,  /* what the file below says */
	TEST_SHORT, /* half of the bytes; then the file ends, or for a write the disk is full */
	TEST_ERROR, /* -EIO, and nothing moved */
};

/* All zero: shut. */
struct test_gate {
	bool deaf;                   /* cancel() does not reach operations at the gate; fixed */
	atomic_uint held[TEST_BARS]; /* operations that wait there now */
	atomic_uint told[TEST_BARS]; /* cancels that came to such, where it is deaf */
	atomic_uint result[TEST_BARS];
	atomic_uint files; /* open, those that the library has not let go of yet included */
};

/* Files that this thread opens from now on have that gate, which stays until they are closed.
 * NULL: none. */
void test_gate_use(struct test_gate *gate);
/* Operations that wait at this bar continue, and later ones pass.  TEST_SHUT holds later ones. */
void test_gate_set(struct test_gate *gate, enum test_bar bar, enum test_result result);

/* Use this plan from now on; operations that hang by another plan continue. */
void test_provider_plan(const struct test_plan *plan);

/* Is it what the provider's threads run? */
bool test_provider_runs(void *(*fn)(void *));

/* Counts of I/O contexts, operations that hang, steps taken, and files. */
unsigned test_provider_ctxs(void);
unsigned test_provider_hanging(void);
uint64_t test_provider_steps(void);
unsigned test_provider_files(void);

#endif
