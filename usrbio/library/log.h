/* SPDX-License-Identifier: MIT */
/*
 * Lines on standard error, as HF3FS_USRBIO_LIB_LOG wants them.
 */
#ifndef USRBIO_LOG_H
#define USRBIO_LOG_H

enum log_level { LOG_ERROR = 1, LOG_WARN = 2, LOG_INFO = 3, LOG_DEBUG = 4 };

/* For the linker: libpenstock has a log_line() too, and tests put both into one program. */
#define log_line usrbio_log_line
#define log_fail usrbio_log_fail

/* One line, without its newline.  errno is kept, and %m works. */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* As log_line() at LOG_WARN, for a call that fails.  Returns -|err|. */
int log_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
