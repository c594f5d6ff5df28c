/* SPDX-License-Identifier: MIT */
/*
 * The protocol between a usrbio client and a 3FS daemon: ring memory and ioctls.  Written from the
 * published protocol alone, and used only by the foreign client and daemon, to detect mistakes that
 * the library and its daemon share.
 *
 * A ring of N slots, one of which is always empty, is one piece of shared memory:
 *
 * four markers | N arguments | N completions | N submissions | sem_t | 4 KiB to spare
 *
 * All markers are accessed with sequential consistency, and count modulo N.
 */
#ifndef PST_TESTS_FOREIGN_WIRE_H
#define PST_TESTS_FOREIGN_WIRE_H

#include <assert.h>
#include <limits.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct wire_marks {
	_Atomic int32_t sqe_head; /* written by the client: next submission to fill */
	_Atomic int32_t sqe_tail; /* written by the daemon: submissions before it are done */
	_Atomic int32_t cqe_head; /* written by the daemon: next completion to fill */
	_Atomic int32_t cqe_tail; /* written by the client: next completion to take */
};

struct wire_args {
	uint8_t buf_id[16];
	uint64_t buf_off, file_ino, file_off, len, userdata;
};

struct wire_cqe {
	int32_t index, reserved;
	int64_t result;
	uint64_t userdata;
};

struct wire_sqe {
	int32_t index, pad;
	uint64_t userdata;
};

static_assert(sizeof(struct wire_marks) == 16, "four markers of four bytes");
static_assert(sizeof(struct wire_args) == 56, "arguments");
static_assert(offsetof(struct wire_args, file_ino) == 24, "arguments");
static_assert(offsetof(struct wire_args, userdata) == 48, "arguments");
static_assert(sizeof(struct wire_cqe) == 24, "completion");
static_assert(offsetof(struct wire_cqe, result) == 8, "completion");
static_assert(sizeof(struct wire_sqe) == 16, "submission");
static_assert(offsetof(struct wire_sqe, userdata) == 8, "submission");
static_assert(sizeof(sem_t) == 32, "semaphore of glibc");

/* Pointers to the parts of a ring. */
struct wire_ring {
	struct wire_marks *marks;
	struct wire_args *args;
	struct wire_cqe *cqes;
	struct wire_sqe *sqes;
	sem_t *done; /* initialised and posted by the daemon */
	int32_t n;
};

#define WIRE_SLACK 4096u
#define WIRE_FIXED (sizeof(struct wire_marks) + sizeof(sem_t) + WIRE_SLACK)
#define WIRE_SLOT (sizeof(struct wire_args) + sizeof(struct wire_cqe) + sizeof(struct wire_sqe))

static inline size_t wire_ring_size(int entries)
{
	return WIRE_FIXED + WIRE_SLOT * ((size_t)entries + 1);
}

/* Compute the parts of a ring.  Return false if the memory is too small for one entry or
 * absurdly large. */
static inline bool wire_ring_at(void *base, size_t size, struct wire_ring *ret_ring)
{
	size_t n = size < WIRE_FIXED ? 0 : (size - WIRE_FIXED) / WIRE_SLOT;
	struct wire_marks *marks = base;
	struct wire_args *args = (struct wire_args *)(marks + 1);
	struct wire_cqe *cqes = (struct wire_cqe *)(args + n);
	struct wire_sqe *sqes = (struct wire_sqe *)(cqes + n);

	if (n < 2 || n > INT32_MAX)
		return false;
	*ret_ring = (struct wire_ring){ marks,     args, cqes, sqes, (sem_t *)(void *)(sqes + n),
					(int32_t)n };
	return true;
}

/* Numbers of ioctls; they contain the sizes of the arguments. */
#define WIRE_GET_MOUNT_NAME 0x80206800u
#define WIRE_GET_PATH_OFFSET 0x80046801u
#define WIRE_GET_MAGIC 0x80046802u
#define WIRE_GET_VERSION 0x80046803u
#define WIRE_FSYNC 0x8004680bu
#define WIRE_HARDLINK 0x4108680cu
#define WIRE_PUNCH_HOLE 0x7e90680du

#define WIRE_MAGIC 0x8f3f5fffu
#define WIRE_VERSION 1u

struct wire_hardlink {
	ino_t parent;
	char name[255];
};

#define WIRE_MAX_HOLES 1000

struct wire_holes {
	int n;
	size_t flags;
	size_t start[WIRE_MAX_HOLES], end[WIRE_MAX_HOLES];
};

static_assert(sizeof(struct wire_hardlink) == 264, "the number says so");
static_assert(sizeof(struct wire_holes) == 16016, "the number says so");

/* Flags of a ring. */
#define WIRE_READ_UNCOMMITTED 1u
#define WIRE_FORBID_HOLES 2u

#endif
