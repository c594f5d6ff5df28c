/* SPDX-License-Identifier: MIT */
/*
 * Device memory in rings of a mount, on the software device: the mount's worker is another process,
 * which gets the memory by a link.  R1, R2, ... in names are findings of the review of these calls.
 */
#include <grp.h>

#include "mount_gpu_rig.h"

#define LEN (RIG_MIB(1) + 4096)

/* ------------------------------------------------------------------ R1, R2 */

static void R1_devices_are_there_or_not(void)
{
	struct hf3fs_iov iov;

	mg_begin();
	T_CHECK(hf3fs_gdr_available());
	T_EQ(hf3fs_gdr_device_count(), 2);
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, 4096, 0, 2), -ENODEV);
	T_EQ(setenv("PST_USRBIO_DEVICE", "sofa", 1), 0);
	T_CHECK(!hf3fs_gdr_available());
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, 4096, 0, 0), -ENOTSUP);
	T_EQ(setenv("PST_USRBIO_DEVICE", "soft", 1), 0);
	mg_end();
}

/* If the worker lacks the device, its errno is the result, and nothing is left. */
static void R1_a_worker_without_the_device(void)
{
	struct hf3fs_iov iov, untouched;
	unsigned fds;

	mg_begin_with("1");
	memset(&untouched, 0x77, sizeof(untouched));
	iov = untouched;
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, RIG_MIB(1), 0, 1), -ENODEV);
	fds = t_count_fds(); /* the library keeps the directory open */
	for (unsigned i = 0; i < 20; i++)
		T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, RIG_MIB(1), 0, 1), -ENODEV);
	T_CHECK(!memcmp(&iov, &untouched, sizeof(iov)));
	T_EQ(t_count_fds(), fds);
	T_OK(hf3fs_iovcreate_device(&iov, gpu_plain, RIG_MIB(1), 0, 0));
	hf3fs_iovdestroy(&iov);
	mg_end();
}

static int child_opens(const uint8_t id[16])
{
	struct hf3fs_iov iov, no;

	GPU_CHILD(hf3fs_iovopen_device(&no, id, gpu_plain, LEN, 0, 1) == -ENOENT);
	GPU_CHILD(hf3fs_iovopen_device(&no, id, gpu_plain, LEN + 1, 0, 0) == -EINVAL);
	GPU_CHILD(hf3fs_iovopen_device(&iov, id, gpu_plain, LEN, 0, 0) == 0);
	GPU_CHILD(gpu_differs(iov.base, LEN, 21, 0) == LEN);
	GPU_CHILD(gpu_read(&iov, 0, gpu_file("data"), 0, LEN) == LEN);
	/* The publication belongs to the other process. */
	hf3fs_iovunlink(&iov);
	hf3fs_iovdestroy(&iov);
	return 0;
}

static void R2b_another_process_opens_and_reads(void)
{
	struct hf3fs_iov iov;

	mg_begin();
	rig_make(gpu_file("data"), 22, LEN);
	iov = mg_create(LEN);
	gpu_fill(iov.base, LEN, 21, 0);
	T_EQ(gpu_other("open", &iov, "", 0), 0);
	T_EQ(gpu_differs(iov.base, LEN, 22, 0), LEN);
	/* The other process' end has removed nothing. */
	T_EQ(gpu_links(gpu_plain, NULL), USRBIO_PRIORITIES + 1);
	T_EQ(gpu_read(&iov, 0, gpu_file("data"), 1, 4096), 4096);
	T_EQ(gpu_differs(iov.base, 4096, 22, 1), 4096);
	hf3fs_iovdestroy(&iov);
	mg_end();
}

