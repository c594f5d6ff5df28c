/* SPDX-License-Identifier: MIT */
/*
 * A process needs its first window for a request that is submitted together with a read that a
 * stream waits for.  Proving a window makes the driver wait until all streams are idle, so it
 * must not block the read.
 */
#include <sys/wait.h>

#include "stream.h"

#define BIG RIG_MIB(1)

static char *self;

/* Submit a read of 1 MiB that the stream waits for, then one of 4 KiB. */
static void behind_a_barrier(bool listed)
{
	struct pst_mem *m = rig_alloc("cuda:0", 2 * BIG);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, BIG);
	struct pst_done d;

	/* Start the engine without opening a window. */
	io.policy = PST_POLICY2(PST_PATH_BUFFERED, PST_PATH_STAGED);
	T_EQ(rig_do(rig_q, &io).res, (int64_t)BIG);
	rig_mem_fill(m, 0, 2 * BIG, ORDER_OLD, 0);
	io.policy = 0;
	io.user_data = 1;
	io.deadline_ns = t_in_ms(RIG_WAIT_MS);
	order_name(&io, made);
	T_OK(pst_queue_prep(rig_q, &io));
	io = rig_io(PST_OP_READ, f, m, 0, BIG, 4096);
	io.user_data = 2;
	if (listed) {
		io.policy = PST_POLICY2(PST_PATH_WINDOW, PST_PATH_STAGED);
		order_name(&io, made);
	}
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 2);
	for (unsigned i = 0; i < 2; i++) {
		d = rig_reap1(rig_q);
		rig_show(&d);
		T_EQ(d.res, d.user_data == 1 ? (int64_t)BIG : 4096);
	}
	T_EQ(rig_mem_differs(m, 0, BIG, ORDER_SEED, 0), BIG);
	T_EQ(rig_mem_differs(m, BIG, 4096, ORDER_SEED, 0), 4096);
	T_EQ(rig_stats(NULL).bytes[PST_PATH_WINDOW], listed ? 0 : 4096);
	is_free(made);
	pst_file_close(f);
	pst_mem_free(m);
}

static void small(void)
{
	behind_a_barrier(false);
}

static void listed(void)
{
	behind_a_barrier(true);
}

/* Run a case in a process of its own. */
static void run_alone(const char *name)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		(void)dup2(STDERR_FILENO, STDOUT_FILENO);
		(void)execl(self, self, name, (char *)NULL);
		_exit(127);
	}
	T_CHECK(waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
}

static void a_small_request(void)
{
	run_alone("small");
}

static void one_that_lists_windows(void)
{
	run_alone("listed");
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (setjmp(t_jump))
		HW_DIE("test-stream-first: %s", t_why);
	if (stream_init()) {
		T_RUN(no_stub);
		return rig_done();
	}
	if (argc == 2) {
		run1(argv[1], strcmp(argv[1], "small") ? listed : small, PST_BACKEND_URING);
		return hw_done();
	}
	RIG_RUN1(a_small_request);
	RIG_RUN1(one_that_lists_windows);
	return rig_done();
}
