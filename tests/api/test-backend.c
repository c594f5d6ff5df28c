/* SPDX-License-Identifier: MIT */
/*
 * The back ends keep tables of file descriptors and of registered pages, and threads that wait for
 * file systems.  A table entry must never be used for another file or memory.  If a table is full,
 * or the kernel refuses a registration, requests work without the table entry.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "again.h"
#include "fusefs.h"

#define SEED 7
#define LEN RIG_MIB(4)

static struct pst_file *data_file(void)
{
	rig_make(rig_path("data"), SEED, LEN);
	return rig_open(rig_path("data"), RIG_RW);
}

static struct pst_mem *wrap_pinned(void *p, uint64_t len)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_PINNED };
	struct pst_mem *m = NULL;

	T_OK(pst_mem_wrap((uintptr_t)p, len, &o, &m));
	return m;
}

static void *map(uint64_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	T_CHECK(p != MAP_FAILED);
	return p;
}

/* Read once and check the bytes. */
static struct pst_done read_once(struct pst_file *f, struct pst_mem *m, uint64_t off,
				 uint64_t mem_off, uint64_t len)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, off, mem_off, len);
	struct pst_done d;

	io.policy = PST_POLICY1(PST_PATH_BUFFERED);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, (int64_t)len);
	T_EQ(rig_mem_differs(m, mem_off, len, SEED, off), len);
	return d;
}

/* Read until the memory is registered, or until the completion's why names the reason against it.
 * The back end threads registers nothing: read once. */
static struct pst_done read_often(struct pst_file *f, struct pst_mem *m, uint64_t off,
				  uint64_t mem_off, uint64_t len)
{
	uint64_t until = t_hang();
	struct pst_done d;

	do {
		d = read_once(f, m, off, mem_off, len);
		T_CHECK(t_now() < until);
	} while (rig_backend == PST_BACKEND_URING && !(d.flags & PST_DONE_PINNED) &&
		 d.why == PST_WHY_NONE);
	return d;
}

/* ------------------------------------------------------------------- files */

/* Close one file and open another, which gets the same slot in every table. */
static void another_file_in_its_place(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, 65536);

	rig_make(rig_path("even"), SEED, 65536);
	rig_make(rig_path("odd"), SEED + 5, 65536);
	for (unsigned i = 0; i < 40; i++) {
		struct pst_file *f = rig_open(rig_path(i & 1 ? "odd" : "even"), PST_FILE_READ);
		struct pst_io io = rig_io(PST_OP_READ, f, m, 4096, 0, 8192);

		io.policy = i & 2 ? PST_POLICY1(PST_PATH_BUFFERED)
				  : PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
		T_EQ(rig_do(rig_q, &io).res, 8192);
		T_EQ(rig_mem_differs(m, 0, 8192, i & 1 ? SEED + 5 : SEED, 4096), 8192);
		pst_file_close(f);
	}
	pst_mem_free(m);
}

/* Open, read and close in a loop, while another thread does the same with its own queue. */
static void *come_and_go(void *arg)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = rig_backend, .depth = 4 };
	struct pst_queue *q = NULL;
	char *buf = aligned_alloc(4096, 65536);
	const char *path = arg;

	if (!buf || pst_queue_new(&o, &q) < 0)
		return (void *)1;
	for (unsigned i = 0; i < 200; i++) {
		struct pst_file *f = NULL;
		struct pst_mem *m = NULL;
		struct pst_done d;
		struct pst_io io;

		if (pst_file_open(path, PST_FILE_READ, NULL, &f) < 0 ||
		    pst_mem_wrap((uintptr_t)buf, 65536, NULL, &m) < 0)
			return (void *)2;
		io = rig_io(PST_OP_READ, f, m, 4096 * i, 0, 4096);
		if (pst_queue_prep(q, &io) < 0 || pst_queue_submit(q) != 1 ||
		    pst_queue_reap(q, &d, 1, 1, t_hang()) != 1)
			return (void *)3;
		if (d.res != 4096 || t_differs(buf, SEED, 4096 * i, 4096) != 4096)
			return (void *)4;
		pst_mem_free(m);
		pst_file_close(f);
	}
	pst_queue_free(q);
	free(buf);
	return NULL;
}

static void files_come_and_go_on_two_threads(void)
{
	const char *path = rig_path("data");
	pthread_t t[2];
	void *r[2];

	pst_file_close(data_file());
	for (unsigned i = 0; i < 2; i++)
		T_EQ(pthread_create(&t[i], NULL, come_and_go, (void *)(uintptr_t)path), 0);
	for (unsigned i = 0; i < 2; i++)
		T_EQ(pthread_join(t[i], &r[i]), 0);
	T_EQ((uintptr_t)r[0], 0);
	T_EQ((uintptr_t)r[1], 0);
}

