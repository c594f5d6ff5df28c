/* SPDX-License-Identifier: MIT */
/*
 * The library searches for a direct path by cuFile once, and again if the reason for a refusal
 * may pass.  No request waits for the result.
 */
#include <pthread.h>

#include "clock.h"
#include "gds.h"

#define THREADS 8u

static pthread_barrier_t together;

static void *ask_often(void *arg)
{
	unsigned *odd = arg;

	(void)pthread_barrier_wait(&together);
	for (unsigned i = 0; i < 200; i++) {
		struct pst_path_info info = { .sz = sizeof(info) };

		if (pst_path_check(file, mem, PST_OP_READ, PST_PATH_GDS, &info) < 0 ||
		    (info.why == PST_WHY_NO_GDS && info.detail != EAGAIN))
			++*odd;
	}
	return NULL;
}

/* Many threads ask at once: one search runs, and every thread gets EAGAIN or its result. */
static void asked_once(void)
{
	unsigned odd[THREADS] = { 0 };
	pthread_t t[THREADS];

	open_with("mode=p2pdma");
	T_EQ(pthread_barrier_init(&together, NULL, THREADS), 0);
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_create(&t[i], NULL, ask_often, &odd[i]), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		T_EQ(pthread_join(t[i], NULL), 0);
		T_EQ(odd[i], 0);
	}
	(void)pthread_barrier_destroy(&together);
	T_EQ(verdict().why, PST_WHY_NONE);
	T_EQ(state().opens, 1);
	close_all();
}

/* A refusal stays the answer until the library searches again, after 10 s. */
static void passing(void)
{
	char *probe = strdup(getenv("PST_GDS_PROBE"));
	struct pst_path_info info;
	struct pst_done d;

	open_with("mode=p2pdma");
	T_CHECK(probe);
	(void)setenv("PST_GDS_PROBE", "no/absolute/path", 1);
	info = verdict();
	T_EQ(info.why, PST_WHY_NO_GDS);
	T_EQ(info.detail, EINVAL);
	d = cold_read(0, 0, RIG_MIB(1), GDS | STAGED, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	T_CHECK(is_right(0, 0, RIG_MIB(1)) && !(d.paths & GDS));
	clock_ahead_s = 5;
	T_EQ(check(PST_OP_READ).detail, EINVAL);
	(void)setenv("PST_GDS_PROBE", probe, 1);
	free(probe);
	T_EQ(check(PST_OP_READ).detail, EINVAL);
	/* After these 10 s, the first call still gets the old reason, or EAGAIN during the
	 * search. */
	clock_ahead_s = 11;
	(void)check(PST_OP_READ);
	info = verdict();
	for (uint64_t until = t_hang(); info.why && t_now() < until; info = verdict())
		(void)usleep(1000);
	T_EQ(info.why, PST_WHY_NONE);
	T_EQ(state().opens, 1);
	d = cold_read(0, 0, RIG_MIB(1), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	T_CHECK(is_right(0, 0, RIG_MIB(1)) && d.paths & GDS);
	close_all();
}

/* The search hangs: after a minute it is reported as hanging, and a late result is dropped. */
static void hangs(void)
{
	uint64_t until = t_hang();

	open_with("mode=p2pdma");
	x.set("hang=cuFileDriverOpen:1");
	(void)check(PST_OP_READ);
	while (state().hung < 1 && t_now() < until)
		(void)usleep(1000);
	T_EQ(state().hung, 1);
	clock_ahead_s = 50;
	T_EQ(check(PST_OP_READ).detail, EAGAIN);
	clock_ahead_s = 70;
	T_EQ(check(PST_OP_READ).detail, ETIMEDOUT);
	x.release();
	while (state().hung && t_now() < until + UINT64_C(100000000000))
		(void)usleep(1000);
	T_EQ(state().hung, 0);
	/* The thread of the search ends once cuFile has answered. */
	while (rig_count_tasks() > rig_tasks && strstr(rig_task_names, "gds") &&
	       t_now() < until + UINT64_C(100000000000))
		(void)usleep(1000);
	T_EQ(check(PST_OP_READ).detail, ETIMEDOUT);
	close_all();
}

static const struct again cases[] = {
	{ "asked_once", asked_once, AGAIN_ONCE, "" },
	{ "passing", passing, AGAIN_ONCE, "" },
	{ "hangs", hangs, AGAIN_ONCE, "" },
};

int main(int argc, char **argv)
{
	rig_init();
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
