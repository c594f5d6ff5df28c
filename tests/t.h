/* SPDX-License-Identifier: MIT */
/*
 * The test harness: cases that print TAP, checks that work in release builds, and a count of
 * open descriptors at the end, which fails a leaking test.
 *
 *	static void reads_past_the_end(void)
 *	{
 *		T_EQ(pst_queue_reap(q, &d, 1, 1, soon()), 1);
 *		T_CHECK(d.res == 0);
 *	}
 *	int main(void)
 *	{
 *		T_RUN(reads_past_the_end);
 *		return t_done();
 *	}
 *
 * A failed check is printed and ends the case; a case that needs something missing calls
 * T_SKIP("what is missing").  The exit status is 1 if a case failed, else 0.
 *
 * PST_TEST_CASE, a comma-separated list of names, selects cases: ./dev test NAME -- CASE...
 * PST_TEST_SKIP is a file with a line "PROGRAM CASE: REASON" for each case to skip; CASE *
 * stands for all cases of a program.
 */
#ifndef PST_T_H
#define PST_T_H

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bytes.h"

static jmp_buf t_jump;
static int t_cases, t_failed;
static const char *t_only, *t_skips; /* PST_TEST_CASE, PST_TEST_SKIP */

enum { T_JUMP_FAIL = 1, T_JUMP_SKIP };
static char t_why[512];

#define T_FAIL(...)                                                                     \
	do {                                                                            \
		int _n = snprintf(t_why, sizeof(t_why), "%s:%d: ", __FILE__, __LINE__); \
		(void)snprintf(t_why + _n, sizeof(t_why) - (size_t)_n, __VA_ARGS__);    \
		longjmp(t_jump, T_JUMP_FAIL);                                           \
	} while (0)
#define T_SKIP(...)                                                \
	do {                                                       \
		(void)snprintf(t_why, sizeof(t_why), __VA_ARGS__); \
		longjmp(t_jump, T_JUMP_SKIP);                      \
	} while (0)
