/* SPDX-License-Identifier: MIT */
/*
 * The nvrm back end on the stub of the driver in tests/stub, below the proofs: its calls of the
 * driver, for which bytes, and what they leave.  test-nvrm-errors.c has the failures,
 * test-nvrm-cuda.c has the public calls.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "nvrm_fake.h"

/* ------------------------------------------------------------------ tests */

static void ranges_of_one_part(void)
{
	static const uint64_t at[][2] = {
		{ 0, MIB(2) }, { 0, 1 },         { 4095, 1 },   { 4095, 2 },
		{ 1, 4095 },   { 12345, 54321 }, { MIB(1), 8 }, { MIB(2) - 1, 1 },
	};

	for (unsigned ipc = 0; ipc < 2; ipc++) {
		if (ipc)
			by_ipc(MIB(2), 0);
		else
			by_fd(1, MIB(2));
		for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
			struct window *w = open_at(at[i][0], at[i][1]);

			T_EQ(w->len, at[i][1]);
			T_EQ(w->caching, PST_CACHING_WC);
			check_window(w, at[i][0]);
			window_nvrm_ops.close(w);
			T_EQ(stub_nvrm_left(), 0);
		}
	}
	forget();
}

/* Allocations like those of cudaMalloc(): several share a block, and begin at odd offsets. */
static void small_allocations(void)
{
	for (unsigned i = 0; i < 64; i++) {
		struct window *w;

		by_ipc(1000 + 37 * i, 512u * i);
		w = open_at(0, mem.a.size);
		check_window(w, 0);
		window_nvrm_ops.close(w);
		w = open_at(13, mem.a.size - 20);
		check_window(w, 13);
		window_nvrm_ops.close(w);
	}
	T_EQ(stub_nvrm_left(), 0);
	forget();
}

static void many_parts(void)
{
	struct window *w;

	by_fd(300, KIB(64));
	w = open_at(0, mem.a.size);
	/* The control device and the GPU. */
	T_EQ(stub_nvrm_descriptors(), 2);
	check_window(w, 0);
	window_nvrm_ops.close(w);
	w = open_at(KIB(64) - 1, 2);
	check_window(w, KIB(64) - 1);
	window_nvrm_ops.close(w);
	w = open_at(100 * KIB(64) + 777, 50 * KIB(64) + 5);
	check_window(w, 100 * KIB(64) + 777);
	window_nvrm_ops.close(w);
	T_EQ(stub_nvrm_left(), 0);
	forget();
}

static void parts_that_do_not_meet(void)
{
	forget();
	add("vmm", 0, KIB(64) + 512, 0);
	add("vmm", 0, KIB(64), 0);
	T_EQ(refused(0, mem.a.size, RW), -EOPNOTSUPP);
	T_CHECK(says("whole pages"));
	T_EQ(refused(0, KIB(64) + 512, RW), 0);
	forget();
}

static void both_gpus(void)
{
	struct window *w[2];

	forget();
	add("vmm", 1, KIB(64), 0);
	mem.a.device = 1;
	w[0] = open_at(0, KIB(64));
	check_window(w[0], 0);
	mem.a.device = 0;
	T_EQ(window_nvrm_ops.open(&(struct window_src){ .alloc = &mem.a, .len = 1, .rights = RW },
				  &w[1]),
	     -EINVAL);
	T_CHECK(says("another GPU than is said"));
	window_nvrm_ops.close(w[0]);
	T_EQ(stub_nvrm_left(), 0);
	forget();
	mem.ipc = true;
	add("plain", 1, KIB(64), 0);
	T_EQ(refused(0, 1, RW), -EINVAL);
	T_CHECK(says("INVALID_OBJECT_PARENT"));
	mem.a.device = 1;
	T_EQ(refused(0, 1, RW), 0);
	forget();
}

static void outlives_its_memory(void)
{
	struct window *w;

	by_ipc(MIB(1), 512);
	w = open_at(5, 1000);
	(void)close(mem.part[0].fd);
	mem.part[0].fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	T_EQ((unsigned char)w->ptr[9], t_byte(1, 14));
	window_nvrm_ops.close(w);
	T_EQ(stub_nvrm_left(), 0);
	forget();
}

