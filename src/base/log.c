/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cancel.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/shown.h"

#define LINE_MAX_LEN 1024

/*
 * Starts at the most detailed level, so that the first line of any level reaches log_line(), which
 * reads PST_LOG and sets the true level.
 */
_Atomic int log_level = PST_LOG_DEBUG;

static const char *const level_names[] = {
	[PST_LOG_ERROR] = "error",
	[PST_LOG_WARN] = "warn",
	[PST_LOG_INFO] = "info",
	[PST_LOG_DEBUG] = "debug",
};

static pthread_once_t env_once = PTHREAD_ONCE_INIT;
static int env_level;

/*
 * Held for reading while a line is delivered, so that log_set() waits for lines in flight.  A
 * fork() meanwhile leaves it locked in the child, so children that may not use the library do not
 * take it.  Other children have a parent in which no line was in flight.
 */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pst_log_fn callback;
static void *callback_arg;

/* One write(2) a line, so that lines of several threads do not mix. */
static void write_stderr(int level, const char *line)
{
	char buf[LINE_MAX_LEN + 32];
	int n = snprintf(buf, sizeof(buf), "penstock: %s: %s\n", level_names[level], line);

	if (n > 0)
		(void)!write(STDERR_FILENO, buf, MIN((size_t)n, sizeof(buf) - 1));
}

static void log_read_env(void)
{
	const char *env = secure_getenv("PST_LOG");

	if (env && *env) {
		for (int i = PST_LOG_ERROR; i <= PST_LOG_DEBUG; i++)
			if (!strcmp(env, level_names[i]))
				env_level = i;
		if (!env_level) {
			env_level = PST_LOG_WARN;
			write_stderr(PST_LOG_WARN, "PST_LOG is none of error, warn, info, debug: "
						   "taking warn");
		}
	}
	log_level = env_level;
}

void log_line(int level, const char *fmt, ...)
{
	int saved = errno;
	char line[LINE_MAX_LEN], safe[LINE_MAX_LEN];
	va_list ap;
	int n;

	if (fork_is_child())
		return;
	NO_CANCEL(); /* writing is a cancellation point, under the lock */
	(void)pthread_once(&env_once, log_read_env);
	if (level < PST_LOG_ERROR || level > log_level) {
		errno = saved;
		return;
	}

	errno = saved; /* for %m */
	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (n >= 0) {
		/* One line, whatever the names in it hold. */
		shown(safe, sizeof(safe), line);
		(void)pthread_rwlock_rdlock(&lock);
		/* Check again: the level may have changed together with the callback. */
		if (level <= log_level) {
			if (callback)
				callback(callback_arg, level, safe);
			else
				write_stderr(level, safe);
		}
		(void)pthread_rwlock_unlock(&lock);
	}
	errno = saved;
}

void log_set(pst_log_fn fn, void *arg, int level)
{
	int saved = errno;

	if (fork_is_child())
		return;
	(void)pthread_once(&env_once, log_read_env);
	(void)pthread_rwlock_wrlock(&lock);
	callback = fn;
	callback_arg = arg;
	log_level = fn ? MIN(level, PST_LOG_DEBUG) : env_level;
	(void)pthread_rwlock_unlock(&lock);
	errno = saved;
}
