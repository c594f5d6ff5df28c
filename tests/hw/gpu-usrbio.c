/* SPDX-License-Identifier: MIT */
/*
 * Device iovs of libhf3fs_api_shared on a real GPU, in rings of a plain directory.  The driver's
 * copies check the program's and the library's memory; what is published for a daemon is
 * compared with what another process' driver reports.
 *
 *	gpu-usrbio [-m DEVICE] [DIR]	cases, in TAP
 *
 * Files are made in DIR, $PST_TEST_DIR or /tmp.
 */
#include <getopt.h>

#include "hw.h"
#include "usrbio/gpu_rig.h"

#define LARGEST RIG_MIB(16)
#define SEGMENT RIG_MIB(20) /* size of a framework allocator's segment */

static const char *device = "cuda:0";
static int number;
static const char *why_none;
static cu_stream stream;

/* ------------------------------------------------------------------- tools */

static cu_ptr address(const void *p)
{
	return (uintptr_t)p;
}

/* Fill device memory by the driver alone. */
static void put(const void *to, uint64_t seed, uint64_t at, size_t len)
{
	char *buf = malloc(len);

	T_CHECK(buf);
	t_fill(buf, seed, at, len);
	HW_CU(cuMemcpyHtoDAsync_v2(address(to), buf, len, stream));
	HW_CU(cuStreamSynchronize(stream));
	free(buf);
}

static size_t differs(const void *from, uint64_t seed, uint64_t at, size_t len)
{
	char *buf = malloc(len);
	size_t n;

	T_CHECK(buf);
	HW_CU(cuMemcpyDtoHAsync_v2(buf, address(from), len, stream));
	HW_CU(cuStreamSynchronize(stream));
	n = t_differs(buf, seed, at, len);
	free(buf);
	return n;
}

static struct hf3fs_iov create(size_t size)
{
	struct hf3fs_iov iov;

	T_OK(hf3fs_iovcreate_device(&iov, gpu_plain, size, 0, number));
	return iov;
}

static cu_ptr alloc(size_t len)
{
	cu_ptr p;

	HW_CU(cuMemAlloc_v2(&p, len));
	return p;
}

/* Check that the calling thread's context has not changed. */
static void same_context(void)
{
	cu_ctx now = NULL;

	HW_CU(cuCtxGetCurrent(&now));
	T_CHECK(now == hw_ctx);
}

static double median_us(uint64_t *v, unsigned n)
{
	for (unsigned i = 1; i < n; i++) /* insertion sort: n is small */
		for (unsigned j = i; j && v[j - 1] > v[j]; j--) {
			uint64_t x = v[j];

			v[j] = v[j - 1];
			v[j - 1] = x;
		}
	return (double)v[n / 2] / 1e3;
}

/* ---------------------------------------------------------------- requests */

static void R1_there_is_a_device(void)
{
	int nr = 0;

	HW_CU(cuDeviceGetCount(&nr));
	T_CHECK(hf3fs_gdr_available());
	T_EQ(hf3fs_gdr_device_count(), nr);
	T_EQ(hf3fs_iovcreate_device(&(struct hf3fs_iov){ 0 }, gpu_plain, 4096, 0, nr), -ENODEV);
	same_context();
}

/* The example of the interface's description, with a 4 MiB file. */
static void the_example(void)
{
	const size_t buffer_size = RIG_MIB(4);
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
	struct hf3fs_cqe cqe;
	int fd;

	rig_make(gpu_file("file.bin"), 1, buffer_size);
	T_OK(hf3fs_iovcreate_gpu(&iov, gpu_plain, buffer_size, 0, number));
	T_OK(hf3fs_iorcreate4(&ior, gpu_plain, 64, true, 0, 0, -1, 0));
	fd = open(gpu_file("file.bin"), O_RDONLY);
	T_CHECK(hf3fs_reg_fd(fd, 0) <= 0);
	T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, buffer_size, NULL) >= 0);
	T_OK(hf3fs_submit_ios(&ior));
	T_EQ(hf3fs_wait_for_ios(&ior, &cqe, 1, 1, NULL), 1);
	T_EQ(cqe.result, (int64_t)buffer_size);
	T_EQ(differs(iov.base, 1, 0, buffer_size), buffer_size);
	T_CHECK(hf3fs_iov_is_gpu(&iov));
	T_EQ(hf3fs_iov_gpu_device(&iov), number);
	T_OK(hf3fs_iovsync_gpu(&iov, 0));
	hf3fs_iovdestroy_gpu(&iov);
	hf3fs_iordestroy(&ior);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	T_EQ(unlink(gpu_file("file.bin")), 0);
	same_context();
}

