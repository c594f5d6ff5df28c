/* SPDX-License-Identifier: MIT */
#ifndef PST_SIZE_H
#define PST_SIZE_H

#include "base/base.h"

/*
 * A number of bytes in text that somebody wrote: decimal digits and nothing else, or with one
 * of K, M, G and T behind them (times 1024, 1024^2, ...; small letters too).
 *
 * Return: 0; -EINVAL for any other text; -ERANGE for a number beyond uint64_t.
 */
int size_parse(const char *text, uint64_t *ret);

#endif
