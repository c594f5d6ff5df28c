/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "base/err.h"
#include "base/opts.h"

/*
 * Larger than any struct of the library will ever be.  A larger size means an uninitialised struct;
 * using it would read or write memory after the struct.
 */
#define SZ_MAX 4096

int opts_copy(void *dst, size_t dst_sz, const void *src)
{
	size_t sz;

	memset(dst, 0, dst_sz);
	if (!src) {
		memcpy(dst, &dst_sz, sizeof(dst_sz));
		return 0;
	}
	memcpy(&sz, src, sizeof(sz));
	if (sz < sizeof(sz))
		return err_set(EINVAL, "the options' sz is %zu; set it to the size of the struct",
			       sz);
	if (sz > SZ_MAX)
		return err_set(E2BIG,
			       "the options' sz is %zu, which no version of the library "
			       "knows; set it to the size of the struct",
			       sz);
	for (size_t i = dst_sz; i < sz; i++)
		if (((const unsigned char *)src)[i])
			return err_set(E2BIG,
				       "an option at byte %zu is not known to this version "
				       "of the library; update it or zero the option",
				       i);
	memcpy(dst, src, MIN(sz, dst_sz));
	memcpy(dst, &dst_sz, sizeof(dst_sz));
	return 0;
}

int opts_return(void *dst, const void *src, size_t src_sz)
{
	size_t sz;

	memcpy(&sz, dst, sizeof(sz));
	if (sz < sizeof(sz) || sz > SZ_MAX)
		return err_set(EINVAL,
			       "the sz of the struct to fill is %zu; set it to the size "
			       "of the struct before the call",
			       sz);
	memset(dst, 0, sz);
	memcpy(dst, src, MIN(sz, src_sz));
	memcpy(dst, &sz, sizeof(sz));
	return 0;
}

int opts_array_check(const void *array, unsigned nr, const char *what)
{
	const char *at = array;
	size_t sz, other;

	if (!nr)
		return 0;
	if (!array)
		return err_set(EINVAL, "no room is given for %u elements", nr);
	memcpy(&sz, at, sizeof(sz));
	if (sz < sizeof(sz) || sz > SZ_MAX)
		return err_set(EINVAL, "sz of element 0 is %zu, not sizeof(struct %s)", sz, what);
	for (unsigned i = 1; i < nr; i++) {
		memcpy(&other, at + i * sz, sizeof(other));
		if (other != sz)
			return err_set(EINVAL,
				       "sz of element %u is %zu, not sizeof(struct %s) as that of "
				       "element 0",
				       i, other, what);
	}
	return 0;
}

void *opts_array_at(void *array, unsigned idx)
{
	size_t sz;

	memcpy(&sz, array, sizeof(sz));
	return (char *)array + idx * sz;
}
