/* SPDX-License-Identifier: MIT */
#include "base/shown.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* Return the length of the UTF-8 character at p in bytes, and its code in *ret.  Return 0 for
 * invalid or overlong bytes. */
static unsigned char_len(const unsigned char *p, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned n = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : 4;
	uint32_t c = n == 1 ? p[0] : p[0] & (0x7fu >> n);

	if (n == 4 && p[0] >> 3 != 30)
		return 0;
	for (unsigned i = 1; i < n; i++) {
		if (p[i] >> 6 != 2)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	*ret = c;
	return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

static bool is_harmless(uint32_t c)
{
	return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && c != 0x200e && c != 0x200f &&
	       !(c >= 0x2028 && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069);
}

void shown(char *ret, size_t len, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t n = 0;

	while (*p) {
		uint32_t c = 0;
		unsigned bytes = char_len(p, &c);
		bool whole = bytes && is_harmless(c);

		if (n + (whole ? bytes : 4) >= len)
			break;
		if (whole)
			memcpy(ret + n, p, bytes);
		else
			(void)snprintf(ret + n, len - n, "\\%03o", *p);
		n += whole ? bytes : 4;
		p += whole ? bytes : 1;
	}
	ret[n] = '\0';
}

bool shown_is_utf8(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	while (*p) {
		uint32_t c;
		unsigned n = char_len(p, &c);

		if (!n)
			return false;
		p += n;
	}
	return true;
}
