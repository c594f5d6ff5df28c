/* SPDX-License-Identifier: MIT */
/* tier://SET/NAME: what its files and the calls by name share. */
#ifndef PST_TIER_PROVIDER_H
#define PST_TIER_PROVIDER_H

#include <limits.h>

#include "base/base.h"

#define TIER_SCHEME "tier"

struct names_ops;

/*
 * Take a name apart.
 * @may_be_root: the name in the set may be empty; a slash at its end is left out
 * @ret_file:    the name in the set, TIER_NAME_SIZE bytes
 * Return: 0; -EINVAL with a sentence.
 */
int provider_split(const char *name, bool may_be_root, char set[NAME_MAX + 1], char *ret_file);

extern const struct names_ops tier_names_ops;

#endif
