/* SPDX-License-Identifier: MIT */
/* The plug-in's log: NIXL's needs Abseil, and its macros, too, print to standard error. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plug.h"

void plug_log(const char *format, ...)
{
	char line[1024];
	va_list args;
	int len;

	len = snprintf(line, sizeof(line), "penstock: nixl: ");
	va_start(args, format);
	vsnprintf(line + len, sizeof(line) - (size_t)len - 1, format, args);
	va_end(args);
	len = (int)strlen(line);
	line[len++] = '\n';
	/* In one call, so that lines of several threads do not mix. */
	(void)!write(STDERR_FILENO, line, (size_t)len);
}
