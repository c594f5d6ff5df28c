/* SPDX-License-Identifier: MIT */
/*
 * libgdrapi on a real GPU, called as gdrcopy's users do: the program's own memory, checked by
 * the driver's copies.
 *
 *	gpu-gdrapi [-m DEVICE] [--big BYTES]	cases, in TAP
 *
 * Also prints the duration of calls and the rates of copies.
 */
#include <getopt.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include <gdrapi.h>

#include "hw.h"

#define SIZE 327680u /* bytes; the size in gdrcopy's first example */
#define BASE 0x3f4c5e6au
#define PAGE GPU_PAGE_SIZE

static const char *device = "cuda:0";
static uint64_t big = RIG_MIB(256);
static cu_stream stream;
static gdr_t g;
static const char *why_none = "";

/* ------------------------------------------------------------------- tools */

static void from_device(void *to, cu_ptr from, size_t len)
{
	HW_CU(cuMemcpyDtoHAsync_v2(to, from, len, stream));
	HW_CU(cuStreamSynchronize(stream));
}

static void to_device(cu_ptr to, const void *from, size_t len)
{
	HW_CU(cuMemcpyHtoDAsync_v2(to, from, len, stream));
	HW_CU(cuStreamSynchronize(stream));
}

static cu_ptr alloc(size_t len)
{
	cu_ptr ptr = 0;

	if (!g)
		T_SKIP("%s", why_none);
	HW_CU(cuMemAlloc_v2(&ptr, len));
	return ptr;
}

/* A mapping made by pin, map and get_info, as gdrcopy's examples do. */
struct map {
	gdr_mh_t mh;
	void *va;
	size_t size;
	char *ptr; /* address of the byte at addr in the mapping */
};

static struct map map_at(cu_ptr pin, size_t size, cu_ptr addr)
{
	struct map m = { .size = size };
	gdr_info_t info;

	T_EQ(gdr_pin_buffer(g, pin, size, 0, 0, &m.mh), 0);
	T_EQ(gdr_map(g, m.mh, &m.va, size), 0);
	T_EQ(gdr_get_info(g, m.mh, &info), 0);
	T_CHECK(info.mapped && info.page_size == PAGE && info.mapped_size >= size);
	m.ptr = (char *)m.va + (addr - info.va);
	return m;
}

static void unmap(struct map *m)
{
	T_EQ(gdr_unmap(g, m->mh, m->va, m->size), 0);
	T_EQ(gdr_unpin_buffer(g, m->mh), 0);
}

static uint32_t init[SIZE / 4 + 8], back[SIZE / 4 + 8];

static void pattern(uint32_t seed)
{
	for (unsigned i = 0; i < RIG_NR(init); i++)
		init[i] = (BASE + seed) ^ 1u << i % 32;
	memset(back, 0, sizeof(back));
}

/* Copy both ways through the mapping and check each copy by the driver. */
static void check(const struct map *m, const char *ptr, cu_ptr addr, size_t len)
{
	char *a = malloc(len), *b = malloc(len);

	T_CHECK(a && b);
	t_fill(a, addr, 0, len);
	T_EQ(gdr_copy_to_mapping(m->mh, (void *)(uintptr_t)ptr, a, len), 0);
	from_device(b, addr, len);
	T_EQ(t_differs(b, addr, 0, len), len);
	t_fill(a, ~addr, 0, len);
	to_device(addr, a, len);
	T_EQ(gdr_copy_from_mapping(m->mh, b, ptr, len), 0);
	T_EQ(t_differs(b, ~addr, 0, len), len);
	free(a);
	free(b);
}

static sigjmp_buf fault_jump;

static void on_fault(int sig)
{
	siglongjmp(fault_jump, sig);
}

/* Return true if a load from p raises a signal. */
static bool faults(const volatile char *p)
{
	struct sigaction sa = { .sa_handler = on_fault }, segv, bus;
	bool caught = true;

	(void)sigaction(SIGSEGV, &sa, &segv);
	(void)sigaction(SIGBUS, &sa, &bus);
	if (!sigsetjmp(fault_jump, 1)) {
		(void)*p;
		caught = false;
	}
	(void)sigaction(SIGSEGV, &segv, NULL);
	(void)sigaction(SIGBUS, &bus, NULL);
	return caught;
}

/* ----------------------------------------------------------------- validate */

