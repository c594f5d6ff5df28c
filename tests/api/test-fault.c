/* SPDX-License-Identifier: MIT */
/*
 * Files that fail: short counts, errors in the middle, no space, an end that moves.  All bytes
 * that a completion counts have moved, and no error is reported as success.
 */
#include "rig.h"

#include "fusefs.h"

#define LEN RIG_MIB(2)

static struct fusefs fs;
static struct pst_mem *mem;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

static struct pst_file *mount_and_open(const char *name, uint32_t flags)
{
	char path[200];

	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/%s", fs.dir, name);
	mem = rig_alloc(rig_dev, FUSEFS_SIZE + 4096);
	return rig_open(path, flags);
}

static void close_and_unmount(struct pst_file *f)
{
	pst_file_close(f);
	mem = pst_mem_free(mem);
	rig_q = pst_queue_free(rig_q);
	fusefs_stop(&fs);
}

static struct pst_done read_at(struct pst_file *f, uint64_t off, uint64_t len)
{
	struct pst_io io = rig_io(PST_OP_READ, f, mem, off, 0, len);
	struct pst_done d;

	io.flags = PST_IO_CRC32C;
	d = rig_do(rig_q, &io);
	T_EQ(rig_mem_differs(mem, 0, d.prefix, FUSEFS_SEED, off), d.prefix);
	if (d.res >= 0)
		T_EQ(d.prefix, d.res);
	return d;
}

static void odd_counts(void)
{
	struct pst_file *f = mount_and_open("short", PST_FILE_READ);

	T_EQ(read_at(f, 0, LEN).res, LEN);
	T_EQ(read_at(f, 777, 300001).res, 300001);
	T_EQ(read_at(f, FUSEFS_SIZE - 5000, 10000).res, 5000);
	close_and_unmount(f);
}

static void error_in_the_middle(void)
{
	struct pst_file *f = mount_and_open("eio", PST_FILE_READ);
	struct pst_done d;

	T_EQ(read_at(f, 0, RIG_MIB(1)).res, RIG_MIB(1));
	d = read_at(f, 0, LEN);
	T_EQ(d.res, -EIO);
	T_CHECK(d.prefix <= RIG_MIB(1));
	T_CHECK(!(d.flags & PST_DONE_BUSY));
	d = read_at(f, 4096 + 13, LEN);
	T_EQ(d.res, -EIO);
	T_CHECK(d.prefix <= RIG_MIB(1) - 4096 - 13);
	d = read_at(f, RIG_MIB(1), 4096);
	T_EQ(d.res, -EIO);
	T_EQ(d.prefix, 0);
	T_EQ(rig_stats(rig_q).errors, 3);
	/* An error of one piece keeps the count of the pieces before it. */
	{
		struct pst_seg segs[] = { { 0, 0, 10000, 0, 0, 1 },
					  { RIG_MIB(1), 10000, 10000, 0, 0, 1 },
					  { 20000, 20000, 10000, 0, 0, 1 } };
		struct pst_io io = {
			.op = PST_OP_READ, .file = f, .mem = mem, .segs = segs, .nr_segs = 3
		};

		d = rig_do(rig_q, &io);
		T_EQ(d.res, -EIO);
		T_EQ(d.prefix, 10000);
		T_EQ(rig_mem_differs(mem, 0, 10000, FUSEFS_SEED, 0), 10000);
	}
	close_and_unmount(f);
}

/* The server of the file was restarted: requests end with -ESTALE until it answers again. */
static void stale(void)
{
	struct pst_file *f = mount_and_open("stale", RIG_RW), *other;
	struct pst_done d;
	char path[200];

	for (unsigned i = 0; i < 3; i++) {
		d = read_at(f, 4096, LEN);
		T_EQ(d.res, -ESTALE);
		T_EQ(d.prefix, 0);
		T_CHECK(!(d.flags & PST_DONE_BUSY));
		d = rig_write(f, mem, 0, 0, 4096);
		T_EQ(d.res, -ESTALE);
		T_EQ(d.prefix, 0);
		T_EQ(rig_sync(f).res, -ESTALE);
	}
	T_EQ(rig_stats(rig_q).errors, 9);
	/* Other files of the same file system are not affected. */
	(void)snprintf(path, sizeof(path), "%s/normal", fs.dir);
	other = rig_open(path, PST_FILE_READ);
	T_EQ(read_at(other, 0, LEN).res, LEN);
	pst_file_close(other);
	fusefs_release(&fs);
	T_EQ(read_at(f, 4096, LEN).res, LEN);
	T_EQ(rig_write(f, mem, 0, 0, 4096).res, 4096);
	T_EQ(rig_sync(f).res, 0);
	close_and_unmount(f);
}

