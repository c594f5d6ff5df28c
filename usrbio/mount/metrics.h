/* SPDX-License-Identifier: MIT */
/* Metrics of a mount in Prometheus' text format, version 0.0.4. */
#ifndef MOUNT_METRICS_H
#define MOUNT_METRICS_H

#include "usrbio/mount/fs.h"

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Make the text; the caller frees *ret.  Return 0 or -ENOMEM. */
int metrics_text(struct fs *fs, char **ret, size_t *ret_len);

#endif
