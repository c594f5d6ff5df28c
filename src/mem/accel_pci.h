/* SPDX-License-Identifier: MIT */
/*
 * What is on PCI between memory that devices share and the devices that move its bytes: bridges
 * and the IOMMU.  A part of the topic "accel".
 *
 * Memory is that of accelerators with a driver and of lenders (P2PDMA); movers are network cards
 * for RDMA and NVMe controllers.  Each function writes one check, from sysfs below @root.
 */
#ifndef PST_MEM_ACCEL_PCI_H
#define PST_MEM_ACCEL_PCI_H

#include <penstock.h>

/* Which pairs of memory and mover are behind one bridge? */
void accel_route(const char *root, struct pst_check *ret);
/* Do the bridges between them send transfers up to the root complex? */
void accel_acs(const char *root, struct pst_check *ret);
/* Does an IOMMU translate what they send? */
void accel_iommu(const char *root, struct pst_check *ret);

/* Write a check, with a sentence. */
void accel_say(struct pst_check *c, const char *name, uint32_t state, int err, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#endif
