/* SPDX-License-Identifier: MIT */
/*
 * Facts that decide whether a disk and a GPU have a direct path, read from /proc, /sys, /run/udev
 * and /dev.  Functions here load, start and write nothing, and keep no file open.  So each returns
 * soon and may be called from any thread.
 *
 * Text from these files is treated as hostile: a container may have put anything there.
 */
#ifndef PST_GDS_FACTS_H
#define PST_GDS_FACTS_H

#include <sys/types.h>

#include "base/base.h"

/* One fact; states and members match enum pst_check_state and struct pst_check in <penstock.h>. */
struct gds_fact {
	char name[16];
	int state;
	int err;
	char text[488];
};

#define GDS_FACTS_MAX 16u

/* Set state, errno and sentence of a fact.  Characters that are not printable ASCII become '?'. */
void gds_say(struct gds_fact *f, int state, int err, const char *fmt, ...) _printf_(4, 5);

/*
 * Collect all facts in the order of pst_check(): "gpu", "nvidia-fs", "p2pdma", "filesystem",
 * "disk", "udev", "direct-io", "iommu", "acs", "distance". fd is a file, a directory or a block
 * device.  pci is the GPU's address ("0000:17:00.0"); with NULL or "", the facts "gpu", "acs" and
 * "distance" are left out, and the others judge only the file's side.  root is put before every
 * path: "" normally, a made-up folder in tests.
 *
 * Return the number of facts; -EINVAL for another kind of fd or a malformed address, or the errors
 * of fstat(2), with a sentence.
 */
int gds_facts(const char *root, int fd, const char *pci, struct gds_fact ret[GDS_FACTS_MAX]);

/*
 * Return true if the kernel could make a path direct: by nvidia-fs, or by a GPU driver that was
 * told to serve P2PDMA. Also return true if CPU and GPU may share memory, as with 64-bit ARM, which
 * needs neither.  Cheap; not cached.
 */
bool gds_kernel_may(const char *root);

#endif