static void facts(void)
{
	cu_ptr d = alloc(PAGE * 2);
	struct map m = map_at((d + PAGE - 1) & GPU_PAGE_MASK, PAGE, (d + PAGE - 1) & GPU_PAGE_MASK);
	int lib[2], driver[2], persistent = 0;
	const char *type = "?";
	gdr_info_t info;

	gdr_runtime_get_version(&lib[0], &lib[1]);
	T_EQ(gdr_driver_get_version(g, &driver[0], &driver[1]), 0);
	T_EQ(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &persistent), 0);
	T_EQ(persistent, 1);
	T_EQ(gdr_get_info(g, m.mh, &info), 0);
	T_EQ(gdr_get_mapping_type_string(info.mapping_type, &type), 0);
	printf("# library %d.%d, driver %d.%d, mapping: %s\n", lib[0], lib[1], driver[0], driver[1],
	       type);
	unmap(&m);
	HW_CU(cuMemFree_v2(d));
}

static void direct_access(void)
{
	cu_ptr d = alloc(SIZE);
	struct map m = map_at(d, SIZE, d);
	volatile uint32_t *p = (uint32_t *)m.ptr;

	pattern(1);
	for (unsigned i = 0; i < SIZE / 4; i++)
		p[i] = init[i];
	pst_window_fence();
	from_device(back, d, SIZE);
	T_CHECK(!memcmp(init, back, SIZE));
	unmap(&m);
	HW_CU(cuMemFree_v2(d));
}

static void copy_to_the_mapping(void)
{
	cu_ptr d = alloc(SIZE);
	struct map m = map_at(d, SIZE, d);

	pattern(2);
	T_EQ(gdr_copy_to_mapping(m.mh, m.ptr, init, SIZE), 0);
	from_device(back, d, SIZE);
	T_CHECK(!memcmp(init, back, SIZE));
	unmap(&m);
	HW_CU(cuMemFree_v2(d));
}

static void copy_there_and_back(void)
{
	cu_ptr d = alloc(SIZE);
	struct map m = map_at(d, SIZE, d);

	pattern(3);
	T_EQ(gdr_copy_to_mapping(m.mh, m.ptr, init, SIZE), 0);
	T_EQ(gdr_copy_from_mapping(m.mh, back, m.ptr, SIZE), 0);
	T_CHECK(!memcmp(init, back, SIZE));
	unmap(&m);
	HW_CU(cuMemFree_v2(d));
}

/* Copies must be right with device and host addresses off by some bytes or words. */
static void copies_with_extra_offsets(void)
{
	static const unsigned extra[] = { 1, 2, 3, 4, 5, 6, 7, 11, 129, 1023 };
	cu_ptr d = alloc(SIZE);
	struct map m = map_at(d, SIZE, d);

	for (unsigned unit = 1; unit <= 4; unit += 3)
		for (unsigned i = 0; i < RIG_NR(extra); i++)
			for (unsigned which = 1; which <= 3; which++) {
				size_t dev = which & 1 ? extra[i] * unit : 0;
				size_t host = which & 2 ? extra[i] % 8 * unit : 0;
				size_t len = SIZE - extra[i] * unit;

				pattern(i + unit * 100 + which);
				T_EQ(gdr_copy_to_mapping(m.mh, m.ptr + dev, (char *)init + host,
							 len),
				     0);
				from_device((char *)back + host, d + dev, len);
				T_CHECK(!memcmp((char *)init + host, (char *)back + host, len));
				memset(back, 0, sizeof(back));
				T_EQ(gdr_copy_from_mapping(m.mh, (char *)back + host, m.ptr + dev,
							   len),
				     0);
				T_CHECK(!memcmp((char *)init + host, (char *)back + host, len));
			}
	unmap(&m);
	HW_CU(cuMemFree_v2(d));
}

/* ------------------------------------------------------------------- sanity */

/* Small allocations that share GPU pages: each can be pinned and mapped separately. */
static void small_buffers(void)
{
	enum { NR = 64 };
	cu_ptr d[NR];
	struct map m[NR];

	for (unsigned i = 0; i < NR; i++)
		d[i] = alloc(1000 + i * 37);
	for (unsigned i = 0; i < NR; i++)
		m[i] = map_at(d[i], 1000 + i * 37, d[i]);
	for (unsigned i = 0; i < NR; i++)
		check(&m[i], m[i].ptr, d[i], 1000 + i * 37);
	for (unsigned i = 0; i < NR; i++) {
		unmap(&m[i]);
		HW_CU(cuMemFree_v2(d[i]));
	}
}

