/* SPDX-License-Identifier: MIT */
/* Names of paths, policies and reasons, and suggestions for mistyped names. */
#ifndef CLI_NAMES_H
#define CLI_NAMES_H

#include <penstock.h>

#include "base/nearest.h"
#include "tools/common/numbers.h"

/* Parse "direct", "staged,direct" or "auto" as a policy.  Return 0, or -EINVAL with a sentence. */
int parse_policy(const char *text, uint64_t *ret);

/* Check whether PST_BACKEND_URING or _THREADS works here; err is 0 if it does. */
struct pst_check backend_check(uint32_t backend);

/* Parse "auto", "uring" or "threads" as PST_BACKEND_*.  Return 0 or -EINVAL. */
int parse_store(const char *text, uint32_t *ret);

struct text paths_text(uint32_t paths); /* Return names such as "staged+direct"; "-" for no path. */
struct text why_text(uint32_t why, int32_t detail);

/* The number of requests with each reason. */
struct whys {
	uint64_t nr[PST_WHY_MAX + 1];
	int32_t detail[PST_WHY_MAX + 1]; /* detail of the latest request with the reason */
};

void whys_add(struct whys *w, uint32_t why, int32_t detail);
void whys_merge(struct whys *w, const struct whys *other);
bool whys_any(const struct whys *w);

#endif
