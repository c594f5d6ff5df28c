/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <sys/wait.h>

#include "base/log.h"

#include "t.h"

static const char *self;

static char last[2048];
static int last_level, nr_lines;

static void keep(void *arg, int level, const char *line)
{
	T_CHECK(arg == last);
	(void)snprintf(last, sizeof(last), "%s", line);
	last_level = level;
	nr_lines++;
	errno = 99;
}

/* Run this program again.  It logs one line of each level to standard error. */
static int run_with(const char *level, char *out, size_t len)
{
	ssize_t n, got = 0;
	int fds[2], status;
	pid_t pid;

	if (pipe(fds) < 0 || (pid = fork()) < 0)
		return -1;
	if (!pid) {
		if (level)
			(void)setenv("PST_LOG", level, 1);
		else
			(void)unsetenv("PST_LOG");
		(void)dup2(fds[1], STDERR_FILENO);
		(void)close(fds[0]);
		(void)close(fds[1]);
		(void)execl(self, self, "child", (char *)NULL);
		_exit(99);
	}
	(void)close(fds[1]);
	while ((n = read(fds[0], out + got, len - 1 - (size_t)got)) > 0)
		got += n;
	out[got] = '\0';
	(void)close(fds[0]);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void environment(void)
{
	char out[1024];

	T_EQ(run_with(NULL, out, sizeof(out)), 0);
	T_CHECK(!strcmp(out, ""));
	T_EQ(run_with("", out, sizeof(out)), 0);
	T_CHECK(!strcmp(out, ""));
	T_EQ(run_with("error", out, sizeof(out)), PST_LOG_ERROR);
	T_CHECK(!strcmp(out, "penstock: error: line 3 of its kind\n"));
	T_EQ(run_with("info", out, sizeof(out)), PST_LOG_INFO);
	T_CHECK(!strcmp(out, "penstock: info: line 1 of its kind\n"
			     "penstock: warn: line 2 of its kind\n"
			     "penstock: error: line 3 of its kind\n"));
	T_EQ(run_with("debug", out, sizeof(out)), PST_LOG_DEBUG);
	T_CHECK(!strncmp(out, "penstock: debug: line 0", 23));
	T_EQ(run_with("loud", out, sizeof(out)), PST_LOG_WARN);
	T_CHECK(strstr(out, "PST_LOG is none of"));
}

static void callback_gets_lines(void)
{
	log_set(keep, last, PST_LOG_INFO);
	T_EQ(log_level, PST_LOG_INFO);
	nr_lines = 0;
	errno = ENOENT;
	log_info("cannot open %s: %m", "x");
	T_EQ(errno, ENOENT);
	T_CHECK(!strcmp(last, "cannot open x: No such file or directory"));
	T_EQ(last_level, PST_LOG_INFO);
	log_debug("nobody hears this");
	T_EQ(nr_lines, 1);
	log_error("but this");
	T_EQ(nr_lines, 2);
	T_EQ(last_level, PST_LOG_ERROR);
	log_set(NULL, NULL, 0);
}

static void long_lines_are_cut(void)
{
	char big[4000];

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	log_set(keep, last, PST_LOG_DEBUG);
	log_debug("%s", big);
	T_EQ(strlen(last), 1023);
	log_set(NULL, NULL, 0);
}

static void names_stay_in_their_line(void)
{
	log_set(keep, last, PST_LOG_DEBUG);
	log_debug("open %s", "a\n\033[31mb\x9b\xff");
	T_CHECK(!strcmp(last, "open a\\012\\033[31mb\\233\\377"));
	log_set(NULL, NULL, 0);
}

static void levels_out_of_range(void)
{
	log_set(keep, last, 77);
	T_EQ(log_level, PST_LOG_DEBUG);
	log_set(keep, last, -5);
	nr_lines = 0;
	log_error("nobody");
	T_EQ(nr_lines, 0);
	log_set(NULL, NULL, 0);
}

struct sink {
	_Atomic bool alive;
	_Atomic unsigned late;
};

static void to_sink(void *arg, int level, const char *line)
{
	struct sink *s = arg;

	(void)level;
	(void)line;
	if (!s->alive)
		s->late++;
}

static void *talk(void *arg)
{
	_Atomic bool *stop = arg;

	while (!*stop)
		log_info("a line");
	return NULL;
}

/* After log_set() has returned, the earlier callback is not called any more. */
static void changes_under_fire(void)
{
	struct sink sinks[2] = { 0 };
	_Atomic bool stop = false;
	pthread_t t[3];

	for (int i = 0; i < 3; i++)
		T_EQ(pthread_create(&t[i], NULL, talk, (void *)&stop), 0);
	for (int i = 0; i < 200; i++) {
		struct sink *s = &sinks[i & 1];

		s->alive = true;
		log_set(to_sink, s, PST_LOG_INFO);
		sinks[!(i & 1)].alive = false;
	}
	log_set(NULL, NULL, 0);
	stop = true;
	for (int i = 0; i < 3; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(sinks[0].late + sinks[1].late, 0);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		log_debug("line %d of its kind", 0);
		log_info("line %d of its kind", 1);
		log_warn("line %d of its kind", 2);
		log_error("line %d of its kind", 3);
		return log_level;
	}
	self = argv[0];
	(void)unsetenv("PST_LOG");
	T_RUN(environment);
	T_RUN(callback_gets_lines);
	T_RUN(long_lines_are_cut);
	T_RUN(names_stay_in_their_line);
	T_RUN(levels_out_of_range);
	T_RUN(changes_under_fire);
	return t_done();
}
