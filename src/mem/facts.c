/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>

#include "mem/facts.h"

void facts_add(struct facts *f, const char *name, const char *fmt, ...)
{
	char value[256];
	size_t room = f->used < f->len ? f->len - f->used : 0;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	f->used += (size_t)snprintf(room ? f->buf + f->used : NULL, room, "%s: %s\n", name, value);
}
