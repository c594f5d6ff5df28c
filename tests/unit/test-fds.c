/* SPDX-License-Identifier: MIT */
/* The process' descriptor table grows ahead of need, without leaving a descriptor open. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "base/fds.h"

#include "child.h"

#define ROOM 512u
#define PATIENCE 10000 /* ms; longest wait for the background */

/* Return the size of the descriptor table. */
static unsigned places(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	unsigned n = 0;

	T_CHECK(f);
	while (fgets(line, sizeof(line), f) && sscanf(line, "FDSize: %u", &n) != 1)
		;
	(void)fclose(f);
	T_CHECK(n > 0);
	return n;
}

static void nap(void)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void enough_allowed(void)
{
	struct rlimit rl;

	T_EQ(getrlimit(RLIMIT_NOFILE, &rl), 0);
	if (rl.rlim_cur < ROOM)
		T_SKIP("%u descriptors (ulimit -n)", ROOM);
}

/* If the process has other threads (a sanitizer's, for example), the table grows in the
 * background. */
static void grows(void)
{
	unsigned before = t_count_fds();

	fds_grow();
	for (int i = 0; i < PATIENCE && (places() < ROOM || t_count_fds() != before); i++)
		nap();
	T_CHECK(places() >= ROOM);
	T_EQ(t_count_fds(), before);
}

static void alone(void)
{
	enough_allowed();
	T_CHECK(places() < ROOM);
	grows();
}

static void *idle(void *arg)
{
	(void)arg;
	nap();
	return NULL;
}

static void beside_threads(void)
{
	pthread_t t;

	enough_allowed();
	T_EQ(pthread_create(&t, NULL, idle, NULL), 0);
	grows();
	T_EQ(pthread_join(t, NULL), 0);
}

static void within_the_limit(void)
{
	T_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 256, 256 }), 0);
	fds_grow();
	T_CHECK(places() < ROOM);
}

static void without_a_file_to_take(void)
{
	enough_allowed();
	for (int fd = 0; fd < 3; fd++)
		(void)close(fd);
	grows();
}

/* Growing must not close a descriptor of a locked file: that would end the process' record locks
 * on it (fcntl(2)). */
static void beside_a_lock(void)
{
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct flock seen = all;
	int fd = memfd_create("locked", MFD_CLOEXEC), status = -1;
	pid_t pid;

	enough_allowed();
	T_CHECK(fd >= 0);
	for (int to = 0; to < 3; to++)
		T_EQ(dup2(fd, to), to);
	T_EQ(fcntl(fd, F_SETLK, &all), 0);
	grows();
	pid = fork();
	if (pid == 0)
		_exit(fcntl(fd, F_GETLK, &seen) < 0 || seen.l_type == F_UNLCK);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
}

static void without_threads(void)
{
	child_run(alone);
}

static void with_threads(void)
{
	child_run(beside_threads);
}

static void under_a_low_limit(void)
{
	child_run(within_the_limit);
}

static void without_standard_files(void)
{
	child_run(without_a_file_to_take);
}

static void with_locked_standard_files(void)
{
	child_run(beside_a_lock);
}

int main(void)
{
	T_RUN(without_threads);
	T_RUN(with_threads);
	T_RUN(under_a_low_limit);
	T_RUN(without_standard_files);
	T_RUN(with_locked_standard_files);
	return t_done();
}