/* With few descriptors allowed, open more files than the table has room for.  All reads work, and
 * the limit stays as it was. */
static void few_descriptors(void)
{
	struct rlimit old, low, after;
	struct pst_mem *m = rig_alloc(rig_dev, 4096);
	struct pst_file *f[40];

	pst_file_close(data_file());
	rig_q = pst_queue_free(rig_q);
	T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){ .rlim_cur = 80, .rlim_max = old.rlim_max };
	T_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
	rig_q = rig_queue(rig_backend, 4);
	for (unsigned i = 0; i < RIG_NR(f); i++)
		f[i] = rig_open(rig_path("data"), PST_FILE_READ | PST_FILE_PLAIN);
	for (unsigned i = 0; i < RIG_NR(f); i++)
		(void)read_once(f[i], m, i * 1000, 0, 4096);
	for (unsigned i = 0; i < RIG_NR(f); i++)
		pst_file_close(f[i]);
	T_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
	T_EQ(after.rlim_cur, 80);
	T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
	pst_mem_free(m);
}

/* ------------------------------------------------------------------ memory */

/* A registration must end with its memory: later reads must not write to the old pages. */
static void other_memory_in_its_place(void)
{
	struct pst_file *f = data_file();
	char *p = map(LEN);
	struct pst_mem *m;

	m = wrap_pinned(p, LEN);
	(void)read_often(f, m, 12345, 4096, 100000);
	pst_mem_free(m);
	/* Map other pages at the same address. */
	T_CHECK(mmap(p, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		     0) == p);
	memset(p, 0x55, LEN);
	m = wrap_pinned(p, LEN);
	(void)read_once(f, m, 12345, 4096, 100000);
	pst_mem_free(m);
	memset(p, 0x55, LEN);
	m = wrap_pinned(p + RIG_MIB(1), RIG_MIB(1));
	(void)read_often(f, m, 777, 0, 5000);
	for (uint64_t i = 0; i < LEN; i++)
		if (p[i] != 0x55 && (i < RIG_MIB(1) || i >= RIG_MIB(1) + 5000))
			T_FAIL("byte %llu was written", (unsigned long long)i);
	pst_mem_free(m);
	pst_file_close(f);
	(void)munmap(p, LEN);
}

/* Read across each boundary between registered pieces of a large allocation. */
static void across_pieces(void)
{
	struct pst_file *f = data_file();
	uint64_t len = RIG_MIB(24);
	char *p = map(len);
	struct pst_mem *m = wrap_pinned(p, len);

	for (unsigned round = 0; round < 50; round++)
		for (uint64_t at = RIG_MIB(1); at < len; at += RIG_MIB(1))
			(void)read_once(f, m, at & 0xffff, at - 4096, 8192);
	pst_mem_free(m);
	pst_file_close(f);
	(void)munmap(p, len);
}

/* Wrap more memory than the table has room for: reads into unregistered memory work as well. */
static void more_memory_than_places(void)
{
	enum { NR = 8192 + 100 };
	struct pst_file *f = data_file();
	static struct pst_mem *m[NR];
	char *p = map(4096);

	for (unsigned i = 0; i < NR; i++)
		m[i] = wrap_pinned(p, 4096);
	for (unsigned i = NR - 10; i < NR; i++)
		for (unsigned k = 0; k < 100; k++)
			(void)read_once(f, m[i], 4096, 0, 4096);
	for (unsigned i = 0; i < NR; i++)
		pst_mem_free(m[i]);
	m[0] = wrap_pinned(p, 4096);
	(void)read_often(f, m[0], 4096, 0, 4096);
	pst_mem_free(m[0]);
	pst_file_close(f);
	(void)munmap(p, 4096);
}

/* The kernel refuses to register memory: reads still get their bytes, and why becomes MEMLOCK. */
static void registering_fails(void)
{
	struct pst_file *f = data_file();
	struct pst_mem *m = rig_alloc("host", LEN);
	struct pst_done d = read_often(f, m, 0, 0, 4096);

	T_EQ(d.flags & PST_DONE_PINNED, 0);
	if (rig_backend == PST_BACKEND_URING) {
		T_EQ(d.why, PST_WHY_MEMLOCK);
		T_EQ(d.detail, ENOMEM);
	}
	for (unsigned i = 0; i < 100; i++)
		T_EQ(read_once(f, m, 65536 * (i & 3), 65536 * (i & 3), 4096).flags &
			     PST_DONE_PINNED,
		     0);
	pst_mem_free(m);
	pst_file_close(f);
}

