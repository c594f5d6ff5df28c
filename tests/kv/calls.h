/* SPDX-License-Identifier: MIT */
/*
 * Calls of a store that can fail, in the order in which they are made.  A program linked with the
 * wraps of meson.build calls calls_hook() before each.  A non-zero result is a positive errno with
 * which the call then fails.  May be called from any thread.
 */
#ifndef PST_TESTS_KV_CALLS_H
#define PST_TESTS_KV_CALLS_H

#include <stdatomic.h>

extern int (*calls_hook)(const char *call); /* NULL: no hook */

/* Bytes of each file that non-blocking reads find in memory; 0 at first. */
extern atomic_ullong calls_warm;
/* Maximum bytes of one non-blocking read; 0: no limit. */
extern atomic_ullong calls_most;

#endif
