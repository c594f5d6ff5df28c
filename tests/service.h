/* SPDX-License-Identifier: MIT */
/* A storage service that a test starts as a process: its start, its end and its metrics. */
#ifndef PST_TESTS_SERVICE_H
#define PST_TESTS_SERVICE_H

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "t.h"

/*
 * Start the command $PENSTOCK with these arguments, which include --metrics.  Return when the
 * service listens.
 * @said: what it has printed, with a terminating 0
 */
static inline pid_t service_start(const char *const *args, char *said, size_t size)
{
	size_t got = 0;
	pid_t pid;
	int out[2];

	T_CHECK(pipe2(out, O_CLOEXEC) == 0);
	pid = fork();
	T_CHECK(pid >= 0);
	if (pid == 0) {
		(void)dup2(out[1], STDERR_FILENO);
		(void)execv(getenv("PENSTOCK"), (char **)args);
		_exit(127);
	}
	(void)close(out[1]);
	for (*said = '\0'; !strstr(said, "numbers are at"); said[got] = '\0') {
		ssize_t n = read(out[0], said + got, size - 1 - got);

		T_CHECK(n > 0);
		got += (size_t)n;
	}
	/* The server must survive later output without a reader. */
	(void)close(out[0]);
	return pid;
}

/* End the service by a signal; SIGTERM must give status 0. */
static inline void service_end(pid_t pid, int sig)
{
	int status;

	T_CHECK(kill(pid, sig) == 0);
	T_EQ(waitpid(pid, &status, 0), pid);
	if (sig == SIGTERM)
		T_EQ(status, 0);
}

/* Return one of the service's metrics, from its socket of this path. */
static inline int64_t service_number(const char *path, const char *name)
{
	static const char ask[] = "GET /metrics HTTP/1.0\r\n\r\n";
	static char text[65536];
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const char *at;
	size_t got = 0;
	ssize_t n = 1;

	T_CHECK(strlen(path) < sizeof(un.sun_path));
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%.100s", path);
	T_CHECK(fd >= 0);
	T_CHECK(connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0);
	T_EQ(write(fd, ask, sizeof(ask) - 1), sizeof(ask) - 1);
	for (; n > 0 && got < sizeof(text) - 1; got += (size_t)n) {
		n = read(fd, text + got, sizeof(text) - 1 - got);
		T_CHECK(n >= 0);
	}
	text[got] = '\0';
	(void)close(fd);
	for (at = text; (at = strstr(at, name)); at++)
		if (at[-1] == '\n' && at[strlen(name)] == ' ')
			return atoll(at + strlen(name));
	T_FAIL("the server has no number %s", name);
	return -1;
}

#endif
