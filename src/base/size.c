/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "base/err.h"
#include "base/size.h"

int size_parse(const char *text, uint64_t *ret)
{
	static const char units[] = "KkMmGgTt";
	const char *p = text, *unit;
	uint64_t v = 0;
	bool fits = true;

	for (; *p >= '0' && *p <= '9'; p++)
		fits &= !__builtin_mul_overflow(v, 10, &v) &&
			!__builtin_add_overflow(v, (uint64_t)(*p - '0'), &v);
	unit = p > text && *p ? strchr(units, *p) : NULL;
	if (unit) {
		fits &= !__builtin_mul_overflow(v, UINT64_C(1024) << (unit - units) / 2 * 10, &v);
		p++;
	}
	if (p == text || *p)
		return err_set(EINVAL, "\"%s\" is no number of bytes such as 512M or 64G", text);
	if (!fits)
		return err_set(ERANGE, "%s is more bytes than there can be", text);
	*ret = v;
	return 0;
}
