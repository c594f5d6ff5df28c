/* SPDX-License-Identifier: MIT */
/* Paths, policies and reasons by their names, and names that were mistyped. */
#ifndef CLI_NAMES_H
#define CLI_NAMES_H

#include <penstock.h>

#include "base/nearest.h"
#include "tools/common/numbers.h"

/* "direct", "staged,direct" or "auto" as a policy; 0 or -EINVAL with a sentence. */
int parse_policy(const char *text, uint64_t *ret);

/* Can file operations be done by PST_BACKEND_URING or _THREADS?  err is 0 where they can. */
struct pst_check backend_check(uint32_t backend);

/* "auto", "uring" or "threads" as PST_BACKEND_*; 0 or -EINVAL. */
int parse_store(const char *text, uint32_t *ret);

struct text paths_text(uint32_t paths); /* "staged+direct"; "-" for none */
struct text why_text(uint32_t why, int32_t detail);

/* Reasons met by a number of requests. */
struct whys {
	uint64_t nr[PST_WHY_MAX + 1];
	int32_t detail[PST_WHY_MAX + 1]; /* of the latest */
};

void whys_add(struct whys *w, uint32_t why, int32_t detail);
void whys_merge(struct whys *w, const struct whys *other);
bool whys_any(const struct whys *w);

#endif