static void R2c_garbage_is_no_handle(void)
{
	hf3fs_gpu_ipc_handle_t h = { { 0 } };
	struct hf3fs_iov iov;

	mg_begin();
	for (unsigned i = 0; i < 200; i++) {
		T_EQ(hf3fs_iov_import_gpu(&iov, &h, gpu_plain), -EINVAL);
		t_fill(h.data, i, 0, sizeof(h.data));
	}
	iov = mg_create(4096);
	T_OK(hf3fs_iov_export_gpu(&iov, &h));
	for (unsigned bit = 0; bit < 8 * sizeof(h.data); bit++) {
		struct hf3fs_iov no;
		int r;

		h.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		r = hf3fs_iov_import_gpu(&no, &h, gpu_plain);
		T_CHECK(r == -EINVAL || r == -ENODEV);
		h.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	hf3fs_iovdestroy(&iov);
	mg_end();
}

/* ---------------------------------------------------------------- requests */

static const uint64_t lens[] = { 1, 7, 4095, 4096, 4097, 65535, 65536, 65537, 1000003, LEN };

/* Move bytes first through the window alone, then after a large request has imported the memory. */
static void there_and_back(void)
{
	struct hf3fs_iov a, b;

	mg_begin();
	a = mg_create(LEN + 200);
	b = mg_create(LEN + 200);
	for (unsigned i = 0; i < 2 * RIG_NR(lens); i++) {
		uint64_t n = lens[i % RIG_NR(lens)], at = i * 5;

		gpu_fill(a.base, a.size, 10 + i, 0);
		gpu_fill(b.base, b.size, 90, 0);
		T_EQ(gpu_write(&a, at, gpu_file("data"), i, n), (int64_t)n);
		T_EQ(gpu_read(&b, 100 - at, gpu_file("data"), i, n), (int64_t)n);
		T_OK(hf3fs_iovsync(&b, 1));
		T_EQ(gpu_differs(b.base + 100 - at, n, 10 + i, at), n);
		T_EQ(gpu_differs(b.base, 100 - at, 90, 0), 100 - at);
		T_EQ(gpu_differs(b.base + 100 - at + n, 50, 90, 100 - at + n), 50);
		T_EQ(unlink(gpu_file("data")), 0);
	}
	hf3fs_iovdestroy(&a);
	hf3fs_iovdestroy(&b);
	mg_end();
}

/* The worker uses only the window until a large read, or a write above the window's limit,
 * comes. */
static void small_pieces_import_nothing(void)
{
	static const char name[] = "memfd:penstock-soft";
	struct hf3fs_iov iov;
	pid_t worker;

	mg_begin();
	rig_make(gpu_file("data"), 7, RIG_MIB(1));
	for (int write = 0; write < 2; write++) {
		iov = mg_create(RIG_MIB(1));
		worker = procs_worker(&mg);
		T_EQ(procs_maps(worker, name), 1);
		T_EQ(gpu_read(&iov, 0, gpu_file("data"), 3, 65536), 65536);
		T_EQ(gpu_differs(iov.base, 65536, 7, 3), 65536);
		T_EQ(gpu_write(&iov, 0, gpu_file("out"), 0, 4096), 4096);
		T_EQ(procs_maps(worker, name), 1);
		if (write)
			T_EQ(gpu_write(&iov, 0, gpu_file("out"), 0, 4097), 4097);
		else
			T_EQ(gpu_read(&iov, 0, gpu_file("data"), 0, 65537), 65537);
		T_CHECK(procs_maps(worker, name) > 1);
		hf3fs_iovdestroy(&iov);
		T_EQ(procs_maps(worker, name), 0);
	}
	mg_end();
}

/* One batch with host and device memory; the CPU would crash at the first device byte. */
static void R3a_host_and_device_in_one_batch(void)
{
	static const uint64_t sizes[] = { 100, 4096, 32768 };
	struct hf3fs_iov dev, host;
	struct gpu_req v[32];

	mg_begin();
	dev = mg_create(LEN);
	T_OK(hf3fs_iovcreate(&host, gpu_plain, LEN, 0, -1));
	rig_make(gpu_file("both"), 3, LEN);
	for (int again = 0; again < 2; again++) {
		memset(host.base, 0, LEN);
		gpu_fill(dev.base, LEN, 99, 0);
		for (unsigned i = 0; i < 32; i++)
			v[i] = (struct gpu_req){ .iov = i % 2 ? &dev : &host,
						 .at = 32768 * (uint64_t)i,
						 .off = 32768 * (uint64_t)i,
						 .len = sizes[i % 3] };
		gpu_batch(gpu_file("both"), true, v, 32, 0);
		for (unsigned i = 0; i < 32; i++) {
			T_EQ(v[i].result, v[i].len);
			T_EQ(i % 2 ? gpu_differs(dev.base + v[i].at, v[i].len, 3, v[i].off)
				   : t_differs(host.base + v[i].at, 3, v[i].off, v[i].len),
			     v[i].len);
		}
		/*
		 * Too long for the window, so the worker imports the memory; the second round uses
		 * the import.
		 */
		T_EQ(gpu_read(&dev, 0, gpu_file("both"), 0, RIG_MIB(1)), RIG_MIB(1));
	}
	for (unsigned i = 0; i < 32; i++)
		v[i].len = 32768;
	t_fill(host.base, 4, 0, LEN);
	gpu_fill(dev.base, LEN, 4, 0);
	gpu_batch(gpu_file("copy"), false, v, 32, 0);
	for (unsigned i = 0; i < 32; i++)
		T_EQ(v[i].result, 32768);
	memset(host.base, 0, LEN);
	T_EQ(rig_slurp(gpu_file("copy"), 0, host.base, RIG_MIB(1)), RIG_MIB(1));
	T_EQ(t_differs(host.base, 4, 0, RIG_MIB(1)), RIG_MIB(1));
	hf3fs_iovdestroy(&dev);
	hf3fs_iovdestroy(&host);
	mg_end();
}

/* More small requests than staging has slots, in rings of some depth. */
static void R3b_many_small_pieces(void)
{
	enum { N = 256, PIECE = 4096 };
	struct hf3fs_iov iov;
	struct mg_ring r;
	struct hf3fs_cqe c[N];

	mg_begin();
	iov = mg_create((size_t)N * PIECE);
	rig_make(gpu_file("many"), 8, (size_t)N * PIECE);
	r = mg_ring(gpu_file("many"), N, true);
	for (unsigned turn = 0; turn < 8; turn++) {
		int got = 0;

		gpu_fill(iov.base, iov.size, 99, 0);
		if (turn % 2)
			rig_cold(gpu_file("many"));
		/* Each turn uses other places. */
		for (unsigned i = 0; i < N; i++)
			T_CHECK(hf3fs_prep_io(&r.ior, &iov, true,
					      iov.base + (size_t)((i + turn) % N) * PIECE, r.fd,
					      (size_t)i * PIECE, PIECE, NULL) >= 0);
		T_OK(hf3fs_submit_ios(&r.ior));
		while (got < N) {
			int n = hf3fs_wait_for_ios(&r.ior, c, N, 1, NULL);

			T_CHECK(n > 0);
			for (int i = 0; i < n; i++)
				T_EQ(c[i].result, PIECE);
			got += n;
		}
		for (unsigned i = 0; i < N; i++)
			T_EQ(gpu_differs(iov.base + (size_t)((i + turn) % N) * PIECE, PIECE, 8,
					 (size_t)i * PIECE),
			     PIECE);
	}
	mg_ring_end(&r);
	hf3fs_iovdestroy(&iov);
	mg_end();
}

/* Zeros are written by the window or by the device, never by the CPU's address. */
static void R3d_holes_and_ends(void)
{
	static const char zeros[100000];
	char *buf = malloc(300000);
	struct hf3fs_iov dev;
	struct gpu_req v;
	struct pst_mem *m;

	T_CHECK(buf);
	mg_begin();
	dev = mg_create(300000);
	for (int large = 0; large < 2; large++) {
		uint64_t data = large ? 50000 : 1000, end = large ? 200000 : 40000;

		rig_make(gpu_file("sparse"), 4, data);
		T_EQ(truncate(gpu_file("sparse"), (off_t)end), 0);
		gpu_fill(dev.base, 300000, 99, 0);
		v = (struct gpu_req){ .iov = &dev, .at = 10, .off = 0, .len = end + 20000 };
		gpu_batch(gpu_file("sparse"), true, &v, 1, 0);
		T_EQ(v.result, end);
		T_EQ(gpu_differs(dev.base + 10, data, 4, 0), data);
		m = gpu_view(dev.base, 300000);
		T_OK(pst_mem_copy_out(m, 0, buf, 300000));
		(void)pst_mem_free(m);
		T_CHECK(!memcmp(buf + 10 + data, zeros, large ? sizeof(zeros) : 39000));
		T_EQ(t_differs(buf, 99, 0, 10), 10);
		T_EQ(t_differs(buf + 10 + end, 99, 10 + end, 20000), 20000);
		T_EQ(gpu_read(&dev, 0, gpu_file("sparse"), end, 100), 0);
	}
	/* A hole with data after it, where holes are forbidden. */
	for (int large = 0; large < 2; large++) {
		uint64_t hole = large ? 131072 : 16384;

		T_EQ(truncate(gpu_file("sparse"), 0), 0);
		T_EQ(truncate(gpu_file("sparse"), (off_t)hole), 0);
		gpu_fill(dev.base, 300000, 5, 0);
		T_EQ(gpu_write(&dev, 0, gpu_file("sparse"), hole, 100), 100);
		v = (struct gpu_req){ .iov = &dev, .off = 0, .len = hole + 100 };
		gpu_batch(gpu_file("sparse"), true, &v, 1, HF3FS_IOR_FORBID_READ_HOLES);
		/* A storage service's protocol cannot tell holes from zeros. */
		T_EQ(v.result, getenv("PST_TEST_MOUNT_SERVICE") ? -EOPNOTSUPP : -ENODATA);
		T_EQ(gpu_differs(dev.base, 100, 5, 0), 100);
	}
	hf3fs_iovdestroy(&dev);
	free(buf);
	mg_end();
}

/* ------------------------------------------------------------------- R5, R6 */

static void R5a_nothing_is_left(void)
{
	struct procs_counts before = { 0 };
	struct hf3fs_iov iov;
	pid_t worker = 0;

	mg_begin();
	rig_make(gpu_file("data"), 7, RIG_MIB(1));
	for (unsigned i = 0; i < 100; i++) {
		iov = mg_create(RIG_MIB(1));
		T_EQ(gpu_read(&iov, 0, gpu_file("data"), i, 4096), 4096);
		T_EQ(gpu_differs(iov.base, 4096, 7, i), 4096);
		if (i % 10 == 0)
			T_EQ(gpu_read(&iov, 0, gpu_file("data"), i, 500000), 500000);
		hf3fs_iovdestroy(&iov);
		if (i != 20)
			continue;
		worker = procs_worker(&mg);
		before = procs_counts_of(&mg, worker);
		T_EQ(before.links, 0);
		T_EQ(before.maps, 0);
	}
	T_EQ(procs_worker(&mg), worker);
	procs_until_no_more(&mg, worker, &before);
	mg_end();
}

/* New memory at the address of freed memory is different memory. */
static void R5b_addresses_come_again(void)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	unsigned again = 0;
	uint64_t last = 0;
	struct hf3fs_iov iov;

	mg_begin();
	rig_make(gpu_file("again"), 7, RIG_MIB(1));
	for (uint64_t i = 0; i < 20; i++) {
		uint64_t n = i % 2 ? 100000 : 5000;
		struct pst_mem *m = rig_alloc("soft:0", RIG_MIB(1));

		T_OK(pst_mem_info(m, &info));
		again += info.addr == last;
		last = info.addr;
		T_OK(hf3fs_iovwrap_gpu(&iov, (void *)(uintptr_t)info.addr, gpu_id(), gpu_plain,
				       RIG_MIB(1), 0, 0));
		T_EQ(gpu_read(&iov, 0, gpu_file("again"), i, n), (int64_t)n);
		/* Check the memory through its owner, without the wrap. */
		T_EQ(rig_mem_differs(m, 0, n, 7, i), n);
		hf3fs_iovdestroy_gpu(&iov);
		(void)pst_mem_free(m);
	}
	T_CHECK(again > 0);
	mg_end();
}

