/* SPDX-License-Identifier: MIT */
#ifndef PST_MEM_P2PMEM_H
#define PST_MEM_P2PMEM_H

#define P2PMEM_DEVICES_MAX 16u

/* Folder in which the kernel lists PCI devices.  Tests set another one before the first call. */
extern const char *p2pmem_root;

#endif
