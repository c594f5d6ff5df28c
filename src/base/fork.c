/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/fork.h"
#include "base/log.h"

const unsigned *_Atomic fork_page;

static void wipe_in_child(void)
{
	unsigned *page = (unsigned *)(uintptr_t)fork_page;

	if (page)
		*page = 0;
}

/*
 * Create the page without a lock, because a fork() in another thread could leave a lock taken in
 * the child.  Each thread that comes here creates a page, and one of the pages is kept.
 */
static int make_page(void)
{
	const unsigned *none = NULL;
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	int err = 0;
	unsigned *page;

	page = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return err_set(ENOMEM, "cannot map one page: %m");
	*page = 1;
	if (madvise(page, len, MADV_WIPEONFORK) < 0) {
		/* Some sandboxes refuse MADV_WIPEONFORK.  Use a fork handler there: it notices
		 * every fork(), but not a plain clone(2).  Registering the handler twice does no
		 * harm. */
		err = errno;
		if (pthread_atfork(NULL, NULL, wipe_in_child) != 0) {
			(void)munmap(page, len);
			return err_set(ENOMEM, "cannot register a handler for fork()");
		}
	}
	if (!atomic_compare_exchange_strong(&fork_page, &none, page))
		(void)munmap(page, len);
	/* Log last: without the page, log.c delivers no line. */
	if (err)
		log_debug("no MADV_WIPEONFORK (%s), watching fork() by a handler", strerror(err));
	return 0;
}

int fork_guard_slow(void)
{
	int saved = errno;
	int r = 0;

	if (!fork_page)
		r = make_page();
	if (!r && !*fork_page)
		r = err_set(EOWNERDEAD, "this process is a fork of the one that used the library; "
					"use it in one of them only, or exec() first");
	errno = saved;
	return r;
}