/* Wrap parts of an allocation at any offset, with overlaps, as for a framework's allocator. */
static void R5e_parts_of_one_allocation(void)
{
	static const struct {
		uint64_t at, len;
	} part[] = { { 512, 4096 }, { 4608, 65536 }, { 70144, 300003 }, { 70144, 512 } };
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct hf3fs_iov iov[RIG_NR(part)];
	struct pst_mem *m;

	mg_begin();
	m = rig_alloc("soft:1", RIG_MIB(1));
	T_OK(pst_mem_info(m, &info));
	rig_make(gpu_file("model"), 5, RIG_MIB(1));
	rig_mem_fill(m, 0, RIG_MIB(1), 6, 0);
	for (unsigned i = 0; i < RIG_NR(part); i++)
		T_OK(hf3fs_iovwrap_device(&iov[i], (void *)(uintptr_t)(info.addr + part[i].at),
					  gpu_id(), gpu_plain, part[i].len, 0, 1));
	for (unsigned i = 0; i < RIG_NR(part); i++) {
		T_EQ(gpu_read(&iov[i], 0, gpu_file("model"), part[i].at, part[i].len),
		     (int64_t)part[i].len);
		T_EQ(rig_mem_differs(m, part[i].at, part[i].len, 5, part[i].at), part[i].len);
	}
	T_EQ(rig_mem_differs(m, 0, 512, 6, 0), 512);
	T_EQ(rig_mem_differs(m, 370147, 4096, 6, 370147), 4096);
	hf3fs_iovdestroy(&iov[2]); /* iov[3] overlaps it */
	T_EQ(gpu_read(&iov[3], 0, gpu_file("model"), 9, 512), 512);
	T_EQ(rig_mem_differs(m, 70144, 512, 5, 9), 512);
	for (unsigned i = 0; i < RIG_NR(part); i++)
		hf3fs_iovdestroy(&iov[i]);
	T_EQ(rig_mem_differs(m, 70144, 512, 5, 9), 512);
	(void)pst_mem_free(m);
	mg_end();
}

