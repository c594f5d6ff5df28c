/* SPDX-License-Identifier: MIT */
/*
 * Memory vanishes during a request: another process truncates its file, or another thread unmaps
 * or protects it.  The request fails with EFAULT. No signal is raised, no other request fails,
 * and no path is blamed.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "rig.h"

#define LEN 65536u
#define SEED 61

/* bytes below the addresses that the kernel chooses, so that no other mapping fills a hole */
#define FAR_BELOW (UINT64_C(64) << 30)

enum how { SHRINK, PROTECT, UNMAP, HOW_NR };

struct shared {
	int fd;
	char *p;
	struct pst_mem *mem;
};

static struct shared shared_new(void)
{
	struct shared s = { .fd = memfd_create("shared", MFD_CLOEXEC) };
	char *near;

	T_CHECK(s.fd >= 0);
	T_EQ(ftruncate(s.fd, LEN), 0);
	near = mmap(NULL, LEN, PROT_NONE, MAP_SHARED, s.fd, 0);
	T_CHECK(near != MAP_FAILED);
	s.p = mmap(near - FAR_BELOW, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
	T_CHECK(s.p == near - FAR_BELOW);
	T_EQ(munmap(near, LEN), 0);
	T_OK(pst_mem_wrap((uintptr_t)s.p, LEN, NULL, &s.mem));
	return s;
}

static void shared_free(struct shared *s)
{
	pst_mem_free(s->mem);
	(void)munmap(s->p, LEN);
	(void)close(s->fd);
}

struct taker {
	const struct shared *s;
	enum how how;
	int res;
};

static void *take(void *arg)
{
	struct taker *t = arg;

	t->res = t->how == PROTECT ? mprotect(t->s->p, LEN, PROT_NONE) : munmap(t->s->p, LEN);
	return NULL;
}

/* Take the memory away: truncate in another process, else unmap or protect in another thread. */
static void take_away(const struct shared *s, enum how how)
{
	struct taker t = { s, how, -1 };
	pthread_t thread;
	int status;
	pid_t pid;

	if (how != SHRINK) {
		T_EQ(pthread_create(&thread, NULL, take, &t), 0);
		T_EQ(pthread_join(thread, NULL), 0);
		T_EQ(t.res, 0);
		return;
	}
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(ftruncate(s->fd, 0) != 0);
	T_CHECK(pid > 0);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
}

static void start(struct pst_file *f, const struct shared *s, uint32_t op, uint64_t policy,
		  uint32_t flags)
{
	struct pst_io io = rig_io(op, f, s->mem, 0, 0, LEN);

	io.policy = policy;
	io.flags = flags;
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
}

/* Wait until the bytes are in the memory, without reaping.  Read the memory's file instead of the
 * memory, because the writing thread is not synchronised with this one. */
static void wait_read(const struct shared *s)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);
	static char buf[LEN];

	while (pread(s->fd, buf, LEN, 0) != LEN || t_differs(buf, SEED, 0, LEN) != LEN) {
		if (t_now() > end)
			T_FAIL("the bytes did not come");
		(void)usleep(100);
	}
}

/* Wait until the bytes are in the file. */
static void wait_written(const char *path)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);
	static char buf[LEN];

	while (rig_slurp(path, 0, buf, LEN) != LEN || t_differs(buf, SEED + 1, 0, LEN) != LEN) {
		if (t_now() > end)
			T_FAIL("the bytes were not written");
		(void)usleep(100);
	}
}

static void expect_fault(void)
{
	char text[256];
	struct pst_done d = rig_reap1(rig_q);

	T_EQ(d.res, -EFAULT);
	T_EQ(d.prefix, 0);
	T_EQ(d.flags & (PST_DONE_CRC32C | PST_DONE_PROOF | PST_DONE_BUSY), 0);
	T_CHECK(strstr(pst_done_text(&d, text, sizeof(text)), "EFAULT"));
	T_CHECK(strstr(pst_error_text(), "unmapped"));
}

static uint32_t state(struct pst_file *f, struct pst_mem *m, uint32_t op)
{
	struct pst_path_info info = { .sz = sizeof(info) };

	T_OK(pst_path_check(f, m, op, PST_PATH_DIRECT, &info));
	return info.state;
}

static struct pst_file *file_new(const char *name)
{
	rig_make(rig_path(name), SEED, LEN);
	rig_cold(rig_path(name));
	return rig_open(rig_path(name), RIG_RW);
}

static void crc_of_a_read(void)
{
	struct pst_file *f = file_new("crc");

	for (unsigned how = 0; how < HOW_NR; how++) {
		struct shared s = shared_new();

		start(f, &s, PST_OP_READ, PST_POLICY1(PST_PATH_BUFFERED), PST_IO_CRC32C);
		wait_read(&s);
		take_away(&s, how);
		expect_fault();
		shared_free(&s);
	}
	pst_file_close(f);
}

