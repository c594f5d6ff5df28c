/* SPDX-License-Identifier: MIT */
/*
 * Cases that need PST_FAULT.  The library reads it when it is loaded, so each case runs in a new
 * process: this program, started again.  The child's TAP lines are renumbered and printed.
 *
 *	static const struct again cases[] = {
 *		{ "slow_writes", slow_writes, AGAIN_RUN, "file.write:0:50ms" },
 *	};
 *	int main(int argc, char **argv)
 *	{
 *		rig_init();
 *		if (argc > 1)
 *			return again_child(cases, RIG_NR(cases), argv[1]);
 *		again_all(cases, RIG_NR(cases));
 *		return rig_done();
 *	}
 */
#ifndef PST_AGAIN_H
#define PST_AGAIN_H

#include <sys/wait.h>

#include "rig.h"

/* How a case runs: by rig_run() with all kinds of memory, by rig_run() with host memory, or by
 * rig_run1(). */
enum again_how { AGAIN_RUN, AGAIN_BACKENDS, AGAIN_ONCE };

struct again {
	const char *name;
	void (*fn)(void);
	enum again_how how;
	const char *fault; /* value of PST_FAULT */
};

static inline int again_child(const struct again *cases, size_t nr, const char *name)
{
	for (size_t i = 0; i < nr; i++) {
		if (strcmp(cases[i].name, name) != 0)
			continue;
		if (cases[i].how == AGAIN_ONCE)
			rig_run1(name, cases[i].fn);
		else
			rig_run(name, cases[i].fn,
				cases[i].how == AGAIN_RUN ? RIG_HOST | RIG_SOFT : RIG_HOST);
	}
	return rig_done();
}

/* Renumber and print one line of the child's TAP. */
static inline void again_line(const char *line)
{
	bool bad = strncmp(line, "not ok ", 7) == 0;
	int at = 0;

	if (!bad && strncmp(line, "ok ", 3) != 0) {
		if (strncmp(line, "1..", 3) != 0)
			printf("%s", line);
		return;
	}
	(void)sscanf(line + (bad ? 7 : 3), "%*d%n", &at);
	printf("%s %d%s", bad ? "not ok" : "ok", ++t_cases, line + (bad ? 7 : 3) + at);
	t_failed += bad;
}

static inline void again(const struct again *c)
{
	int out[2], status = -1, before = t_failed;
	char line[800];
	FILE *from;
	pid_t pid;

	(void)fflush(stdout);
	if (pipe2(out, O_CLOEXEC) < 0)
		exit(1);
	pid = fork();
	if (pid == 0) {
		(void)dup2(out[1], STDOUT_FILENO);
		(void)setenv("PST_FAULT", c->fault, 1);
		(void)execl("/proc/self/exe", "again", c->name, (char *)NULL);
		_exit(127);
	}
	(void)close(out[1]);
	from = fdopen(out[0], "r");
	while (from && fgets(line, sizeof(line), from))
		again_line(line);
	if (from)
		(void)fclose(from);
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	if (status && t_failed == before) {
		printf("not ok %d %s\n# its process ended with status 0x%x\n", ++t_cases, c->name,
		       (unsigned)status);
		t_failed++;
	}
	(void)fflush(stdout);
}

static inline void again_all(const struct again *cases, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		again(&cases[i]);
}

#endif