/* Send a request whose words in the ring were changed without the library. */
static int64_t forged(const struct mg_ring *r, const struct hf3fs_iov *iov, uint64_t at,
		      uint64_t len)
{
	struct hf3fs_cqe c = { .result = INT64_MIN };
	struct usrbio_ring ring;
	int index = hf3fs_prep_io(&r->ior, iov, true, iov->base, r->fd, 0, 1, NULL);

	T_CHECK(index >= 0);
	T_OK(usrbio_ring_at(r->ior.iov.base, r->ior.iov.size, &ring));
	ring.args[index].buf_off = at;
	ring.args[index].len = len;
	T_OK(hf3fs_submit_ios(&r->ior));
	T_EQ(hf3fs_wait_for_ios(&r->ior, &c, 1, 1, NULL), 1);
	return c.result;
}

/* An entry cannot reach beyond the wrapped part of the allocation. */
static void R6a_nothing_beyond_the_range(void)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct hf3fs_iov iov;
	struct pst_mem *m;
	struct mg_ring r;

	mg_begin();
	m = rig_alloc("soft:0", 65536);
	T_OK(pst_mem_info(m, &info));
	rig_make(gpu_file("data"), 5, 65536);
	rig_mem_fill(m, 0, 65536, 6, 0);
	T_OK(hf3fs_iovwrap_device(&iov, (void *)(uintptr_t)(info.addr + 8192), gpu_id(), gpu_plain,
				  8192, 0, 0));
	r = mg_ring(gpu_file("data"), 4, true);
	T_EQ(forged(&r, &iov, 8192, 1), -EINVAL);
	T_EQ(forged(&r, &iov, 8191, 2), -EINVAL);
	T_EQ(forged(&r, &iov, 0, 8193), -EINVAL);
	T_EQ(forged(&r, &iov, UINT64_MAX, 1), -EINVAL);
	T_EQ(forged(&r, &iov, UINT64_MAX - 8191, 8192), -EINVAL);
	T_EQ(forged(&r, &iov, 1, UINT64_MAX), -EINVAL);
	T_EQ(forged(&r, &iov, 0, 0), -EINVAL);
	T_EQ(rig_mem_differs(m, 0, 65536, 6, 0), 65536);
	T_EQ(forged(&r, &iov, 8191, 1), 1);
	T_EQ(mg_io(&r, &iov, 0, 0, 8192), 8192);
	T_EQ(rig_mem_differs(m, 8192, 8192, 5, 0), 8192);
	T_EQ(rig_mem_differs(m, 16384, 49152, 6, 16384), 49152);
	mg_ring_end(&r);
	hf3fs_iovdestroy(&iov);
	(void)pst_mem_free(m);
	mg_end();
}

