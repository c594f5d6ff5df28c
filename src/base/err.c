/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/shown.h"

#define NAME_MAX_LEN 128

static _Thread_local char text[ERR_TEXT_MAX];
static _Thread_local char name[NAME_MAX_LEN];

int err_set(int err, const char *fmt, ...)
{
	int saved = errno;
	/* Built aside, because an argument may be the text that stands there: a caller
	 * that wraps a sentence into a longer one passes err_text(). */
	char line[ERR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(line, sizeof(line), fmt, ap) < 0)
		line[0] = '\0';
	va_end(ap);
	/* Names of files may hold newlines and what terminals obey. */
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

const char *err_name(int err)
{
	int saved = errno;
	bool known = err >= -4095 && err <= 4095; /* what the kernel returns as errors */
	int e = known && err < 0 ? -err : err;
	const char *n = known ? strerrorname_np(e) : NULL;
	const char *d = known ? strerrordesc_np(e) : NULL;

	if (n && d)
		(void)snprintf(name, sizeof(name), "%s (%s)", n, d);
	else
		(void)snprintf(name, sizeof(name), "error %d", e);
	errno = saved;
	return name;
}
