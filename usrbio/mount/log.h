/* SPDX-License-Identifier: MIT */
/*
 * What the server has to say, a line each:
 *
 *	level=warn msg="a worker ended" uid=1000 pid=4711 signal=9
 *
 * PST_LOG chooses the level, warn without it.  Where standard error is the journal, a line begins
 * with its priority, like <4>.  Each place in the code says no more than LOG_BURST lines in
 * LOG_WINDOW_NS, but with PST_LOG=debug; the next line says how many it did not (suppressed=).
 * Nobody waits for whoever reads the lines: one that cannot be written at once is lost, and counted
 * as suppressed.
 *
 * No line has a handle, bytes of a file, or a path of a user's.
 */
#ifndef MOUNT_LOG_H
#define MOUNT_LOG_H

#include <stdatomic.h>

#include "base/base.h"

enum log_level { LOG_OFF, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG }; /* as PST_LOG has them */

#define LOG_BURST 20u
#define LOG_WINDOW_NS (10 * NSEC_PER_SEC)

/* A place in the code. */
struct log_site {
	_Atomic uint64_t since; /* when its window began */
	atomic_uint nr;         /* lines in it */
	atomic_uint suppressed; /* lines suppressed since the last one */
};

/* Once, before there are other threads. */
void log_init(void);

/* Return true if standard error is the journal. */
bool log_is_journal(void);

/* Return the number of lines that were not written. */
uint64_t log_suppressed(void);

/* msg is a phrase of ours; what follows is like "uid=%u error=%s".  Use the macros. */
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

/* A text as the value of a key: quoted, one line, without what controls a terminal. */
struct log_text {
	char s[1024];
};
struct log_text log_text(const char *text);

/* "ENOENT", also for -ENOENT; "0" for no error. */
const char *log_errno(int err);

#endif
