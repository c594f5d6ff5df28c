/* SPDX-License-Identifier: MIT */
/*
 * pst_mem_crc32c() of device memory, compared with a checksum that the CPU computes by RFC
 * 3720's definition.
 *
 *	gpu-sum [-m DEVICE] [-n FLIPS] [-a] [-b GIB]
 *		cases, in TAP; -a: every length up to 4099 at every alignment; -b: measure the rate
 */
#include <getopt.h>

#include "hw.h"
#include "order.h"
#include "stub/cuda_stub.h"

#define ROOM RIG_MIB(4)
#define LONGEST 4099u
#define SEED 7u

static const char *device = "soft:0";
static unsigned nr_flips = 200;
static bool all_lengths;
static unsigned bench_gib;

/* Functions of the libcuda stub; NULL with a real driver. */
static bool (*fail)(const char *spec);
static void (*hold)(bool);
static void (*state)(struct stub_cuda_state *ret);

static uint8_t *bytes; /* the expected content of memory() */

static struct pst_mem *memory(void)
{
	struct pst_mem *m = rig_alloc(device, ROOM);

	for (uint64_t i = 0; i < ROOM; i++)
		bytes[i] = (uint8_t)rig_random();
	T_OK(pst_mem_copy_in(m, 0, bytes, ROOM));
	return m;
}

static int sums(const struct pst_vec *v, unsigned nr, uint32_t *ret)
{
	return pst_mem_crc32c(v, nr, NULL, ret);
}

static uint32_t sum_of(struct pst_mem *m, uint64_t off, uint64_t len)
{
	struct pst_vec v = { .mem = m, .mem_off = off, .len = len };
	uint32_t crc = 0;

	T_OK(sums(&v, 1, &crc));
	return crc;
}

static void check_all(struct pst_vec *v, unsigned nr)
{
	uint32_t *crc = calloc(nr, sizeof(*crc));

	T_CHECK(crc != NULL);
	T_OK(sums(v, nr, crc));
	for (unsigned i = 0; i < nr; i++)
		if (crc[i] != rig_crc32c(0, bytes + v[i].mem_off, v[i].len))
			T_FAIL("%llu bytes at %llu: 0x%08x is wrong", (unsigned long long)v[i].len,
			       (unsigned long long)v[i].mem_off, crc[i]);
	free(crc);
}

/* ------------------------------------------------------------------- values */

static void known_value(void)
{
	struct pst_mem *m = rig_alloc(device, 100);

	T_OK(pst_mem_copy_in(m, 3, "123456789", 9));
	T_EQ(sum_of(m, 3, 9), 0xe3069283u); /* RFC 3720, B.4: the polynomial's check value */
	pst_mem_free(m);
}

static void lengths_and_alignments(void)
{
	unsigned step = all_lengths ? 1 : 61, nr = 0;
	struct pst_vec *v = calloc(32 * (LONGEST + 1), sizeof(*v));
	struct pst_mem *m = memory();

	T_CHECK(v != NULL);
	for (unsigned at = 0; at < 32; at++)
		for (unsigned len = 1; len <= LONGEST; len += len < 40 ? 1 : step) {
			v[nr] = (struct pst_vec){ .mem = m,
						  .mem_off = at + 4096 * (nr % 900),
						  .len = len };
			nr++;
		}
	check_all(v, nr);
	free(v);
	pst_mem_free(m);
}

static void long_ranges(void)
{
	struct pst_mem *m = memory();
	struct pst_vec v[] = {
		{ .mem = m, .len = ROOM },
		{ .mem = m, .mem_off = 1, .len = ROOM - 1 },
		{ .mem = m, .len = ROOM - 1 },
		{ .mem = m, .mem_off = 4095, .len = RIG_MIB(2) + 3 },
		{ .mem = m, .mem_off = RIG_MIB(1) + 17, .len = RIG_MIB(1) + 4096 },
	};

	check_all(v, RIG_NR(v));
	pst_mem_free(m);
}

static void random_ranges(void)
{
	static struct pst_vec v[3000]; /* more ranges than one launch of the kernel takes */
	struct pst_mem *m = memory();

	for (unsigned i = 0; i < RIG_NR(v); i++) {
		uint64_t off = rig_below(ROOM), most = rig_below(8) ? 300 : 300000;

		v[i] = (struct pst_vec){ .mem = m,
					 .mem_off = off,
					 .len = 1 +
						rig_below(ROOM - off < most ? ROOM - off : most) };
	}
	check_all(v, RIG_NR(v));
	pst_mem_free(m);
}

