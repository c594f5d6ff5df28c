/* SPDX-License-Identifier: MIT */
/*
 * Count wake-ups of workers.  A thread wakes a worker by eventfd_write(), which this file replaces.
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

/* Numbers of wake-ups by workers of a CUDA device and by the test's main thread, and the largest
 * number by the clock thread within 1 ms. */
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

/* Replaces libc's function for the library. */
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
