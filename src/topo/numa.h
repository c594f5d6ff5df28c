/* SPDX-License-Identifier: MIT */
/*
 * Place memory and threads near a device.  Placement is a preference: if the machine, the process'
 * affinity or a container's profile forbids it, everything else works as usual.
 */
#ifndef PST_NUMA_H
#define PST_NUMA_H

#include <sched.h>

#include "base/base.h"

/*
 * Parse a list of CPUs in the kernel's form ("0-3,8\n").  Return 0; -EINVAL for text of another
 * form; -ERANGE for a CPU that cpu_set_t cannot hold.
 */
int numa_cpulist(const char *text, cpu_set_t *ret);

/* Reduce a set of CPUs to those of the node.  Return false if none or all remain: there is nothing
 * to prefer then. */
bool numa_narrow(const cpu_set_t *mine, const cpu_set_t *node, cpu_set_t *ret);

/* Restrict the calling thread to those of its CPUs that belong to the node; -1: do nothing. */
void numa_stay(int node);

/* Let the pages of mem that are not allocated yet come from the node.  mem is page-aligned. */
void numa_place(void *mem, uint64_t len, int node);

#endif