static void each_flip_is_found(void)
{
	struct pst_mem *m = memory();
	uint32_t crc = sum_of(m, 0, ROOM);

	for (unsigned i = 0; i < nr_flips; i++) {
		uint64_t at = rig_below(ROOM);
		uint8_t bit = (uint8_t)(1u << rig_below(8)), byte = bytes[at] ^ bit;

		T_OK(pst_mem_copy_in(m, at, &byte, 1));
		T_CHECK(sum_of(m, 0, ROOM) != crc);
		T_OK(pst_mem_copy_in(m, at, &bytes[at], 1));
		T_EQ(sum_of(m, 0, ROOM), crc);
	}
	pst_mem_free(m);
}

/* Ranges of device and host memory, by handle and by address, in one call. */
static void mixed_memory(void)
{
	struct pst_mem *m = memory(), *host = rig_alloc("host", 5000);
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_vec v[] = {
		{ .mem = m, .mem_off = 5, .len = 1000 },
		{ .mem = host, .mem_off = 7, .len = 900 },
		{ .mem_off = (uintptr_t)bytes + 11, .len = 800 },
		{ .len = 700 },
		{ .mem = m, .mem_off = RIG_MIB(1), .len = 600 },
	};
	uint32_t crc[RIG_NR(v)];

	T_OK(pst_mem_info(m, &info));
	v[3].mem_off = info.addr + 13;
	T_OK(pst_mem_copy_in(host, 0, bytes, 5000));
	T_OK(sums(v, RIG_NR(v), crc));
	T_EQ(crc[0], rig_crc32c(0, bytes + 5, 1000));
	T_EQ(crc[1], rig_crc32c(0, bytes + 7, 900));
	T_EQ(crc[2], rig_crc32c(0, bytes + 11, 800));
	T_EQ(crc[3], rig_crc32c(0, bytes + 13, 700));
	T_EQ(crc[4], rig_crc32c(0, bytes + RIG_MIB(1), 600));
	pst_mem_free(host);
	pst_mem_free(m);
}

/* ------------------------------------------------------------------ refusals */

static void bad_arguments(void)
{
	struct pst_mem *m = memory();
	struct pst_vec v = { .mem = m, .len = 10 };
	struct pst_call_opts o = { .sz = sizeof(o), .flags = PST_IO_STRICT };
	uint32_t crc;

	T_EQ(pst_mem_crc32c(&v, 1, &o, &crc), -EINVAL);
	o = (struct pst_call_opts){ .sz = sizeof(o), .policy = PST_POLICY1(PST_PATH_STAGED) };
	T_EQ(pst_mem_crc32c(&v, 1, &o, &crc), -EINVAL);
	T_EQ(sums(&v, 1, NULL), -EINVAL);
	T_EQ(sums(&v, 0, &crc), -EINVAL);
	T_EQ(sums(NULL, 1, &crc), -EINVAL);
	v.len = 0;
	T_EQ(sums(&v, 1, &crc), -EINVAL);
	v.len = ROOM + 1;
	T_EQ(sums(&v, 1, &crc), -ERANGE);
	v = (struct pst_vec){ .mem_off = 4096, .len = 10 }; /* no memory is mapped there */
	T_EQ(sums(&v, 1, &crc), -EFAULT);
	pst_mem_free(m);
}

/* ----------------------------------------------------------------- the driver */

/* Each driver call fails once: pst_mem_crc32c() must return an error or the right value, and
 * must leave no object. */
static void each_call_may_fail(void)
{
	struct pst_mem *m;
	struct stub_cuda_state before, after;
	unsigned n = 0, failed = 0;
	uint32_t crc, want;
	struct pst_vec v;
	char spec[32];
	bool met = true;

	m = memory();
	v = (struct pst_vec){ .mem = m, .mem_off = 1, .len = 100000 };
	want = rig_crc32c(0, bytes + 1, 100000);
	T_EQ(sum_of(m, 1, 100000), want);
	state(&before);
	while (met && ++n < 200) {
		int r;

		(void)snprintf(spec, sizeof(spec), "*:%u:1", n);
		(void)fail(spec);
		r = sums(&v, 1, &crc);
		met = fail(NULL);
		failed += r < 0;
		if (r == 0)
			T_EQ(crc, want);
	}
	T_CHECK(n > 5 && n < 200 && failed > 3);
	/* The context keeps the same number of objects as before. */
	state(&after);
	T_EQ(after.streams, before.streams);
	T_EQ(after.events, before.events);
	T_EQ(after.registrations, before.registrations);
	pst_mem_free(m);
}

static void deadline_holds(void)
{
	struct pst_call_opts o = { .sz = sizeof(o) };
	struct stub_cuda_state before, now;
	uint64_t end = t_hang();
	struct pst_mem *m;
	struct pst_vec v;
	uint32_t crc;

	m = memory();
	v = (struct pst_vec){ .mem = m, .len = ROOM };
	T_EQ(sum_of(m, 0, ROOM), rig_crc32c(0, bytes, ROOM));
	state(&before);
	hold(true);
	o.deadline_ns = t_in_ms(50);
	T_EQ(pst_mem_crc32c(&v, 1, &o, &crc), -ETIMEDOUT);
	hold(false);
	do
		state(&now);
	while (now.streams != before.streams && t_now() < end);
	T_EQ(now.streams, before.streams);
	T_EQ(sum_of(m, 0, ROOM), rig_crc32c(0, bytes, ROOM));
	pst_mem_free(m);
}

