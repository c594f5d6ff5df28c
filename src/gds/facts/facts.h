/* SPDX-License-Identifier: MIT */
/*
 * Facts about the needs of a direct way between a disk and a GPU: read from /proc, /sys, /run/udev
 * and /dev, and judged.  Nothing is loaded, started, written or opened for longer than a look, so
 * every function here returns soon and is safe from any thread.
 *
 * The facts repeat what the kernel's files say.  They are parsed as foreign text: a container may
 * have put anything there.
 */
#ifndef PST_GDS_FACTS_H
#define PST_GDS_FACTS_H

#include <sys/types.h>

#include "base/base.h"

/* As enum pst_check_state and struct pst_check in <penstock.h>. */
struct gds_fact {
	char name[16];
	int state;
	int err;
	char text[488];
};

#define GDS_FACTS_MAX 16u

/* Give a fact its sentence.  Characters that are no printable ASCII, as names from outside may
 * have, come out as '?'. */
void gds_say(struct gds_fact *f, int state, int err, const char *fmt, ...) _printf_(4, 5);

/*
 * All facts, in the order of pst_check(): "gpu", "nvidia-fs", "p2pdma", "filesystem", "disk",
 * "udev", "direct-io", "iommu", "acs", "distance".  fd is a file, a directory or a block device;
 * pci is the GPU's address ("0000:17:00.0").  With NULL or "" there is no "gpu", no "acs" and no
 * "distance", and the others are only of the file's side.  root stands before every path that is
 * looked at: "" as a rule, a folder that was made up in tests.
 *
 * Return: how many; -EINVAL for another kind of fd or a string that is no address, and the errors
 * of fstat(2), with a sentence.
 */
int gds_facts(const char *root, int fd, const char *pci, struct gds_fact ret[GDS_FACTS_MAX]);

/*
 * Return true if something in the kernel could make a path direct: nvidia-fs, or a GPU driver that
 * was told to serve P2PDMA.  Also true if CPU and GPU may share memory, as with 64-bit ARM, which
 * needs neither.  Cheap; not cached.
 */
bool gds_kernel_may(const char *root);

#endif
