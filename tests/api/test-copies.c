/* SPDX-License-Identifier: MIT */
/*
 * The calling thread copies cached bytes itself.  It copies in small steps, so that deadlines,
 * cancels and the limit of pst_queue_reap() still work.
 */
#include <poll.h>
#include <sys/mman.h>

#include "rig.h"

#define PIECE RIG_MIB(4)
#define NR 12u
#define SEED 3

static struct pst_file *file;
static struct pst_mem *mem;

static void open_warm(void)
{
	rig_make(rig_path("file"), SEED, PIECE);
	rig_warm(rig_path("file"));
	file = rig_open(rig_path("file"), PST_FILE_READ);
	mem = rig_alloc(rig_dev, NR * PIECE);
}

static void close_file(void)
{
	file = pst_file_close(file);
	mem = pst_mem_free(mem);
}

static void submit(uint64_t deadline_ns, uint64_t policy)
{
	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, mem, 0, i * PIECE, PIECE);

		io.user_data = i;
		io.deadline_ns = deadline_ns;
		io.policy = policy;
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), NR);
}

/* Each reap copies at most one waiting piece, and repeated reaps copy all. */
static void bit_by_bit(void)
{
	static const uint64_t policies[] = { PST_POLICY1(PST_PATH_CACHED),
					     PST_POLICY2(PST_PATH_CACHED, PST_PATH_BUFFERED) };
	struct pst_done d[NR];

	open_warm();
	for (unsigned k = 0; k < RIG_NR(policies); k++) {
		unsigned n = 0;

		submit(0, policies[k]);
		while (n < NR) {
			int r = pst_queue_reap(rig_q, d, 0, NR, 0);

			T_CHECK(r == 0 || r == 1);
			for (int i = 0; i < r; i++) {
				T_EQ(d[i].res, PIECE);
				T_EQ(d[i].paths, PST_PATH_BIT(PST_PATH_CACHED));
			}
			n += (unsigned)r;
		}
		T_EQ(rig_mem_differs(mem, (NR - 1) * PIECE, PIECE, SEED, 0), PIECE);
	}
	close_file();
}

static void all_at_once(void)
{
	struct pst_done d[NR];

	open_warm();
	submit(0, PST_POLICY1(PST_PATH_CACHED));
	T_EQ(pst_queue_reap(rig_q, d, NR, NR, t_in_ms(RIG_WAIT_MS)), NR);
	for (unsigned i = 0; i < NR; i++) {
		T_EQ(d[i].res, PIECE);
		T_EQ(rig_mem_differs(mem, i * PIECE, PIECE, SEED, 0), PIECE);
	}
	close_file();
}

/* Copies that have not begun by the deadline never begin. */
static void past_a_deadline(void)
{
	uint64_t deadline = t_in_ms(200);
	struct pst_done d[NR];
	unsigned late = 0;

	open_warm();
	submit(deadline, PST_POLICY1(PST_PATH_CACHED));
	while (t_now() <= deadline)
		(void)usleep(1000);
	T_EQ(pst_queue_reap(rig_q, d, NR, NR, t_in_ms(RIG_WAIT_MS)), NR);
	for (unsigned i = 0; i < NR; i++)
		late += d[i].res == -ETIMEDOUT;
	T_CHECK(late >= NR - 1);
	close_file();
}

static void canceled(void)
{
	struct pst_done d[NR];
	unsigned n = 0;

	open_warm();
	submit(0, PST_POLICY1(PST_PATH_CACHED));
	for (unsigned i = 1; i < NR; i++)
		T_EQ(pst_queue_cancel(rig_q, i), 1);
	T_EQ(pst_queue_reap(rig_q, d, NR, NR, t_in_ms(RIG_WAIT_MS)), NR);
	for (unsigned i = 0; i < NR; i++)
		n += d[i].res == -ECANCELED;
	T_EQ(n, NR - 1);
	close_file();
}

/* The queue's descriptor stays readable as long as there is more to copy. */
static void by_descriptor(void)
{
	struct pst_done d[NR];
	struct pollfd p = { .events = POLLIN };
	unsigned n = 0;

	open_warm();
	p.fd = pst_queue_fd(rig_q);
	T_CHECK(p.fd >= 0);
	submit(0, PST_POLICY1(PST_PATH_CACHED));
	while (n < NR) {
		int r;

		T_EQ(poll(&p, 1, RIG_WAIT_MS), 1);
		r = pst_queue_reap(rig_q, d, 0, NR, 0);
		T_CHECK(r >= 0);
		n += (unsigned)r;
	}
	close_file();
}

static struct pst_file *open_memory(uint64_t len)
{
	int fd = memfd_create("copies", MFD_CLOEXEC);
	struct pst_file *f = NULL;

	T_CHECK(fd >= 0 && ftruncate(fd, (off_t)len) == 0);
	T_OK(pst_file_wrap(fd, 0, NULL, &f));
	(void)close(fd);
	return f;
}

/* A long read must not delay a sync: the sync completes before the read's remaining pieces. */
static void beside_a_sync(void)
{
	struct pst_seg seg = { .len = PIECE, .mem_stride = PIECE, .count = NR };
	struct pst_file *from = open_memory(PIECE), *to = open_memory(4096);
	struct pst_io io;
	struct pst_done d;

	mem = rig_alloc(rig_dev, NR * PIECE);
	io = rig_io(PST_OP_READ, from, mem, 0, 0, 0);
	io.segs = &seg;
	io.nr_segs = 1;
	T_OK(pst_queue_prep(rig_q, &io));
	io = rig_io(PST_OP_WRITE, to, mem, 0, 0, 4096);
	T_OK(pst_queue_prep(rig_q, &io));
	io = rig_io(PST_OP_SYNC, to, NULL, 0, 0, 0);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 3);
	/* Each reap copies one piece.  Pause between reaps, so that the file operations
	 * complete. */
	for (unsigned n = 0; n < 3;) {
		(void)usleep(20000);
		if (pst_queue_reap(rig_q, &d, 0, 1, 0) != 1)
			continue;
		n++;
		T_EQ(d.op, n == 1 ? PST_OP_WRITE : n == 2 ? PST_OP_SYNC : PST_OP_READ);
		T_EQ(d.res, n == 1 ? 4096 : n == 2 ? 0 : (int64_t)(NR * PIECE));
	}
	pst_file_close(from);
	pst_file_close(to);
	mem = pst_mem_free(mem);
}

/* Small reads are complete when pst_queue_submit() returns. */
static void small_ones(void)
{
	struct pst_done d[64];

	open_warm();
	for (unsigned i = 0; i < 64; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, mem, i * 4096, i * 4096, 4096);

		io.policy = PST_POLICY1(PST_PATH_CACHED);
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 64);
	T_EQ(pst_queue_reap(rig_q, d, 0, 64, 0), 64);
	close_file();
}

int main(void)
{
	rig_init();
	RIG_RUN_BACKENDS(bit_by_bit);
	RIG_RUN_BACKENDS(all_at_once);
	RIG_RUN_BACKENDS(past_a_deadline);
	RIG_RUN_BACKENDS(canceled);
	RIG_RUN_BACKENDS(by_descriptor);
	RIG_RUN_BACKENDS(beside_a_sync);
	RIG_RUN_BACKENDS(small_ones);
	return rig_done();
}
