/* SPDX-License-Identifier: MIT */
/*
 * Which path a request takes, and what it says about the one it did not take.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "rig.h"

#include "forbid.h"
#include "fusefs.h"

#define SEED 11
#define LEN RIG_MIB(2)

#define BIT(name) PST_PATH_BIT(PST_PATH_##name)
#define FILE_HOPS (BIT(DIRECT) | BIT(CACHED) | BIT(BUFFERED))

static struct pst_file *file;
static struct pst_mem *mem;

static void begin(uint32_t flags)
{
	if (rig_soft() && rig_backend == PST_BACKEND_URING)
		rig_needs_memlock();    /* of the staging pool */
	(void)unlink(rig_path("file")); /* it may be another user's */
	rig_make(rig_path("file"), SEED, LEN);
	rig_cold(rig_path("file"));
	file = rig_open(rig_path("file"), flags);
	mem = rig_alloc(rig_dev, LEN + 4096);
}

static void end(void)
{
	file = pst_file_close(file);
	mem = pst_mem_free(mem);
}

static void needs_direct(void)
{
	struct pst_file_info info = rig_file_info(file);

	if (info.direct)
		return;
	end();
	T_SKIP("O_DIRECT on %s", info.fs);
}

static struct pst_done ask(uint32_t op, uint64_t policy, uint32_t flags, uint64_t off, uint64_t len)
{
	struct pst_io io = rig_io(op, file, mem, off, off % 4096, len);

	io.policy = policy;
	io.flags = flags;
	return rig_do(rig_q, &io);
}

/* It came by these file hops and no others, for this reason. */
#define TOOK(d, hops, reason)                                                                \
	do {                                                                                 \
		if ((d).res < 0 || ((d).paths & FILE_HOPS) != (hops) || (d).why != (reason)) \
			rig_show(&(d));                                                      \
		T_CHECK((d).res > 0);                                                        \
		T_EQ((d).paths &FILE_HOPS, hops);                                            \
		T_EQ(!!((d).paths & BIT(STAGED)), rig_soft());                               \
		T_EQ((d).why, reason);                                                       \
	} while (0)

#define REFUSED(d, reason)                                         \
	do {                                                       \
		if ((d).res != -EOPNOTSUPP || (d).why != (reason)) \
			rig_show(&(d));                            \
		T_EQ((d).res, -EOPNOTSUPP);                        \
		T_EQ((d).why, reason);                             \
	} while (0)

/* --------------------------------------------------------------- automatic */

static void automatic(void)
{
	struct pst_done d;

	rig_needs_memlock();
	begin(RIG_RW);
	needs_direct();
	d = ask(PST_OP_READ, 0, 0, 0, LEN);
	TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	d = ask(PST_OP_WRITE, 0, 0, 0, LEN);
	TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	d = ask(PST_OP_READ, 0, PST_IO_STRICT, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.why, PST_WHY_NONE);
	end();
}

/* What the page cache has is read from there. */
static void warm(void)
{
	struct pst_done d;

	begin(PST_FILE_READ);
	rig_warm(rig_path("file"));
	for (unsigned i = 0; i < 20; i++) {
		d = ask(PST_OP_READ, 0, PST_IO_STRICT, 4096 * i, 65536);
		TOOK(d, BIT(CACHED), PST_WHY_NONE);
	}
	d = ask(PST_OP_READ, 0, PST_IO_STRICT, 13, 65537);
	TOOK(d, BIT(CACHED), PST_WHY_NONE);
	end();
}

static void unaligned(void)
{
	struct pst_done d;

	begin(RIG_RW);
	needs_direct();
	d = ask(PST_OP_READ, PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED), 0, 100, 100000);
	if (rig_soft()) { /* the blocks around it go into the slot */
		TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	} else {
		TOOK(d, BIT(DIRECT) | BIT(BUFFERED), PST_WHY_UNALIGNED);
		T_EQ(d.detail, rig_file_info(file).off_align);
	}
	T_EQ(rig_mem_differs(mem, 100, 100000, SEED, 100), 100000);
	/* A write as a whole. */
	d = ask(PST_OP_WRITE, 0, 0, 100, 100000);
	TOOK(d, BIT(BUFFERED), PST_WHY_UNALIGNED);
	T_EQ(d.detail, 4096);
	/* No aligned block in it: where the path is listed, for a small one has no better. */
	d = ask(PST_OP_WRITE, PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED), 0, 100, 300);
	TOOK(d, BIT(BUFFERED), PST_WHY_UNALIGNED);
	/* O_DIRECT alone cannot. */
	d = ask(PST_OP_WRITE, PST_POLICY1(PST_PATH_DIRECT), 0, 100, 300);
	REFUSED(d, PST_WHY_UNALIGNED);
	d = ask(PST_OP_WRITE, 0, PST_IO_STRICT, 100, 100000);
	REFUSED(d, PST_WHY_UNALIGNED);
	T_EQ(rig_file_info(file).direct, 1);
	end();
}

