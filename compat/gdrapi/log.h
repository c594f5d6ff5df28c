/* SPDX-License-Identifier: MIT */
#ifndef GDRAPI_LOG_H
#define GDRAPI_LOG_H

/* Levels, numbered as in GDRCOPY_LOG_LEVEL. */
enum log_level { LOG_DEBUG = 1, LOG_INFO = 2, LOG_WARN = 3, LOG_ERROR = 4 };

/* Print a line to standard error, if GDRCOPY_ENABLE_LOGGING is set and the level is enabled. */
void gdr_log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
