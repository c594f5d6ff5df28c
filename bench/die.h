/* SPDX-License-Identifier: MIT */
#ifndef PST_BENCH_DIE_H
#define PST_BENCH_DIE_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Print a line that begins with the program's name, and exit with status 1. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *fmt, ...)
{
	va_list ap;

	(void)fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
	exit(1);
}

/* Parse an argument from min to max; exit with a message if it is malformed. */
static inline unsigned number(const char *text, unsigned min, unsigned max)
{
	char *end;
	long v = strtol(text, &end, 10);

	if (*end || v < (long)min || v > (long)max)
		die("%s is not %u to %u", text, min, max);
	return (unsigned)v;
}

#endif