/* A list whose last hop is O_DIRECT does not spoil the file for it. */
static void cached_then_direct(void)
{
	struct pst_done d;

	begin(RIG_RW);
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
	end();
}

/* -------------------------------------------------------------------- lists */

static void listed_cached(void)
{
	const uint64_t only = PST_POLICY1(PST_PATH_CACHED);
	struct pst_done d;

	begin(PST_FILE_READ);
	if (rig_file_info(file).direct) { /* a file system in memory is never cold */
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
	/* The end of the file is no miss. */
	d = ask(PST_OP_READ, only, PST_IO_STRICT, LEN - 5000, 100000);
	TOOK(d, BIT(CACHED), PST_WHY_NONE);
	T_EQ(d.res, 5000);
	d = ask(PST_OP_READ, only, PST_IO_STRICT, LEN, 100000);
	T_EQ(d.res, 0);
	T_EQ(d.why, PST_WHY_NONE);
	end();
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

	begin(RIG_RW);
	rig_mem_fill(mem, 0, LEN, 5, 0);
	for (unsigned i = 0; i < RIG_NR(list); i++) {
		struct pst_path_info info = { .sz = sizeof(info) };

		if (list[i].path == PST_PATH_WINDOW && rig_soft())
			continue; /* possible there */
		d = ask(PST_OP_READ, PST_POLICY1(list[i].path), 0, 0, 8192);
		REFUSED(d, list[i].why);
		d = ask(PST_OP_WRITE, PST_POLICY1(list[i].path), PST_IO_STRICT, 0, 8192);
		REFUSED(d, list[i].why);
		T_EQ(d.prefix, 0);
		T_EQ(d.paths, 0);
		d = ask(PST_OP_READ, PST_POLICY2(list[i].path, PST_PATH_BUFFERED), PST_IO_STRICT, 0,
			8192);
		REFUSED(d, list[i].why);
		/* Nothing has moved. */
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
	end();
}

/* A device hop alone leaves the file hop to the library, without complaints. */
static void device_hop_alone(void)
{
	struct pst_done d;

	if (!rig_soft())
		T_SKIP("device memory in this round");
	begin(RIG_RW);
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
	end();
}

/* -------------------------------------------------------------------- files */

static void plain_file(void)
{
	struct pst_done d;

	rig_needs_memlock();
	begin(RIG_RW | PST_FILE_PLAIN);
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
	end();
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
	end();
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
	end();
	rig_q = pst_queue_free(rig_q);
	fusefs_stop(&fs);
}

/* ------------------------------------------------------------ what is said */

static void checks(void)
{
	static const uint32_t known[] = { PST_PATH_CACHED, PST_PATH_BUFFERED };
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_done d;

	begin(RIG_RW);
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
	end();
}

static void counters(void)
{
	struct pst_stats a, b, all = rig_stats(NULL);
	struct pst_done d;

	rig_needs_memlock();
	begin(RIG_RW);
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
	/* What a queue counted is not lost with it. */
	rig_q = pst_queue_free(rig_q);
	b = rig_stats(NULL);
	T_EQ(b.requests - all.requests, 3);
	T_EQ(b.bytes[PST_PATH_DIRECT] - all.bytes[PST_PATH_DIRECT], LEN);
	end();
}

/* -------------------------------------------------- what a machine forbids */

/* Cases that need a process in which the library was not used yet run themselves in one. */
static void in_child(void (*fn)(void))
{
	int status, out[2];
	char text[512] = "";
	pid_t pid;
	ssize_t n;

	T_EQ(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		int how = setjmp(t_jump);

		if (!how)
			fn();
		else
			(void)!write(out[1], t_why, strlen(t_why));
		_exit(how);
	}
	(void)close(out[1]);
	n = read(out[0], text, sizeof(text) - 1);
	(void)close(out[0]);
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && n >= 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == T_JUMP_SKIP)
		T_SKIP("%s", text);
	if (status)
		T_FAIL("status %d: %.300s", status, text);
}

static uint32_t forbidden_store;

static void without_uring_here(void)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = PST_BACKEND_URING };
	struct pst_queue *q = NULL;
	struct pst_done d;

	forbid(__NR_io_uring_setup);
	T_EQ(rig_backend_check(PST_BACKEND_URING), -EPERM);
	T_CHECK(strstr(pst_error_text(), "io_uring"));
	T_EQ(pst_queue_new(&o, &q), -EPERM);
	T_CHECK(strstr(pst_error_text(), "io_uring"));
	T_CHECK(!q);

	rig_q = rig_queue(forbidden_store, 0);
	begin(RIG_RW);
	d = ask(PST_OP_READ, 0, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	if (forbidden_store == PST_BACKEND_THREADS) {
		T_EQ(d.why, PST_WHY_NONE);
	} else {
		T_EQ(d.why, PST_WHY_NO_URING);
		T_EQ(d.detail, EPERM);
		rig_mem_fill(mem, 0, LEN, 5, 0);
		d = ask(PST_OP_READ, 0, PST_IO_STRICT, 0, LEN);
		REFUSED(d, PST_WHY_NO_URING);
		T_EQ(rig_mem_differs(mem, 0, LEN, 5, 0), LEN);
		d = ask(PST_OP_WRITE, 0, PST_IO_STRICT, 0, LEN);
		REFUSED(d, PST_WHY_NO_URING);
		T_EQ(rig_stats(rig_q).why[PST_WHY_NO_URING], 3);
	}
	d = ask(PST_OP_WRITE, 0, 0, 0, LEN);
	T_EQ(d.res, LEN);
	end();
	rig_q = pst_queue_free(rig_q);
	rig_quiet();
}

