/* SPDX-License-Identifier: MIT */
#include "tools/common/shown.h"

#include <sys/ioctl.h>

#include "tools/common/util.h"

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
