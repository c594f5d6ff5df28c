/* SPDX-License-Identifier: MIT */
/* The numbers of a mount as Prometheus reads them: its text format, version 0.0.4. */
#ifndef MOUNT_METRICS_H
#define MOUNT_METRICS_H

#include "usrbio/mount/fs.h"

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* The text, to be freed.  0 or -ENOMEM. */
int metrics_text(struct fs *fs, char **ret, size_t *ret_len);

#endif
