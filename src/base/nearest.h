/* SPDX-License-Identifier: MIT */
/* Find the name that is nearest to a mistyped one. */
#ifndef PST_NEAREST_H
#define PST_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Find the name that is nearest to a mistyped one.
 * @word: the mistyped name, of len bytes
 * @names: the first of nr names, such as a member of an array of structures; NULL names are skipped
 * @stride: bytes from one name to the next
 *
 * Return: the name that differs in the fewest letters, where two swapped neighbours count as one
 * letter; NULL if all names differ in more than a third of their letters.
 */
const char *nearest(const char *word, size_t len, const char *const *names, size_t stride,
		    size_t nr);

#define NEAREST_DEVICE_MAX 32 /* bytes of the buffer for nearest_device() */

/*
 * Return true if text names no device but looks like a misspelt one, such as "cuda0", "GPU:1",
 * "cdua:0" or "npu:0". *ret is then the name that was probably meant, or "" if none is near.
 */
bool nearest_device(const char *text, char ret[NEAREST_DEVICE_MAX]);

#endif
