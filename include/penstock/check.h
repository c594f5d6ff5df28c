/* SPDX-License-Identifier: MIT */
/* Check what this machine can do and what it lacks; manual page: pst_check(3). */
#ifndef PENSTOCK_CHECK_H
#define PENSTOCK_CHECK_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pst_state {
	PST_STATE_IMPOSSIBLE = 0, /* cannot run; @why has the reason */
	PST_STATE_POSSIBLE = 1,   /* could run; not yet proven with data */
	PST_STATE_PROVEN = 2,     /* has run, and its bytes were compared */
};

struct pst_path_info {
	size_t sz;      /* sizeof(struct pst_path_info) */
	uint32_t path;  /* enum pst_path */
	uint32_t state; /* enum pst_state */
	uint32_t why;   /* enum pst_why */
	int32_t detail; /* meaning depends on @why: pst_why(3) */
};

/**
 * pst_path_check() - check whether a path could serve a file and memory
 * @file: the file
 * @mem:  the memory
 * @op:   PST_OP_READ or PST_OP_WRITE
 * @path: enum pst_path
 * @ret:  the answer
 *
 * Moves no bytes.  The answer does not depend on alignment or on what the page cache holds.
 *
 * Return: 0, or -EINVAL for an unknown path or operation.
 */
PST_API int pst_path_check(struct pst_file *file, struct pst_mem *mem, uint32_t op, uint32_t path,
			   struct pst_path_info *ret);

enum pst_check_state {
	PST_CHECK_MISSING = 0,  /* missing or wrong; @text has the cure */
	PST_CHECK_UNKNOWN = 1,  /* this process cannot find out; @text has the reason */
	PST_CHECK_OK = 2,       /* the requirement is met */
	PST_CHECK_UNNEEDED = 3, /* missing, but its replacement is present */
};

/* A requirement of a topic, and what pst_check() found. */
struct pst_check {
	size_t sz;      /* sizeof(struct pst_check) */
	char name[16];  /* name of the requirement, such as "udev" */
	uint32_t state; /* enum pst_check_state */
	int32_t err;    /* positive errno of a system call that failed, or 0 */
	char text[488]; /* what was found, and the cure if it is missing */
};

/* For "gds": also read the file by cuFile, and compare the bytes. */
#define PST_CHECK_TRIAL (1u << 0)

struct pst_check_opts {
	size_t sz;          /* sizeof(struct pst_check_opts) */
	const char *device; /* for "gds", "accel": a name for pst_device_find(), or NULL */
	const char *path;   /* for "gds": a file or, without PST_CHECK_TRIAL, a directory */
	uint32_t flags;     /* PST_CHECK_TRIAL */
	uint32_t reserved;  /* 0 */
};

/**
 * pst_check() - check the requirements of a topic on this machine
 * @topic: "io": the back ends of file operations, "io_uring" and "threads".  "gds": a direct
 *         path between a file and a GPU, from the library down to the hardware.  "rdma": devices,
 *         ports and their addresses, and the memory that they reach.  "accel": dma-bufs and
 *         peer-to-peer transfers, of the machine or, with a device, of its memory.
 * @opts:  what to check; NULL for topics without options
 * @ret:   filled with up to @max checks; may be NULL if @max is 0
 * @max:   room in @ret
 *
 * Writes nothing and changes no setting.  A trial runs in a separate process and takes at most
 * 30 seconds.  Any thread.
 *
 * Return: number of checks, which may be more than @max; -EOPNOTSUPP for an unknown topic; -EINVAL
 * for a bad sz or flag, a missing path, or a trial without a device or with an empty file; -ENODEV
 * for an unknown device; -ENXIO if the path is neither a regular file, a block device nor a
 * directory; or the -errno of opening the path.
 */
PST_API int pst_check(const char *topic, const struct pst_check_opts *opts, struct pst_check *ret,
		      unsigned max);

#ifdef __cplusplus
}
#endif
#endif
