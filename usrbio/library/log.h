/* SPDX-License-Identifier: MIT */
/* Lines on standard error; HF3FS_USRBIO_LIB_LOG sets the level. */
#ifndef USRBIO_LOG_H
#define USRBIO_LOG_H

enum log_level { LOG_ERROR = 1, LOG_WARN = 2, LOG_INFO = 3, LOG_DEBUG = 4 };

/* Rename for the linker: libpenstock has a log_line() too, and tests link both into one program. */
#define log_line usrbio_log_line
#define log_fail usrbio_log_fail

/* Print one line, without its newline.  Keeps errno, which %m prints. */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Print a line at LOG_WARN for a call that fails.  Return -|err|. */
int log_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