static void sizes_read_and_written(void)
{
	struct hf3fs_iov a = create(LARGEST + 512), b = create(LARGEST + 512);

	rig_make(gpu_file("sizes"), 2, LARGEST + 100);
	for (uint64_t len = 4096; len <= LARGEST; len *= 4) {
		for (int odd = 0; odd < 2; odd++) {
			uint64_t at = odd ? 77 : 0, off = odd ? 99 : 0;

			put(a.base, 3, 0, len + 512);
			T_EQ(gpu_read(&a, at, gpu_file("sizes"), off, len), (int64_t)len);
			T_OK(hf3fs_iovsync(&a, 1));
			T_EQ(differs(a.base + at, 2, off, len), len);
			T_EQ(differs(a.base, 3, 0, at), at);
			T_EQ(differs(a.base + at + len, 3, at + len, 100), 100);
			T_OK(hf3fs_iovsync(&a, 0));
			T_EQ(gpu_write(&a, at, gpu_file("back"), off, len), (int64_t)len);
			T_EQ(gpu_read(&b, 1, gpu_file("back"), off, len), (int64_t)len);
			T_EQ(differs(b.base + 1, 2, off, len), len);
			T_EQ(unlink(gpu_file("back")), 0);
		}
	}
	hf3fs_iovdestroy(&a);
	hf3fs_iovdestroy(&b);
	T_EQ(unlink(gpu_file("sizes")), 0);
	same_context();
}

static void R3a_host_and_device_in_one_batch(void)
{
	enum { N = 64, PIECE = 65536 };
	struct hf3fs_iov dev = create((size_t)N * PIECE), host;
	struct gpu_req v[N];

	T_OK(hf3fs_iovcreate(&host, gpu_plain, (size_t)N * PIECE, 0, -1));
	rig_make(gpu_file("both"), 4, (size_t)N * PIECE);
	for (unsigned i = 0; i < N; i++)
		v[i] = (struct gpu_req){ .iov = i % 2 ? &dev : &host,
					 .at = (uint64_t)(N - 1 - i) * PIECE,
					 .off = (uint64_t)i * PIECE,
					 .len = PIECE };
	gpu_batch(gpu_file("both"), true, v, N, 0);
	for (unsigned i = 0; i < N; i++) {
		T_EQ(v[i].result, PIECE);
		T_EQ(i % 2 ? differs(dev.base + v[i].at, 4, v[i].off, PIECE)
			   : t_differs(host.base + v[i].at, 4, v[i].off, PIECE),
		     PIECE);
	}
	hf3fs_iovdestroy(&dev);
	hf3fs_iovdestroy(&host);
	T_EQ(unlink(gpu_file("both")), 0);
}

/* Several tensors of one allocation wrapped at the same time, adjacent and overlapping. */
static void R5_parts_of_a_segment(void)
{
	static const struct {
		uint64_t at, len;
	} tensor[] = { { 512, 4096 },
		       { 4608, 65536 },
		       { 70144, 1000003 },
		       { RIG_MIB(2) + 512, RIG_MIB(9) + 1 },
		       { RIG_MIB(12), RIG_MIB(8) },
		       { 70144, 512 } };
	cu_ptr p = alloc(SEGMENT);
	struct hf3fs_iov iov[RIG_NR(tensor)];

	rig_make(gpu_file("model"), 5, SEGMENT);
	put((void *)(uintptr_t)p, 6, 0, SEGMENT);
	for (unsigned i = 0; i < RIG_NR(tensor); i++)
		T_OK(hf3fs_iovwrap_device(&iov[i], (void *)(uintptr_t)(p + tensor[i].at), gpu_id(),
					  gpu_plain, tensor[i].len, 0, number));
	for (unsigned i = 0; i < RIG_NR(tensor); i++) {
		T_EQ(gpu_read(&iov[i], 0, gpu_file("model"), tensor[i].at, tensor[i].len),
		     (int64_t)tensor[i].len);
		T_EQ(differs(iov[i].base, 5, tensor[i].at, tensor[i].len), tensor[i].len);
	}
	T_EQ(differs((void *)(uintptr_t)p, 6, 0, 512), 512);
	T_EQ(differs((void *)(uintptr_t)(p + RIG_MIB(2)), 6, RIG_MIB(2), 512), 512);
	hf3fs_iovdestroy(&iov[2]); /* iov[5] overlaps it and must keep working */
	put((void *)(uintptr_t)p, 6, 0, SEGMENT);
	T_EQ(gpu_read(&iov[5], 0, gpu_file("model"), 9, 512), 512);
	T_EQ(differs(iov[5].base, 5, 9, 512), 512);
	for (unsigned i = 0; i < RIG_NR(tensor); i++)
		hf3fs_iovdestroy(&iov[i]);
	T_EQ(differs((void *)(uintptr_t)(p + SEGMENT - 512), 6, SEGMENT - 512, 512), 512);
	HW_CU(cuMemFree_v2(p));
	T_EQ(unlink(gpu_file("model")), 0);
	same_context();
}