static void unaligned_starts(void)
{
	static const unsigned offs[] = { 1, 7, 256, 4095, 4096, 65535, 65537, 200001 };
	cu_ptr d = alloc(SIZE);

	for (unsigned i = 0; i < RIG_NR(offs); i++) {
		struct map m = map_at(d + offs[i], 5000, d + offs[i]);

		T_CHECK(m.ptr == m.va);
		check(&m, m.ptr, d + offs[i], 5000);
		unmap(&m);
	}
	HW_CU(cuMemFree_v2(d));
}

/* Whole pages: size rounded up (common), a page more allocated (NCCL), both ends rounded (UCX). */
static void rounded_ranges(void)
{
	cu_ptr d = alloc(SIZE + 100), n = alloc(2 * PAGE - 1), at;
	size_t up = (SIZE + 100 + PAGE - 1) & GPU_PAGE_MASK, len;
	struct map m = map_at(d, up, d);

	check(&m, m.ptr, d, SIZE + 100);
	unmap(&m);
	at = d & GPU_PAGE_MASK;
	len = ((d + SIZE + 100 + PAGE - 1) & GPU_PAGE_MASK) - at;
	m = map_at(at, len, d);
	check(&m, m.ptr, d, SIZE + 100);
	unmap(&m);
	at = (n + PAGE - 1) & GPU_PAGE_MASK;
	m = map_at(at, PAGE, at);
	check(&m, m.ptr, at, PAGE);
	unmap(&m);
	HW_CU(cuMemFree_v2(d));
	HW_CU(cuMemFree_v2(n));
}

static void overlapping_pins(void)
{
	cu_ptr d = alloc(SIZE);
	struct map a = map_at(d, SIZE, d + 70000), b = map_at(d + 65536, 100000, d + 70000);

	T_EQ(gdr_copy_to_mapping(a.mh, a.ptr, "overlap", 8), 0);
	T_EQ(gdr_copy_from_mapping(b.mh, back, b.ptr, 8), 0);
	T_CHECK(!strcmp((char *)back, "overlap"));
	unmap(&a);
	check(&b, b.ptr, d + 70000, 50000);
	unmap(&b);
	HW_CU(cuMemFree_v2(d));
}

/* Memory of cuMemCreate(), as NCCL and PyTorch's expandable segments use it. */
static void mapped_memory(void)
{
	struct cu_prop prop = { .type = CU_ALLOC_PINNED,
				.handle_types = CU_HANDLE_POSIX_FD,
				.location = { .type = CU_LOC_DEVICE, .id = hw_ordinal(device) },
				.flags = { .gdr_capable = 1 } };
	struct cu_access access = { .location = prop.location, .flags = CU_PROT_READ_WRITE };
	const size_t len = RIG_MIB(4);
	cu_handle handle = 0;
	cu_ptr d = 0;
	struct map m;

	if (!g)
		T_SKIP("%s", why_none);
	HW_CU(cuMemCreate(&handle, len, &prop, 0));
	HW_CU(cuMemAddressReserve(&d, len, 0, 0, 0));
	HW_CU(cuMemMap(d, len, 0, handle, 0));
	HW_CU(cuMemSetAccess(d, len, &access, 1));
	m = map_at(d, len, d);
	check(&m, m.ptr, d, len);
	unmap(&m);
	m = map_at(d + len / 2 + 12345, 54321, d + len / 2 + 12345);
	check(&m, m.ptr, d + len / 2 + 12345, 54321);
	unmap(&m);
	HW_CU(cuMemUnmap(d, len));
	HW_CU(cuMemAddressFree(d, len));
	HW_CU(cuMemRelease(handle));
}

static void a_large_buffer(void)
{
	cu_ptr d = alloc(big);
	struct map m = map_at(d, big, d);

	check(&m, m.ptr, d, 100000);
	check(&m, m.ptr + big / 2, d + big / 2, 100000);
	check(&m, m.ptr + big - 100000, d + big - 100000, 100000);
	unmap(&m);
	HW_CU(cuMemFree_v2(d));
}

