/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of the software device.
 */
#ifndef PST_TEST_SOFT_RIG_H
#define PST_TEST_SOFT_RIG_H
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fault.h"
#include "mem/mem.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

static inline struct mem_alloc *alloc(uint64_t len)
{
	struct mem_alloc *a = NULL;

	T_OK(mem_alloc(mem_provider(PST_KIND_SOFT), 0, len, 0, &a));
	return a;
}

static inline struct mem_stream *stream(void)
{
	struct mem_stream *st = NULL;

	T_OK(mem_stream_new(mem_provider(PST_KIND_SOFT), 0, &st));
	return st;
}

static inline int wait_done(struct mem_stream *st, uint64_t ticket)
{
	uint64_t until = t_hang();
	int r;

	while (!(r = mem_poll(st, ticket)))
		T_CHECK(t_now() < until);
	return r;
}

#endif