static void crc_of_a_write(void)
{
	struct pst_file *f = file_new("crc");

	for (unsigned how = 0; how < HOW_NR; how++) {
		struct shared s = shared_new();

		rig_make(rig_path("crc"), SEED, LEN);
		t_fill(s.p, SEED + 1, 0, LEN);
		start(f, &s, PST_OP_WRITE, PST_POLICY1(PST_PATH_BUFFERED), PST_IO_CRC32C);
		wait_written(rig_path("crc"));
		take_away(&s, how);
		expect_fault();
		shared_free(&s);
	}
	pst_file_close(f);
}

/* Take the memory away before O_DIRECT is compared with a plain read.  Works only until O_DIRECT
 * is proven. */
static void proof(uint32_t op)
{
	struct pst_file *f = file_new("proof");
	struct pst_mem *m = rig_alloc("host", LEN);

	if (!rig_file_info(f).direct)
		T_SKIP("a file system with O_DIRECT for PST_TEST_DIR");
	if (state(f, m, op) == PST_STATE_PROVEN)
		T_SKIP("a file system where O_DIRECT was not proven yet");
	for (unsigned how = 0; how < HOW_NR; how++) {
		struct shared s = shared_new();

		rig_make(rig_path("proof"), SEED, LEN);
		rig_cold(rig_path("proof"));
		t_fill(s.p, SEED + 1, 0, LEN);
		start(f, &s, op, PST_POLICY1(PST_PATH_DIRECT), 0);
		if (op == PST_OP_READ)
			wait_read(&s);
		else
			wait_written(rig_path("proof"));
		take_away(&s, how);
		expect_fault();
		T_EQ(state(f, m, op), PST_STATE_POSSIBLE);
		shared_free(&s);
	}
	pst_mem_free(m);
	pst_file_close(f);
}

static void proof_of_a_read(void)
{
	proof(PST_OP_READ);
}

static void proof_of_a_write(void)
{
	proof(PST_OP_WRITE);
}

/* Take away the buffer of the call, or the wrapped memory. */
static void loads_and_stores(void)
{
	static char buf[LEN];

	for (unsigned how = 0; how < HOW_NR; how++) {
		struct shared s = shared_new();
		struct pst_mem *host = rig_alloc("host", LEN), *soft = rig_alloc("soft:0", LEN);

		t_fill(buf, SEED, 0, LEN);
		T_OK(pst_mem_copy_in(s.mem, 0, buf, LEN));
		T_OK(pst_mem_copy_in(soft, 0, s.p, LEN));
		T_OK(pst_mem_copy_in(host, 0, s.p, LEN));
		take_away(&s, how);
		T_EQ(pst_mem_copy_in(s.mem, 0, buf, LEN), -EFAULT);
		T_EQ(pst_mem_copy_out(s.mem, 0, buf, LEN), -EFAULT);
		T_EQ(pst_mem_copy_in(host, 0, s.p, LEN), -EFAULT);
		T_EQ(pst_mem_copy_out(host, 0, s.p, LEN), -EFAULT);
		T_CHECK(strstr(pst_error_text(), "unmapped"));
		T_EQ(pst_mem_copy_in(soft, 0, s.p, LEN), -EFAULT);
		T_EQ(pst_mem_copy_out(soft, 0, s.p, LEN), -EFAULT);
		T_CHECK(strstr(pst_error_text(), "EFAULT"));
		T_EQ(rig_mem_differs(soft, 0, LEN, SEED, 0), LEN);
		T_EQ(rig_mem_differs(host, 0, LEN, SEED, 0), LEN);
		pst_mem_free(host);
		pst_mem_free(soft);
		shared_free(&s);
	}
}

/* Unmap before the request starts.  The memory is long enough for several threads, whose stacks
 * the kernel must not place there: map it far below. */
static void parts_on_threads(void)
{
	const uint64_t len = RIG_MIB(16);
	struct pst_file *f;
	struct pst_done d;
	struct pst_mem *m;
	struct pst_io io;
	char *p, *near;

	rig_make(rig_path("long"), SEED, len);
	f = rig_open(rig_path("long"), RIG_RW);
	for (uint32_t op = PST_OP_READ; op <= PST_OP_WRITE; op++) {
		near = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		T_CHECK(near != MAP_FAILED);
		p = mmap(near - FAR_BELOW, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
		T_CHECK(p == near - FAR_BELOW);
		T_EQ(munmap(near, len), 0);
		T_OK(pst_mem_wrap((uintptr_t)p, len, NULL, &m));
		rig_cold(rig_path("long"));
		io = rig_io(op, f, m, 0, 0, len);
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(munmap(p, len), 0);
		T_EQ(pst_queue_submit(rig_q), 1);
		d = rig_reap1(rig_q);
		T_EQ(d.res, -EFAULT);
		T_EQ(d.flags & PST_DONE_BUSY, 0);
		pst_mem_free(m);
	}
	pst_file_close(f);
}

int main(void)
{
	rig_init();
	/* The proofs come first, because a proof lasts for the whole process. */
	RIG_RUN_BACKENDS(proof_of_a_read);
	RIG_RUN_BACKENDS(proof_of_a_write);
	RIG_RUN_BACKENDS(crc_of_a_read);
	RIG_RUN_BACKENDS(crc_of_a_write);
	RIG_RUN1(loads_and_stores);
	RIG_RUN_BACKENDS(parts_on_threads);
	return rig_done();
}
