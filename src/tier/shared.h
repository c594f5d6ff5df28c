/* SPDX-License-Identifier: MIT */
/* Memory shared by all processes that use a set: mapped files in its state directory. */
#ifndef PST_TIER_SHARED_H
#define PST_TIER_SHARED_H

#include "base/base.h"

/* Map the file of that name, creating or growing it if needed.  Return 0, or -errno with a
 * sentence. */
int shared_map(const char *state, const char *name, size_t size, void **ret);
void shared_unmap(void *at, size_t size); /* at may be NULL */

#endif