/* A sandbox that forbids what a queue already uses: requests end at once, and nobody spins. */
static void without_uring_later_here(void)
{
	struct pst_done d[8];
	uint64_t cpu;

	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring");
	begin(RIG_RW);
	needs_direct();
	rig_q = rig_queue(PST_BACKEND_URING, 8);
	d[0] = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), 0, 0, LEN);
	T_EQ(d[0].res, LEN);
	forbid(__NR_io_uring_enter);
	cpu = t_cpu();
	for (unsigned i = 0; i < 8; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, mem, i * 4096, i * 4096, 4096);

		io.policy = PST_POLICY1(PST_PATH_DIRECT);
		io.user_data = i;
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 8);
	T_EQ(pst_queue_cancel(rig_q, 7), 1);
	T_EQ(pst_queue_reap(rig_q, d, 8, 8, t_in_ms(RIG_WAIT_MS)), 8);
	for (unsigned i = 0; i < 8; i++) {
		T_CHECK(d[i].res == -EPERM || (d[i].user_data == 7 && d[i].res == -ECANCELED));
		T_CHECK(!(d[i].flags & PST_DONE_BUSY));
	}
	T_CHECK(t_cpu() - cpu < 500000000);
	T_EQ(rig_stats(NULL).busy, 0);
	T_OK(pst_mem_drain(mem, 0));
	end();
	rig_q = pst_queue_free(rig_q);
	rig_quiet();
}

static void without_uring_later(void)
{
	rig_dev = "host";
	in_child(without_uring_later_here);
}

static void without_uring(void)
{
	for (unsigned i = 0; i < 2; i++) {
		rig_dev = i ? "soft:0" : "host";
		forbidden_store = PST_BACKEND_AUTO;
		in_child(without_uring_here);
		forbidden_store = PST_BACKEND_THREADS; /* what was asked for is no fallback */
		in_child(without_uring_here);
	}
}

static atomic_uint troubles;

static void no_trouble(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	printf("# %s\n", line);
	troubles++;
}

static void without_memlock_here(void)
{
	/* Enough for rings, then for nothing. */
	struct rlimit rl = { 3 << 19, 3 << 19 };
	uint64_t until = t_in_ms(RIG_WAIT_MS);
	struct pst_done d;

	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring");
	begin(RIG_RW); /* while this user may */
	needs_direct();
	if (setrlimit(RLIMIT_MEMLOCK, &rl) < 0 || (getuid() == 0 && setuid(t_stranger()) < 0))
		T_SKIP("another user: %s", strerror(errno));
	rig_q = rig_queue(PST_BACKEND_URING, 8);
	/* So few bytes that the limit holds for them, if they are read twice to be sure of them. */
	d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), 0, 0, LEN / 4);
	TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	rl.rlim_cur = 4096;
	T_EQ(setrlimit(RLIMIT_MEMLOCK, &rl), 0);
	pst_log_set(no_trouble, NULL, PST_LOG_WARN);
	/* It is said where registering would be worth it, that is with memory used again. */
	do
		d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), 0, 0, LEN);
	while (d.why == PST_WHY_NONE && t_now() < until);
	TOOK(d, BIT(DIRECT), PST_WHY_MEMLOCK);
	T_EQ(d.detail, ENOMEM);
	T_EQ(d.flags & PST_DONE_PINNED, 0);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	/* That changes the price and not the path. */
	d = ask(PST_OP_READ, PST_POLICY1(PST_PATH_DIRECT), PST_IO_STRICT, 0, LEN);
	TOOK(d, BIT(DIRECT), PST_WHY_MEMLOCK);
	T_EQ(rig_stats(NULL).errors, 0);
	end();
	rig_q = pst_queue_free(rig_q);
	rig_quiet();
	T_EQ(troubles, 0);
}

