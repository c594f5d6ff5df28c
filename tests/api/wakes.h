/* SPDX-License-Identifier: MIT */
/*
 * Times that workers are woken, counted in a test that includes this: who wakes one writes its
 * eventfd.
 */
#ifndef PST_TEST_WAKES_H
#define PST_TEST_WAKES_H

#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "symbol.h"
#include "t.h"

/* By another worker of a CUDA device, by the test's own thread, and by the clock: the most of these
 * within a millisecond. */
static atomic_uint wakes, wakes_here, wakes_at_once;

static void wake_by_clock(void)
{
	static uint64_t since;
	static unsigned nr;
	uint64_t now = t_now();

	nr = now - since < 1000000 ? nr + 1 : 1;
	since = nr == 1 ? now : since;
	if (nr > atomic_load(&wakes_at_once))
		atomic_store(&wakes_at_once, nr);
}

/* Seen by the library, which else would have libc's. */
__attribute__((visibility("default"))) int eventfd_write(int fd, eventfd_t value)
{
	int (*real)(int, eventfd_t);
	char name[16] = "";

	symbol(RTLD_NEXT, &real, "eventfd_write");
	(void)prctl(PR_GET_NAME, name, 0, 0, 0);
	if (strncmp(name, "pst-cuda", 8) == 0)
		atomic_fetch_add(&wakes, 1);
	else if (strcmp(name, "pst-clock") == 0)
		wake_by_clock();
	else if (gettid() == getpid())
		atomic_fetch_add(&wakes_here, 1);
	return real(fd, value);
}

#endif