/* The file has fewer bytes than its size: reads end there. */
static void shorter_than_said(void)
{
	struct pst_file *f = mount_and_open("shrink", PST_FILE_READ);

	T_EQ(read_at(f, 0, LEN).res, RIG_MIB(1));
	T_EQ(read_at(f, RIG_MIB(1) - 100, LEN).res, 100);
	T_EQ(read_at(f, RIG_MIB(1), LEN).res, 0);
	close_and_unmount(f);
}

static void no_space(void)
{
	struct pst_file *f = mount_and_open("full", RIG_RW);
	struct pst_done d;

	rig_mem_fill(mem, 0, LEN, FUSEFS_SEED, 0);
	d = rig_write(f, mem, 0, 0, LEN);
	if (d.res != -ENOSPC) /* the kernel's error for an asynchronous write that is cut short */
		T_EQ(d.res, -EIO);
	T_CHECK(d.prefix <= RIG_MIB(1));
	d = rig_write(f, mem, 100, 100, 100000);
	T_EQ(d.res, 100000);
	d = rig_write(f, mem, RIG_MIB(1), 0, 4096);
	T_CHECK(d.res == -ENOSPC || d.res == -EIO);
	T_EQ(d.prefix, 0);
	close_and_unmount(f);
}

static void slow(void)
{
	struct pst_file *f = mount_and_open("slow", RIG_RW);
	uint64_t t0 = t_now();

	T_EQ(read_at(f, 0, 300000).res, 300000);
	T_EQ(read_at(f, 13, 300000).res, 300000);
	T_CHECK(t_now() - t0 >= 40 * 1000000u);
	close_and_unmount(f);
}

/* Truncate the file during a read. */
static void truncated(void)
{
	const uint64_t len = RIG_MIB(8);
	struct pst_mem *m = rig_alloc(rig_dev, len);

	for (unsigned i = 0; i < 12; i++) {
		uint64_t left = i % 3 ? RIG_MIB(1) + 17 * i : 0;
		struct pst_io io;
		struct pst_done d;
		struct pst_file *f;

		rig_make(rig_path("file"), 3, len);
		if (i & 1)
			rig_cold(rig_path("file"));
		f = rig_open(rig_path("file"), PST_FILE_READ);
		io = rig_io(PST_OP_READ, f, m, i & 2 ? 13 : 0, 0, len - 100);
		io.flags = PST_IO_CRC32C;
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		(void)usleep(i * 100);
		T_EQ(truncate(rig_path("file"), (off_t)left), 0);
		d = rig_reap1(rig_q);
		T_CHECK(d.res >= 0 && d.res <= (int64_t)len - 100);
		/* Bytes before the new end are right.  Those after it may be the old ones or
		 * zeroes. */
		T_CHECK(d.prefix == (uint64_t)d.res);
		left = left > io.file_off ? left - io.file_off : 0;
		left = left < d.prefix ? left : d.prefix;
		T_EQ(rig_mem_differs(m, 0, left, 3, io.file_off), left);
		pst_file_close(f);
	}
	pst_mem_free(m);
}

/* A write past the largest file offset fails, and the file stays empty. */
static void file_size_limit(void)
{
	struct pst_file *f = rig_open(rig_path("file"), RIG_NEW);
	struct pst_mem *m = rig_alloc(rig_dev, 8192);
	struct pst_done d = rig_write(f, m, INT64_MAX - 8192, 0, 8192);

	T_CHECK(d.res == -EFBIG || d.res == -EINVAL);
	T_EQ(d.prefix, 0);
	T_EQ(rig_file_info(f).size, 0);
	/* Later requests work, and O_DIRECT is not blamed for the failure. */
	d = rig_read(f, m, INT64_MAX - 100, 0, 100);
	T_CHECK(d.res == 0 || d.res == -EINVAL);
	T_EQ(rig_write(f, m, 0, 0, 8192).res, 8192);
	T_CHECK(rig_file_info(f).why == PST_WHY_NONE || !rig_file_info(f).direct);
	d = rig_write(f, m, 0, 0, 8192);
	T_CHECK(d.why != PST_WHY_DIRECT_ERROR);
	pst_file_close(f);
	pst_mem_free(m);
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN(odd_counts);
	RIG_RUN(error_in_the_middle);
	RIG_RUN(stale);
	RIG_RUN(shorter_than_said);
	RIG_RUN(no_space);
	RIG_RUN(slow);
	RIG_RUN(truncated);
	RIG_RUN(file_size_limit);
	return rig_done();
}
