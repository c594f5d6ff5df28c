/* SPDX-License-Identifier: MIT */
/*
 * The first small request of a process, submitted together with a read that keeps a stream waiting.
 * Its window is proven then, for which the driver waits until all streams are idle.
 */
#include "stream.h"

#define BIG RIG_MIB(1)

static void a_window_behind_a_barrier(void)
{
	struct pst_mem *m = rig_alloc("cuda:0", 2 * BIG);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, BIG);
	struct pst_done d;

	/* The engine begins, and no window is opened. */
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
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 2);
	for (unsigned i = 0; i < 2; i++) {
		d = rig_reap1(rig_q);
		rig_show(&d);
		T_EQ(d.res, d.user_data == 1 ? (int64_t)BIG : 4096);
	}
	T_EQ(rig_mem_differs(m, 0, BIG, ORDER_SEED, 0), BIG);
	T_EQ(rig_mem_differs(m, BIG, 4096, ORDER_SEED, 0), 4096);
	T_CHECK(rig_stats(NULL).bytes[PST_PATH_WINDOW] == 4096);
	is_free(made);
	pst_file_close(f);
	pst_mem_free(m);
}

int main(void)
{
	if (setjmp(t_jump))
		HW_DIE("test-stream-first: %s", t_why);
	if (stream_init()) {
		T_RUN(no_stub);
		return rig_done();
	}
	run1("a_window_behind_a_barrier", a_window_behind_a_barrier, PST_BACKEND_URING);
	return rig_done();
}
