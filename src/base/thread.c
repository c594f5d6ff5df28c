/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/err.h"
#include "base/thread.h"

/*
 * Keep the library loaded, because its threads run in it.  The shared library is linked with -z
 * nodelete.  The static library may be part of a plug-in, which this call makes permanent.  This
 * function is a constructor, so that the loader's lock is never awaited under a lock of the
 * library.
 */
__attribute__((constructor)) static void stay_loaded(void)
{
	struct link_map *map = NULL;
	Dl_info info;

	if (dladdr1((void *)(uintptr_t)&thread_start, &info, (void **)&map, RTLD_DL_LINKMAP) &&
	    map && map->l_name && *map->l_name)
		(void)dlopen(map->l_name, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

/* Return text that names RLIMIT_AS if it is set: pthread_create() returns the same errno for a
 * stack that does not fit as for too many threads. */
static const char *space_cure(void)
{
	struct rlimit rl;

	return getrlimit(RLIMIT_AS, &rl) == 0 && rl.rlim_cur != RLIM_INFINITY
		       ? "RLIMIT_AS (ulimit -v), "
		       : "";
}

int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(ret, NULL, fn, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		return err_set(
			EAGAIN,
			"no thread could be started: %s; raise %sRLIMIT_NPROC (ulimit -u) or "
			"the container's pids limit",
			err_name(r), space_cure());
	return 0;
}
