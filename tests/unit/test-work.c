/* SPDX-License-Identifier: MIT */
/*
 * Work in the background.
 *
 * The work queue: order, work that queues itself, work that is ended while it waits or runs, and
 * no thread available.
 *
 * Spawned work, which may hang: up to the limit it delays nobody, and a waiter waits at most for
 * its own timeout.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/err.h"
#include "base/work.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

/* ------------------------------------------------- calls that fail */

static atomic_bool no_threads;
static atomic_uint nth, seen;  /* calls of calloc() and pthread_create(); the nth fails, 0: none */
static atomic_uint nr_threads; /* threads that were started */

static bool fails(void)
{
	return nth && ++seen == nth;
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	if (no_threads || fails())
		return EAGAIN;
	nr_threads++;
	return __real_pthread_create(t, a, fn, arg);
}

void *__real_calloc(size_t nr, size_t len);
void *__wrap_calloc(size_t nr, size_t len);
void *__wrap_calloc(size_t nr, size_t len)
{
	return fails() ? NULL : __real_calloc(nr, len);
}

/* -------------------------------------------------------------- work queue */

static struct work a, b, c, gate;
static atomic_bool opened, at_gate;
static char order[32];
static _Atomic unsigned nr_ran; /* number of letters in order[] */

static void ran(char letter)
{
	if (nr_ran < sizeof(order))
		order[nr_ran] = letter;
	nr_ran++;
}

static void run_a(struct work *x)
{
	(void)x;
	ran('a');
}

static void run_b(struct work *x)
{
	ran('b');
	if (nr_ran < 6) /* b runs three times in all */
		(void)work_queue(x, WORK_LOW);
}

static void run_c(struct work *x)
{
	(void)x;
	ran('c');
}

/* Block the thread until opened is set. */
static void run_gate(struct work *x)
{
	(void)x;
	at_gate = true;
	while (!opened)
		(void)usleep(100);
}

static void ask_gate(void)
{
	memset(order, 0, sizeof(order));
	nr_ran = 0;
	opened = at_gate = false;
	work_init(&a, run_a);
	work_init(&b, run_b);
	work_init(&c, run_c);
	work_init(&gate, run_gate);
	T_OK(work_queue(&gate, WORK_HIGH));
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
	ask_gate();
	T_OK(work_queue(&b, WORK_LOW));
	T_OK(work_queue(&c, WORK_HIGH));
	T_OK(work_queue(&a, WORK_LOW));
	T_OK(work_queue(&a, WORK_LOW)); /* queueing twice counts once */
	opened = true;
	/* b queues itself while it runs, so a runs next; then only b is left. */
	wait_for(6);
	T_CHECK(!strcmp(order, "cbabbb"));
	work_end(&a);
	work_end(&b);
	work_end(&c);
	work_end(&gate);
}

static void ended_while_it_waits(void)
{
	ask_gate();
	T_OK(work_queue(&a, WORK_LOW));
	T_OK(work_queue(&c, WORK_LOW));
	work_end(&a);
	opened = true;
	wait_for(1);
	T_CHECK(!strcmp(order, "c"));
	work_end(&c);
	work_end(&gate);
}

static void *open_later(void *arg)
{
	(void)arg;
	(void)usleep(20000); /* wait until work_end() waits for the work */
	opened = true;
	return NULL;
}

static void ended_while_it_runs(void)
{
	pthread_t t;

	ask_gate();
	T_EQ(__real_pthread_create(&t, NULL, open_later, NULL), 0);
	work_end(&gate);
	T_CHECK(opened); /* work_end() has waited */
	T_EQ(pthread_join(t, NULL), 0);
}

/* Work that queues itself is ended: it must not run again. */
static void ended_for_good(void)
{
	unsigned before;

	for (unsigned i = 0; i < 200; i++) {
		ask_gate();
		T_OK(work_queue(&b, WORK_HIGH));
		opened = true;
		work_end(&b);
		before = nr_ran;
		work_end(&gate);
		T_EQ(nr_ran, before);
	}
}