/* Work queued on the program's stream writes the memory first. */
static void comes_after_the_stream(void)
{
	struct pst_call_opts o = { .sz = sizeof(o) };
	struct pst_mem *m;
	struct pst_vec v;
	uint32_t crc;
	cu_stream st;

	m = memory();
	v = (struct pst_vec){ .mem = m, .len = ROOM };
	HW_CU(cuStreamCreate(&st, CU_NON_BLOCKING));
	for (unsigned i = 0; i < 20; i++) {
		uint8_t *from = order_host(ROOM);
		struct pst_mem_info info = { .sz = sizeof(info) };

		T_OK(pst_mem_info(m, &info));
		for (uint64_t k = 0; k < ROOM; k += 8)
			*(uint64_t *)(void *)(from + k) = rig_random();
		HW_CU(cuMemcpyHtoDAsync_v2(info.addr, from, ROOM, st));
		o.stream = st;
		T_OK(pst_mem_crc32c(&v, 1, &o, &crc));
		T_EQ(crc, rig_crc32c(0, from, ROOM));
		order_host_free(from, ROOM);
	}
	HW_CU(cuStreamDestroy_v2(st));
	pst_mem_free(m);
}

/* ---------------------------------------------------------------- how fast */

static int by_time(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void bench(uint64_t len, unsigned nr)
{
	struct pst_mem *m = rig_alloc(device, len * nr);
	struct pst_vec *v = calloc(nr, sizeof(*v));
	uint32_t *crc = calloc(nr, sizeof(*crc));
	double us[21];

	for (unsigned i = 0; i < nr; i++)
		v[i] = (struct pst_vec){ .mem = m, .mem_off = i * len, .len = len };
	for (unsigned k = 0; k < RIG_NR(us); k++) {
		uint64_t start = t_now();

		T_OK(sums(v, nr, crc));
		us[k] = (double)(t_now() - start) / 1000;
	}
	qsort(us, RIG_NR(us), sizeof(us[0]), by_time);
	printf("# %u x %llu bytes: median %.1f us, most %.1f us, %.1f GB/s\n", nr,
	       (unsigned long long)len, us[10], us[20], (double)(len * nr) / us[10] / 1000);
	free(crc);
	free(v);
	pst_mem_free(m);
}

static void figures(void)
{
	bench(4096, 1);
	bench(RIG_MIB(1), 1);
	bench(65536, 1000);
	bench(RIG_MIB(64), 1);
	bench(RIG_MIB(1024), 1);
	bench(RIG_MIB(1024), bench_gib);
}

static void no_device(void)
{
	T_SKIP("%s", pst_error_text());
}

static void find(const char *name, void *ret)
{
	const char *lib = getenv("PST_LIBCUDA");
	void *dl = dlopen(lib && *lib ? lib : "libcuda.so.1", RTLD_NOW);
	void *fn = dl ? dlsym(dl, name) : NULL;

	memcpy(ret, &fn, sizeof(fn));
}

int main(int argc, char **argv)
{
	struct pst_device d = { .sz = sizeof(d) };
	int opt, ordinal;
	bool no_driver;

	while ((opt = getopt(argc, argv, "m:n:ab:")) != -1) {
		switch (opt) {
		case 'm':
			device = optarg;
			break;
		case 'n':
			nr_flips = (unsigned)atoi(optarg);
			break;
		case 'a':
			all_lengths = true;
			break;
		case 'b':
			bench_gib = (unsigned)atoi(optarg);
			break;
		default:
			return 2;
		}
	}
	rig_init();
	bytes = malloc(ROOM);
	if (!bytes || pst_device_find(device, &d) < 0) {
		T_RUN(no_device);
		return hw_done();
	}
	printf("# %s, %s\n", d.name, d.model);
	ordinal = hw_ordinal(device);
	no_driver = ordinal < 0 || hw_cuda(ordinal) != NULL;
	if (!no_driver) {
		find("stub_cuda_fail", &fail);
		find("stub_cuda_hold", &hold);
		find("stub_cuda_state", &state);
	}
	T_RUN(known_value);
	T_RUN(lengths_and_alignments);
	T_RUN(long_ranges);
	T_RUN(random_ranges);
	T_RUN(each_flip_is_found);
	T_RUN(mixed_memory);
	T_RUN(bad_arguments);
	if (!no_driver)
		T_RUN(comes_after_the_stream);
	if (state) {
		T_RUN(deadline_holds);
		T_RUN(each_call_may_fail);
	}
	if (bench_gib)
		T_RUN(figures);
	free(bytes);
	return hw_done();
}
