/* SPDX-License-Identifier: MIT */
/* Which path a request takes, and what it says about the paths it did not take. */
#include "policy.h"

/* --------------------------------------------------------------- automatic */

static void automatic(void)
{
	struct pst_done d;

	rig_needs_memlock();
	open_file(RIG_RW);
	needs_direct();
	d = ask(PST_OP_READ, 0, 0, 0, LEN);
	TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	d = ask(PST_OP_WRITE, 0, 0, 0, LEN);
	TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	d = ask(PST_OP_READ, 0, PST_IO_STRICT, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.why, PST_WHY_NONE);
	close_file();
}

/* Bytes in the page cache are read from there. */
static void warm(void)
{
	struct pst_done d;

	open_file(PST_FILE_READ);
	rig_warm(rig_path("file"));
	for (unsigned i = 0; i < 20; i++) {
		d = ask(PST_OP_READ, 0, PST_IO_STRICT, 4096 * i, 65536);
		TOOK(d, BIT(CACHED), PST_WHY_NONE);
	}
	d = ask(PST_OP_READ, 0, PST_IO_STRICT, 13, 65537);
	TOOK(d, BIT(CACHED), PST_WHY_NONE);
	close_file();
}

static void unaligned(void)
{
	struct pst_done d;

	open_file(RIG_RW);
	needs_direct();
	d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED), 0, 100, 100000);
	if (rig_soft()) { /* the slot has room for the blocks around the range */
		TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	} else {
		TOOK(d, BIT(DIRECT) | BIT(BUFFERED), PST_WHY_UNALIGNED);
		T_EQ(d.detail, rig_file_info(file).off_align);
	}
	T_EQ(rig_mem_differs(mem, 100, 100000, SEED, 100), 100000);
	/* An unaligned write uses the page cache as a whole. */
	d = ask(PST_OP_WRITE, 0, 0, 100, 100000);
	TOOK(d, BIT(BUFFERED), PST_WHY_UNALIGNED);
	T_EQ(d.detail, 4096);
	/* The range has no aligned block, so the page cache takes all of it. */
	d = ask(PST_OP_WRITE, PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED), 0, 100, 300);
	TOOK(d, BIT(BUFFERED), PST_WHY_UNALIGNED);
	/* O_DIRECT alone cannot write this range. */
	d = ask(PST_OP_WRITE, PST_POLICY1(PST_PATH_DIRECT), 0, 100, 300);
	REFUSED(d, PST_WHY_UNALIGNED);
	d = ask(PST_OP_WRITE, 0, PST_IO_STRICT, 100, 100000);
	REFUSED(d, PST_WHY_UNALIGNED);
	T_EQ(rig_file_info(file).direct, 1);
	close_file();
}

/* A policy that ends with O_DIRECT may fail, but must not turn O_DIRECT off for the file. */
static void cached_then_direct(void)
{
	struct pst_done d;

	open_file(RIG_RW);
	needs_direct();
	d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_CACHED, PST_PATH_DIRECT), 0, 0, LEN);
	TOOK(d, BIT(DIRECT), PST_WHY_NOT_RESIDENT);
	rig_cold(rig_path("file"));
	d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_CACHED, PST_PATH_DIRECT), 0, 100, 100000);
	if (rig_soft())
		T_EQ(d.res, 100000);
	else
		T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(rig_file_info(file).direct, 1);
	d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), PST_IO_STRICT, 0, LEN);
	TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	close_file();
}

/* -------------------------------------------------------------------- lists */

