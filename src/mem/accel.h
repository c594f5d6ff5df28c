/* SPDX-License-Identifier: MIT */
/*
 * What the machine offers for memory of accelerators: the topic "accel" of pst_check().
 */
#ifndef PST_MEM_ACCEL_H
#define PST_MEM_ACCEL_H

#include <penstock.h>

#define ACCEL_CHECKS 9

/*
 * The machine's side: fills ACCEL_CHECKS checks and returns how many there are.  Reads /proc, /sys,
 * /dev and /boot below @root, "" for the machine's own, and opens no device.
 */
int accel_machine(const char *root, const char *release, struct pst_check *ret);

/*
 * Tell whether the device's memory can become a dma-buf.  Results as of accel_machine(), or
 * -ENODEV.
 */
int accel_device(const char *name, struct pst_check *ret);

#endif
