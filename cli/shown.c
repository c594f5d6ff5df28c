/* SPDX-License-Identifier: MIT */
#include "shown.h"

#include <sys/ioctl.h>

#include "util.h"

/* Bytes of the UTF-8 character there, which has no surplus bytes; 0 when it is none. */
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

	/* Five bytes are what one step may take, with the end. */
	while (*p && n + 5 <= len) {
		uint32_t c = 0;
		unsigned bytes = char_len(p, &c);

		if (bytes && is_harmless(c)) {
			memcpy(ret + n, p, bytes);
			n += bytes;
			p += bytes;
		} else {
			n += (size_t)snprintf(ret + n, len - n, "\\%03o", *p++);
		}
	}
	ret[n] = '\0';
}

unsigned shown_width(void)
{
	struct winsize w = { .ws_col = 0 };

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || !w.ws_col)
		return 100;
	return MAX(w.ws_col, 60u);
}

void shown_wrapped(const char *text, unsigned indent, unsigned width)
{
	unsigned col = indent;

	while (*text) {
		unsigned n = (unsigned)strcspn(text, " ");

		if (col > indent && col + 1 + n > width) {
			(void)printf("\n%*s", (int)indent, "");
			col = indent;
		} else if (col > indent) {
			(void)putchar(' ');
			col++;
		}
		(void)printf("%.*s", (int)n, text);
		col += n;
		text += n + strspn(text + n, " ");
	}
	(void)putchar('\n');
}
