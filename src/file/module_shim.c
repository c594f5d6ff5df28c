/* SPDX-License-Identifier: MIT */
/*
 * Linked into each module: define the library's functions under their usual names, by the table
 * that the module was given.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "file/module.h"

#define LINE_MAX_LEN 1024

static const struct file_module_host *host;

/* Pass everything on: the library checks its own level. */
_Atomic int log_level = PST_LOG_DEBUG;

void file_module_use(const struct file_module_host *h)
{
	host = h;
}

bool file_module_is_used(void)
{
	return host;
}

int err_set(int err, const char *fmt, ...)
{
	char line[ERR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	return host->err_set(err, "%s", line);
}

const char *err_text(void)
{
	return host->err_text();
}

void err_keep(struct err_kept *ret)
{
	(void)snprintf(ret->text, sizeof(ret->text), "%s", host->err_text());
}

void err_put_back(const struct err_kept *kept)
{
	(void)host->err_set(EIO, "%s", kept->text);
}

void log_line(int level, const char *fmt, ...)
{
	char line[LINE_MAX_LEN];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	host->log_line(level, "%s", line);
}
