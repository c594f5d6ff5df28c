/* SPDX-License-Identifier: MIT */
/* The topic "accel" of pst_check(): what the machine offers for accelerators' memory. */
#ifndef PST_MEM_ACCEL_H
#define PST_MEM_ACCEL_H

#include <penstock.h>

#define ACCEL_CHECKS 9

/*
 * Check the machine.  Write ACCEL_CHECKS checks and return their number.  Read /proc, /sys, /dev
 * and /boot below @root, which is "" for the machine itself, and open no device.
 */
int accel_machine(const char *root, const char *release, struct pst_check *ret);

/*
 * Check whether the device's memory can become a dma-buf.  Write to @ret and return as
 * accel_machine() does, or return -ENODEV.
 */
int accel_device(const char *name, struct pst_check *ret);

#endif