static void access_after_close(void)
{
	cu_ptr d = alloc(SIZE);
	gdr_t keep = g;
	struct map m;

	g = gdr_open();
	T_CHECK(g);
	m = map_at(d, SIZE, d);
	T_CHECK(!faults(m.ptr));
	T_EQ(gdr_close(g), 0);
	T_CHECK(faults(m.ptr));
	T_EQ(gdr_copy_to_mapping(m.mh, m.ptr, init, 4), EINVAL);
	g = keep;
	HW_CU(cuMemFree_v2(d));
}

/* A persistent mapping stays readable after its memory is freed. */
static void access_after_free(void)
{
	cu_ptr d = alloc(SIZE);
	struct map m = map_at(d, SIZE, d);
	int flag = -1;

	HW_CU(cuMemFree_v2(d));
	T_CHECK(!faults(m.ptr));
	T_CHECK(!faults(m.ptr + SIZE - 1));
	T_EQ(gdr_copy_from_mapping(m.mh, back, m.ptr, SIZE), 0);
	T_EQ(gdr_get_callback_flag(g, m.mh, &flag), 0);
	T_EQ(flag, 0);
	unmap(&m);
}

static void a_child_has_nothing(void)
{
	cu_ptr d = alloc(SIZE);
	struct map m = map_at(d, SIZE, d);
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		gdr_mh_t mh;
		int bad = 0;

		(void)alarm(20);
		bad += !faults(m.ptr);
		bad += gdr_copy_to_mapping(m.mh, m.ptr, init, 4) != EACCES;
		bad += gdr_pin_buffer(g, d, SIZE, 0, 0, &mh) != EACCES;
		bad += gdr_unmap(g, m.mh, m.va, m.size) != EACCES;
		bad += gdr_open() != NULL;
		_exit(bad);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
	check(&m, m.ptr, d, 4096);
	unmap(&m);
	HW_CU(cuMemFree_v2(d));
}

static cu_ptr threads_memory;
static int threads_result;

/* A thread without a CUDA context must be able to pin, map and copy. */
static void *pin_in_thread(void *arg)
{
	gdr_mh_t mh;
	void *va;

	(void)arg;
	threads_result = gdr_pin_buffer(g, threads_memory, SIZE, 0, 0, &mh);
	if (!threads_result)
		threads_result = gdr_map(g, mh, &va, SIZE);
	if (!threads_result)
		threads_result = gdr_copy_to_mapping(mh, va, init, SIZE);
	if (!threads_result)
		threads_result = gdr_unpin_buffer(g, mh);
	return NULL;
}

static void another_thread_pins(void)
{
	pthread_t t;

	threads_memory = alloc(SIZE);
	pattern(9);
	T_EQ(pthread_create(&t, NULL, pin_in_thread, NULL), 0);
	(void)pthread_join(t, NULL);
	T_EQ(threads_result, 0);
	from_device(back, threads_memory, SIZE);
	T_CHECK(!memcmp(init, back, SIZE));
	HW_CU(cuMemFree_v2(threads_memory));
}

static void refusals(void)
{
	cu_ptr d = alloc(PAGE);
	gdr_mh_t mh;

	T_EQ(gdr_pin_buffer(g, d, PAGE, 1, 2, &mh), EINVAL);
	T_EQ(gdr_pin_buffer(g, d + 1, RIG_MIB(64) + 1, 0, 0, &mh), EINVAL);
	T_EQ(gdr_pin_buffer(g, (unsigned long)(uintptr_t)init, sizeof(init), 0, 0, &mh), EINVAL);
	T_EQ(gdr_pin_buffer_v2(g, d, PAGE, GDR_PIN_FLAG_FORCE_PCIE, &mh), EINVAL);
	HW_CU(cuMemFree_v2(d));
	/* A range that is not of whole pages must be refused after its memory is freed. */
	T_EQ(gdr_pin_buffer(g, d + 1, 1001, 0, 0, &mh), EINVAL);
}

/* ------------------------------------------------------------------ numbers */

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median_us(uint64_t *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return (double)v[n / 2] / 1e3;
}

