/* SPDX-License-Identifier: MIT */
/*
 * The calls of a store that may fail, in the order in which they are made: what is linked with the
 * wraps of meson.build asks calls_hook() before each. A result other than 0 is a positive errno
 * with which the call fails instead. Any thread.
 */
#ifndef PST_TESTS_KV_CALLS_H
#define PST_TESTS_KV_CALLS_H

#include <stdatomic.h>

extern int (*calls_hook)(const char *call); /* NULL: none */

/* Bytes of each file that calls which do not wait find in memory; 0 in the beginning. */
extern atomic_ullong calls_warm;
/* Most bytes that such a call reads at once; 0: as many as it wants. */
extern atomic_ullong calls_most;

#endif
