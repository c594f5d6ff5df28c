/* SPDX-License-Identifier: MIT */
#include <signal.h>

#include "base/err.h"
#include "base/thread.h"

int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(ret, NULL, fn, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		return err_set(EAGAIN,
			       "no thread could be started: %s; raise RLIMIT_NPROC (ulimit -u) or "
			       "the container's pids limit",
			       err_name(r));
	return 0;
}
