/* SPDX-License-Identifier: MIT */
#ifndef PST_BESIDE_H
#define PST_BESIDE_H

#include <limits.h>

#include "base/base.h"

/*
 * Find a module in the folder of the library or program that contains an address.
 * @near: an address in that library or program
 * @file: the module's file name
 * @who: what needs the module, for the sentence
 *
 * trust_path() must accept the module: only root and the caller can have put it there.
 *
 * Return: 0 and the path; -ENOENT if there is none; errors of trust_path().  With a sentence.
 */
int beside_path(const void *near, const char *file, const char *who, char ret[PATH_MAX]);

#endif
