/* SPDX-License-Identifier: MIT */
/*
 * The part of the kernel's FUSE interface (include/uapi/linux/fuse.h) for which libfuse 3.14 and
 * the headers of Linux 6.1 have no names.
 */
#ifndef MOUNT_ABI_H
#define MOUNT_ABI_H

#include <linux/fuse.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define ABI_PASSTHROUGH (1u << 5) /* bit in flags2 of FUSE_INIT */
#define ABI_FOPEN_PASSTHROUGH (1u << 7)

/* struct fuse_init_out: the kernel's max_stack_depth is here in older headers. */
#define ABI_DEPTH(out) ((out)->unused[0])
/* struct fuse_open_out: the kernel's backing_id is padding in older headers. */
#define ABI_BACKING(out) ((out)->padding)

struct abi_backing {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define ABI_BACKING_OPEN _IOW(229, 1, struct abi_backing)
#define ABI_BACKING_CLOSE _IOW(229, 2, uint32_t)

_Static_assert(offsetof(struct fuse_init_out, unused) == 36, "FUSE: max_stack_depth");
_Static_assert(offsetof(struct fuse_open_out, padding) == 12, "FUSE: backing_id");
_Static_assert(sizeof(struct fuse_open_out) == 16, "FUSE: answer to open");
_Static_assert(sizeof(struct abi_backing) == 16, "FUSE: passthrough");

#endif