static void without_memlock(void)
{
	rig_needs_memlock();
	rig_dev = "host";
	in_child(without_memlock_here);
	rig_dev = "soft:0";
	in_child(without_memlock_here);
}

static void small_writes_here(void)
{
	const char *env = getenv("PST_SMALL_WRITE");
	uint64_t max = env ? strtoull(env, NULL, 0) << 10 : 0;
	struct pst_done d;

	rig_q = rig_queue(PST_BACKEND_AUTO, 8);
	begin(RIG_RW);
	needs_direct();
	for (uint64_t len = 4096; len <= 65536; len *= 2) {
		d = ask(PST_OP_WRITE, 0, PST_IO_STRICT, 0, len);
		TOOK(d, len <= max ? BIT(BUFFERED) : BIT(DIRECT), PST_WHY_NONE);
		/* Of any alignment. */
		d = ask(PST_OP_WRITE, 0, 0, 100, len);
		TOOK(d, BIT(BUFFERED), len <= max ? PST_WHY_NONE : PST_WHY_UNALIGNED);
		/* A policy that lists the path gets it. */
		d = ask(PST_OP_WRITE, PST_POLICY1(PST_PATH_DIRECT), 0, 0, len);
		TOOK(d, BIT(DIRECT), PST_WHY_NONE);
	}
	T_EQ(rig_sync(file).res, 0);
	end();
	rig_q = pst_queue_free(rig_q);
}

/* Through the page cache they are done sooner; PST_SMALL_WRITE says whether, and what is small. */
static void small_writes(void)
{
	static const char *const limits[] = { NULL, "16K", "32K" };

	rig_needs_memlock();
	for (unsigned i = 0; i < 2 * RIG_NR(limits); i++) {
		rig_dev = i % 2 ? "soft:0" : "host";
		if (limits[i / 2])
			(void)setenv("PST_SMALL_WRITE", limits[i / 2], 1);
		in_child(small_writes_here);
	}
	(void)unsetenv("PST_SMALL_WRITE");
}

static bool read_pinned(struct pst_mem *m)
{
	struct pst_done d = rig_read(file, m, 0, 0, 65536);

	T_EQ(d.res, 65536);
	return d.flags & PST_DONE_PINNED;
}

static bool becomes_pinned(struct pst_mem *m)
{
	uint64_t until = t_in_ms(RIG_WAIT_MS);

	while (!read_pinned(m))
		if (t_now() > until)
			return false;
	return true;
}

static void pinned(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_PINNED };
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pst_mem *wrapped = NULL, *promised = NULL;
	bool pins;

	T_CHECK(p != MAP_FAILED);
	rig_needs_memlock();
	begin(PST_FILE_READ);
	/* Where everything is in memory, bytes are copied without the kernel's registration. */
	pins = rig_backend == PST_BACKEND_URING && strcmp(rig_file_info(file).fs, "tmpfs") != 0;
	T_OK(pst_mem_wrap((uintptr_t)p, LEN, NULL, &wrapped));
	T_OK(pst_mem_wrap((uintptr_t)p, LEN, &o, &promised));
	/* Not for one request; memory that is used again is registered sooner or later. */
	T_CHECK(!read_pinned(mem));
	T_CHECK(!pins || becomes_pinned(mem));
	for (unsigned i = 0; i < 1000; i++)
		T_CHECK(!read_pinned(wrapped));
	T_CHECK(!pins || becomes_pinned(promised));
	pst_mem_free(wrapped);
	pst_mem_free(promised);
	end();
	rig_q = pst_queue_free(rig_q);
	(void)munmap(p, LEN);
}

int main(void)
{
	/* What is staged must not go by a window here, however small it is. */
	(void)setenv("PST_WINDOW", "off", 1);
	rig_init();
	/* First, while the library was not used in this process: its children may use it. */
	t_run("without_uring", without_uring);
	t_run("without_uring_later", without_uring_later);
	t_run("without_memlock", without_memlock);
	t_run("small_writes", small_writes);
	RIG_RUN(automatic);
	RIG_RUN(warm);
	RIG_RUN(unaligned);
	RIG_RUN(cached_then_direct);
	RIG_RUN(listed_cached);
	RIG_RUN(impossible_paths);
	RIG_RUN(device_hop_alone);
	RIG_RUN(plain_file);
	RIG_RUN(in_memory);
	RIG_RUN(on_fuse);
	RIG_RUN(checks);
	RIG_RUN(counters);
	RIG_RUN_BACKENDS(pinned);
	return rig_done();
}
