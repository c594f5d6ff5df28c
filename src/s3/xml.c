/* SPDX-License-Identifier: MIT */
/* Parse the small subset of XML in S3's answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/http.h"

/* Append one character as UTF-8. */
static size_t put_utf8(char *to, unsigned long c)
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 63));
		to[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 63));
	to[2] = (char)(0x80 | (c >> 6 & 63));
	to[3] = (char)(0x80 | (c & 63));
	return 4;
}

/* Decode the reference at text, such as &amp;. Return its length, or 0 if there is none; ret gets
 * at most 4 bytes. */
static size_t reference(const char *text, char *ret, size_t *ret_len)
{
	static const struct {
		const char *name;
		char is;
	} names[] = { { "&amp;", '&' },
		      { "&lt;", '<' },
		      { "&gt;", '>' },
		      { "&quot;", '"' },
		      { "&apos;", '\'' } };
	unsigned long c;
	char *end;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t n = strlen(names[i].name);

		if (strncmp(text, names[i].name, n) == 0) {
			*ret = names[i].is;
			*ret_len = 1;
			return n;
		}
	}
	if (text[0] != '&' || text[1] != '#')
		return 0;
	c = text[2] == 'x' ? strtoul(text + 3, &end, 16) : strtoul(text + 2, &end, 10);
	if (*end != ';' || !c || c > 0x10ffff)
		return 0;
	*ret_len = put_utf8(ret, c);
	return (size_t)(end - text) + 1;
}

bool xml_find(const char *text, const char *name, char *ret, size_t len)
{
	char open[64], shut[64];
	const char *end;
	size_t n = 0;

	(void)snprintf(open, sizeof(open), "<%s>", name);
	(void)snprintf(shut, sizeof(shut), "</%s>", name);
	text = strstr(text, open);
	end = text ? strstr(text, shut) : NULL;
	if (!end)
		return false;
	for (text += strlen(open); text < end;) {
		char bytes[4] = { *text };
		size_t nr = 1, used = *text == '&' ? reference(text, bytes, &nr) : 1;

		if (!used || *text == '<' || n + nr >= len)
			return false;
		memcpy(ret + n, bytes, nr);
		n += nr;
		text += used;
	}
	ret[n] = '\0';
	return true;
}