static void a_child_inherits_nothing(void)
{
	unsigned char vec;
	struct window *w;
	int status = -1;
	pid_t pid;

	by_fd(2, KIB(64));
	w = open_at(0, KIB(128));
	pid = fork();
	if (pid == 0) {
		for (uint64_t at = 0; at < KIB(128); at += PAGE)
			if (mincore((char *)w->map + at, PAGE, &vec) == 0 || errno != ENOMEM)
				_exit(1);
		_exit(0);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
	window_nvrm_ops.close(w);
	forget();
}

static void rights(void)
{
	struct window_src src;
	struct window *w = NULL;

	by_fd(1, KIB(64));
	stub_nvrm.read_only = true;
	T_EQ(refused(0, 64, RW), -EINVAL);
	T_CHECK(says("only be read"));
	src = src_of(0, KIB(64), PST_RIGHT_READ);
	T_OK(window_nvrm_ops.open(&src, &w));
	T_EQ((unsigned char)w->ptr[77], t_byte(1, 77));
	T_CHECK(mprotect(w->map, PAGE, PROT_READ) == 0);
	window_nvrm_ops.close(w);
	stub_nvrm_reset();
	T_EQ(stub_nvrm_left(), 0);
	forget();
}

static void caching(void)
{
	static const struct {
		uint32_t said, want;
	} c[] = {
		{ NVRM_DEFAULT, PST_CACHING_WC },
		{ NVRM_WRITE_BACK, PST_CACHING_CACHED },
		{ NVRM_CACHED, PST_CACHING_CACHED },
		{ NVRM_UNCACHED, PST_CACHING_DEVICE },
	};

	by_fd(1, KIB(64));
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		struct window *w;

		stub_nvrm.caching = c[i].said;
		w = open_at(0, 10);
		T_EQ(w->caching, c[i].want);
		window_nvrm_ops.close(w);
	}
	stub_nvrm_reset();
	forget();
}

/* ------------------------------------------------------------------ grants */

static struct pst_grant grant_of(void)
{
	struct pst_grant g = { .sz = sizeof(g),
			       .kind = PST_KIND_CUDA,
			       .rights = RW,
			       .size = mem.a.size,
			       .len = mem.a.size,
			       .fd = mem.ipc ? -1 : mem.part[0].fd };
	char pci[16];

	stub_nvrm_device(mem.a.device, pci, g.uuid);
	if (mem.ipc)
		ipc_of(mem.part[0].fd, mem.a.size, mem.lead, 4711, g.ipc);
	return g;
}

static int open_grant(const struct pst_grant *g, uint64_t off, uint64_t len)
{
	struct window_src src = { .grant = g, .off = off, .len = len, .rights = RW };
	struct window *w = NULL;
	int r = window_nvrm_ops.open(&src, &w);

	if (r == 0) {
		check_window(w, off);
		window_nvrm_ops.close(w);
	}
	T_EQ(stub_nvrm_left(), 0);
	return r;
}

static void grants(void)
{
	for (unsigned proc = 0; proc < 3; proc++) {
		struct pst_grant g;

		stub_nvrm.no_proc = proc == 1;
		stub_nvrm.proc_unknown = proc == 2;
		for (unsigned device = 0; device < 2; device++) {
			forget();
			add("vmm", device, KIB(128), 0);
			mem.a.device = device;
			g = grant_of();
			T_EQ(open_grant(&g, 0, KIB(128)), 0);
			T_EQ(open_grant(&g, 4097, 10000), 0);
			T_CHECK(fcntl(g.fd, F_GETFD) >= 0);
		}
		by_ipc(10000, 1536);
		g = grant_of();
		T_EQ(open_grant(&g, 0, 10000), 0);
		T_EQ(open_grant(&g, 7777, 1), 0);
	}
	stub_nvrm_reset();
	forget();
}

/* Only the GPU with the memory must be openable.  With the driver's files in /proc, the others need
 * not be opened. */
static void grants_open_few_gpus(void)
{
	struct pst_grant g;

	by_fd(1, KIB(64));
	g = grant_of();
	stub_nvrm.gpu_closed = 1u << 1;
	T_EQ(open_grant(&g, 0, 1), 0);
	stub_nvrm.no_proc = true;
	T_EQ(open_grant(&g, 0, 1), 0);
	stub_nvrm.gpu_closed = 1u << 0;
	T_EQ(open_grant(&g, 0, 1), -ENODEV);
	T_CHECK(says("/dev/nvidia4"));
	stub_nvrm_reset();
	stub_nvrm.gpu_opens = 0;
	T_EQ(open_grant(&g, 0, 1), 0);
	T_EQ(stub_nvrm.gpu_opens, 2);
	g.uuid[3] ^= 1;
	T_EQ(open_grant(&g, 0, 1), -ENODEV);
	T_CHECK(says("UUID"));
	stub_nvrm_reset();
	forget();
}

