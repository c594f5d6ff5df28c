/* SPDX-License-Identifier: MIT */
/*
 * O_DIRECT writes that end short.  They prove nothing, and strict ones fail, even if their
 * memory could not be registered.  The linker's --wrap redirects io_uring_submit() here, which
 * replaces the result of a write.
 */
#include <liburing.h>

#include "base/fault.h"
#include "file/io.h"
#include "rig.h"

#define LEN 65536u
#define AGAIN 40 /* enough writes to have the memory registered, or refused */

static int32_t told; /* result of the next O_DIRECT write; 0: its own */

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

int __wrap_io_uring_submit(struct io_uring *ring)
{
	int r = __real_io_uring_submit(ring);
	unsigned head = *ring->cq.khead;
	struct io_uring_cqe *cqe = &ring->cq.cqes[head & ring->cq.ring_mask];
	struct io_op *op;

	if (!told)
		return r;
	while (io_uring_smp_load_acquire(ring->cq.ktail) == head)
		T_OK(io_uring_get_events(ring));
	op = (struct io_op *)(uintptr_t)cqe->user_data;
	if (op->kind == IO_WRITE && op->flags & IO_OP_DIRECT) {
		cqe->res = told;
		told = 0;
	}
	return r;
}

/* Make a strict write on a proven path, with this result. */
static struct pst_done write_strict(int32_t gives)
{
	struct pst_file *f = rig_open(rig_path("data"), RIG_RW);
	struct pst_mem *m = rig_alloc("host", LEN);
	struct pst_queue *q = rig_queue(PST_BACKEND_URING, 8);
	struct pst_io io = rig_io(PST_OP_WRITE, f, m, 0, 0, LEN);
	struct pst_done d;

	io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
	rig_mem_fill(m, 0, LEN, 1, 0);
	for (unsigned i = 0; i < AGAIN; i++)
		T_EQ(rig_do(q, &io).res, LEN);
	io.flags = PST_IO_STRICT;
	T_EQ(rig_do(q, &io).res, LEN);
	told = gives;
	d = rig_do(q, &io);
	T_EQ(told, 0);
	pst_queue_free(q);
	pst_mem_free(m);
	pst_file_close(f);
	return d;
}

static void need(void)
{
	struct pst_file *f;
	uint32_t direct;

	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring: %s", pst_error_text());
	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), RIG_RW);
	direct = rig_file_info(f).direct;
	pst_file_close(f);
	if (!direct)
		T_SKIP("O_DIRECT on the file system of the test");
}

static void fails(int32_t gives, uint32_t why)
{
	struct pst_done d = write_strict(gives);

	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.why, why);
}

/* The first case, because a path is proven once for each process. */
static void it_proves_nothing(void)
{
	struct pst_file *f;
	struct pst_queue *q;
	struct pst_mem *m;
	struct pst_io io;
	struct pst_done d;

	need();
	f = rig_open(rig_path("data"), RIG_RW);
	m = rig_alloc("host", LEN);
	q = rig_queue(PST_BACKEND_URING, 8);
	io = rig_io(PST_OP_WRITE, f, m, 0, 0, LEN);
	io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
	rig_mem_fill(m, 0, LEN, 1, 0);
	told = 1;
	d = rig_do(q, &io);
	T_EQ(told, 0);
	T_EQ(d.res, LEN);
	T_EQ(d.flags & PST_DONE_PROOF, 0);
	d = rig_do(q, &io);
	T_EQ(d.res, LEN);
	T_EQ(d.flags & PST_DONE_PROOF, PST_DONE_PROOF);
	pst_queue_free(q);
	pst_mem_free(m);
	pst_file_close(f);
}

static void it_stops_inside_a_block(void)
{
	need();
	fails(5000, PST_WHY_UNALIGNED);
	T_OK(fault_set("file.pin:0:ENOMEM"));
	fails(5000, PST_WHY_UNALIGNED);
	T_OK(fault_set(NULL));
}

static void it_is_refused(void)
{
	need();
	fails(-EINVAL, PST_WHY_DIRECT_ERROR);
	T_OK(fault_set("file.pin:0:ENOMEM"));
	fails(-EINVAL, PST_WHY_DIRECT_ERROR);
	T_OK(fault_set(NULL));
}

int main(void)
{
	rig_init();
	RIG_RUN1(it_proves_nothing);
	RIG_RUN1(it_stops_inside_a_block);
	RIG_RUN1(it_is_refused);
	return rig_done();
}