/* Pin and unpin 500 times: no descriptor may be left.  Print the median duration of each call. */
static void many_cycles(void)
{
	enum { N = 500 };
	static uint64_t pin[N], map[N], info_ns[N], unmap_ns[N], unpin[N];
	cu_ptr d = alloc(SIZE);
	struct map keep = map_at(d, SIZE, d);
	unsigned fds = t_count_fds();

	for (unsigned i = 0; i < N; i++) {
		uint64_t t[6];
		gdr_info_t info;
		gdr_mh_t mh;
		void *va;

		t[0] = t_now();
		T_EQ(gdr_pin_buffer(g, d, PAGE, 0, 0, &mh), 0);
		t[1] = t_now();
		T_EQ(gdr_map(g, mh, &va, PAGE), 0);
		t[2] = t_now();
		T_EQ(gdr_get_info(g, mh, &info), 0);
		t[3] = t_now();
		T_EQ(gdr_unmap(g, mh, va, PAGE), 0);
		t[4] = t_now();
		T_EQ(gdr_unpin_buffer(g, mh), 0);
		t[5] = t_now();
		pin[i] = t[1] - t[0];
		map[i] = t[2] - t[1];
		info_ns[i] = t[3] - t[2];
		unmap_ns[i] = t[4] - t[3];
		unpin[i] = t[5] - t[4];
	}
	printf("# 64 KiB, medians of %d in us: pin %.1f, map %.1f, get_info %.2f, unmap %.1f, "
	       "unpin %.1f\n",
	       N, median_us(pin, N), median_us(map, N), median_us(info_ns, N),
	       median_us(unmap_ns, N), median_us(unpin, N));
	T_CHECK(t_fds_left(fds) <= fds);
	unmap(&keep);
	HW_CU(cuMemFree_v2(d));
}

/* Return the ns of one copy, in the fastest of ten rounds. */
static double copy_ns(const struct map *m, bool write, size_t len, unsigned n)
{
	uint64_t best = UINT64_MAX;

	for (unsigned round = 0; round < 10; round++) {
		uint64_t begun = t_now(), took;

		for (unsigned i = 0; i < n; i++)
			T_EQ(write ? gdr_copy_to_mapping(m->mh, m->ptr, init, len)
				   : gdr_copy_from_mapping(m->mh, back, m->ptr, len),
			     0);
		took = t_now() - begun;
		best = took < best ? took : best;
	}
	return (double)best / n;
}

static void speed_of_copies(void)
{
	cu_ptr d = alloc(SIZE);
	struct map m = map_at(d, SIZE, d);

	for (size_t len = 4; len <= 131072; len *= 8) {
		double to = copy_ns(&m, true, len, 1000);
		double from = copy_ns(&m, false, len, len < 4096 ? 100 : 4);

		printf("# %6zu bytes: to %8.2f us %7.2f GB/s, from %8.2f us %6.2f GB/s\n", len,
		       to / 1e3, (double)len / to, from / 1e3, (double)len / from);
	}
	unmap(&m);
	HW_CU(cuMemFree_v2(d));
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "big", required_argument, NULL, 'b' }, { 0 } };
	static char text[600];
	int opt;

	while ((opt = getopt_long(argc, argv, "m:", longs, NULL)) != -1) {
		if (opt == 'm')
			device = optarg;
		else if (opt == 'b')
			big = strtoull(optarg, NULL, 10);
		else
			HW_DIE("usage: gpu-gdrapi [-m DEVICE] [--big BYTES]");
	}
	why_none = hw_cuda(hw_ordinal(device));
	if (!why_none) {
		HW_CU(cuStreamCreate(&stream, CU_NON_BLOCKING));
		g = gdr_open();
		(void)snprintf(text, sizeof(text), "gdr_open() gives no mapping: %s",
			       pst_error_text());
		why_none = text;
	}
	T_RUN(facts);
	T_RUN(direct_access);
	T_RUN(copy_to_the_mapping);
	T_RUN(copy_there_and_back);
	T_RUN(copies_with_extra_offsets);
	T_RUN(small_buffers);
	T_RUN(unaligned_starts);
	T_RUN(rounded_ranges);
	T_RUN(overlapping_pins);
	T_RUN(mapped_memory);
	T_RUN(a_large_buffer);
	T_RUN(access_after_close);
	T_RUN(access_after_free);
	T_RUN(a_child_has_nothing);
	T_RUN(another_thread_pins);
	T_RUN(refusals);
	T_RUN(many_cycles);
	T_RUN(speed_of_copies);
	if (g)
		T_EQ(gdr_close(g), 0);
	return hw_done();
}