static void R5b_addresses_come_again(void)
{
	unsigned again = 0;
	cu_ptr last = 0;

	rig_make(gpu_file("again"), 7, RIG_MIB(4));
	for (uint64_t i = 0; i < 20; i++) {
		cu_ptr p = alloc(RIG_MIB(4));
		struct hf3fs_iov iov;

		again += p == last;
		last = p;
		T_OK(hf3fs_iovwrap_gpu(&iov, (void *)(uintptr_t)p, gpu_id(), gpu_plain, RIG_MIB(4),
				       0, number));
		T_EQ(gpu_read(&iov, 0, gpu_file("again"), i, RIG_MIB(3)), (int64_t)RIG_MIB(3));
		T_EQ(differs((void *)(uintptr_t)p, 7, i, RIG_MIB(3)), RIG_MIB(3));
		hf3fs_iovdestroy_gpu(&iov);
		HW_CU(cuMemFree_v2(p));
	}
	printf("# %u of 19 allocations were at the address of the one before\n", again);
	T_EQ(unlink(gpu_file("again")), 0);
}

/* -------------------------------------------------------------------- sync */

static void sync_waits_for_kernels(void)
{
	const size_t len = RIG_MIB(64);
	cu_ptr p = alloc(len);
	uint64_t begun, took;
	struct hf3fs_iov iov;
	cu_result e;
	uint8_t *buf = malloc(RIG_MIB(1));

	T_CHECK(buf);
	T_OK(hf3fs_iovwrap_device(&iov, (void *)(uintptr_t)p, gpu_id(), gpu_plain, len, 0, number));
	T_OK(hf3fs_iovsync(&iov, 0));
	/* Queue several ms of work on a stream that no other stream waits for. */
	for (unsigned i = 0; i < 200; i++)
		HW_CU(cuMemsetD8Async(p, (unsigned char)i, len, stream));
	e = hw_cu.cuStreamQuery(stream);
	begun = t_now();
	T_OK(hf3fs_iovsync(&iov, 0));
	took = t_now() - begun;
	HW_CU(cuStreamQuery(stream));
	T_EQ(e, CU_NOT_READY);
	printf("# waited %.2f ms for 200 fills of 64 MiB\n", (double)took / 1e6);
	T_EQ(gpu_write(&iov, len - RIG_MIB(1), gpu_file("set"), 0, RIG_MIB(1)), RIG_MIB(1));
	T_EQ(rig_slurp(gpu_file("set"), 0, buf, RIG_MIB(1)), RIG_MIB(1));
	for (size_t i = 0; i < RIG_MIB(1); i++)
		T_EQ(buf[i], 199);
	T_EQ(hf3fs_iovsync(&iov, 2), -EINVAL);
	hf3fs_iovdestroy(&iov);
	HW_CU(cuMemFree_v2(p));
	free(buf);
	T_EQ(unlink(gpu_file("set")), 0);
	same_context();
}

/* A capture begun through <penstock.h> is in progress: sync must return EBUSY instead of
 * waiting. */
static void sync_during_a_capture(void)
{
	struct hf3fs_iov iov = create(4096);
	void *graph = NULL;
	cu_result e;

	HW_CU(cuStreamBeginCapture_v2(stream, CU_CAPTURE_RELAXED));
	T_EQ(hf3fs_iovsync(&iov, 0), -EBUSY);
	e = hw_cu.cuStreamEndCapture(stream, &graph);
	printf("# the capture then ends with %u\n", e);
	if (graph && hw_cu.cuGraphDestroy)
		(void)hw_cu.cuGraphDestroy(graph);
	T_OK(hf3fs_iovsync(&iov, 0));
	hf3fs_iovdestroy(&iov);
	same_context();
}

/* --------------------------------------------------------- another process */

