/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "log.h"

static int least = LOG_ERROR + 1; /* lowest level that is printed */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void gdrapi_log_read_environment(void)
{
	const char *level = secure_getenv("GDRCOPY_LOG_LEVEL");

	if (secure_getenv("GDRCOPY_ENABLE_LOGGING"))
		least = level && *level ? atoi(level) : LOG_ERROR;
}

void gdr_log_line(enum log_level level, const char *fmt, ...)
{
	static const char *const prefix[] = { "", "DBG:  ", "INFO: ", "WARN: ", "ERR:  " };
	int saved = errno;
	char text[512];
	va_list ap;

	(void)pthread_once(&once, gdrapi_log_read_environment);
	if ((int)level < least)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* Write the line at once, so that lines of several threads do not mix. */
	(void)fprintf(stderr, "%s%s\n", prefix[level], text);
	errno = saved;
}