/* A grant without a UUID means the only GPU. With two GPUs it is refused. */
static void grants_of_the_only_gpu(void)
{
	struct pst_grant g;

	by_ipc(10000, 1536);
	g = grant_of();
	memset(g.uuid, 0, sizeof(g.uuid));
	T_EQ(open_grant(&g, 0, 10000), -EOPNOTSUPP);
	T_CHECK(says("which of 2 GPUs"));
	stub_nvrm.cards = 1;
	T_EQ(open_grant(&g, 0, 10000), 0);
	T_EQ(open_grant(&g, 7777, 1), 0);
	stub_nvrm.gpu_closed = 1u << 0;
	T_CHECK(open_grant(&g, 0, 1) < 0);
	stub_nvrm_reset();
	forget();
}

static void hostile_grants(void)
{
	struct pst_grant g;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	by_fd(1, KIB(64));
	g = grant_of();
	g.size = g.len = MIB(64);
	T_EQ(open_grant(&g, KIB(64), 1), -EINVAL);
	T_CHECK(says("INVALID_BASE"));
	T_EQ(open_grant(&g, 0, MIB(64)), -EINVAL);
	T_CHECK(says("INVALID_LIMIT"));
	g.fd = fd;
	T_EQ(open_grant(&g, 0, 1), -EINVAL);
	T_CHECK(says("INVALID_PARAMETER"));
	g.fd = 9999;
	T_EQ(open_grant(&g, 0, 1), -EINVAL);
	g.fd = -1;
	T_EQ(open_grant(&g, 0, 1), -EINVAL);
	T_CHECK(says("IPC handle"));
	by_ipc(KIB(64), 0);
	g = grant_of();
	g.ipc[4 * NVRM_IPC_OBJECT] ^= 0x40;
	T_EQ(open_grant(&g, 0, 1), -EINVAL);
	T_CHECK(says("OBJECT_NOT_FOUND"));
	(void)close(fd);
	forget();
}

/* ----------------------------------------------------------------- threads */

static void *thread(void *arg)
{
	uint64_t off = (uintptr_t)arg * 5000;

	for (unsigned i = 0; i < 20; i++) {
		struct window_src src = src_of(off, KIB(64) + i, RW);
		struct window *w = NULL;

		if (window_nvrm_ops.open(&src, &w) < 0)
			return (void *)1;
		for (uint64_t k = 0; k < w->len; k += 4001)
			if (((volatile unsigned char *)w->ptr)[k] != t_byte(1, off + k))
				return (void *)2;
		window_nvrm_ops.close(w);
	}
	return NULL;
}

static void windows_by_many_threads(void)
{
	pthread_t t[4];
	void *result;

	by_fd(8, KIB(64));
	for (uintptr_t i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, thread, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < 4; i++) {
		T_EQ(pthread_join(t[i], &result), 0);
		T_CHECK(!result);
	}
	T_EQ(stub_nvrm_left(), 0);
	forget();
}

static void of_another_process(void)
{
	by_ipc(KIB(64), 0);
	mem.pid = 1u << 21;
	T_EQ(refused(0, 1, RW), -EINVAL);
	mem.imported = true;
	T_EQ(refused(0, 1, RW), 0);
	forget();
}

int main(void)
{
	forget();
	T_RUN(ranges_of_one_part);
	T_RUN(small_allocations);
	T_RUN(many_parts);
	T_RUN(parts_that_do_not_meet);
	T_RUN(both_gpus);
	T_RUN(outlives_its_memory);
	T_RUN(a_child_inherits_nothing);
	T_RUN(rights);
	T_RUN(caching);
	T_RUN(of_another_process);
	T_RUN(grants);
	T_RUN(grants_open_few_gpus);
	T_RUN(grants_of_the_only_gpu);
	T_RUN(hostile_grants);
	T_RUN(windows_by_many_threads);
	return t_done();
}
