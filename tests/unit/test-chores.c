/* SPDX-License-Identifier: MIT */
/*
 * The thread for chores: order, a chore that asks for itself, one that is ended while it
 * waits or runs, no thread to be had.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/err.h"
#include "base/chores.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

static atomic_bool no_threads;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	return no_threads ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}

static struct chore a, b, c, gate;
static atomic_bool opened, at_gate;
static char order[32];
static _Atomic unsigned nr_ran; /* letters in order */

static void ran(char letter)
{
	if (nr_ran < sizeof(order))
		order[nr_ran] = letter;
	nr_ran++;
}

static void run_a(struct chore *x)
{
	(void)x;
	ran('a');
}

static void run_b(struct chore *x)
{
	ran('b');
	if (nr_ran < 6) /* three times in all */
		(void)chore_ask(x, CHORE_LAST);
}

static void run_c(struct chore *x)
{
	(void)x;
	ran('c');
}

/* Holds the thread until it is opened. */
static void run_gate(struct chore *x)
{
	(void)x;
	at_gate = true;
	while (!opened)
		(void)usleep(100);
}

static void begin(void)
{
	memset(order, 0, sizeof(order));
	nr_ran = 0;
	opened = at_gate = false;
	chore_init(&a, run_a);
	chore_init(&b, run_b);
	chore_init(&c, run_c);
	chore_init(&gate, run_gate);
	T_OK(chore_ask(&gate, CHORE_FIRST));
	while (!at_gate)
		(void)usleep(100);
}

static void wait_for(unsigned nr)
{
	uint64_t end = t_hang();

	while (nr_ran < nr && t_now() < end)
		(void)usleep(100);
	T_EQ(nr_ran, nr);
}

static void first_before_last(void)
{
	begin();
	T_OK(chore_ask(&b, CHORE_LAST));
	T_OK(chore_ask(&c, CHORE_FIRST));
	T_OK(chore_ask(&a, CHORE_LAST));
	T_OK(chore_ask(&a, CHORE_LAST)); /* counts once */
	opened = true;
	/* b asks for itself while it runs, and has its turn behind a; the rest is b alone. */
	wait_for(6);
	T_CHECK(!strcmp(order, "cbabbb"));
	chore_end(&a);
	chore_end(&b);
	chore_end(&c);
	chore_end(&gate);
}

static void ended_while_it_waits(void)
{
	begin();
	T_OK(chore_ask(&a, CHORE_LAST));
	T_OK(chore_ask(&c, CHORE_LAST));
	chore_end(&a);
	opened = true;
	wait_for(1);
	T_CHECK(!strcmp(order, "c"));
	chore_end(&c);
	chore_end(&gate);
}

static void *open_later(void *arg)
{
	(void)arg;
	(void)usleep(20000);
	opened = true;
	return NULL;
}

static void ended_while_it_runs(void)
{
	pthread_t t;

	begin();
	T_EQ(__real_pthread_create(&t, NULL, open_later, NULL), 0);
	chore_end(&gate);
	T_CHECK(opened); /* so it waited */
	T_EQ(pthread_join(t, NULL), 0);
}

/* Ended out of the middle of asking for itself: it does not come back. */
static void ended_for_good(void)
{
	unsigned seen;

	for (unsigned i = 0; i < 200; i++) {
		begin();
		T_OK(chore_ask(&b, CHORE_FIRST));
		opened = true;
		chore_end(&b);
		seen = nr_ran;
		chore_end(&gate);
		T_EQ(nr_ran, seen);
	}
}

static void no_thread(void)
{
	uint64_t end = t_hang();
	int r;

	chore_init(&a, run_a);
	nr_ran = 0;
	no_threads = true;
	/* The thread of the case before may be about to end. */
	do {
		r = chore_ask(&a, CHORE_LAST);
		(void)usleep(100);
	} while (r == 0 && t_now() < end);
	T_EQ(r, -EAGAIN);
	T_CHECK(strstr(err_text(), "no thread"));
	no_threads = false;
	chore_end(&a);
	nr_ran = 0;
	T_OK(chore_ask(&a, CHORE_LAST));
	wait_for(1);
	chore_end(&a);
}

int main(void)
{
	T_RUN(first_before_last);
	T_RUN(ended_while_it_waits);
	T_RUN(ended_while_it_runs);
	T_RUN(ended_for_good);
	T_RUN(no_thread);
	return t_done();
}
