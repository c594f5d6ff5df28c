/* SPDX-License-Identifier: MIT */
/*
 * Windows on GPU memory; every byte is compared with what the GPU copies out.
 *
 *	gpu-window [-m DEVICE] [-b BACKEND] [-l MIB] [-n RANGES] [DIRECTORY]
 *
 * Prints TAP, and after a failed case the library's log: each driver call with its status.  -l:
 * size of the largest memory, a multiple of 16 MiB, default 4096. -n: number of random ranges,
 * default 200.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "hw_window.h"

static uint64_t large_len = RIG_MIB(4096);
static unsigned long nr_ranges = 200;

static cu_result (*mem_alloc_managed)(cu_ptr *ret, size_t len, unsigned flags);
static cu_result (*mem_alloc_async)(cu_ptr *ret, size_t len, cu_stream st);
static cu_result (*mem_free_async)(cu_ptr ptr, cu_stream st);

/* ------------------------------------------------------------------ ranges */

static void plain_memory(void)
{
	struct pst_mem *m = rig_alloc(device, RIG_MIB(64));

	both_ways(m, RIG_MIB(64), 0, RIG_MIB(64));
	pst_mem_free(m);
}

static void wrapped_plain_memory(void)
{
	uint64_t len = RIG_MIB(37) + 4242;
	struct pst_mem *m;
	cu_ptr va;

	HW_CU(cuMemAlloc_v2(&va, len));
	m = hw_wrap(va, len);
	both_ways(m, len, 0, len);
	pst_mem_free(m);
	m = hw_wrap(va + 1234567, 7777777);
	both_ways(m, 7777777, 0, 7777777);
	pst_mem_free(m);
	HW_CU(cuMemFree_v2(va));
}

