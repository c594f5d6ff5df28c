/* SPDX-License-Identifier: MIT */
/* Parse numbers in text of another process. */
#ifndef PST_USRBIO_NUMBER_H
#define PST_USRBIO_NUMBER_H

#include <errno.h>
#include <stdint.h>

/*
 * Parse a number in a base from 2 to 10, without sign or space, and advance *text behind it.
 * Return 0, or -EINVAL if there is no digit or the number is above @max.
 */
static inline int usrbio_number(const char **text, unsigned base, uint64_t max, uint64_t *ret)
{
	const char *p = *text;
	uint64_t n = 0;

	for (; *p >= '0' && *p < (char)('0' + base); p++) {
		unsigned digit = (unsigned)(*p - '0');

		if (digit > max || n > (max - digit) / base)
			return -EINVAL;
		n = n * base + digit;
	}
	if (p == *text)
		return -EINVAL;
	*text = p;
	*ret = n;
	return 0;
}

#endif
