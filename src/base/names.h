/* SPDX-License-Identifier: MIT */
#ifndef PST_NAMES_H
#define PST_NAMES_H

#include <stdint.h>

/* Give a path its name, before the first request.  path is at most PST_PATH_MAX, and name stays;
 * NULL: the path is "unknown". */
void names_path_add(uint32_t path, const char *name);

#endif
