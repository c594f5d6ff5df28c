/* SPDX-License-Identifier: MIT */
#ifndef GDRAPI_LOG_H
#define GDRAPI_LOG_H

/* GDRCOPY_LOG_LEVEL's numbers. */
enum log_level { LOG_DEBUG = 1, LOG_INFO = 2, LOG_WARN = 3, LOG_ERROR = 4 };

/* One line on standard error, if GDRCOPY_ENABLE_LOGGING is set and the level is wanted. */
void gdr_log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
