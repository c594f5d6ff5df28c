/* SPDX-License-Identifier: MIT */
/*
 * Mix writes that O_DIRECT can and cannot move, while another process reads the file.  Only durable
 * bytes are reported as durable, and readers see what was written.
 */
#include <signal.h>
#include <sys/wait.h>

#include "rig.h"

#define LEN RIG_MIB(4)
#define DIRECT PST_PATH_BIT(PST_PATH_DIRECT)
#define BUFFERED PST_PATH_BIT(PST_PATH_BUFFERED)

static struct pst_file *file;
static struct pst_mem *mem;

static void open_proven(void)
{
	rig_make(rig_path("file"), 1, LEN);
	file = rig_open(rig_path("file"), RIG_RW);
	mem = rig_alloc(rig_dev, LEN);
	rig_mem_fill(mem, 0, LEN, 2, 0);
	if (!rig_file_info(file).direct) {
		file = pst_file_close(file);
		mem = pst_mem_free(mem);
		T_SKIP("O_DIRECT on the file system of the test");
	}
	/* Prove the path, so that later writes are not compared. */
	for (unsigned i = 0; i < 4; i++)
		T_EQ(rig_write(file, mem, 0, 0, 65536).res, 65536);
}

static void close_file(void)
{
	file = pst_file_close(file);
	mem = pst_mem_free(mem);
}

static void prep(struct pst_queue *q, uint64_t off, uint64_t len, uint32_t flags, uint64_t policy)
{
	struct pst_io io = rig_io(PST_OP_WRITE, file, mem, off, off, len);

	io.flags = flags;
	io.policy = policy;
	io.user_data = off;
	T_OK(pst_queue_prep(q, &io));
}

static void took(const struct pst_done *d, uint32_t path, uint32_t why)
{
	uint32_t file_hops = DIRECT | BUFFERED;

	if (d->res < 0 || (d->paths & file_hops) != path || d->why != why)
		rig_show(d);
	T_CHECK(d->res > 0);
	T_EQ(d->paths & file_hops, path);
	T_EQ(d->why, why);
}

/* A write uses O_DIRECT as a whole or not at all. */
static void as_a_whole(void)
{
	struct pst_seg segs[] = { { 0, 0, 65536, 0, 0, 1 }, { 131072, 131072, 65537, 0, 0, 1 } };
	struct pst_io io;
	struct pst_done d;

	open_proven();
	d = rig_write(file, mem, 8192, 8192, RIG_MIB(2));
	took(&d, DIRECT, PST_WHY_NONE);
	d = rig_write(file, mem, 100, 100, RIG_MIB(3));
	took(&d, BUFFERED, PST_WHY_UNALIGNED);
	T_EQ(d.detail, 4096);
	d = rig_write(file, mem, 8192, 8192, RIG_MIB(2) + 1);
	took(&d, BUFFERED, PST_WHY_UNALIGNED);
	io = (struct pst_io){
		.op = PST_OP_WRITE, .file = file, .mem = mem, .segs = segs, .nr_segs = 2
	};
	d = rig_do(rig_q, &io);
	took(&d, BUFFERED, PST_WHY_UNALIGNED);
	segs[1].len--;
	d = rig_do(rig_q, &io);
	took(&d, DIRECT, PST_WHY_NONE);
	close_file();
}

/* An unaligned write comes first: aligned writes after it use the page cache, too.  Strict
 * writes, and those that list only O_DIRECT, wait for it instead. */
static void joined(void)
{
	const uint64_t only = PST_POLICY1(PST_PATH_DIRECT);
	struct pst_done d[4];

	open_proven();
	prep(rig_q, 100, 1000, 0, 0);
	prep(rig_q, 65536, 65536, 0, 0);
	prep(rig_q, 131072, 65536, PST_IO_STRICT, 0);
	prep(rig_q, 262144, 65536, 0, only);
	T_EQ(pst_queue_submit(rig_q), 4);
	T_EQ(pst_queue_reap(rig_q, d, 4, 4, t_in_ms(RIG_WAIT_MS)), 4);
	for (unsigned i = 0; i < 4; i++)
		switch (d[i].user_data) {
		case 100:
			took(&d[i], BUFFERED, PST_WHY_UNALIGNED);
			break;
		case 65536:
			took(&d[i], BUFFERED, PST_WHY_MIXED);
			break;
		default:
			took(&d[i], DIRECT, PST_WHY_NONE);
		}
	/* Once all have ended, aligned writes use O_DIRECT again. */
	d[0] = rig_write(file, mem, 65536, 65536, 65536);
	took(&d[0], DIRECT, PST_WHY_NONE);
	T_EQ(rig_stats(rig_q).why[PST_WHY_MIXED], 1);
	close_file();
}

