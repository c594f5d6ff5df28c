/* SPDX-License-Identifier: MIT */
/*
 * Checks of the topic "accel" for PCI: bridges and the IOMMU between devices that have memory to
 * share and devices that move its bytes.
 *
 * Devices with memory are accelerators with a driver, and lenders: devices that lend memory by
 * P2PDMA.  Movers are network cards for RDMA and NVMe controllers.  Each function writes one check,
 * from sysfs below @root.
 */
#ifndef PST_MEM_ACCEL_PCI_H
#define PST_MEM_ACCEL_PCI_H

#include <penstock.h>

/* Check which pairs of memory and mover share a bridge. */
void accel_route(const char *root, struct pst_check *ret);
/* Check whether bridges between such pairs redirect transfers up to the root complex (ACS). */
void accel_acs(const char *root, struct pst_check *ret);
/* Check whether an IOMMU translates addresses for these devices. */
void accel_iommu(const char *root, struct pst_check *ret);

/* Fill in *c: name, state, errno and sentence. */
void accel_say(struct pst_check *c, const char *name, uint32_t state, int err, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#endif