static void listed_cached(void)
{
	const uint64_t only = PST_POLICY1(PST_PATH_CACHED);
	struct pst_done d;

	open_file(PST_FILE_READ);
	if (rig_file_info(file).direct) { /* a file in memory is always cached */
		for (unsigned i = 0; i < 5; i++) {
			d = ask(PST_OP_READ, only, 0, 0, LEN);
			REFUSED(d, PST_WHY_NOT_RESIDENT);
		}
		d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_CACHED, PST_PATH_BUFFERED), PST_IO_STRICT,
			0, LEN);
		REFUSED(d, PST_WHY_NOT_RESIDENT);
		rig_cold(rig_path("file"));
		d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_CACHED, PST_PATH_BUFFERED), 0, 0, LEN);
		T_EQ(d.res, LEN);
		T_EQ(d.why, PST_WHY_NOT_RESIDENT);
	}
	rig_warm(rig_path("file"));
	d = ask(PST_OP_READ, only, PST_IO_STRICT, 0, LEN);
	TOOK(d, BIT(CACHED), PST_WHY_NONE);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	/* A read across the end of the file is no cache miss. */
	d = ask(PST_OP_READ, only, PST_IO_STRICT, LEN - 5000, 100000);
	TOOK(d, BIT(CACHED), PST_WHY_NONE);
	T_EQ(d.res, 5000);
	d = ask(PST_OP_READ, only, PST_IO_STRICT, LEN, 100000);
	T_EQ(d.res, 0);
	T_EQ(d.why, PST_WHY_NONE);
	close_file();
}

static void impossible_paths(void)
{
	static const struct {
		uint32_t path, why;
	} list[] = {
		{ PST_PATH_GDS, PST_WHY_NO_DEVICE },
		{ PST_PATH_WINDOW, PST_WHY_NO_PROVIDER },
		{ PST_PATH_GATHER, PST_WHY_NO_PROVIDER },
		{ 12, PST_WHY_NO_PROVIDER },
		{ 15, PST_WHY_NO_PROVIDER },
	};
	struct pst_done d;

	open_file(RIG_RW);
	rig_mem_fill(mem, 0, LEN, 5, 0);
	for (unsigned i = 0; i < RIG_NR(list); i++) {
		struct pst_path_info info = { .sz = sizeof(info) };

		if (list[i].path == PST_PATH_WINDOW && rig_soft())
			continue; /* skip: the software device has windows */
		d = ask(PST_OP_READ, PST_POLICY1(list[i].path), 0, 0, 8192);
		REFUSED(d, list[i].why);
		d = ask(PST_OP_WRITE, PST_POLICY1(list[i].path), PST_IO_STRICT, 0, 8192);
		REFUSED(d, list[i].why);
		T_EQ(d.prefix, 0);
		T_EQ(d.paths, 0);
		d = ask(PST_OP_READ, PST_POLICY2(list[i].path, PST_PATH_BUFFERED), PST_IO_STRICT, 0,
			8192);
		REFUSED(d, list[i].why);
		/* No byte has moved. */
		T_EQ(rig_mem_differs(mem, 0, 8192, 5, 0), 8192);
		T_CHECK(rig_slurp(rig_path("file"), 0, &(char[1]){ 0 }, 1) == 1);
		d = ask(PST_OP_READ,
			PST_POLICY3(list[i].path, rig_soft() ? PST_PATH_STAGED : PST_PATH_GDS,
				    PST_PATH_BUFFERED),
			0, 0, 8192);
		TOOK(d, BIT(BUFFERED), list[i].why);
		rig_mem_fill(mem, 0, LEN, 5, 0);
		if (list[i].path > PST_PATH_GDS)
			continue;
		T_OK(pst_path_check(file, mem, PST_OP_READ, list[i].path, &info));
		T_EQ(info.state, PST_STATE_IMPOSSIBLE);
		T_EQ(info.why, list[i].why);
	}
	d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_PAGECACHE), 0, 0, 8192);
	REFUSED(d, PST_WHY_NO_PROVIDER);
	d = ask(PST_OP_WRITE, PST_POLICY1(PST_PATH_PAGECACHE), 0, 0, 8192);
	REFUSED(d, PST_WHY_DIRECTION);
	d = ask(PST_OP_WRITE, PST_POLICY1(PST_PATH_CACHED), 0, 0, 8192);
	REFUSED(d, PST_WHY_DIRECTION);
	if (!rig_soft()) {
		d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_STAGED), 0, 0, 8192);
		REFUSED(d, PST_WHY_NO_PROVIDER);
	}
	close_file();
}

