/* SPDX-License-Identifier: MIT */
/*
 * Log lines of the server, such as:
 *
 * level=warn msg="a worker ended" uid=1000 pid=4711 signal=9
 *
 * PST_LOG sets the level, warn by default.  If standard error is the journal, a line begins with
 * its priority, such as <4>.  Each place in the code logs up to LOG_BURST lines in LOG_WINDOW_NS;
 * its next line has the number of dropped lines (suppressed=).  PST_LOG=debug has no such limit.
 * Logging never waits for a reader: a line that cannot be written at once is dropped and counted as
 * suppressed.
 *
 * No line contains a handle, bytes of a file, or a user's path.
 */
#ifndef MOUNT_LOG_H
#define MOUNT_LOG_H

#include <stdatomic.h>

#include "base/base.h"

enum log_level {
	LOG_OFF,
	LOG_ERROR,
	LOG_WARN,
	LOG_INFO,
	LOG_DEBUG
}; /* from fewest to most lines */

#define LOG_BURST 20u
#define LOG_WINDOW_NS (10 * NSEC_PER_SEC)

/* The rate limit of one place in the code. */
struct log_site {
	_Atomic uint64_t since; /* begin of the current window, ns */
	atomic_uint nr;         /* lines in the current window */
	atomic_uint suppressed; /* lines dropped since the last printed one */
};

/* Call this once, before starting threads. */
void log_init(void);

/* Return true if standard error is the journal. */
bool log_is_journal(void);

/* Return the number of lines that were not written. */
uint64_t log_suppressed(void);

/* Log a line.  msg is a fixed phrase; fmt makes fields such as "uid=%u error=%s".  Use the
 * macros. */
void log_line(struct log_site *site, enum log_level level, const char *msg, const char *fmt, ...)
	_printf_(4, 5);
bool log_wants(enum log_level level);

#define log_at(level, ...)                                      \
	do {                                                    \
		static struct log_site _site;                   \
		if (log_wants(level))                           \
			log_line(&_site, (level), __VA_ARGS__); \
	} while (0)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

/* Quote a text as a field's value: one line, without terminal control characters. */
struct log_text {
	char s[1024];
};
struct log_text log_text(const char *text);

/* Return a name such as "ENOENT", for ENOENT and -ENOENT; "0" for 0. */
const char *log_errno(int err);

#endif
