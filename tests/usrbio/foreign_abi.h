/* SPDX-License-Identifier: MIT */
/*
 * The structures of 3FS's usrbio library, x86-64, as a program declares them that loads the library
 * by name.  The assertions must hold for every such program.
 */
#ifndef PST_TESTS_FOREIGN_ABI_H
#define PST_TESTS_FOREIGN_ABI_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct abi_iov {
	uint8_t *base;
	void *handle;
	char id[16];
	char mount_point[256];
	size_t size;
	size_t block_size;
	int numa;
};

struct abi_ior {
	struct abi_iov iov;
	void *handle;
	char mount_point[256];
	bool for_read;
	int io_depth;
	int priority;
	int timeout;
	uint64_t flags;
};

struct abi_cqe {
	int32_t index;
	int32_t reserved;
	int64_t result;
	const void *userdata;
};

#define ABI_AT(type, member, offset) \
	static_assert(offsetof(struct type, member) == (offset), #type "." #member)

static_assert(sizeof(struct abi_iov) == 312, "iov");
ABI_AT(abi_iov, base, 0);
ABI_AT(abi_iov, handle, 8);
ABI_AT(abi_iov, id, 16);
ABI_AT(abi_iov, mount_point, 32);
ABI_AT(abi_iov, size, 288);
ABI_AT(abi_iov, block_size, 296);
ABI_AT(abi_iov, numa, 304);

static_assert(sizeof(struct abi_ior) == 600, "ior");
ABI_AT(abi_ior, iov, 0);
ABI_AT(abi_ior, handle, 312);
ABI_AT(abi_ior, mount_point, 320);
ABI_AT(abi_ior, for_read, 576);
ABI_AT(abi_ior, io_depth, 580);
ABI_AT(abi_ior, priority, 584);
ABI_AT(abi_ior, timeout, 588);
ABI_AT(abi_ior, flags, 592);

static_assert(sizeof(struct abi_cqe) == 24, "cqe");
ABI_AT(abi_cqe, index, 0);
ABI_AT(abi_cqe, reserved, 4);
ABI_AT(abi_cqe, result, 8);
ABI_AT(abi_cqe, userdata, 16);

/* The symbols of a client that opens, uses and closes the library for each operation. */
struct abi {
	int (*reg_fd)(int fd, uint64_t flags);
	void (*dereg_fd)(int fd);
	int (*iovcreate)(struct abi_iov *iov, const char *mount, size_t size, size_t block_size,
			 int numa);
	void (*iovdestroy)(struct abi_iov *iov);
	int (*iorcreate4)(struct abi_ior *ior, const char *mount, int entries, bool for_read,
			  int io_depth, int timeout, int numa, uint64_t flags);
	void (*iordestroy)(struct abi_ior *ior);
	int (*prep_io)(const struct abi_ior *ior, const struct abi_iov *iov, bool read, void *ptr,
		       int fd, size_t off, uint64_t len, const void *userdata);
	int (*submit_ios)(const struct abi_ior *ior);
	int (*wait_for_ios)(const struct abi_ior *ior, struct abi_cqe *cqes, int cqec,
			    int min_results, const struct timespec *abs_timeout);
};

#endif
