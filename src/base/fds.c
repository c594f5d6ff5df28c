/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/work.h"

/* A driver has some sixty, and each worker of an engine ten. */
#define ROOM 512u

static struct work work;

/* A descriptor at the end of the room, for a moment: of a file that is open already. */
static void grow(struct work *w)
{
	struct rlimit rl;
	int fd = -1;

	(void)w;
	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur < ROOM)
		return;
	for (int of = STDIN_FILENO; fd < 0 && of <= STDERR_FILENO; of++)
		fd = fcntl(of, F_DUPFD_CLOEXEC, (int)ROOM - 1);
	if (fd >= 0)
		(void)close(fd);
}

static void start(void)
{
	if (__libc_single_threaded) {
		grow(NULL);
		return;
	}
	work_init(&work, grow);
	(void)work_spawn(&work, "pst-fds", false);
}

void fds_grow(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, start);
}