/* A write waits for an O_DIRECT write of another queue.  Even if nobody reaps that queue, the write
 * must get its turn. */
static void behind_another_queue(void)
{
	struct pst_queue *other;
	struct pst_done d;

	open_proven();
	other = rig_queue(rig_backend, 4);
	for (unsigned i = 0; i < 4; i++)
		prep(other, i * RIG_MIB(1), RIG_MIB(1), 0, 0);
	T_EQ(pst_queue_submit(other), 4);
	d = rig_write(file, mem, 100, 100, 1000);
	took(&d, BUFFERED, PST_WHY_UNALIGNED);
	for (unsigned i = 0; i < 4; i++) {
		d = rig_reap1(other);
		T_EQ(d.res, RIG_MIB(1));
	}
	pst_queue_free(other);
	close_file();
}

/* A write that waits in a queue which nobody reaps must not block another queue. */
static void behind_one_that_waits(void)
{
	struct pst_queue *other;
	struct pst_done d;

	open_proven();
	other = rig_queue(rig_backend, 4);
	prep(rig_q, 0, 65536, 0, 0);
	T_EQ(pst_queue_submit(rig_q), 1);
	prep(other, 100000, 1000, 0, 0);
	T_EQ(pst_queue_submit(other), 1);
	d = rig_reap1(rig_q);
	T_EQ(d.res, 65536);
	prep(rig_q, 65536, 65536, PST_IO_STRICT, 0);
	T_EQ(pst_queue_submit(rig_q), 1);
	d = rig_reap1(rig_q);
	took(&d, DIRECT, PST_WHY_NONE);
	d = rig_reap1(other);
	took(&d, BUFFERED, PST_WHY_UNALIGNED);
	pst_queue_free(other);
	close_file();
}

static unsigned descriptors_of(const char *path)
{
	struct stat want, st;
	unsigned nr = 0;

	T_EQ(stat(path, &want), 0);
	for (int fd = 0; fd < 1024; fd++)
		nr += fstat(fd, &st) == 0 && st.st_dev == want.st_dev && st.st_ino == want.st_ino;
	return nr;
}

/* A closed file is released when its last write ends, whichever queue notices. */
static void ended_by_another_queue(void)
{
	struct pst_queue *first, *other;
	struct pst_file *closed;
	struct pst_io io;
	struct pst_done d;

	open_proven();
	first = rig_queue(rig_backend, 4);
	other = rig_queue(rig_backend, 4);
	rig_make(rig_path("closed"), 1, 65536);
	closed = rig_open(rig_path("closed"), RIG_RW);
	io = rig_io(PST_OP_WRITE, closed, mem, 0, 0, 65536);
	T_OK(pst_queue_prep(other, &io));
	T_EQ(pst_queue_submit(other), 1);
	closed = pst_file_close(closed);
	for (int i = 0; i < 1000 && descriptors_of(rig_path("closed")); i++) {
		prep(first, 0, 65536, 0, 0);
		T_EQ(pst_queue_submit(first), 1);
		d = rig_write(file, mem, 100, 100, 1000);
		took(&d, BUFFERED, PST_WHY_UNALIGNED);
		d = rig_reap1(first);
		T_EQ(d.res, 65536);
	}
	T_EQ(descriptors_of(rig_path("closed")), 0);
	d = rig_reap1(other);
	T_EQ(d.res, 65536);
	pst_queue_free(other);
	pst_queue_free(first);
	close_file();
}

