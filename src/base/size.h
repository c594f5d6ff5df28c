/* SPDX-License-Identifier: MIT */
#ifndef PST_SIZE_H
#define PST_SIZE_H

#include "base/base.h"

/*
 * Parse a number of bytes that a person wrote: decimal digits, and optionally one of K, M, G and T
 * after them (times 1024, 1024^2, ...; lower case too).
 *
 * Return: 0; -EINVAL for other text; -ERANGE for a number above UINT64_MAX.
 */
int size_parse(const char *text, uint64_t *ret);

#endif
