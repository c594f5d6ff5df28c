/* SPDX-License-Identifier: MIT */
#include "tools/common/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <penstock.h>

#include "base/nearest.h"
#include "tools/common/shown.h"

const char *cmd_name = "";
atomic_int stop_signal;

static _Thread_local char sentence[1024];

int fail(int err, const char *fmt, ...)
{
	char buf[sizeof(sentence)];
	va_list ap;

	/* Format into another buffer: an argument may be the old sentence. */
	va_start(ap, fmt);
	(void)vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	shown(sentence, sizeof(sentence), buf);
	return err < 0 ? err : -err;
}

int fail_pst(int err, const char *what)
{
	const char *text = pst_error_text();

	if (!*text)
		text = strerror(err < 0 ? -err : err);
	if (!what || strstr(text, what))
		return fail(err, "%s", text);
	return fail(err, "%s: %s", what, text);
}

const char *fail_text(void)
{
	return sentence;
}

void say(const char *fmt, ...)
{
	char text[4096], safe[2 * sizeof(text)];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)snprintf(safe, sizeof(safe), "penstock: %s%s", cmd_name, *cmd_name ? ": " : "");
	shown(safe + strlen(safe), sizeof(safe) - strlen(safe), text);
	/* Wrap only on a terminal: in a log, a message stays one line. */
	if (isatty(STDERR_FILENO))
		shown_wrapped(stderr, safe, 0, 2, shown_width(stderr));
	else
		(void)fprintf(stderr, "%s\n", safe);
}

int say_failure(int err, const char *what)
{
	(void)fail_pst(err, what);
	say("%s", fail_text());
	return 1;
}

int usage_error(const char *fmt, ...)
{
	char buf[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	say("%s", buf);
	(void)fprintf(stderr, "Try 'penstock help%s%s'.\n", *cmd_name ? " " : "", cmd_name);
	return 2;
}

/* Return the argument that has several short options in one, such as -json, or NULL. */
static const char *short_cluster(char *const argv[])
{
	const char *arg = argv[optind];

	return arg && arg[0] == '-' && arg[1] == optopt && arg[2] ? arg : NULL;
}

static int long_error(const char *given, const struct option longs[])
{
	int len = (int)strcspn(given, "="), name_len = len - 2;
	const char *first = NULL, *second = NULL, *meant;
	size_t nr = 0;

	for (; longs[nr].name; nr++) {
		if (strncmp(longs[nr].name, given + 2, (size_t)name_len) != 0)
			continue;
		second = first ? longs[nr].name : NULL;
		first = first ? first : longs[nr].name;
	}
	if (name_len && second)
		return usage_error("option %.*s is short for --%s and for --%s", len, given, first,
				   second);
	meant = nearest(given + 2, (size_t)name_len, &longs[0].name, sizeof(longs[0]), nr);
	if (meant)
		return usage_error("unknown option %.*s; did you mean --%s?", len, given, meant);
	return usage_error("unknown option %.*s", len, given);
}

int option_error(char *const argv[], const struct option longs[], int c)
{
	const char *given = argv[optind - 1], *cluster;

	if (c == ':')
		return usage_error("option %s needs a value", given);
	if (optopt && !strncmp(given, "--", 2) && strchr(given, '='))
		return usage_error("option %.*s takes no value", (int)strcspn(given, "="), given);
	if (!optopt)
		return long_error(given, longs);
	cluster = short_cluster(argv);
	for (size_t i = 0; cluster && longs[i].name; i++)
		if (!strcmp(longs[i].name, cluster + 1))
			return usage_error("unknown option %s; did you mean -%s?", cluster,
					   cluster);
	return usage_error("unknown option -%c", optopt);
}

int exit_status(int r)
{
	if (stop_signal)
		return 128 + stop_signal;
	if (r < 0) {
		say("%s", *sentence ? sentence : strerror(-r));
		return 1;
	}
	return r;
}

/* ---------------------------------------------------------------- signals */

static void on_signal(int sig)
{
	static uint64_t first_ns;
	uint64_t now = now_ns();

	if (!stop_signal) {
		stop_signal = sig;
		first_ns = now;
	} else if (now - first_ns > NSEC_PER_SEC) {
		/* A second signal ends the process, unless it comes within a second: timeout(1)
		 * sends each signal twice at once. */
		(void)signal(sig, SIG_DFL);
		(void)raise(sig);
	}
}

void signals_catch(void)
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = on_signal }, old;

	(void)sigemptyset(&sa.sa_mask);
	for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
		/* Keep signals ignored that nohup(1) or sh (for background jobs) ignores. */
		if (sigaction(sigs[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void)sigaction(sigs[i], &sa, NULL);
	}
}