static void memory_with_a_descriptor(void)
{
	struct row row = row_of(1, RIG_MIB(64), CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct pst_mem *m = hw_wrap(row.va, row.len);

	both_ways(m, row.len, 0, row.len);
	both_ways(m, row.len, 4097, 12345);
	pst_mem_free(m);
	end_row(row);
}

static void chunks(void)
{
	struct row row = row_of(10, RIG_MIB(2), CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct pst_mem *m = hw_wrap(row.va, row.len);

	both_ways(m, row.len, 0, row.len);
	both_ways(m, row.len, RIG_MIB(2) - 1, 2);
	both_ways(m, row.len, RIG_MIB(3) + 7, RIG_MIB(9) + 5);
	pst_mem_free(m);
	m = hw_wrap(row.va + RIG_MIB(5) + 99, RIG_MIB(6));
	both_ways(m, RIG_MIB(6), 3, RIG_MIB(6) - 5);
	pst_mem_free(m);
	end_row(row);
}

static void small_odd_allocations(void)
{
	struct pst_mem *m[64];
	cu_ptr va[64];

	for (unsigned i = 0; i < 64; i++) {
		HW_CU(cuMemAlloc_v2(&va[i], 1000 + 37 * i));
		m[i] = hw_wrap(va[i], 1000 + 37 * i);
		rig_mem_fill(m[i], 0, 1000 + 37 * i, i, 0);
	}
	for (unsigned i = 0; i < 64; i += 2)
		both_ways(m[i], 1000 + 37 * i, i % 5, 900 + 37 * i);
	/* The allocations between those of the windows must be unchanged. */
	for (unsigned i = 1; i < 64; i += 2)
		device_has(m[i], 0, 1000 + 37 * i, i, 0);
	for (unsigned i = 0; i < 64; i++) {
		pst_mem_free(m[i]);
		HW_CU(cuMemFree_v2(va[i]));
	}
}

static void random_ranges(void)
{
	uint64_t room = RIG_MIB(96);
	struct pst_mem *m = rig_alloc(device, room);

	for (unsigned long i = 0; i < nr_ranges; i++) {
		uint64_t len = 1 + rig_below(i % 4 ? 9000 : 700000), off = rig_below(room - len);

		both_ways(m, room, off, len);
	}
	pst_mem_free(m);
}

/* Store blocks with different bytes to all of the memory; the device compares all of them, the
 * CPU loads samples. */
static void large(struct pst_mem *m, uint64_t len)
{
	const uint64_t block = RIG_MIB(16);
	char *buf = malloc(block);
	unsigned fds = nvidia_fds();
	struct pst_window *w;
	uint64_t begun = t_now();

	T_CHECK(buf);
	w = window(m, 0, len);
	printf("# %" PRIu64 " MiB: opened in %.1f ms\n", len >> 20,
	       (double)(t_now() - begun) / 1e6);
	T_CHECK(nvidia_fds() <= fds + 2);
	for (uint64_t at = 0; at < len; at += block) {
		t_fill(buf, 80 + at / block, 0, block);
		T_OK(pst_window_store(w, at, buf, block));
	}
	for (uint64_t at = 0; at < len; at += block)
		device_has(m, at, block, 80 + at / block, 0);
	for (uint64_t at = 0; at < len; at += block) {
		uint64_t off = rig_below(block - 5000);

		T_OK(pst_window_load(w, at + off, buf, 5000));
		T_EQ(t_differs(buf, 80 + at / block, off, 5000), 5000);
	}
	begun = t_now();
	pst_window_close(w);
	printf("# closed in %.1f ms\n", (double)(t_now() - begun) / 1e6);
	free(buf);
}

static void large_plain_memory(void)
{
	struct pst_mem *m = NULL;

	if (pst_mem_alloc(device, large_len, NULL, &m) < 0)
		T_SKIP("%s", pst_error_text());
	large(m, large_len);
	pst_mem_free(m);
}

/* Memory in 20 MiB chunks, as PyTorch's expandable segments map it; 4 GiB are 205 chunks. */
static void large_in_many_chunks(void)
{
	unsigned nr = (unsigned)(large_len / RIG_MIB(20)) + 1;
	struct row row = row_of(nr, RIG_MIB(20), CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct pst_mem *m = hw_wrap(row.va, row.len);

	large(m, large_len);
	pst_mem_free(m);
	end_row(row);
}

/* --------------------------------------------------------------- lifetimes */

static void freed_while_mapped(void)
{
	char buf[5000], back[5000];
	struct pst_window *w[2];
	struct pst_mem *m;
	struct row row;
	cu_ptr va;

	HW_CU(cuMemAlloc_v2(&va, RIG_MIB(3)));
	m = hw_wrap(va, RIG_MIB(3));
	w[0] = window(m, 777, sizeof(buf));
	pst_mem_free(m);
	row = row_of(2, RIG_MIB(2), CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	m = hw_wrap(row.va, row.len);
	w[1] = window(m, RIG_MIB(2) - 2000, sizeof(buf));
	pst_mem_free(m);
	for (unsigned i = 0; i < 2; i++) {
		t_fill(buf, 90 + i, 0, sizeof(buf));
		T_OK(pst_window_store(w[i], 0, buf, sizeof(buf)));
	}
	HW_CU(cuMemFree_v2(va));
	end_row(row);
	for (unsigned i = 0; i < 2; i++) {
		T_OK(pst_window_load(w[i], 0, back, sizeof(back)));
		T_EQ(t_differs(back, 90 + i, 0, sizeof(back)), sizeof(back));
		pst_window_close(w[i]);
	}
}

/* A window refers to its region, so the library's memory outlives pst_mem_free(). */
static void our_memory_freed_first(void)
{
	struct pst_mem *m = rig_alloc(device, RIG_MIB(1));
	struct pst_window *w = window(m, 5, 1000);
	uint64_t v = 42, back = 0;

	pst_mem_free(m);
	T_OK(pst_window_store(w, 991, &v, 8));
	T_OK(pst_window_load(w, 991, &back, 8));
	T_EQ(back, 42);
	pst_window_close(w);
}

static void a_child_inherits_nothing(void)
{
	struct pst_mem *m = rig_alloc(device, RIG_MIB(4));
	struct pst_window *w = window(m, 0, RIG_MIB(4));
	char b = 1;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		unsigned char vec[1024];
		bool gone = mincore(pst_window_ptr(w), RIG_MIB(4), vec) < 0 && errno == ENOMEM;

		_exit(gone && pst_window_store(w, 0, &b, 1) == -EOWNERDEAD ? 0 : 1);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
	T_OK(pst_window_store(w, RIG_MIB(4) - 1, &b, 1));
	pst_window_close(w);
	pst_mem_free(m);
}

static void many_windows_at_once(void)
{
	enum { NR = 400 };
	struct pst_mem *m = rig_alloc(device, RIG_MIB(64));
	struct pst_window *w[NR];
	unsigned fds = nvidia_fds();

	for (unsigned i = 0; i < NR; i++)
		w[i] = window(m, i * 100003, 1000);
	T_CHECK(nvidia_fds() <= fds + 2);
	for (uint64_t i = 0; i < NR; i++)
		T_OK(pst_window_store(w[i], 500, &i, 8));
	for (uint64_t i = 0; i < NR; i++) {
		uint64_t back = 0;

		T_OK(pst_mem_copy_out(m, i * 100003 + 500, &back, 8));
		T_EQ(back, i);
		pst_window_close(w[i]);
	}
	T_EQ(nvidia_fds(), fds);
	pst_mem_free(m);
}

struct opener {
	struct pst_mem *m;
	uint64_t at;
	char why[300];
};

static void *open_and_close(void *arg)
{
	struct pst_window_opts op = opts(0);
	struct opener *o = arg;

	for (uint64_t i = 0; i < 50 && !o->why[0]; i++) {
		struct pst_window *w = NULL;
		uint64_t back = 0;

		if (pst_window_open(o->m, o->at, 70000, &op, &w) < 0 ||
		    pst_window_store(w, 60000, &i, 8) < 0 ||
		    pst_mem_copy_out(o->m, o->at + 60000, &back, 8) < 0 || back != i)
			(void)snprintf(o->why, sizeof(o->why), "turn %" PRIu64 ": %s", i,
				       pst_error_text());
		pst_window_close(w);
	}
	return NULL;
}

static void by_many_threads(void)
{
	struct opener o[8] = { 0 };
	pthread_t t[8];

	for (unsigned i = 0; i < 8; i++) {
		o[i].m = i % 2 ? o[i - 1].m : rig_alloc(device, RIG_MIB(2));
		o[i].at = i * 100000;
		T_EQ(pthread_create(&t[i], NULL, open_and_close, &o[i]), 0);
	}
	for (unsigned i = 0; i < 8; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	for (unsigned i = 0; i < 8; i++)
		if (o[i].why[0])
			T_FAIL("thread %u, %s", i, o[i].why);
	for (unsigned i = 0; i < 8; i += 2)
		pst_mem_free(o[i].m);
}

/* --------------------------------------------------------------- refusals */

static void memory_without_a_descriptor(void)
{
	struct row row = row_of(2, RIG_MIB(2), 0, CU_PROT_READ_WRITE);
	struct pst_mem *m = hw_wrap(row.va, row.len);

	T_EQ(refused(m, 0, 4096), -EOPNOTSUPP);
	pst_mem_free(m);
	end_row(row);
}

static void managed_memory(void)
{
	struct pst_mem *m = NULL;
	cu_ptr va;

	if (!mem_alloc_managed)
		T_SKIP("libcuda.so.1 has no cuMemAllocManaged");
	T_EQ(mem_alloc_managed(&va, RIG_MIB(1), 1), CU_OK);
	if (pst_mem_wrap(va, RIG_MIB(1), NULL, &m) == 0) {
		T_EQ(refused(m, 0, 4096), -EOPNOTSUPP);
		pst_mem_free(m);
	} else {
		printf("# refused: %s\n", pst_error_text());
	}
	HW_CU(cuMemFree_v2(va));
}

static void pool_memory(void)
{
	struct pst_mem *m;
	cu_ptr va;

	if (!mem_alloc_async || !mem_free_async)
		T_SKIP("libcuda.so.1 has no cuMemAllocAsync");
	T_EQ(mem_alloc_async(&va, RIG_MIB(1), NULL), CU_OK);
	HW_CU(cuStreamSynchronize(NULL));
	m = hw_wrap(va, RIG_MIB(1));
	T_EQ(refused(m, 0, 4096), -EOPNOTSUPP);
	pst_mem_free(m);
	T_EQ(mem_free_async(va, NULL), CU_OK);
	HW_CU(cuStreamSynchronize(NULL));
}

static void freed_memory(void)
{
	struct pst_mem *m;
	cu_ptr va;

	HW_CU(cuMemAlloc_v2(&va, RIG_MIB(1)));
	m = hw_wrap(va, RIG_MIB(1));
	HW_CU(cuMemFree_v2(va));
	T_CHECK(refused(m, 0, 4096) < 0);
	pst_mem_free(m);
}

static void past_the_end(void)
{
	struct pst_mem *m = rig_alloc(device, 5000);

	T_EQ(refused(m, 4999, 2), -ERANGE);
	T_EQ(refused(m, UINT64_MAX, 1), -ERANGE);
	T_EQ(refused(m, 0, 0), -EINVAL);
	both_ways(m, 5000, 4999, 1);
	pst_mem_free(m);
}

static void read_only_memory(void)
{
	struct row row = row_of(2, RIG_MIB(2), CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct cu_access access = { { CU_LOC_DEVICE, ordinal }, CU_PROT_READ };
	struct pst_window_opts o = opts(PST_WINDOW_READ_ONLY);
	struct pst_mem *m = hw_wrap(row.va, row.len);
	struct pst_window *w = NULL;
	char buf[3000];

	rig_mem_fill(m, 0, row.len, 81, 0);
	pst_mem_free(m);
	HW_CU(cuMemSetAccess(row.va, row.len, &access, 1));
	m = hw_wrap(row.va, row.len);
	T_EQ(refused(m, 0, 4096), -EACCES);
	T_OK(pst_window_open(m, RIG_MIB(2) - 1000, sizeof(buf), &o, &w));
	T_OK(pst_window_load(w, 0, buf, sizeof(buf)));
	T_EQ(t_differs(buf, 81, RIG_MIB(2) - 1000, sizeof(buf)), sizeof(buf));
	T_EQ(pst_window_store(w, 0, buf, 1), -EACCES);
	pst_window_close(w);
	pst_mem_free(m);
	end_row(row);
}

/* ------------------------------------------------------------------- start */

static void what_there_is(void)
{
	struct pst_window_backend b[8] = { 0 };
	int n;

	for (unsigned i = 0; i < RIG_NR(b); i++)
		b[i].sz = sizeof(b[i]);
	n = pst_window_backends(device, b, RIG_NR(b));
	T_CHECK(n > 0);
	for (int i = 0; i < n && i < (int)RIG_NR(b); i++)
		printf("# backend %s: %s %s\n", b[i].name,
		       b[i].state == PST_STATE_PROVEN ? "proven" : "impossible,", b[i].text);
	for (int i = 0; i < n && i < (int)RIG_NR(b); i++)
		if (!strcmp(b[i].name, backend) && b[i].state == PST_STATE_PROVEN)
			return;
	T_FAIL("%s is not proven", backend);
}

static void find_more(void)
{
	const char *name = getenv("PST_LIBCUDA");
	void *lib = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);

	if (!lib)
		return;
	symbol(lib, &mem_alloc_managed, "cuMemAllocManaged");
	symbol(lib, &mem_alloc_async, "cuMemAllocAsync");
	symbol(lib, &mem_free_async, "cuMemFreeAsync");
}

int main(int argc, char **argv)
{
	int opt;

	while ((opt = getopt(argc, argv, "m:b:l:n:")) != -1) {
		switch (opt) {
		case 'm':
			device = optarg;
			break;
		case 'b':
			backend = optarg;
			break;
		case 'l':
			large_len = RIG_MIB(strtoull(optarg, NULL, 10));
			break;
		case 'n':
			nr_ranges = strtoul(optarg, NULL, 10);
			break;
		default:
			return 2;
		}
	}
	if (optind < argc)
		(void)setenv("PST_TEST_DIR", argv[optind], 1);
	if (!windows_start())
		return hw_done();
	find_more();
	RUN(what_there_is);
	RUN(warms_up);
	RUN(plain_memory);
	RUN(wrapped_plain_memory);
	RUN(memory_with_a_descriptor);
	RUN(chunks);
	RUN(small_odd_allocations);
	RUN(random_ranges);
	RUN(large_plain_memory);
	RUN(large_in_many_chunks);
	RUN(freed_while_mapped);
	RUN(our_memory_freed_first);
	RUN(a_child_inherits_nothing);
	RUN(many_windows_at_once);
	RUN(by_many_threads);
	RUN(memory_without_a_descriptor);
	RUN(managed_memory);
	RUN(pool_memory);
	RUN(freed_memory);
	RUN(past_the_end);
	RUN(read_only_memory);
	RUN(nothing_is_left);
	return hw_done();
}
