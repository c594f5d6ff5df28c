/* SPDX-License-Identifier: MIT */
/*
 * Run a case, or a part of one, in a process of its own; its failure or skip becomes that of this
 * process.
 */
#ifndef PST_TESTS_CHILD_H
#define PST_TESTS_CHILD_H

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "t.h"

struct child {
	pid_t pid;
	int from; /* what the child says before it ends */
};

/* It runs fn and ends. */
static inline struct child child_start(void (*fn)(void))
{
	struct child c;
	int out[2], how;

	(void)fflush(stdout);
	T_EQ(pipe2(out, O_CLOEXEC), 0);
	c.pid = fork();
	if (c.pid == 0) {
		/* A test that failed or was killed leaves no child that runs on. */
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

/* It has ended with that status. */
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