/* A policy of a device hop alone leaves the file hop to the library, even for strict requests. */
static void device_hop_alone(void)
{
	struct pst_done d;

	open_file(RIG_RW);
	for (unsigned i = 0; i < 3; i++) {
		rig_cold(rig_path("file"));
		d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_STAGED), PST_IO_STRICT, 0, LEN);
		T_EQ(d.res, LEN);
		T_EQ(d.why, PST_WHY_NONE);
	}
	d = ask(PST_OP_WRITE, PST_POLICY1(PST_PATH_STAGED), PST_IO_STRICT, 0, LEN);
	T_EQ(d.why, PST_WHY_NONE);
	rig_warm(rig_path("file"));
	d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_STAGED, PST_PATH_BUFFERED), 0, 0, LEN);
	TOOK(d, BIT(BUFFERED), PST_WHY_NONE);
	close_file();
}

/* -------------------------------------------------------------------- files */

static void plain_file(void)
{
	struct pst_done d;

	rig_needs_memlock();
	open_file(RIG_RW | PST_FILE_PLAIN);
	T_EQ(rig_file_info(file).direct, 0);
	T_EQ(rig_file_info(file).why, PST_WHY_NONE);
	d = ask(PST_OP_READ, 0, PST_IO_STRICT, 7, 100001);
	T_EQ(d.res, 100001);
	T_EQ(d.paths & BIT(DIRECT), 0);
	T_EQ(d.why, PST_WHY_NONE);
	d = ask(PST_OP_WRITE, 0, PST_IO_STRICT, 7, 100001);
	TOOK(d, BIT(BUFFERED), PST_WHY_NONE);
	d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), 0, 0, 4096);
	REFUSED(d, PST_WHY_NO_DIRECT);
	d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED), 0, 0, 4096);
	TOOK(d, BIT(BUFFERED), PST_WHY_NO_DIRECT);
	close_file();
}

static void in_memory(void)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	char path[] = "/dev/shm/pst-policy-XXXXXX";
	struct statfs sfs;
	struct pst_done d;
	int fd;

	rig_needs_memlock();
	fd = mkstemp(path);
	if (fd < 0 || fstatfs(fd, &sfs) < 0 || sfs.f_type != 0x01021994) {
		if (fd >= 0) {
			(void)close(fd);
			(void)unlink(path);
		}
		T_SKIP("a tmpfs on /dev/shm");
	}
	(void)close(fd);
	rig_make(path, SEED, LEN);
	file = rig_open(path, RIG_RW);
	(void)unlink(path);
	mem = rig_alloc(rig_dev, LEN + 4096);
	T_OK(pst_file_info(file, &info));
	T_EQ(strcmp(info.fs, "tmpfs"), 0);
	d = ask(PST_OP_READ, 0, PST_IO_STRICT, 33, 100000);
	TOOK(d, BIT(CACHED), PST_WHY_NONE);
	T_EQ(rig_mem_differs(mem, 33, 100000, SEED, 33), 100000);
	d = ask(PST_OP_WRITE, 0, PST_IO_STRICT, 33, 100000);
	TOOK(d, BIT(BUFFERED), PST_WHY_NONE);
	if (!info.direct) {
		T_EQ(info.why, PST_WHY_NO_DIRECT);
		d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), 0, 0, 4096);
		REFUSED(d, PST_WHY_NO_DIRECT);
	}
	close_file();
}

static void on_fuse(void)
{
	struct fusefs fs;
	struct pst_done d;
	char path[200];

	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/normal", fs.dir);
	file = rig_open(path, PST_FILE_READ);
	mem = rig_alloc(rig_dev, LEN + 4096);
	T_EQ(strcmp(rig_file_info(file).fs, "fuse"), 0);
	d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED), 0, 0, LEN);
	if (rig_file_info(file).direct) {
		T_EQ(d.res, LEN);
	} else {
		T_EQ(rig_file_info(file).why, PST_WHY_NO_DIRECT);
		TOOK(d, BIT(BUFFERED), PST_WHY_NO_DIRECT);
		d = ask(PST_OP_READ, 0, PST_IO_STRICT, 0, LEN);
		REFUSED(d, PST_WHY_NO_DIRECT);
	}
	d = ask(PST_OP_READ, 0, 0, 99, 100000);
	T_EQ(d.res, 100000);
	T_EQ(rig_mem_differs(mem, 99, 100000, FUSEFS_SEED, 99), 100000);
	close_file();
	rig_q = pst_queue_free(rig_q);
	fusefs_stop(&fs);
}

/* ------------------------------------------------------------ what is said */

