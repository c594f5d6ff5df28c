/* SPDX-License-Identifier: MIT */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"
#include "log.h"

static int most = LOG_WARN; /* the most detailed level that is printed */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Return the level that one of 3FS's words means.  The word for debug may have a digit: DBG,
 * DBG3. */
static int level_of(const char *word)
{
	static const struct {
		const char *word;
		int level;
	} words[] = {
		{ "OFF", 0 },
		{ "FATAL", LOG_ERROR },
		{ "CRITICAL", LOG_ERROR },
		{ "ERR", LOG_ERROR },
		{ "ERROR", LOG_ERROR },
		{ "WARN", LOG_WARN },
		{ "WARNING", LOG_WARN },
		{ "INFO", LOG_INFO },
		{ "DEBUG", LOG_DEBUG },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcasecmp(word, words[i].word))
			return words[i].level;
	if (!strncasecmp(word, "DBG", 3) &&
	    (!word[3] || (isdigit((unsigned char)word[3]) && !word[4])))
		return LOG_DEBUG;
	return -1;
}

static void log_read_environment(void)
{
	const char *word = secure_getenv("HF3FS_USRBIO_LIB_LOG");
	int level = word && *word ? level_of(word) : LOG_WARN;

	if (level >= 0)
		most = level;
	else
		(void)fprintf(stderr,
			      "usrbio WARN: HF3FS_USRBIO_LIB_LOG is '%s', which is none of OFF, "
			      "ERROR, WARN, INFO and DBG; WARN is taken\n",
			      word);
}

/* The rate limit of one message; its format identifies it. */
struct site {
	const char *fmt;
	uint64_t since; /* begin of the current window, ns */
	unsigned nr;    /* lines in the current window */
	unsigned suppressed;
};

#define SITES 64u
#define BURST 20u /* lines of one format per window; HF3FS_USRBIO_LIB_LOG=DBG has no limit */
#define WINDOW_NS (10 * NSEC_PER_SEC)

/*
 * Return true if the line may be printed.  Each format has a limit, because a program may retry
 * endlessly, or another process may write nonsense into its ring.  *ret_suppressed counts the lines
 * of this format that were dropped since the last printed one.
 */
static bool may_print(const char *fmt, unsigned *ret_suppressed)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct site sites[SITES];
	struct site *s = sites;
	uint64_t now = now_ns();
	bool ret;

	*ret_suppressed = 0;
	/* No limit if the lock is taken: a forked child may have inherited it locked. */
	if (most >= LOG_DEBUG || pthread_mutex_trylock(&lock) != 0)
		return true;
	while (s < sites + SITES - 1 && s->fmt && s->fmt != fmt)
		s++;
	if (s->fmt != fmt)
		*s = (struct site){ .fmt = fmt, .since = now };
	if (now - s->since > WINDOW_NS) {
		s->since = now;
		s->nr = 0;
	}
	ret = s->nr++ < BURST;
	if (ret)
		*ret_suppressed = s->suppressed;
	s->suppressed = ret ? 0 : s->suppressed + 1;
	(void)pthread_mutex_unlock(&lock);
	return ret;
}

static void log_print(enum log_level level, const char *fmt, va_list ap)
{
	static const char *const names[] = { "", "ERROR", "WARN", "INFO", "DBG" };
	int saved = errno;
	unsigned suppressed;
	char text[1024];
	size_t len;

	if (!may_print(fmt, &suppressed))
		return;
	errno = saved;
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	len = strlen(text);
	if (suppressed)
		(void)snprintf(text + len, sizeof(text) - len, " (%u such lines were suppressed)",
			       suppressed);
	/* Print by one call, so that lines of several threads do not mix. */
	(void)fprintf(stderr, "usrbio %s: %s\n", names[level], text);
}

static int log_wanted(enum log_level level)
{
	(void)pthread_once(&once, log_read_environment);
	return (int)level <= most;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	if (log_wanted(level)) {
		errno = saved;
		va_start(ap, fmt);
		log_print(level, fmt, ap);
		va_end(ap);
	}
	errno = saved;
}

int log_fail(int err, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	if (log_wanted(LOG_WARN)) {
		errno = saved;
		va_start(ap, fmt);
		log_print(LOG_WARN, fmt, ap);
		va_end(ap);
	}
	errno = saved;
	return err > 0 ? -err : err;
}
