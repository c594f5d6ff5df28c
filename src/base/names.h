/* SPDX-License-Identifier: MIT */
#ifndef PST_NAMES_H
#define PST_NAMES_H

#include <stdint.h>

/* Set the name of a path, before the first request.  path is at most PST_PATH_MAX.  The string must
 * stay valid; NULL: the name is "unknown". */
void names_path_add(uint32_t path, const char *name);

#endif