static void the_queue_without_a_thread(void)
{
	uint64_t end = t_hang();
	int r;

	work_init(&a, run_a);
	nr_ran = 0;
	no_threads = true;
	/* A thread of an earlier case may be about to end. */
	do {
		r = work_queue(&a, WORK_LOW);
		(void)usleep(100);
	} while (r == 0 && t_now() < end);
	T_EQ(r, -EAGAIN);
	T_CHECK(strstr(err_text(), "no thread"));
	no_threads = false;
	work_end(&a);
	nr_ran = 0;
	T_OK(work_queue(&a, WORK_LOW));
	wait_for(1);
	work_end(&a);
}

/* Change the function: the old one ends first, and never runs again. */
static void changed_while_it_runs(void)
{
	ask_gate();
	T_OK(work_change(&gate, run_a, WORK_LOW));
	T_EQ(nr_ran, 0);
	opened = true;
	wait_for(1);
	T_OK(work_queue(&gate, WORK_LOW));
	wait_for(2);
	T_CHECK(!strcmp(order, "aa"));
	work_end(&gate);
}

/* ----------------------------------------------------------- what may hang */

#define MANY (WORK_THREADS_MAX + 8)

/* Work that hangs until let_go is set. */
struct stuck {
	struct work work;
	atomic_bool runs, let_go, over;
};

static struct stuck stuck[MANY];

static void run_stuck(struct work *w)
{
	struct stuck *s = container_of(w, struct stuck, work);

	s->runs = true;
	while (!s->let_go)
		(void)usleep(100);
	s->over = true;
}

static int stick(unsigned i, bool wait)
{
	struct stuck *s = &stuck[i];

	work_init(&s->work, run_stuck);
	s->runs = s->let_go = s->over = false;
	return work_spawn(&s->work, "stuck", wait);
}

#define WAIT(cond)                                \
	do {                                      \
		uint64_t _end = t_hang();         \
		while (!(cond) && t_now() < _end) \
			(void)usleep(100);        \
		T_CHECK(cond);                    \
	} while (0)

/* Return the number of threads with this name, or of all for NULL. */
static unsigned nr_tasks(const char *name)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	T_CHECK(d);
	for (struct dirent *e; (e = readdir(d));) {
		char path[64], comm[32] = "";
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", e->d_name);
		f = fopen(path, "re");
		if (!f)
			continue; /* the thread has ended */
		if (fgets(comm, sizeof(comm), f))
			comm[strcspn(comm, "\n")] = '\0';
		(void)fclose(f);
		n += comm[0] && (!name || !strcmp(comm, name));
	}
	(void)closedir(d);
	return n;
}

static void run_nothing(struct work *w)
{
	(void)w;
	ran('n');
}

/* Hanging work delays neither other work nor the work queue. */
static void what_hangs_holds_up_nobody(void)
{
	T_OK(stick(0, false));
	WAIT(stuck[0].runs);
	T_EQ(nr_tasks("stuck"), 1);
	nr_ran = 0;
	for (unsigned i = 1; i <= 20; i++) {
		work_init(&a, run_nothing);
		T_OK(work_spawn(&a, "quick", false));
		wait_for(i);
	}
	work_init(&c, run_c);
	T_OK(work_queue(&c, WORK_LOW));
	wait_for(21);
	work_end(&c);
	T_CHECK(!stuck[0].over);
	stuck[0].let_go = true;
	WAIT(stuck[0].over);
}

/* Work in sequence uses one thread, which ends when it is idle. */
static void idle_threads_are_used_again_and_end(void)
{
	unsigned before;

	work_idle_ns = 60 * NSEC_PER_SEC;
	T_OK(stick(0, false));
	stuck[0].let_go = true;
	WAIT(stuck[0].over);
	(void)usleep(20000); /* wait until the thread is idle; if not, one more is started */
	nr_ran = 0;
	before = nr_threads;
	for (unsigned i = 1; i <= 50; i++) {
		work_init(&a, run_nothing);
		T_OK(work_spawn(&a, "quick", false));
		wait_for(i);
		(void)usleep(500);
	}
	T_CHECK(nr_threads - before < 25);
	/* A thread that already waits keeps its old idle time; a new thread uses the new one. */
	work_idle_ns = 0;
	for (unsigned i = 0; i < WORK_THREADS_MAX && nr_tasks("quick"); i++) {
		nr_ran = 0;
		T_OK(work_spawn(&a, "quick", false));
		wait_for(1);
		(void)usleep(1000);
	}
	WAIT(nr_tasks("quick") == 0 && nr_tasks("stuck") == 0);
}

