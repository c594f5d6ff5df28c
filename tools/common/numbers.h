/* SPDX-License-Identifier: MIT */
/* Sizes, times and rates, as people write and read them, and a divisor; needs only libc. */
#ifndef CLI_NUMBERS_H
#define CLI_NUMBERS_H

#include "base/base.h"

/* "4k", "1.5m", "2g", "4096", "1GiB"; 0 or -EINVAL.  Units are powers of two. */
int parse_size(const char *text, uint64_t *ret);

/* A whole number from min to max; 0 or -EINVAL. */
int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret);

/* Seconds with a fraction, more than 0; 0 or -EINVAL. */
int parse_seconds(const char *text, double *ret);

/* GB/s (10^9); 0 when no time passed. */
double gb_per_s(uint64_t bytes, uint64_t ns);

struct text {
	char s[256];
};

/* These return a structure, so that several fit into one printf(). */
struct text size_text(uint64_t bytes);              /* "4 KiB", "1.5 GiB" */
struct text time_text(uint64_t ns);                 /* "12.3 us" */
struct text gb_text(double gb_per_s);               /* without the unit: "1.43", "0.0036" */
struct text rate_text(uint64_t bytes, uint64_t ns); /* the same */

/*
 * The greatest common divisor.  Where it is 1, a walk in steps of a round b things comes to each
 * of them once.
 */
uint64_t gcd(uint64_t a, uint64_t b);

#endif
