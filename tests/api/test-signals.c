/* SPDX-License-Identifier: MIT */
/*
 * A signal every millisecond, with SA_RESTART and without: pst_queue_reap() continues to wait,
 * each request completes once, and its bytes are right.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "rig.h"

#include "fusefs.h"

#define SEED 17
#define NR 2000u
#define DEPTH 16u
#define LEN 8192u
#define SLOW 40u /* requests that take 20 ms each */

static struct fusefs fs;
static atomic_uint signals;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

static void on_alarm(int sig)
{
	(void)sig;
	atomic_fetch_add(&signals, 1);
}

static void start_signals(int flags)
{
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = flags };
	struct itimerval it = { { .tv_usec = 1000 }, { .tv_usec = 1000 } };

	atomic_store(&signals, 0);
	T_EQ(sigaction(SIGALRM, &sa, NULL), 0);
	T_EQ(setitimer(ITIMER_REAL, &it, NULL), 0);
}

static void stop_signals(void)
{
	struct itimerval off = { 0 };

	T_EQ(setitimer(ITIMER_REAL, &off, NULL), 0);
	(void)signal(SIGALRM, SIG_IGN);
}

/* Return the file offset of a request. */
static uint64_t place(unsigned nr)
{
	return nr % (RIG_MIB(1) / LEN) * LEN;
}

/* Many short requests: each completes once, with its bytes. */
static void none_is_lost(int flags)
{
	struct pst_mem *m = rig_alloc(rig_dev, DEPTH * LEN);
	unsigned slots[DEPTH], nr_slots = 0; /* free slots */
	static unsigned slot_of[NR], times[NR];
	unsigned next = 0, done = 0;
	struct pst_done d[DEPTH];
	struct pst_file *f;

	rig_make(rig_path("data"), SEED, RIG_MIB(1));
	f = rig_open(rig_path("data"), PST_FILE_READ);
	memset(times, 0, sizeof(times));
	while (nr_slots < DEPTH)
		slots[nr_slots] = nr_slots, nr_slots++;
	start_signals(flags);
	while (done < NR) {
		int n;

		for (; next < NR && nr_slots; next++) {
			struct pst_io io = rig_io(PST_OP_READ, f, m, place(next), 0, LEN);

			slot_of[next] = slots[--nr_slots];
			io.mem_off = slot_of[next] * LEN;
			io.policy = next & 1 ? PST_POLICY1(PST_PATH_BUFFERED) : 0;
			io.user_data = next;
			T_OK(pst_queue_prep(rig_q, &io));
		}
		T_CHECK(pst_queue_submit(rig_q) >= 0);
		n = pst_queue_reap(rig_q, d, 1, DEPTH, t_hang());
		T_CHECK(n > 0);
		for (int i = 0; i < n; i++) {
			unsigned nr = (unsigned)d[i].user_data;

			T_EQ(d[i].res, LEN);
			T_EQ(times[nr]++, 0);
			T_EQ(rig_mem_differs(m, slot_of[nr] * LEN, LEN, SEED, place(nr)), LEN);
			slots[nr_slots++] = slot_of[nr];
		}
		done += (unsigned)n;
	}
	stop_signals();
	T_EQ(done, NR);
	T_EQ(rig_stats(rig_q).errors, 0);
	pst_file_close(f);
	pst_mem_free(m);
}

static void with_restart(void)
{
	none_is_lost(SA_RESTART);
}

static void without_restart(void)
{
	none_is_lost(0);
}

/* Each read takes 20 ms, so signals arrive during each wait, which must still return the
 * completion. */
static void waits_on(int flags)
{
	struct pst_mem *m;
	char path[200];
	struct pst_file *f;

	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	m = rig_alloc(rig_dev, LEN);
	(void)snprintf(path, sizeof(path), "%s/slow", fs.dir);
	f = rig_open(path, PST_FILE_READ);
	start_signals(flags);
	for (unsigned i = 0; i < SLOW; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * LEN, 0, LEN);
		struct pst_done d;

		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		T_EQ(pst_queue_reap(rig_q, &d, 1, 1, t_hang()), 1);
		T_EQ(d.res, LEN);
		T_EQ(rig_mem_differs(m, 0, LEN, FUSEFS_SEED, i * LEN), LEN);
	}
	stop_signals();
	T_CHECK(atomic_load(&signals) >= SLOW); /* an idle machine gets about 20 per request */
	pst_file_close(f);
	pst_mem_free(m);
	fusefs_stop(&fs);
}

static void waits_on_with_restart(void)
{
	waits_on(SA_RESTART);
}

static void waits_on_without_restart(void)
{
	waits_on(0);
}

/* A wait for a request that never completes ends at its deadline, not earlier. */
static void deadline_is_kept(void)
{
	uint64_t until;
	struct pst_file *f;
	struct pst_mem *m;
	struct pst_done d;
	struct pst_io io;
	char path[200];

	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	m = rig_alloc(rig_dev, LEN);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	f = rig_open(path, PST_FILE_READ);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	start_signals(0);
	until = t_in_ms(100);
	T_EQ(pst_queue_reap(rig_q, &d, 1, 1, until), 0);
	T_CHECK(t_now() >= until);
	T_CHECK(atomic_load(&signals) > 0);
	until = t_hang();
	do
		fusefs_release(&fs);
	while (pst_queue_reap(rig_q, &d, 1, 1, t_in_ms(10)) == 0 && t_now() < until);
	stop_signals();
	T_EQ(d.res, LEN);
	pst_file_close(f);
	pst_mem_free(m);
	fusefs_stop(&fs);
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN(with_restart);
	RIG_RUN(without_restart);
	RIG_RUN(waits_on_with_restart);
	RIG_RUN(waits_on_without_restart);
	RIG_RUN(deadline_is_kept);
	return rig_done();
}