/* The published offset and sizes must equal those that the driver reports in another process. */
static int child_opens(const uint8_t id[16], size_t size)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct hf3fs_iov iov;
	struct usrbio_gdr g;
	struct pst_mem *m;
	size_t len = 0;
	cu_ptr base = 0;

	GPU_CHILD(hf3fs_iovopen_device(&iov, id, gpu_daemon, size, 0, number) == 0);
	GPU_CHILD(differs(iov.base, 21, 0, size) == size);
	put(iov.base, 22, 0, size);
	g = gpu_published(&iov, number);
	GPU_CHILD(hw_cu.cuMemGetAddressRange_v2(&base, &len, address(iov.base)) == CU_OK);
	m = gpu_view(iov.base, size);
	GPU_CHILD(pst_mem_info(m, &info) == 0);
	(void)pst_mem_free(m);
	printf("# %zu bytes: published %" PRIu64 " of %" PRIu64
	       ", opened %llu of %zu in the other process\n",
	       size, g.off, g.allocation, address(iov.base) - base, len);
	(void)fflush(stdout);
	GPU_CHILD(g.size == size && g.allocation == len && g.off == address(iov.base) - base);
	hf3fs_iovdestroy(&iov);
	GPU_CHILD(gpu_links(gpu_daemon, NULL) == 1);
	return 0;
}

static int child_imports(const hf3fs_gpu_ipc_handle_t *h)
{
	struct hf3fs_iov iov;
	size_t size;

	GPU_CHILD(hf3fs_iov_import_gpu(&iov, h, gpu_plain) == 0);
	size = iov.size;
	GPU_CHILD(iov.base && hf3fs_iov_device_id(&iov) == number);
	GPU_CHILD(differs(iov.base, 31, 0, size) == size);
	GPU_CHILD(gpu_read(&iov, 0, gpu_file("import"), 0, size) == (int64_t)size);
	hf3fs_iovdestroy_gpu(&iov);
	return 0;
}

static void opened_by_another_process(void)
{
	static const size_t sizes[] = { 1000, RIG_MIB(2), RIG_MIB(3) + 5, RIG_MIB(64) };
	struct hf3fs_iov iov;

	for (unsigned i = 0; i < RIG_NR(sizes); i++) {
		size_t n = sizes[i];

		T_OK(hf3fs_iovcreate_device(&iov, gpu_daemon, n, 0, number));
		put(iov.base, 21, 0, n);
		T_EQ(gpu_other("open", &iov, &n, sizeof(n)), 0);
		T_EQ(differs(iov.base, 22, 0, n), n);
		hf3fs_iovdestroy(&iov);
		T_EQ(gpu_links(gpu_daemon, NULL), 0);
	}
	same_context();
}

static void parts_opened_by_another_process(void)
{
	static const struct {
		uint64_t at, len;
	} part[] = { { 0, SEGMENT }, { 512, 4096 }, { RIG_MIB(2) + 512, RIG_MIB(9) + 1 } };
	cu_ptr p = alloc(SEGMENT);
	struct hf3fs_iov iov;

	for (unsigned i = 0; i < RIG_NR(part); i++) {
		size_t n = part[i].len;

		T_OK(hf3fs_iovwrap_device(&iov, (void *)(uintptr_t)(p + part[i].at), gpu_id(),
					  gpu_daemon, n, 0, number));
		T_EQ(gpu_published(&iov, number).off, part[i].at);
		put(iov.base, 21, 0, n);
		T_EQ(gpu_other("open", &iov, &n, sizeof(n)), 0);
		T_EQ(differs(iov.base, 22, 0, n), n);
		hf3fs_iovdestroy(&iov);
	}
	HW_CU(cuMemFree_v2(p));
	same_context();
}

static void R2b_import_by_another_process(void)
{
	const size_t len = RIG_MIB(5) + 3;
	cu_ptr p = alloc(SEGMENT);
	hf3fs_gpu_ipc_handle_t h;
	struct hf3fs_iov iov, no;

	rig_make(gpu_file("import"), 32, len);
	T_OK(hf3fs_iovwrap_gpu(&iov, (void *)(uintptr_t)(p + 1234), gpu_id(), gpu_plain, len, 0,
			       number));
	put((void *)(uintptr_t)p, 8, 0, SEGMENT);
	put(iov.base, 31, 0, len);
	T_OK(hf3fs_iov_export_gpu(&iov, &h));
	T_EQ(hf3fs_iov_import_gpu(&no, &h, gpu_plain), -EINVAL);
	T_EQ(gpu_other("import", &iov, &h, sizeof(h)), 0);
	T_EQ(differs(iov.base, 32, 0, len), len);
	T_EQ(differs((void *)(uintptr_t)p, 8, 0, 1234), 1234);
	T_EQ(differs((void *)(uintptr_t)(p + 1234 + len), 8, 1234 + len, 4096), 4096);
	hf3fs_iovdestroy_gpu(&iov);
	HW_CU(cuMemFree_v2(p));
	T_EQ(unlink(gpu_file("import")), 0);
	same_context();
}