/* Mix all kinds of writes: all end, and the bytes are right. */
static void everything_at_once(void)
{
	uint8_t *buf = malloc(LEN);
	struct pst_done d[32];
	unsigned direct = 0;

	T_CHECK(buf);
	open_proven();
	for (unsigned round = 0; round < 20; round++) {
		uint64_t off = 0;
		unsigned nr = 0;

		rig_mem_fill(mem, 0, LEN, round, 0);
		for (; nr < 32; nr++) {
			uint64_t len = rig_below(2) ? 65536 : 4096 + rig_below(100000);

			if (rig_below(2))
				off = (off + 4095) & ~UINT64_C(4095);
			prep(rig_q, off, len, rig_below(4) ? 0 : PST_IO_CRC32C, 0);
			off += len;
		}
		T_EQ(pst_queue_submit(rig_q), nr);
		T_EQ(pst_queue_reap(rig_q, d, nr, nr, t_in_ms(RIG_WAIT_MS)), nr);
		for (unsigned i = 0; i < nr; i++) {
			bool is = d[i].paths & DIRECT;

			T_CHECK(d[i].res > 0);
			T_CHECK(is != !!(d[i].paths & BUFFERED) || d[i].why == PST_WHY_MIXED);
			direct += is;
		}
		T_EQ(rig_sync(file).res, 0);
		for (unsigned i = 0; i < nr; i++) {
			size_t len = (size_t)d[i].res;

			T_EQ(rig_slurp(rig_path("file"), d[i].user_data, buf, len), len);
			T_EQ(t_differs(buf, round, d[i].user_data, len), len);
		}
	}
	T_CHECK(direct);
	free(buf);
	close_file();
}

/* ------------------------------------------------------------------- reader */

static pid_t reader_pid;

static void stop_reader(void)
{
	if (reader_pid <= 0)
		return;
	(void)kill(reader_pid, SIGKILL);
	(void)waitpid(reader_pid, NULL, 0);
	reader_pid = 0;
}

/* Start a process that reads the file again and again, each time after dropping it from the page
 * cache, so that the kernel reads ahead into large folios. */
static void start_reader(void)
{
	reader_pid = fork();
	T_CHECK(reader_pid >= 0);
	if (reader_pid == 0) {
		static char buf[65536];
		int fd = open(rig_path("file"), O_RDONLY | O_CLOEXEC);

		(void)alarm(60); /* in case the parent dies */
		for (;;) {
			(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			for (off_t at = 0; pread(fd, buf, sizeof(buf), at) > 0;)
				at += (off_t)sizeof(buf);
		}
	}
}

/* Write adjacent chunks out of order while the other process reads. */
static void beside_reader(uint64_t chunk, uint64_t nr, unsigned rounds)
{
	uint8_t *buf = malloc(LEN);

	T_CHECK(buf);
	start_reader();
	for (unsigned round = 0; round < rounds; round++) {
		uint64_t turn = rig_below(nr), left = nr;
		struct pst_done d;

		rig_mem_fill(mem, 0, nr * chunk, round, 0);
		for (uint64_t i = 0; i < nr; i++, turn = (turn + 29) % nr)
			prep(rig_q, turn * chunk, chunk, 0, 0);
		T_EQ(pst_queue_submit(rig_q), (int)nr);
		for (; left; left--) {
			d = rig_reap1(rig_q);
			T_EQ(d.res, (int64_t)chunk);
		}
		d = rig_sync(file);
		if (d.res < 0)
			rig_show(&d);
		T_EQ(d.res, 0);
		T_EQ(rig_slurp(rig_path("file"), 0, buf, nr * chunk), nr * chunk);
		T_EQ(t_differs(buf, round, 0, nr * chunk), nr * chunk);
	}
	stop_reader();
	free(buf);
}

static void unaligned_beside_reader(void)
{
	open_proven();
	beside_reader(10000, 127, RIG_TSAN ? 30 : 120);
	close_file();
}

static void aligned_beside_reader(void)
{
	open_proven();
	beside_reader(8192, 127, 20);
	close_file();
}

int main(void)
{
	rig_init();
	(void)atexit(stop_reader);
	RIG_RUN(as_a_whole);
	RIG_RUN_BACKENDS(joined); /* not on devices, where writes start in no known order */
	RIG_RUN(behind_another_queue);
	RIG_RUN(behind_one_that_waits);
	/* not on devices, where an engine completes its own writes */
	RIG_RUN_BACKENDS(ended_by_another_queue);
	RIG_RUN(everything_at_once);
	RIG_RUN(unaligned_beside_reader);
	RIG_RUN(aligned_beside_reader);
	return rig_done();
}
