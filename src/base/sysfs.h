/* SPDX-License-Identifier: MIT */
/* Values that the kernel provides as small files, in /proc and /sys. */
#ifndef PST_SYSFS_H
#define PST_SYSFS_H

#include "base/base.h"

/*
 * Read the first line of a file, without its newline, up to len - 1 bytes.  Return 0; -errno if
 * there is no line, with @buf unchanged.
 */
int sysfs_line(const char *path, char *buf, size_t len);

/* Return the NUMA node of a PCI device ("0000:17:00.0"); -1 if unknown. */
int sysfs_numa_node(const char *pci);

#endif
