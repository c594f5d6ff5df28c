/* SPDX-License-Identifier: MIT */
/* Mistyped names: the one that was meant. */
#ifndef PST_NEAREST_H
#define PST_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Find the name that is nearest to a mistyped one.
 * @word:   the mistyped name, of len bytes
 * @names:  the first of nr names, such as a member of an array of structures
 * @stride: bytes from one name to the next; a NULL is skipped
 *
 * Return: a name that differs in few letters, two neighbours in the wrong order counting as one;
 * NULL where all differ in more than one letter in three.
 */
const char *nearest(const char *word, size_t len, const char *const *names, size_t stride,
		    size_t nr);

#define NEAREST_DEVICE_MAX 32 /* bytes of a name that nearest_device() writes */

/*
 * Return true if text names no device but looks like a misspelt name, such as "cuda0", "GPU:1",
 * "cdua:0" or "npu:0".  *ret is then the name that was meant, or "" if none is near.
 */
bool nearest_device(const char *text, char ret[NEAREST_DEVICE_MAX]);

#endif
