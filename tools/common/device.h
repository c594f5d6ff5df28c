/* SPDX-License-Identifier: MIT */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

#include <penstock.h>

#include "tools/common/numbers.h"

/*
 * Choose the device of a command: name; NULL means the first accelerator, or the software device if
 * there is none.  Return 0, or -errno with a sentence.
 */
int device_pick(const char *name, struct pst_device *ret);

/*
 * Return true for an emulated device: a thread makes its copies, so their speed says nothing about
 * accelerators.
 */
bool device_is_emulated(const struct pst_device *dev);

/* Print a report's head line that says that the device is an emulator, beginning in column
 * indent. */
void device_print_emulated(const struct pst_device *dev, unsigned indent);

/* Return name and model, such as "soft:0 (software device, ...)". */
struct text device_text(const struct pst_device *dev);

/* Parse --dmabuf=yes, no or try, and set PST_DMABUF for the library.  Return 0 or -EINVAL. */
int device_parse_dmabuf(const char *text);

#endif
