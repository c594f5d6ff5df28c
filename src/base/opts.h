/* SPDX-License-Identifier: MIT */
#ifndef PST_OPTS_H
#define PST_OPTS_H

#include "base/base.h"

/*
 * Copy a size-first struct of options (its first member is size_t sz) that may come
 * from a caller built against an older or a newer header.
 * @dst:   zeroed, then filled; its sz becomes @dst_sz
 * @dst_sz: size that this library knows
 * @src:   NULL for all defaults
 *
 * Return: 0; -EINVAL when sz is smaller than size_t; -E2BIG when bytes this library does
 * not know are not zero.
 */
int opts_copy(void *dst, size_t dst_sz, const void *src);

/*
 * The way back: fill a caller's size-first struct.
 * @dst: sz says how much room the caller has
 * @src: what this library knows; @src_sz its size
 *
 * Return: 0; -EINVAL when sz is smaller than size_t or larger than any struct of ours.
 */
int opts_return(void *dst, const void *src, size_t src_sz);

/*
 * Check an array of size-first structs to fill: every sz must be that of the first, which is the
 * distance between elements.
 * @what: "pst_device", for the sentence
 *
 * Return: 0 or -EINVAL.
 */
int opts_array_check(const void *array, unsigned nr, const char *what);

/* Element idx of such an array, for opts_return(). */
void *opts_array_at(void *array, unsigned idx);

#endif
