/* SPDX-License-Identifier: MIT */
/* Run a case or a part of one in a child process; this process takes over its failure or skip. */
#ifndef PST_TESTS_CHILD_H
#define PST_TESTS_CHILD_H

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "t.h"

struct child {
	pid_t pid;
	int from; /* pipe with the child's t_why */
};

/* Start a child that runs fn and exits. */
static inline struct child child_start(void (*fn)(void))
{
	struct child c;
	int out[2], how;

	(void)fflush(stdout);
	T_EQ(pipe2(out, O_CLOEXEC), 0);
	c.pid = fork();
	if (c.pid == 0) {
		/* Kill the child if this test ends first. */
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		how = setjmp(t_jump);
		if (!how)
			fn();
		else
			(void)!write(out[1], t_why, strlen(t_why));
		_exit(how);
	}
	(void)close(out[1]);
	c.from = out[0];
	T_CHECK(c.pid > 0);
	return c;
}

/* Take over the result of a child that ended with this wait status. */
static inline void child_ended(struct child *c, int status)
{
	char text[sizeof(t_why)] = "";
	ssize_t n = read(c->from, text, sizeof(text) - 1);

	(void)n;
	(void)close(c->from);
	if (WIFEXITED(status) && WEXITSTATUS(status) == T_JUMP_SKIP)
		T_SKIP("%s", text);
	if (status)
		T_FAIL("%.400s (status 0x%x)", text, (unsigned)status);
}

static inline void child_run(void (*fn)(void))
{
	struct child c = child_start(fn);
	int status = -1;

	T_EQ(waitpid(c.pid, &status, 0), c.pid);
	child_ended(&c, status);
}

#endif
