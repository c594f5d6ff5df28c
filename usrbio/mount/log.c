/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/shown.h"

#define LINE_LEN 1600

static const char *const names[] = { "off", "error", "warn", "info", "debug" };

/* syslog(3) priorities: LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG. */
static const int priorities[] = { 3, 3, 4, 6, 7 };

static struct {
	enum log_level level;
	bool journal, socket;
	_Atomic uint64_t suppressed;
} my = { .level = LOG_WARN };

/* Return true if standard error is the journal.  JOURNAL_STREAM has device and inode of the
 * journal's stream, but another process may have inherited the variable. */
static bool find_journal(void)
{
	const char *env = secure_getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;
	char end;

	return env && sscanf(env, "%llu:%llu%c", &dev, &ino, &end) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

static bool is_socket(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

void log_init(void)
{
	const char *env = secure_getenv("PST_LOG");

	my.journal = find_journal();
	my.socket = is_socket(STDERR_FILENO);
	if (!env || !*env)
		return;
	for (unsigned i = LOG_ERROR; i < ARRAY_SIZE(names); i++)
		if (!strcmp(env, names[i])) {
			my.level = (enum log_level)i;
			return;
		}
	log_warn("PST_LOG is none of error, warn, info, debug: taking warn", "value=%s",
		 log_text(env).s);
}

bool log_is_journal(void)
{
	return my.journal;
}

uint64_t log_suppressed(void)
{
	return atomic_load_explicit(&my.suppressed, memory_order_relaxed);
}

bool log_wants(enum log_level level)
{
	return level <= my.level;
}

struct log_text log_text(const char *text)
{
	char safe[sizeof(struct log_text) / 2 - 2];
	struct log_text ret;
	char *to = ret.s;

	shown(safe, sizeof(safe), text);
	*to++ = '"';
	for (const char *s = safe; *s; s++) {
		if (*s == '"' || *s == '\\')
			*to++ = '\\';
		*to++ = *s;
	}
	*to++ = '"';
	*to = '\0';
	return ret;
}

const char *log_errno(int err)
{
	const char *name = strerrorname_np(err < 0 ? -err : err);

	return name ? name : "unknown";
}

static void not_said(struct log_site *site)
{
	(void)atomic_fetch_add_explicit(&site->suppressed, 1, memory_order_relaxed);
	(void)atomic_fetch_add_explicit(&my.suppressed, 1, memory_order_relaxed);
}

/* Return true if the site may log another line.  Threads that begin a window at the same time
 * may log one line too many. */
static bool may_say(struct log_site *site)
{
	uint64_t now = now_ns();

	if (my.level == LOG_DEBUG)
		return true;
	if (now - atomic_load(&site->since) >= LOG_WINDOW_NS || !atomic_load(&site->since)) {
		atomic_store(&site->since, now);
		atomic_store(&site->nr, 0);
	}
	if (atomic_fetch_add(&site->nr, 1) < LOG_BURST)
		return true;
	(void)atomic_fetch_sub(&site->nr, 1);
	not_said(site);
	return false;
}

/* Write a line without blocking, because the reader of a socket, pipe or terminal may hang. */
static bool log_put(const char *line, size_t len)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	ssize_t n;

	if (my.socket)
		n = send(STDERR_FILENO, line, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		n = poll(&p, 1, 0) == 1 ? write(STDERR_FILENO, line, len) : -1;
	return n == (ssize_t)len;
}

void log_line(struct log_site *site, enum log_level level, const char *msg, const char *fmt, ...)
{
	char line[LINE_LEN], *at = line, *end = line + sizeof(line) - 1;
	unsigned suppressed;
	int saved = errno;
	va_list ap;

	if (!may_say(site)) {
		errno = saved;
		return;
	}
	if (my.journal)
		at += snprintf(at, (size_t)(end - at), "<%d>", priorities[level]);
	at += snprintf(at, (size_t)(end - at), "level=%s msg=\"%s\" ", names[level], msg);
	va_start(ap, fmt);
	at += vsnprintf(at, (size_t)(end - at), fmt, ap);
	va_end(ap);
	suppressed = atomic_exchange(&site->suppressed, 0);
	if (at < end && suppressed)
		at += snprintf(at, (size_t)(end - at), " suppressed=%u", suppressed);
	at = MIN(at, end - 1);
	*at++ = '\n';
	if (!log_put(line, (size_t)(at - line)))
		not_said(site);
	errno = saved;
}
