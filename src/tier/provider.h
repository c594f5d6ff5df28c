/* SPDX-License-Identifier: MIT */
/* tier://SET/NAME: shared by its files and its calls on names. */
#ifndef PST_TIER_PROVIDER_H
#define PST_TIER_PROVIDER_H

#include <limits.h>

#include "base/base.h"

#define TIER_SCHEME "tier"

struct names_ops;

/*
 * Split a name into set and file.
 * @may_be_root: the file name may be empty; a trailing slash is removed
 * @ret_file: the name in the set, TIER_NAME_SIZE bytes
 *
 * Return: 0; -EINVAL with a sentence.
 */
int provider_split(const char *name, bool may_be_root, char set[NAME_MAX + 1], char *ret_file);

extern const struct names_ops tier_names_ops;

#endif
