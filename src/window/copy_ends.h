/* SPDX-License-Identifier: MIT */
/*
 * Load the unaligned ends of a range with as few accesses as possible, from mappings that allow any
 * alignment.  Accesses may overlap, so some bytes are loaded twice, which device memory allows.
 */
#ifndef PST_WINDOW_COPY_ENDS_H
#define PST_WINDOW_COPY_ENDS_H

#include "base/base.h"

typedef uint8_t any16 __attribute__((vector_size(16), may_alias, aligned(1)));
typedef uint64_t any8 __attribute__((may_alias, aligned(1)));
typedef uint32_t any4 __attribute__((may_alias, aligned(1)));
typedef uint16_t any2 __attribute__((may_alias, aligned(1)));

/* Return the number of bytes from p to the next multiple of align, at most len. */
static inline size_t unaligned(const void *p, size_t align, size_t len)
{
	return MIN(-(uintptr_t)p & (align - 1), len);
}

/* Load less than 16 bytes by at most two loads.  volatile, so that the compiler uses exactly
 * these. */
static inline void load_short(char *d, const char *m, size_t len)
{
	size_t last;

	if (len >= 8) {
		last = len - 8;
		*(any8 *)d = *(const volatile any8 *)m;
		if (last)
			*(any8 *)(d + last) = *(const volatile any8 *)(m + last);
	} else if (len >= 4) {
		last = len - 4;
		*(any4 *)d = *(const volatile any4 *)m;
		if (last)
			*(any4 *)(d + last) = *(const volatile any4 *)(m + last);
	} else {
		if (len >= 2)
			*(any2 *)d = *(const volatile any2 *)m;
		if (len & 1)
			d[len - 1] = *(const volatile char *)(m + len - 1);
	}
}

/*
 * Load the ends of a range: the bytes before and after its middle, which begins and ends at
 * multiples of 16. *ret_off is where the middle begins.
 *
 * Return: the middle's length; 0 if it is empty.
 */
static inline size_t load_ends(char *d, const char *m, size_t len, size_t *ret_off)
{
	size_t lead = unaligned(m, 16, len), trail = (uintptr_t)(m + len) & 15, last = len - 16;

	*ret_off = lead;
	if (len < 16) {
		load_short(d, m, len);
		return 0;
	}
	if (lead)
		*(any16 *)d = *(const volatile any16 *)m;
	if (trail && last)
		*(any16 *)(d + last) = *(const volatile any16 *)(m + last);
	/* In a range of up to 32 bytes, both ends together cover everything. */
	return lead && trail && len <= 32 ? 0 : len - lead - trail;
}

#endif
