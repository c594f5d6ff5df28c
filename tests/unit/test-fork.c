/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fork.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

/* Return the result of fork_guard() in a child, or in a child of it. */
static int in_child(int generations)
{
	pid_t pid = fork();
	int status, r;

	if (!pid) {
		r = generations > 1 ? in_child(generations - 1) : -fork_guard();
		_exit(r);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_child_before_the_first_use_is_free(void)
{
	T_CHECK(!fork_page);
	T_EQ(in_child(1), 0);
	T_CHECK(!fork_page);
}

static void *guard_in_thread(void *arg)
{
	*(int *)arg = fork_guard();
	return NULL;
}

static void many_threads_make_one_page(void)
{
	pthread_t t[4];
	int r[4];

	for (int i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, guard_in_thread, &r[i]), 0);
	for (int i = 0; i < 4; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	for (int i = 0; i < 4; i++)
		T_EQ(r[i], 0);
	T_CHECK(fork_page);
}

static void the_owner_goes_on(void)
{
	const unsigned *page = fork_page;

	errno = 7;
	for (int i = 0; i < 3; i++)
		T_OK(fork_guard());
	T_EQ(errno, 7);
	T_CHECK(fork_page == page);
}

static void children_are_told(void)
{
	T_EQ(in_child(1), EOWNERDEAD);
	T_EQ(in_child(2), EOWNERDEAD);
	T_OK(fork_guard());
}

int main(void)
{
	T_RUN(a_child_before_the_first_use_is_free);
	T_RUN(many_threads_make_one_page);
	T_RUN(the_owner_goes_on);
	T_RUN(children_are_told);
	return t_done();
}
