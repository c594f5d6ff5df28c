/* SPDX-License-Identifier: MIT */
/*
 * An object store in a directory, for tests of the mover: the table of base/objects.h.
 *
 * Each call of the store calls calls_hook() twice: with store_CALL before its effect, and with
 * store_CALL_done after it.  An errno from the second one is a lost answer.
 */
#ifndef PST_TESTS_TIER_STORE_H
#define PST_TESTS_TIER_STORE_H

#include <stdbool.h>

#include "base/objects.h"

extern const struct objects_table store_table;

extern bool store_down;     /* every call fails with ECONNREFUSED */
extern bool store_corrupts; /* a byte of each object is wrong when it is read */

/* Begin with an empty store below a directory. */
void store_begin(const char *dir);

/* Return the number of objects; call fn for each, with its key relative to PREFIX. */
unsigned store_each(const char *prefix, void (*fn)(const char *key));

/* Replace an object as another program would; NULL: remove it. */
void store_replace(const char *url, const char *text);

#endif