#define T_CHECK(cond)                        \
	do {                                 \
		if (!(cond))                 \
			T_FAIL("%s", #cond); \
	} while (0)
/* Compare integers of any type. */
#define T_EQ(a, b)                                                           \
	do {                                                                 \
		long long _a = (long long)(a), _b = (long long)(b);          \
		if (_a != _b)                                                \
			T_FAIL("%s is %lld, not %s = %lld", #a, _a, #b, _b); \
	} while (0)
/* Check that a result is 0; otherwise print the library's error text. */
#define T_OK(call)                                                           \
	do {                                                                 \
		int _r = (call);                                             \
		if (_r != 0)                                                 \
			T_FAIL("%s gave %d: %s", #call, _r, T_ERROR_TEXT()); \
	} while (0)
#ifndef T_ERROR_TEXT
#define T_ERROR_TEXT() ""
#endif

/* Run a case: a function without arguments that frees what it allocated if it succeeds. */
#define T_RUN(fn) t_run(#fn, fn)

/* Return true if PST_TEST_CASE lists the name or its first words, as "reads" for "reads uring
 * host". */
static inline bool t_wanted(const char *name)
{
	const char *at = t_only;
	size_t len;

	if (!at || !*at)
		return true;
	for (;; at += len + 1) {
		len = strcspn(at, ",");
		if (len && !strncmp(at, name, len) && (!name[len] || name[len] == ' '))
			return true;
		if (!at[len])
			return false;
	}
}

/* Return true if PST_TEST_SKIP lists the case, and put the reason into t_why. */
static inline bool t_left_out(const char *name)
{
	FILE *f = t_skips ? fopen(t_skips, "re") : NULL;
	bool found = false;
	char line[400];

	while (f && !found && fgets(line, sizeof(line), f)) {
		char *which = strchr(line, ' '), *why = strstr(line, ": ");
		size_t len;

		if (line[0] == '#' || !which || !why || why < which)
			continue;
		*which++ = *why = '\0';
		len = strlen(which);
		found = !strcmp(line, program_invocation_short_name) &&
			(!strcmp(which, "*") ||
			 (!strncmp(which, name, len) && (!name[len] || name[len] == ' ')));
		if (found)
			(void)snprintf(t_why, sizeof(t_why), "%.*s", (int)strcspn(why + 2, "\n"),
				       why + 2);
	}
	if (f)
		(void)fclose(f);
	return found;
}

static inline void t_run(const char *name, void (*fn)(void))
{
	int how;

	if (!t_wanted(name))
		return;
	how = t_left_out(name) ? T_JUMP_SKIP : setjmp(t_jump);
	if (!how) {
		fn();
		printf("ok %d %s\n", ++t_cases, name);
	} else if (how == T_JUMP_SKIP) {
		printf("ok %d %s # SKIP %s\n", ++t_cases, name, t_why);
	} else {
		printf("not ok %d %s\n# %s\n", ++t_cases, name, t_why);
		t_failed++;
	}
	(void)fflush(stdout);
}

static inline unsigned t_count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

/* Print the open descriptors, to find the leaked one. */
static inline void t_show_fds(void)
{
	for (int fd = 0; fd < 100; fd++) {
		char link[64], name[256];
		ssize_t n;

		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, name, sizeof(name) - 1);
		if (n > 0)
			printf("# %d is %.*s\n", fd, (int)n, name);
	}
}

/* Descriptors open before main(); t_done() compares. */
static unsigned t_fds_at_start;

__attribute__((constructor)) static void t_start(void)
{
	t_fds_at_start = t_count_fds();
	t_only = getenv("PST_TEST_CASE");
	t_skips = getenv("PST_TEST_SKIP");
}

static inline uint64_t t_now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/*
 * Return a user id of no other process: the kernel sums up locked memory per user, and tests run
 * in parallel.
 */
static inline uid_t t_stranger(void)
{
	return 1000000 + (uid_t)getpid();
}

/* Longest wait for a condition, ns.  Only a hang takes longer, however busy the machine is. */
#define T_HANG_NS UINT64_C(60000000000)

/* Return the CPU time of this thread, ns; other load on the machine does not count. */
static inline uint64_t t_cpu(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Return the deadline @ms milliseconds from now. */
static inline uint64_t t_in_ms(uint64_t ms)
{
	return t_now() + ms * 1000000u;
}

static inline uint64_t t_hang(void)
{
	return t_now() + T_HANG_NS;
}

/*
 * Wait until at most @most descriptors are open, and return their number.  The library keeps a
 * queue for blocking calls for some time, and its background work holds descriptors for a
 * moment.
 */
static inline unsigned t_fds_left(unsigned most)
{
	uint64_t end = t_hang();
	unsigned fds = t_count_fds();

	while (fds > most && t_now() < end) {
		(void)usleep(1000);
		fds = t_count_fds();
	}
	return fds;
}

static inline int t_done(void)
{
	unsigned fds;

	if (t_only && !t_cases) {
		printf("1..0 # SKIP a case called %s\n", t_only);
		return 0;
	}
	if (!t_failed && t_left_out("no_descriptor_leaks")) {
		printf("ok %d no_descriptor_leaks # SKIP %s\n", ++t_cases, t_why);
	} else if (!t_failed) { /* a failed case leaves by longjmp() and may leak */
		bool same;

		fds = t_fds_left(t_fds_at_start);
		same = fds <= t_fds_at_start;
		printf("%s %d no_descriptor_leaks\n", same ? "ok" : "not ok", ++t_cases);
		if (!same) {
			printf("# %u descriptors at start, %u at end\n", t_fds_at_start, fds);
			t_show_fds();
			t_failed++;
		}
	}
	printf("1..%d\n", t_cases);
	return t_failed ? 1 : 0;
}

#endif
