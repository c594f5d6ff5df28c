/* SPDX-License-Identifier: MIT */
#ifndef PST_LOG_H
#define PST_LOG_H

#include <penstock.h>

#include "base/base.h"

/* The most detailed level for which there is a receiver; 0: none. */
extern _Atomic int log_level;

/*
 * Deliver one line.  errno is kept, and %m works.  Callers use the macros below.  A forked child of
 * a process that used the library delivers no lines.
 */
void log_line(int level, const char *fmt, ...) _printf_(2, 3);

/*
 * Set the callback for pst_log_set(): fn gets lines up to level; NULL restores PST_LOG.  On return
 * no thread is inside the previous fn.  Does nothing in a forked child.
 */
void log_set(pst_log_fn fn, void *arg, int level);

#define log_at(level, ...)                              \
	do {                                            \
		if (unlikely((level) <= log_level))     \
			log_line((level), __VA_ARGS__); \
	} while (0)
#define log_error(...) log_at(PST_LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(PST_LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(PST_LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(PST_LOG_DEBUG, __VA_ARGS__)

#endif