static void quick_call(void *arg)
{
	*(int *)arg = 5;
}

/* At the limit, work is refused with an error text.  Work that may wait runs in order once there
 * is room. */
static void as_many_as_the_bound(void)
{
	int got = 0;

	work_idle_ns = 0;
	for (unsigned i = 0; i < WORK_THREADS_MAX; i++)
		T_OK(stick(i, i % 2));
	for (unsigned i = 0; i < WORK_THREADS_MAX; i++)
		WAIT(stuck[i].runs);
	T_EQ(stick(WORK_THREADS_MAX, false), -EAGAIN);
	T_CHECK(strstr(err_text(), "64 threads"));
	T_EQ(work_call(quick_call, &got, "quick", NSEC_PER_SEC), -EAGAIN);
	T_EQ(got, 0);
	for (unsigned i = WORK_THREADS_MAX; i < MANY; i++)
		T_OK(stick(i, true));
	(void)usleep(1000);
	T_CHECK(!stuck[WORK_THREADS_MAX].runs);
	stuck[5].let_go = true;
	WAIT(stuck[WORK_THREADS_MAX].runs);
	T_CHECK(!stuck[WORK_THREADS_MAX + 1].runs);
	T_EQ(nr_tasks("stuck"), WORK_THREADS_MAX);
	for (unsigned i = 0; i < MANY; i++)
		stuck[i].let_go = true;
	for (unsigned i = 0; i < MANY; i++)
		WAIT(stuck[i].over);
	WAIT(nr_tasks("stuck") == 0);
	/* Another thread can be spawned now. */
	T_OK(stick(0, false));
	stuck[0].let_go = true;
	WAIT(stuck[0].over);
}

static atomic_bool called, may_return;

static void long_call(void *arg)
{
	(void)arg;
	while (!may_return)
		(void)usleep(100);
	called = true;
}

static void who_waits_waits_so_long(void)
{
	uint64_t begun = t_now();
	int got = 0;

	T_OK(work_call(quick_call, &got, "quick", 60 * NSEC_PER_SEC));
	T_EQ(got, 5);
	called = may_return = false;
	T_EQ(work_call(long_call, NULL, "slow", 20 * NSEC_PER_MSEC), -ETIMEDOUT);
	T_CHECK(t_now() - begun >= 20 * NSEC_PER_MSEC);
	T_CHECK(!called);
	may_return = true;
	WAIT(called);
	WAIT(nr_tasks("slow") == 0); /* wait until the memory of both is freed */
}

/* Fail the first, second, ... call of the system: all or nothing is done, without a wait. */
static void calls_fail(void)
{
	unsigned failed = 0;
	int r, got;

	work_idle_ns = 0;
	for (nth = 1;; nth++) {
		seen = 0;
		WAIT(nr_tasks("quick") == 0);
		got = 0;
		r = work_call(quick_call, &got, "quick", 60 * NSEC_PER_SEC);
		if (r == 0)
			r = stick(0, true);
		if (r == 0) {
			stuck[0].let_go = true;
			WAIT(stuck[0].over);
		}
		if (seen < nth)
			break;
		T_EQ(r, -EAGAIN);
		T_CHECK(err_text()[0]);
		failed++;
		WAIT(nr_tasks("stuck") == 0);
	}
	nth = 0;
	T_OK(r);
	/* Up to five calls fail: an allocation of work_call(), and for each of two threads its
	 * start and an allocation. */
	T_CHECK(failed >= 3 && failed <= 5);
}

int main(void)
{
	T_RUN(first_before_last);
	T_RUN(ended_while_it_waits);
	T_RUN(ended_while_it_runs);
	T_RUN(ended_for_good);
	T_RUN(the_queue_without_a_thread);
	T_RUN(changed_while_it_runs);
	T_RUN(what_hangs_holds_up_nobody);
	T_RUN(idle_threads_are_used_again_and_end);
	T_RUN(as_many_as_the_bound);
	T_RUN(who_waits_waits_so_long);
	T_RUN(calls_fail);
	return t_done();
}
