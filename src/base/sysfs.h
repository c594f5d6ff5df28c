/* SPDX-License-Identifier: MIT */
/* Facts that the kernel writes into small files, under /proc and /sys. */
#ifndef PST_SYSFS_H
#define PST_SYSFS_H

#include "base/base.h"

/*
 * The first line of a file, without its newline; as much of it as fits.
 *
 * Return: 0; -errno where there is none, with @buf unchanged.
 */
int sysfs_line(const char *path, char *buf, size_t len);

/* The NUMA node of a PCI device ("0000:17:00.0"); -1 where nobody knows. */
int sysfs_numa_node(const char *pci);

#endif
