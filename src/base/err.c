/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/shown.h"

static _Thread_local char text[ERR_TEXT_MAX];

int err_set(int err, const char *fmt, ...)
{
	int saved = errno;
	/* Format into another buffer, because an argument may be the current sentence: callers pass
	 * err_text() to wrap it into a longer one. */
	char line[ERR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(line, sizeof(line), fmt, ap) < 0)
		line[0] = '\0';
	va_end(ap);
	/* File names may contain newlines and terminal escapes. */
	shown(text, sizeof(text), line);
	errno = saved;
	return err < 0 ? err : -err;
}

const char *err_text(void)
{
	return text;
}

void err_keep(struct err_kept *ret)
{
	memcpy(ret->text, text, sizeof(text));
}

void err_put_back(const struct err_kept *kept)
{
	memcpy(text, kept->text, sizeof(text));
}
