/* SPDX-License-Identifier: MIT */
/* Memory that all processes share which use a set: files in its directory of state. */
#ifndef PST_TIER_SHARED_H
#define PST_TIER_SHARED_H

#include "base/base.h"

/* Map the file of that name, made and grown if it must be.  0, or -errno with a sentence. */
int shared_map(const char *state, const char *name, size_t size, void **ret);
void shared_unmap(void *at, size_t size); /* at may be NULL */

#endif
