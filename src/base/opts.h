/* SPDX-License-Identifier: MIT */
#ifndef PST_OPTS_H
#define PST_OPTS_H

#include "base/base.h"

/*
 * Copy a size-first struct of options (its first member is size_t sz), whose caller may have been
 * built against an older or a newer header.
 * @dst: zeroed, then filled; its sz becomes @dst_sz
 * @dst_sz: size that this library knows, bytes
 * @src: NULL for all defaults
 *
 * Return: 0; -EINVAL if sz is smaller than size_t; -E2BIG if bytes that this library does not know
 * are not zero.
 */
int opts_copy(void *dst, size_t dst_sz, const void *src);

/*
 * Fill a caller's size-first struct: the reverse of opts_copy().
 * @dst: its sz is the room that the caller has, bytes
 * @src: the struct that this library knows
 * @src_sz: size of @src, bytes
 *
 * Return: 0; -EINVAL if sz is smaller than size_t or larger than any struct of the library.
 */
int opts_return(void *dst, const void *src, size_t src_sz);

/*
 * Check an array of size-first structs to be filled: every sz must equal the first one, because sz
 * is the distance between elements.
 * @what: name of the struct, such as "pst_device", for the sentence
 *
 * Return: 0 or -EINVAL.
 */
int opts_array_check(const void *array, unsigned nr, const char *what);

/* Return element idx of such an array, for opts_return(). */
void *opts_array_at(void *array, unsigned idx);

#endif