/* -------------------------------------------------------------- other users */

/* Run as user nobody, with nobody's worker. */
static int child_has_its_own(void)
{
	struct hf3fs_iov iov = { 0 };

	GPU_CHILD(setgroups(0, NULL) == 0 && setresgid(MG_NOBODY, MG_NOBODY, MG_NOBODY) == 0 &&
		  setresuid(MG_NOBODY, MG_NOBODY, MG_NOBODY) == 0);
	GPU_CHILD(hf3fs_iovcreate_device(&iov, gpu_plain, LEN, 0, 1) == 0);
	for (unsigned i = 0; i < RIG_NR(lens); i++) {
		GPU_CHILD(gpu_read(&iov, 0, gpu_file("data"), 0, lens[i]) == (int64_t)lens[i]);
		GPU_CHILD(gpu_differs(iov.base, lens[i], 22, 0) == lens[i]);
	}
	GPU_CHILD(gpu_links(gpu_plain, NULL) == USRBIO_PRIORITIES + 1);
	hf3fs_iovdestroy(&iov);
	return 0;
}

static void another_user_has_his_own(void)
{
	struct hf3fs_iov iov;

	mg_begin();
	rig_make(gpu_file("data"), 22, LEN);
	T_EQ(chmod(gpu_file("data"), 0644), 0);
	iov = mg_create(LEN);
	gpu_fill(iov.base, LEN, 21, 0);
	T_EQ(gpu_other("own", &iov, "", 0), 0);
	T_EQ(gpu_differs(iov.base, LEN, 21, 0), LEN);
	hf3fs_iovdestroy(&iov);
	mg_end();
}

