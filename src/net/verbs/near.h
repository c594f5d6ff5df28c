/* SPDX-License-Identifier: MIT */
/*
 * How near an RDMA device and an accelerator are to each other.
 *
 * Bytes between two PCI devices take the bridges on the way: switches first, then the host bridge,
 * then the links between host bridges and between NUMA nodes, which are slower each time.
 */
#ifndef PST_NET_NEAR_H
#define PST_NET_NEAR_H

#include <limits.h>

#include "net/verbs/nic.h"

#define NEAR_UNKNOWN UINT_MAX

/* The mounted sysfs, "/sys"; tests set another one. */
extern const char *near_sysfs;

/*
 * Return the distance between an RDMA device ("mlx5_0") and the PCI device at an address
 * ("0000:17:00.0"): less is nearer.  Two devices below one switch are nearer than two below one
 * host bridge, then come those of one NUMA node, then all others.  NEAR_UNKNOWN if one of them has
 * no place on the PCI bus, such as software RDMA.
 */
unsigned near_distance(const char *nic, const char *pci);

/* Return the distance between an RDMA device and the nearest accelerator of which this process has
 * or had memory; NEAR_UNKNOWN if there is none. */
unsigned near_memory(const char *nic);

/* For nics_get(): the device nearest to memory of this process.  The first of these tests it by
 * selftest_host(). */
extern const struct nic_choice near_tested, near_untested;

#endif
