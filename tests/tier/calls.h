/* SPDX-License-Identifier: MIT */
/*
 * The file calls of the mover and recovery, in the order in which they are made: what is linked
 * with CALLS_WRAPS of meson.build calls calls_hook() before each.  A result other than 0 is a
 * positive errno with which the call fails instead.
 */
#ifndef PST_TESTS_TIER_CALLS_H
#define PST_TESTS_TIER_CALLS_H

#include <stdbool.h>

extern int (*calls_hook)(const char *call); /* NULL: none */
extern bool calls_corrupt;                  /* writes store a wrong byte, as a bad disk does */

#endif