/* ----------------------------------------------------------------- R4 to R8 */

/* Memory regions of network cards, which these mounts do not support yet. */
static void R4_R8_network_cards_register_it(void)
{
	T_SKIP("a network card with RDMA, and rings that use it");
}

static int child(char **argv)
{
	uint8_t id[16];

	(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", argv[2]);
	if (setjmp(t_jump)) {
		(void)fprintf(stderr, "# child: %s\n", t_why);
		return 1;
	}
	GPU_CHILD(usrbio_id_parse(argv[4], id) == 0);
	return strcmp(argv[1], "own") ? child_opens(id) : child_has_its_own();
}

int main(int argc, char **argv)
{
	(void)setenv("PST_USRBIO_DEVICE", "soft", 1);
	(void)setenv("PST_SOFT_DEVICES", "2", 1);
	gpu_self = argv[0];
	if (argc == 5)
		return child(argv);
	gpu_rig_init();
	(void)hf3fs_gdr_device_count(); /* the library has seen two devices */
	T_RUN(R1_devices_are_there_or_not);
	T_RUN(R1_a_worker_without_the_device);
	T_RUN(R2b_another_process_opens_and_reads);
	T_RUN(R2c_garbage_is_no_handle);
	T_RUN(there_and_back);
	T_RUN(small_pieces_import_nothing);
	T_RUN(R3a_host_and_device_in_one_batch);
	T_RUN(R3b_many_small_pieces);
	T_RUN(R3d_holes_and_ends);
	T_RUN(R5a_nothing_is_left);
	T_RUN(R5b_addresses_come_again);
	T_RUN(R5e_parts_of_one_allocation);
	T_RUN(R6a_nothing_beyond_the_range);
	T_RUN(another_user_has_his_own);
	T_RUN(R4_R8_network_cards_register_it);
	return gpu_rig_done();
}
