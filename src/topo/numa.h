/* SPDX-License-Identifier: MIT */
/*
 * Memory and threads near a device.  All of it is a preference: where the machine, the
 * process' affinity or a container's profile forbids it, everything works as before.
 */
#ifndef PST_NUMA_H
#define PST_NUMA_H

#include <sched.h>

#include "base/base.h"

/*
 * CPUs in the kernel's form of a list ("0-3,8\n").
 *
 * Return: 0; -EINVAL for any other text; -ERANGE for a CPU that cpu_set_t has no room for.
 */
int numa_cpulist(const char *text, cpu_set_t *ret);

/* Those of mine that are the node's; false when that is none or all: nothing to prefer. */
bool numa_narrow(const cpu_set_t *mine, const cpu_set_t *node, cpu_set_t *ret);

/* Keep the calling thread on those of its CPUs that are the node's, which is -1 for none. */
void numa_stay(int node);

/* Have pages that are not there yet come from the node.  mem is page aligned. */
void numa_place(void *mem, uint64_t len, int node);

#endif
