/* SPDX-License-Identifier: MIT */
/*
 * The calls of a store that may fail, in the order in which they are made: what is linked with the
 * wraps of meson.build asks calls_hook() before each. A result other than 0 is a positive errno
 * with which the call fails instead. Any thread.
 */
#ifndef PST_TESTS_KV_CALLS_H
#define PST_TESTS_KV_CALLS_H

extern int (*calls_hook)(const char *call); /* NULL: none */

#endif
