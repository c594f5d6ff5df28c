/* SPDX-License-Identifier: MIT */
/*
 * How often a batch of requests enters the kernel.
 *
 * The linker's --wrap redirects io_uring_submit() here.
 */
#include <liburing.h>

#include "rig.h"

#define SEED 1
#define PIECE 4096u
#define BATCH 128u
#define AT_ONCE 32u /* least operations per system call */

static unsigned nr_submits;

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

int __wrap_io_uring_submit(struct io_uring *ring)
{
	nr_submits++;
	return __real_io_uring_submit(ring);
}

static struct pst_queue *q;
static struct pst_file *f;
static struct pst_mem *m;

static void begin(void)
{
	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring: %s", pst_error_text());
	rig_make(rig_path("data"), SEED, BATCH * PIECE);
	rig_warm(rig_path("data"));
	f = rig_open(rig_path("data"), PST_FILE_READ);
	m = rig_alloc("host", BATCH * PIECE);
	q = rig_queue(PST_BACKEND_URING, BATCH);
}

static void end(void)
{
	q = pst_queue_free(q);
	m = pst_mem_free(m);
	f = pst_file_close(f);
}

/* Read a batch.  Return its number of system calls.  The path is listed so that all reads use
 * the ring. */
static unsigned read_batch(unsigned nr, enum pst_path path)
{
	struct pst_done d[BATCH];

	for (unsigned i = 0; i < nr; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * PIECE, i * PIECE, PIECE);

		io.policy = PST_POLICY1(path);
		T_OK(pst_queue_prep(q, &io));
	}
	nr_submits = 0;
	T_EQ(pst_queue_submit(q), nr);
	T_EQ(pst_queue_reap(q, d, nr, nr, t_in_ms(RIG_WAIT_MS)), nr);
	for (unsigned i = 0; i < nr; i++)
		T_EQ(d[i].res, PIECE);
	T_EQ(rig_mem_differs(m, 0, nr * PIECE, SEED, 0), nr * PIECE);
	return nr_submits;
}

static void a_batch_takes_few_calls(void)
{
	begin();
	T_EQ(read_batch(1, PST_PATH_BUFFERED), 1);
	T_EQ(read_batch(AT_ONCE, PST_PATH_BUFFERED), 1);
	T_EQ(read_batch(AT_ONCE + 1, PST_PATH_BUFFERED), 2);
	T_EQ(read_batch(BATCH, PST_PATH_BUFFERED), BATCH / AT_ONCE);
	end();
}

/* Each system call submits as many operations as are in flight: 1, 1, 2, 4 and so on. */
static void an_idle_device_does_not_wait(void)
{
	begin();
	if (!rig_file_info(f).direct) {
		end();
		T_SKIP("O_DIRECT on the file system of the test");
	}
	/* warm up: memory is registered, paths are proven */
	(void)read_batch(BATCH, PST_PATH_DIRECT);
	T_EQ(read_batch(1, PST_PATH_DIRECT), 1);
	T_EQ(read_batch(2, PST_PATH_DIRECT), 2);
	T_EQ(read_batch(8, PST_PATH_DIRECT), 4);
	T_EQ(read_batch(9, PST_PATH_DIRECT), 5); /* the flush submits the ninth operation */
	T_EQ(read_batch(BATCH, PST_PATH_DIRECT), 9);
	end();
}

int main(void)
{
	rig_init();
	RIG_RUN1(a_batch_takes_few_calls);
	RIG_RUN1(an_idle_device_does_not_wait);
	return rig_done();
}
