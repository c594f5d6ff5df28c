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
 * The initial level is the most detailed one, so that the first line of any level reaches
 * log_line(), which reads PST_LOG and sets the real level.
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
 * Read-locked while a line is delivered, so that log_set() waits for lines in flight.  If another
 * thread forks at that time, the lock stays taken in the child.  So children that must not use the
 * library do not take the lock.  In other children the lock is free, because the library was not in
 * use before the fork.
 */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pst_log_fn callback;
static void *callback_arg;

/* Write a line by one write(2), so that lines of several threads do not mix. */
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
	NO_CANCEL(); /* write(2) is a cancellation point, and the lock is held */
	(void)pthread_once(&env_once, log_read_env);
	if (level < PST_LOG_ERROR || level > log_level) {
		errno = saved;
		return;
	}

	errno = saved; /* the format may contain %m */
	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (n >= 0) {
		/* Escape newlines and control characters of names. */
		shown(safe, sizeof(safe), line);
		(void)pthread_rwlock_rdlock(&lock);
		/* Check again: log_set() may have changed level and callback. */
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