static void checks(void)
{
	static const uint32_t known[] = { PST_PATH_CACHED, PST_PATH_BUFFERED };
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_done d;

	open_file(RIG_RW);
	for (unsigned i = 0; i < RIG_NR(known); i++) {
		T_OK(pst_path_check(file, mem, PST_OP_READ, known[i], &info));
		T_EQ(info.path, known[i]);
		T_EQ(info.state, PST_STATE_PROVEN);
	}
	T_OK(pst_path_check(file, mem, PST_OP_WRITE, PST_PATH_CACHED, &info));
	T_EQ(info.state, PST_STATE_IMPOSSIBLE);
	T_EQ(info.why, PST_WHY_DIRECTION);
	T_OK(pst_path_check(file, mem, PST_OP_READ, PST_PATH_STAGED, &info));
	T_EQ(info.state == PST_STATE_IMPOSSIBLE, !rig_soft());
	d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED), 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_OK(pst_path_check(file, mem, PST_OP_READ, PST_PATH_DIRECT, &info));
	T_EQ(info.state, rig_file_info(file).direct ? PST_STATE_PROVEN : PST_STATE_IMPOSSIBLE);
	T_EQ(!!(info.why), !rig_file_info(file).direct);
	if (rig_soft()) {
		T_OK(pst_path_check(file, mem, PST_OP_READ, PST_PATH_STAGED, &info));
		T_EQ(info.state, PST_STATE_PROVEN);
	}
	close_file();
}

static void counters(void)
{
	struct pst_stats a, b, all = rig_stats(NULL);
	struct pst_done d;

	rig_needs_memlock();
	open_file(RIG_RW);
	needs_direct();
	a = rig_stats(rig_q);
	T_EQ(a.requests | a.errors | a.fallbacks | a.inflight | a.busy, 0);
	d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), 0, 0, LEN);
	TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	b = rig_stats(rig_q);
	T_EQ(b.requests, 1);
	T_EQ(b.fallbacks, 0);
	T_EQ(b.bytes[PST_PATH_DIRECT], LEN);
	T_EQ(b.bytes[PST_PATH_STAGED], rig_soft() ? LEN : 0);
	T_EQ(b.bytes[PST_PATH_BUFFERED], 0);
	d = ask(PST_OP_WRITE, 0, 0, 100, 81920);
	T_EQ(d.why, PST_WHY_UNALIGNED);
	b = rig_stats(rig_q);
	T_EQ(b.fallbacks, 1);
	T_EQ(b.why[PST_WHY_UNALIGNED], 1);
	T_EQ(b.bytes[PST_PATH_DIRECT], LEN);
	T_EQ(b.bytes[PST_PATH_BUFFERED], 81920);
	T_EQ(b.bytes[PST_PATH_STAGED], rig_soft() ? LEN + 81920 : 0);
	d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_GDS), 0, 0, 4096);
	REFUSED(d, PST_WHY_NO_DEVICE);
	b = rig_stats(rig_q);
	T_EQ(b.requests, 3);
	T_EQ(b.errors, 1);
	T_EQ(b.why[PST_WHY_NO_DEVICE], 1);
	T_EQ(b.timeouts | b.canceled, 0);
	T_EQ(b.pool_bytes > rig_before.pool_bytes, rig_soft());
	T_CHECK(b.pool_bytes <= b.pool_limit);
	/* The process' counters keep those of a freed queue. */
	rig_q = pst_queue_free(rig_q);
	b = rig_stats(NULL);
	T_EQ(b.requests - all.requests, 3);
	T_EQ(b.bytes[PST_PATH_DIRECT] - all.bytes[PST_PATH_DIRECT], LEN);
	close_file();
}

int main(void)
{
	/* Small staged requests must not use a window here. */
	(void)setenv("PST_WINDOW", "off", 1);
	rig_init();
	RIG_RUN(automatic);
	RIG_RUN(warm);
	RIG_RUN(unaligned);
	RIG_RUN(cached_then_direct);
	RIG_RUN(listed_cached);
	RIG_RUN(impossible_paths);
	RIG_RUN_SOFT(device_hop_alone);
	RIG_RUN(plain_file);
	RIG_RUN(in_memory);
	RIG_RUN(on_fuse);
	RIG_RUN(checks);
	RIG_RUN(counters);
	return rig_done();
}
