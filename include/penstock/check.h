/* SPDX-License-Identifier: MIT */
/* What is possible here, and what is missing; manual page: pst_check(3). */
#ifndef PENSTOCK_CHECK_H
#define PENSTOCK_CHECK_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pst_state {
	PST_STATE_IMPOSSIBLE = 0, /* not here; why says what is missing */
	PST_STATE_POSSIBLE = 1,   /* could run, not yet proven with data */
	PST_STATE_PROVEN = 2,     /* ran, and its data was compared */
};

struct pst_path_info {
	size_t sz;      /* sizeof(struct pst_path_info) */
	uint32_t path;  /* enum pst_path */
	uint32_t state; /* enum pst_state */
	uint32_t why;   /* enum pst_why */
	int32_t detail; /* of why */
};

/**
 * pst_path_check() - could a path serve this file and this memory?
 * @file: the file
 * @mem:  the memory
 * @op:   PST_OP_READ or PST_OP_WRITE
 * @path: enum pst_path
 * @ret:  the answer
 *
 * Moves nothing between the two.  Residency and alignment of a request are not looked at.
 *
 * Return: 0, or -EINVAL for an unknown path or operation.
 */
PST_API int pst_path_check(struct pst_file *file, struct pst_mem *mem, uint32_t op, uint32_t path,
			   struct pst_path_info *ret);

enum pst_check_state {
	PST_CHECK_MISSING = 0,  /* it is in the way; the text has the cure */
	PST_CHECK_UNKNOWN = 1,  /* cannot be told from here; the text says why */
	PST_CHECK_OK = 2,       /* as it should be */
	PST_CHECK_UNNEEDED = 3, /* not there, but what stands in for it is */
};

/* One thing that a topic needs, as pst_check() found it. */
struct pst_check {
	size_t sz;      /* sizeof(struct pst_check) */
	char name[16];  /* "udev" */
	uint32_t state; /* enum pst_check_state */
	int32_t err;    /* positive errno that the machine gave, or 0 */
	char text[488]; /* what was found, and what to do about it if it is in the way */
};

#define PST_CHECK_TRIAL (1u << 0) /* "gds": also read through cuFile, and compare */

struct pst_check_opts {
	size_t sz;          /* sizeof(struct pst_check_opts) */
	const char *device; /* "gds": as pst_device_find() takes it; NULL: only the file's side */
	const char *path;   /* "gds": a file or, without PST_CHECK_TRIAL, a directory */
	uint32_t flags;     /* PST_CHECK_TRIAL */
	uint32_t reserved;
};

/**
 * pst_check() - what a topic needs of this machine, and what of it is here
 * @topic: "io": the back ends of file operations, "io_uring" and "threads".  "gds": a direct
 *         way between a file and a GPU, from the library down to the wires.
 * @opts:  what to look at; NULL for topics that need nothing
 * @ret:   filled with up to @max checks; may be NULL when @max is 0
 * @max:   room in @ret
 *
 * Nothing is written, and no setting of the machine changed.  A trial runs in a process of its
 * own and takes at most 30 seconds.  Any thread.
 *
 * Return: how many checks there are, which may be more than @max; -EOPNOTSUPP for an unknown
 * topic; -EINVAL for a bad sz or flag, a missing path, or a trial without a device or without
 * a file that has bytes; -ENODEV for an unknown device; -ENXIO when the path is neither a
 * regular file, a block device nor a directory; and what opening it gives.
 */
PST_API int pst_check(const char *topic, const struct pst_check_opts *opts, struct pst_check *ret,
		      unsigned max);

#ifdef __cplusplus
}
#endif
#endif
