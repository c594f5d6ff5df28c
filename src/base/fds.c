/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/work.h"

/* Descriptors to make room for: those of drivers, and about ten for each worker of an engine. */
#define ROOM 512u

static struct work work;

/*
 * Open a descriptor with the last number of the room, and close it.  The descriptor must not be a
 * duplicate of one of the program's: closing a duplicate would release the process' record locks on
 * its file, and flush the file on a network file system.  A child forked before the close would
 * keep the file open.
 */
static void base_fds_grow(struct work *w)
{
	struct rlimit rl;
	int fd, last;

	(void)w;
	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur < ROOM)
		return;
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return;
	last = fcntl(fd, F_DUPFD_CLOEXEC, (int)ROOM - 1);
	if (last >= 0)
		(void)close(last);
	(void)close(fd);
}

static void fds_start(void)
{
	if (__libc_single_threaded) {
		base_fds_grow(NULL);
		return;
	}
	work_init(&work, base_fds_grow);
	(void)work_spawn(&work, "pst-fds", false);
}

void fds_grow(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, fds_start);
}
