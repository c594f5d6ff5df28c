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

/* "soft:0 (software device, ...)": name and model. */
struct text device_text(const struct pst_device *dev);

#endif
