/* SPDX-License-Identifier: MIT */
/*
 * File calls of the mover and of recovery, in the order in which they are made.  A program linked
 * with CALLS_WRAPS of meson.build calls calls_hook() before each.  A non-zero result is a positive
 * errno with which the call then fails.
 */
#ifndef PST_TESTS_TIER_CALLS_H
#define PST_TESTS_TIER_CALLS_H

#include <stdbool.h>

extern int (*calls_hook)(const char *call); /* NULL: no hook */
extern bool calls_corrupt;                  /* writes store a wrong byte, like a bad disk */

#endif