/* ------------------------------------------------------------------ queues */

static void no_memory_for_a_queue(void)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = PST_BACKEND_THREADS };
	struct pst_queue *q = NULL;
	struct pst_file *f;
	struct pst_mem *m;

	T_EQ(pst_queue_new(&o, &q), -ENOMEM);
	T_CHECK(!q && *pst_error_text());
	rig_q = rig_queue(PST_BACKEND_AUTO, 0);
	f = data_file();
	m = rig_alloc("host", 4096);
	(void)read_once(f, m, 0, 0, 4096);
	pst_mem_free(m);
	pst_file_close(f);
}

static void no_io_uring(void)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = PST_BACKEND_URING };
	struct pst_queue *q = NULL;
	struct pst_mem *m;
	struct pst_file *f;

	T_OK(rig_backend_check(PST_BACKEND_THREADS));
	T_EQ(rig_backend_check(PST_BACKEND_URING), -EPERM);
	T_CHECK(strstr(pst_error_text(), "io_uring"));
	T_EQ(pst_queue_new(&o, &q), -EPERM);
	T_CHECK(!q && strstr(pst_error_text(), "io_uring"));
	rig_q = rig_queue(PST_BACKEND_AUTO, 0);
	f = data_file();
	m = rig_alloc("host", 4096);
	(void)read_once(f, m, 0, 0, 4096);
	pst_mem_free(m);
	pst_file_close(f);
}

/* ------------------------------------------------- file systems that wait */

static struct fusefs fs;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

static const char *mount_fuse(const char *name)
{
	static char path[200];

	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/%s", fs.dir, name);
	return path;
}

/* Submit as many reads as the queue takes, on a file that hangs: all of them must reach the file
 * system. */
static void all_reach_the_file_system(void)
{
	enum { NR = 32 };
	struct pst_file *f = rig_open(mount_fuse("hang"), PST_FILE_READ);
	struct pst_mem *m = rig_alloc(rig_dev, NR * 4096);
	uint64_t until = t_hang();
	struct pst_done d[NR];

	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * 4096, i * 4096, 4096);

		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), NR);
	while (fusefs_waiting(&fs) < NR && t_now() < until)
		T_EQ(pst_queue_reap(rig_q, d, 0, NR, 0), 0);
	T_EQ(fusefs_waiting(&fs), NR);
	fusefs_release(&fs);
	T_EQ(pst_queue_reap(rig_q, d, NR, NR, t_hang()), NR);
	T_EQ(rig_mem_differs(m, 0, NR * 4096, FUSEFS_SEED, 0), NR * 4096);
	pst_file_close(f);
	pst_mem_free(m);
	fusefs_stop(&fs);
}

/* A file wrapped with O_NONBLOCK is read completely, like any other. */
static void wrapped_with_o_nonblock(void)
{
	int fd = open(mount_fuse("slow"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct pst_mem *m = rig_alloc(rig_dev, 8192);
	struct pst_file *f = NULL;

	T_CHECK(fd >= 0);
	T_OK(pst_file_wrap(fd, 0, NULL, &f));
	(void)close(fd);
	T_EQ(rig_read(f, m, 99, 0, 8192).res, 8192);
	T_EQ(rig_mem_differs(m, 0, 8192, FUSEFS_SEED, 99), 8192);
	pst_file_close(f);
	pst_mem_free(m);
	fusefs_stop(&fs);
}

static const struct again cases[] = {
	{ "registering_fails", registering_fails, AGAIN_BACKENDS, "file.pin:0:ENOMEM" },
	{ "no_memory_for_a_queue", no_memory_for_a_queue, AGAIN_ONCE, "file.context:1:ENOMEM" },
	{ "no_io_uring", no_io_uring, AGAIN_ONCE, "file.uring:0:EPERM" },
};

int main(int argc, char **argv)
{
	rig_init();
	(void)atexit(stop_fuse);
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	RIG_RUN(another_file_in_its_place);
	RIG_RUN_BACKENDS(files_come_and_go_on_two_threads);
	RIG_RUN(few_descriptors);
	RIG_RUN_BACKENDS(other_memory_in_its_place);
	RIG_RUN_BACKENDS(across_pieces);
	RIG_RUN_BACKENDS(more_memory_than_places);
	RIG_RUN_BACKENDS(all_reach_the_file_system);
	RIG_RUN(wrapped_with_o_nonblock);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
