/* SPDX-License-Identifier: MIT */
#include "tools/common/shown.h"

#include <ctype.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include "tools/common/util.h"

#define WIDTH_MIN 20u /* columns; narrower terminals wrap lines themselves */
#define WIDTH_MAX 10000u

unsigned shown_width(FILE *f)
{
	const char *env = getenv("COLUMNS");
	struct winsize w = { .ws_col = 0 };
	uint64_t n;

	if (env && parse_number(env, 1, WIDTH_MAX, &n) == 0)
		return MAX((unsigned)n, WIDTH_MIN);
	if (ioctl(fileno(f), TIOCGWINSZ, &w) < 0 || !w.ws_col)
		return SHOWN_WIDTH;
	return MAX(w.ws_col, WIDTH_MIN);
}

size_t shown_columns(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

/* Return true if a line may break before text[i]: after a word, and after a plus as in
 * "staged+direct". */
static bool may_break(const char *text, size_t i)
{
	if (text[i] == ' ' || !text[i])
		return text[i - 1] != ' ';
	return i > 1 && text[i - 1] == '+' && isalpha((unsigned char)text[i - 2]) &&
	       isalpha((unsigned char)text[i]);
}

size_t shown_line(const char *text, size_t width)
{
	size_t end = 0, len = strlen(text);

	for (size_t i = 1; i <= len; i++) {
		if (!may_break(text, i))
			continue;
		if (end && shown_columns(text, i) > width)
			break;
		end = i;
	}
	return end;
}

void shown_wrapped(FILE *f, const char *text, unsigned col, unsigned indent, unsigned width)
{
	for (;;) {
		size_t n = shown_line(text, width > col ? width - col : 0);

		(void)fprintf(f, "%.*s\n", (int)n, text);
		text += n;
		text += strspn(text, " ");
		if (!*text)
			return;
		(void)fprintf(f, "%*s", (int)indent, "");
		col = indent;
	}
}

void shown_printf(unsigned indent, const char *fmt, ...)
{
	_cleanup_(freep) char *text = NULL, *safe = NULL;
	size_t len;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	len = text ? 4 * strlen(text) + 5 : 0;
	safe = text ? malloc(len) : NULL;
	if (!safe)
		return;
	shown(safe, len, text);
	shown_wrapped(stdout, safe, 0, indent, shown_width(stdout));
}
