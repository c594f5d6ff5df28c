/* SPDX-License-Identifier: MIT */
#ifndef PST_MEM_P2PMEM_H
#define PST_MEM_P2PMEM_H

#define P2PMEM_DEVICES_MAX 16u

/* Where the kernel lists PCI devices; tests set another folder before the first call. */
extern const char *p2pmem_root;

#endif