/* ----------------------------------------------------------------- numbers */

static void what_calls_take(void)
{
	enum { N = 101 };
	static uint64_t made[N], wrapped[N], ended[N], synced[N];
	cu_ptr p = alloc(SEGMENT);
	unsigned fds = 0;

	for (unsigned i = 0; i < N; i++) {
		struct hf3fs_iov iov = { 0 };
		uint64_t t[6];

		t[0] = t_now();
		iov = create(RIG_MIB(4));
		t[1] = t_now();
		hf3fs_iovdestroy(&iov);
		t[2] = t_now();
		T_OK(hf3fs_iovwrap_device(&iov, (void *)(uintptr_t)(p + 512), gpu_id(), gpu_plain,
					  RIG_MIB(4), 0, number));
		t[3] = t_now();
		T_OK(hf3fs_iovsync(&iov, 1));
		t[4] = t_now();
		hf3fs_iovdestroy(&iov);
		t[5] = t_now();
		made[i] = t[1] - t[0];
		wrapped[i] = t[3] - t[2];
		synced[i] = t[4] - t[3];
		ended[i] = t[5] - t[4];
		if (!i)
			fds = t_count_fds();
	}
	printf("# 4 MiB, medians of %d in us: create %.1f, wrap %.1f, sync of an idle device %.1f, "
	       "destroy a wrap %.1f\n",
	       N, median_us(made, N), median_us(wrapped, N), median_us(synced, N),
	       median_us(ended, N));
	T_CHECK(t_fds_left(fds) <= fds);
	HW_CU(cuMemFree_v2(p));
}

/* ------------------------------------------------------------------- begin */

static void no_gpu(void)
{
	T_SKIP("%s", why_none);
}

static int child(char **argv)
{
	hf3fs_gpu_ipc_handle_t h = { { 0 } };
	uint8_t id[16];
	size_t size = 0;

	(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", argv[2]);
	(void)snprintf(gpu_daemon, sizeof(gpu_daemon), "%s", argv[3]);
	if (setjmp(t_jump)) {
		(void)fprintf(stderr, "# child: %s\n", t_why);
		return 1;
	}
	GPU_CHILD(!why_none);
	HW_CU(cuStreamCreate(&stream, CU_NON_BLOCKING));
	GPU_CHILD(usrbio_id_parse(argv[4], id) == 0);
	if (!strcmp(argv[1], "open")) {
		GPU_CHILD(read(0, &size, sizeof(size)) == sizeof(size));
		return child_opens(id, size);
	}
	GPU_CHILD(read(0, &h, sizeof(h)) == sizeof(h));
	return child_imports(&h);
}

int main(int argc, char **argv)
{
	bool is_child = argc == 5 && argv[1][0] != '-';
	const char *named = getenv("GPU_USRBIO_DEVICE");
	int opt;

	gpu_self = argv[0];
	while (!is_child && (opt = getopt(argc, argv, "m:")) != -1) {
		if (opt != 'm')
			HW_DIE("usage: gpu-usrbio [-m DEVICE] [DIR]");
		device = optarg;
	}
	if (is_child && named)
		device = named;
	(void)setenv("GPU_USRBIO_DEVICE", device, 1);
	number = hw_ordinal(device);
	why_none = hw_cuda(number);
	if (is_child)
		return child(argv);
	if (why_none) {
		T_RUN(no_gpu);
		return hw_done();
	}
	if (optind < argc)
		(void)setenv("PST_TEST_DIR", argv[optind], 1);
	HW_CU(cuStreamCreate(&stream, CU_NON_BLOCKING));
	gpu_rig_init();
	T_RUN(R1_there_is_a_device);
	T_RUN(the_example);
	T_RUN(sizes_read_and_written);
	T_RUN(R3a_host_and_device_in_one_batch);
	T_RUN(R5_parts_of_a_segment);
	T_RUN(R5b_addresses_come_again);
	T_RUN(sync_waits_for_kernels);
	T_RUN(sync_during_a_capture);
	T_RUN(opened_by_another_process);
	T_RUN(parts_opened_by_another_process);
	T_RUN(R2b_import_by_another_process);
	T_RUN(what_calls_take);
	return hw_done();
}
