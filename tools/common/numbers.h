/* SPDX-License-Identifier: MIT */
/* Parse and write sizes, times and rates for people; gcd.  Needs only libc. */
#ifndef CLI_NUMBERS_H
#define CLI_NUMBERS_H

#include "base/base.h"

/* Parse sizes such as "4k", "1.5m", "2g", "4096", "1GiB"; units are powers of two.  Return 0 or
 * -EINVAL. */
int parse_size(const char *text, uint64_t *ret);

/* Parse a whole number from min to max.  Return 0 or -EINVAL. */
int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret);

/* Parse seconds above 0, possibly with a fraction.  Return 0 or -EINVAL. */
int parse_seconds(const char *text, double *ret);

/* Return GB/s (10^9 bytes); 0 if ns is 0. */
double gb_per_s(uint64_t bytes, uint64_t ns);

struct text {
	char s[256];
};

/* These functions return a structure, so that one printf() can use several. */
struct text size_text(uint64_t bytes);              /* such as "4 KiB", "1.5 GiB" */
struct text time_text(uint64_t ns);                 /* such as "12.3 us" */
struct text gb_text(double gb_per_s);               /* without the unit: "1.43", "0.0036" */
struct text rate_text(uint64_t bytes, uint64_t ns); /* GB/s without the unit */

/*
 * Return the greatest common divisor.  If it is 1, steps of size a around b things visit each of
 * them once.
 */
uint64_t gcd(uint64_t a, uint64_t b);

#endif
