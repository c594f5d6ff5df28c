/* SPDX-License-Identifier: MIT */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

#include <penstock.h>

#include "tools/common/numbers.h"

/*
 * The device a command should use: name, or NULL for the first accelerator and the
 * software device where there is none.  0 or -errno with a sentence.
 */
int device_pick(const char *name, struct pst_device *ret);

/*
 * Is the device an emulator?  A thread copies for it, where an accelerator has an engine: what is
 * measured of its copies tells of no accelerator.
 */
bool device_is_emulated(const struct pst_device *dev);

/* Print a line of a report's head that says so, beginning in column indent. */
void device_print_emulated(const struct pst_device *dev, unsigned indent);

/* "soft:0 (software device, ...)": name and model. */
struct text device_text(const struct pst_device *dev);

/* Parse --dmabuf: yes, no or try, as PST_DMABUF has it for the library.  Return 0 or -EINVAL. */
int device_parse_dmabuf(const char *text);

#endif
