/* SPDX-License-Identifier: MIT */
/*
 * Device memory in rings of a plain directory, on the software device.  Programs hold PROT_NONE
 * addresses of its memory, so any access by the CPU ends the process.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "gpu_rig.h"

#define LEN (RIG_MIB(1) + 4096)

static struct hf3fs_iov create(size_t size)
{
	struct hf3fs_iov iov;

	T_OK(hf3fs_iovcreate_device(&iov, gpu_plain, size, 0, 0));
	return iov;
}

/* Allocate memory that the test gives to the library in parts. */
static struct pst_mem *own(const char *device, size_t len, uint8_t **ret_addr)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_mem *m = rig_alloc(device, len);

	T_OK(pst_mem_info(m, &info));
	*ret_addr = (uint8_t *)(uintptr_t)info.addr;
	return m;
}

/* ------------------------------------------------------------ life of one */

static void create_and_destroy(void)
{
	struct hf3fs_iov iov = create(12345), copy, other;
	static const char none[16];

	T_CHECK(iov.base && iov.iovh && memcmp(iov.id, none, 16));
	T_EQ(iov.size, 12345);
	T_EQ(iov.block_size, 0);
	T_EQ(iov.numa, -1);
	T_CHECK(!strcmp(iov.mount_point, gpu_plain));
	T_EQ(hf3fs_iov_mem_type(&iov), HF3FS_MEM_DEVICE);
	T_EQ(hf3fs_iov_device_id(&iov), 0);
	T_CHECK(hf3fs_iov_is_gpu(&iov));
	T_EQ(hf3fs_iov_gpu_device(&iov), 0);
	/* The memory is not published. */
	T_EQ(gpu_links(gpu_plain, NULL), 0);

	T_OK(hf3fs_iovcreate_device(&other, gpu_plain, 1, 0, 1));
	T_EQ(hf3fs_iov_device_id(&other), 1);
	T_CHECK(memcmp(other.id, iov.id, 16));
	hf3fs_iovdestroy(&other);

	copy = iov;
	hf3fs_iovdestroy_gpu(&iov);
	T_CHECK(!iov.iovh);
	hf3fs_iovdestroy_gpu(&iov);
	hf3fs_iovdestroy(&iov);
	T_EQ(hf3fs_iov_mem_type(&copy), HF3FS_MEM_HOST);
	T_EQ(hf3fs_iov_device_id(&copy), -1);
	T_EQ(hf3fs_iovsync(&copy, 0), -EINVAL);
	hf3fs_iovunlink(&copy);
	hf3fs_iovdestroy(&copy);
}

static void R6a_host_memory_is_told_apart(void)
{
	struct hf3fs_iov iov, zero = { 0 };

	T_OK(hf3fs_iovcreate(&iov, gpu_plain, 4096, 0, -1));
	T_EQ(hf3fs_iov_mem_type(&iov), HF3FS_MEM_HOST);
	T_EQ(hf3fs_iov_device_id(&iov), -1);
	T_CHECK(!hf3fs_iov_is_gpu(&iov));
	T_EQ(hf3fs_iov_gpu_device(&iov), -1);
	T_OK(hf3fs_iovsync(&iov, 0));
	T_OK(hf3fs_iovsync(&iov, 1));
	T_EQ(hf3fs_iovsync(&iov, 2), -EINVAL);
	T_EQ(hf3fs_iovsync_gpu(&iov, 0), -EINVAL);
	T_EQ(hf3fs_iov_export_gpu(&iov, &(hf3fs_gpu_ipc_handle_t){ { 0 } }), -EINVAL);
	hf3fs_iovunlink_gpu(&iov); /* unlinks device memory only */
	T_EQ(gpu_links(gpu_plain, NULL), 1);
	hf3fs_iovdestroy_gpu(&iov);
	T_EQ(gpu_links(gpu_plain, NULL), 0);

	T_EQ(hf3fs_iov_mem_type(NULL), HF3FS_MEM_HOST);
	T_EQ(hf3fs_iov_device_id(NULL), -1);
	T_CHECK(!hf3fs_iov_is_gpu(NULL) && !hf3fs_iov_is_gpu(&zero));
	T_EQ(hf3fs_iov_gpu_device(&zero), -1);
}

static void sync_waits_and_checks(void)
{
	struct hf3fs_iov iov = create(100), zero = { 0 };

	T_OK(hf3fs_iovsync(&iov, 0));
	T_OK(hf3fs_iovsync(&iov, 1));
	T_OK(hf3fs_iovsync_gpu(&iov, 0));
	T_EQ(hf3fs_iovsync(&iov, -1), -EINVAL);
	T_EQ(hf3fs_iovsync(&iov, 2), -EINVAL);
	T_EQ(hf3fs_iovsync_gpu(&iov, 2), -EINVAL);
	T_EQ(hf3fs_iovsync(NULL, 0), -EINVAL);
	T_EQ(hf3fs_iovsync(&zero, 0), -EINVAL);
	T_EQ(hf3fs_iovsync_gpu(NULL, 0), -EINVAL);
	hf3fs_iovdestroy(&iov);
}

/* ------------------------------------------------------------------ R1, R2 */

static void R1_devices_are_counted(void)
{
	T_CHECK(hf3fs_gdr_available());
	T_EQ(hf3fs_gdr_device_count(), 2); /* set by PST_SOFT_DEVICES */
}

/* If the environment names no existing device, no other one is used. */
static void R1_a_wrong_kind_is_none(void)
{
	struct hf3fs_iov iov;

	T_EQ(setenv("PST_USRBIO_DEVICE", "sofa", 1), 0);
	T_CHECK(!hf3fs_gdr_available());
	T_EQ(hf3fs_gdr_device_count(), 0);
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, 1, 0, 0), -ENOTSUP);
	T_EQ(setenv("PST_USRBIO_DEVICE", "soft", 1), 0);
	T_CHECK(hf3fs_gdr_available());
}

/* The link names a descriptor of this process that is open as long as the memory exists. */
static void R2a_a_handle_as_long_as_the_memory(void)
{
	struct hf3fs_iov iov = create(5000), other, before;
	hf3fs_gpu_ipc_handle_t h, again;
	unsigned fds = t_count_fds();

	memset(&before, 0x77, sizeof(before));
	gpu_fill(iov.base, 5000, 61, 0);
	T_OK(hf3fs_iov_export_gpu(&iov, &h));
	T_EQ(t_count_fds(), fds + 1);
	T_OK(hf3fs_iov_export_gpu(&iov, &again));
	T_EQ(t_count_fds(), fds + 1);
	T_CHECK(!memcmp(&h, &again, sizeof(h)));
	T_OK(hf3fs_iov_import_gpu(&other, &h, gpu_plain));
	T_CHECK(other.base && other.base != iov.base && other.size == 5000);
	T_EQ(gpu_differs(other.base, 5000, 61, 0), 5000);
	hf3fs_iovdestroy(&other);
	T_EQ(hf3fs_iov_export_gpu(&iov, NULL), -EINVAL);
	T_EQ(hf3fs_iov_export_gpu(NULL, &h), -EINVAL);
	hf3fs_iovdestroy(&iov);
	T_EQ(t_count_fds(), fds - 1);
	T_EQ(hf3fs_iov_export_gpu(&iov, &h), -EINVAL);
	other = before;
	T_EQ(hf3fs_iov_import_gpu(&other, &h, gpu_plain), -EINVAL);
	T_CHECK(!memcmp(&other, &before, sizeof(other)));
}

static void R2c_garbage_is_no_handle(void)
{
	struct hf3fs_iov iov, before;
	hf3fs_gpu_ipc_handle_t h = { { 0 } };

	memset(&before, 0x77, sizeof(before));
	iov = before;
	for (unsigned i = 0; i < 200; i++) {
		T_EQ(hf3fs_iov_import_gpu(&iov, &h, gpu_plain), -EINVAL);
		t_fill(h.data, i, 0, sizeof(h.data));
	}
	T_EQ(hf3fs_iov_import_gpu(&iov, NULL, gpu_plain), -EINVAL);
	T_EQ(hf3fs_iov_import_gpu(NULL, &h, gpu_plain), -EINVAL);
	T_EQ(hf3fs_iov_import_gpu(&iov, &h, NULL), -EINVAL);
	T_CHECK(!memcmp(&iov, &before, sizeof(iov)));
}

/* ---------------------------------------------------------------- requests */

static void there_and_back(void)
{
	static const uint64_t lens[] = { 1, 7, 4096, 4097, 65536, 1000003, LEN };
	struct hf3fs_iov a = create(LEN + 100), b = create(LEN + 100);

	for (unsigned i = 0; i < RIG_NR(lens); i++) {
		uint64_t n = lens[i], at = i * 13;

		gpu_fill(a.base, a.size, 10 + i, 0);
		gpu_fill(b.base, b.size, 90, 0);
		T_OK(hf3fs_iovsync(&a, 0));
		T_EQ(gpu_write(&a, at, gpu_file("data"), i, n), (int64_t)n);
		T_EQ(gpu_read(&b, 100 - at, gpu_file("data"), i, n), (int64_t)n);
		T_OK(hf3fs_iovsync(&b, 1));
		T_EQ(gpu_differs(b.base + 100 - at, n, 10 + i, at), n);
		T_EQ(gpu_differs(b.base, 100 - at, 90, 0), 100 - at);
		T_EQ(unlink(gpu_file("data")), 0);
	}
	hf3fs_iovdestroy(&a);
	hf3fs_iovdestroy(&b);
}

static int death_by_touching(const uint8_t *p)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		(void)signal(SIGSEGV, SIG_DFL);
		(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
		_exit(*(const volatile uint8_t *)p & 1);
	}
	return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* One batch with host and device memory; the CPU would crash at the first device byte. */
static void R3a_host_and_device_in_one_batch(void)
{
	struct hf3fs_iov dev = create(LEN), host;
	struct gpu_req v[32];

	T_EQ(death_by_touching(dev.base), SIGSEGV);
	T_EQ(death_by_touching(dev.base + LEN - 1), SIGSEGV);
	T_OK(hf3fs_iovcreate(&host, gpu_plain, LEN, 0, -1));
	rig_make(gpu_file("both"), 3, LEN);
	for (int warm = 0; warm < 2; warm++) {
		memset(host.base, 0, LEN);
		gpu_fill(dev.base, LEN, 99, 0);
		if (warm)
			rig_warm(gpu_file("both"));
		else
			rig_cold(gpu_file("both"));
		for (unsigned i = 0; i < 32; i++)
			v[i] = (struct gpu_req){ .iov = i % 2 ? &dev : &host,
						 .at = 32768 * (uint64_t)i,
						 .off = 32768 * (uint64_t)i,
						 .len = i % 3 ? 32768 : 100 };
		gpu_batch(gpu_file("both"), true, v, 32, 0);
		for (unsigned i = 0; i < 32; i++) {
			T_EQ(v[i].result, v[i].len);
			if (i % 2)
				T_EQ(gpu_differs(dev.base + v[i].at, v[i].len, 3, v[i].off),
				     v[i].len);
			else
				T_EQ(t_differs(host.base + v[i].at, 3, v[i].off, v[i].len),
				     v[i].len);
		}
	}
	/* Write back alternately from host and device memory. */
	for (unsigned i = 0; i < 32; i++)
		v[i].len = 32768;
	t_fill(host.base, 3, 0, LEN);
	gpu_fill(dev.base, LEN, 3, 0);
	gpu_batch(gpu_file("copy"), false, v, 32, 0);
	for (unsigned i = 0; i < 32; i++)
		T_EQ(v[i].result, 32768);
	memset(host.base, 0, LEN);
	T_EQ(rig_slurp(gpu_file("copy"), 0, host.base, RIG_MIB(1)), RIG_MIB(1));
	T_EQ(t_differs(host.base, 3, 0, RIG_MIB(1)), RIG_MIB(1));
	hf3fs_iovdestroy(&dev);
	hf3fs_iovdestroy(&host);
	T_EQ(unlink(gpu_file("both")), 0);
	T_EQ(unlink(gpu_file("copy")), 0);
}

/* The device itself must write zeros of holes. */
static void R3d_holes_and_ends(void)
{
	struct hf3fs_iov dev = create(300000);
	struct gpu_req v = { .iov = &dev, .at = 10, .off = 0, .len = 250000 };
	static const char zeros[100000];
	char *buf = malloc(300000);
	struct pst_mem *m;

	T_CHECK(buf);
	rig_make(gpu_file("sparse"), 4, 50000);
	T_EQ(truncate(gpu_file("sparse"), 200000), 0);
	gpu_fill(dev.base, 300000, 99, 0);
	gpu_batch(gpu_file("sparse"), true, &v, 1, 0);
	T_EQ(v.result, 200000);
	T_EQ(gpu_differs(dev.base + 10, 50000, 4, 0), 50000);
	m = gpu_view(dev.base, 300000);
	T_OK(pst_mem_copy_out(m, 0, buf, 300000));
	(void)pst_mem_free(m);
	T_CHECK(!memcmp(buf + 10 + 100000, zeros, 100000));
	T_EQ(t_differs(buf, 99, 0, 10), 10);
	T_EQ(gpu_read(&dev, 0, gpu_file("sparse"), 200000, 100), 0);

	/* A hole with data after it. */
	T_EQ(truncate(gpu_file("sparse"), 0), 0);
	T_EQ(truncate(gpu_file("sparse"), 131072), 0);
	gpu_fill(dev.base, 300000, 5, 0);
	T_EQ(gpu_write(&dev, 0, gpu_file("sparse"), 131072, 100), 100);
	v = (struct gpu_req){ .iov = &dev, .off = 0, .len = 131172 };
	gpu_batch(gpu_file("sparse"), true, &v, 1, HF3FS_IOR_FORBID_READ_HOLES);
	T_EQ(v.result, -ENODATA);
	hf3fs_iovdestroy(&dev);
	free(buf);
	T_EQ(unlink(gpu_file("sparse")), 0);
}

static void blocks(void)
{
	struct hf3fs_iov iov;
	uint8_t *p;
	struct pst_mem *m = own("soft:0", 65536, &p);

	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, 65536, 4096, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(&iov, p, gpu_id(), gpu_plain, 65536, 4096, 0), -EINVAL);
	T_EQ(hf3fs_iovopen_device(&iov, gpu_id(), gpu_plain, 65536, 4096, 0), -EINVAL);
	T_EQ(hf3fs_iovcreate_gpu(&iov, gpu_plain, 65536, 65537, 0), -EINVAL);
	T_OK(hf3fs_iovcreate_gpu(&iov, gpu_plain, 65536, 8192, 0));
	T_EQ(iov.block_size, 8192);
	rig_make(gpu_file("blocks"), 6, 65536);
	T_EQ(gpu_read(&iov, 8192, gpu_file("blocks"), 0, 8192), 8192);
	T_EQ(gpu_differs(iov.base + 8192, 8192, 6, 0), 8192);
	T_EQ(gpu_read(&iov, 4096, gpu_file("blocks"), 0, 8192), -EINVAL);
	hf3fs_iovdestroy_gpu(&iov);
	(void)pst_mem_free(m);
	T_EQ(unlink(gpu_file("blocks")), 0);
}

/* Parts of device memory count as device memory. */
static void R6a_ranges_of_opaque_pointers(void)
{
	struct hf3fs_iov iov = create(4096);
	struct hf3fs_ior ior;
	int fd;

	rig_make(gpu_file("ranges"), 6, 4096);
	fd = open(gpu_file("ranges"), O_RDONLY);
	T_CHECK(fd >= 0 && hf3fs_reg_fd(fd, 0) <= 0);
	T_OK(hf3fs_iorcreate(&ior, gpu_plain, 4, true, 0, -1));
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 4097, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, UINT64_MAX, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base + 1, fd, 0, UINT64_MAX, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base + 4096, fd, 0, 1, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base - 1, fd, 0, 2, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base - 1, fd, 0, UINT64_MAX, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, NULL, fd, 0, 1, NULL), -EINVAL);
	hf3fs_iordestroy(&ior);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	hf3fs_iovdestroy(&iov);
	T_EQ(unlink(gpu_file("ranges")), 0);
}

/* -------------------------------------------------------------------- wrap */

/* Wrap parts of an allocation at any offset, as for a framework's allocator. */
static void R5d_wraps_of_parts(void)
{
	uint8_t *p;
	struct pst_mem *m = own("soft:1", LEN, &p);
	const uint8_t *id = gpu_id();
	struct hf3fs_iov iov;

	rig_make(gpu_file("part"), 7, 100000);
	gpu_fill(p, LEN, 8, 0);
	T_OK(hf3fs_iovwrap_device(&iov, p + 12345, id, gpu_plain, 100000, 0, 1));
	T_CHECK(iov.base == p + 12345 && !memcmp(iov.id, id, 16));
	T_EQ(hf3fs_iov_device_id(&iov), 1);
	T_EQ(gpu_read(&iov, 0, gpu_file("part"), 0, 100000), 100000);
	T_EQ(gpu_differs(p, 12345, 8, 0), 12345);
	T_EQ(gpu_differs(p + 12345, 100000, 7, 0), 100000);
	T_EQ(gpu_differs(p + 112345, LEN - 112345, 8, 112345), LEN - 112345);
	hf3fs_iovdestroy_gpu(&iov);
	/* The memory is unchanged. */
	T_EQ(gpu_differs(p + 12345, 100000, 7, 0), 100000);
	(void)pst_mem_free(m);
	T_EQ(unlink(gpu_file("part")), 0);
}

/* Two wraps of one piece of memory are independent. */
static void R5e_two_over_the_same(void)
{
	uint8_t *p;
	struct pst_mem *m = own("soft:0", 50000, &p);
	struct hf3fs_iov a, b;

	rig_make(gpu_file("twice"), 7, 50000);
	T_OK(hf3fs_iovwrap_device(&a, p, gpu_id(), gpu_plain, 50000, 0, 0));
	T_OK(hf3fs_iovwrap_device(&b, p + 100, gpu_id(), gpu_plain, 40000, 0, 0));
	hf3fs_iovdestroy(&a);
	T_EQ(gpu_read(&b, 0, gpu_file("twice"), 5, 40000), 40000);
	T_EQ(gpu_differs(p + 100, 40000, 7, 5), 40000);
	hf3fs_iovdestroy(&b);
	(void)pst_mem_free(m);
	T_EQ(unlink(gpu_file("twice")), 0);
}

/* New memory at the address of freed memory is different memory. */
static void R5b_addresses_come_again(void)
{
	uint8_t *p, *last = NULL;
	struct hf3fs_iov iov;
	unsigned again = 0;

	rig_make(gpu_file("again"), 7, RIG_MIB(1));
	for (uint64_t i = 0; i < 20; i++) {
		struct pst_mem *m = own("soft:0", RIG_MIB(1), &p);

		again += p == last;
		last = p;
		T_OK(hf3fs_iovwrap_gpu(&iov, p, gpu_id(), gpu_plain, RIG_MIB(1), 0, 0));
		T_EQ(gpu_read(&iov, 0, gpu_file("again"), i, 100000), 100000);
		/* Check the memory through its owner, without the wrap. */
		T_EQ(rig_mem_differs(m, 0, 100000, 7, i), 100000);
		hf3fs_iovdestroy_gpu(&iov);
		(void)pst_mem_free(m);
	}
	T_CHECK(again > 0);
	T_EQ(unlink(gpu_file("again")), 0);
}

static void R5a_nothing_is_left(void)
{
	struct hf3fs_iov iov;
	unsigned fds = 0;
	uint8_t *p;
	struct pst_mem *m = own("soft:0", 8192, &p);

	for (unsigned i = 0; i < 1000; i++) {
		iov = create(8192);
		hf3fs_iovdestroy(&iov);
		T_OK(hf3fs_iovwrap_device(&iov, p, gpu_id(), gpu_plain, 8192, 0, 0));
		hf3fs_iovdestroy(&iov);
		if (!i)
			fds = t_count_fds();
	}
	T_EQ(t_count_fds(), fds);
	T_EQ(gpu_links(gpu_plain, NULL), 0);
	(void)pst_mem_free(m);
}

static void one_uuid_once(void)
{
	uint8_t *p, id[16];
	struct pst_mem *m = own("soft:0", 8192, &p);
	struct hf3fs_iov a, b, before;

	memcpy(id, gpu_id(), 16);
	memset(&before, 0x77, sizeof(before));
	b = before;
	T_OK(hf3fs_iovwrap_device(&a, p, id, gpu_plain, 4096, 0, 0));
	T_EQ(hf3fs_iovwrap_device(&b, p + 4096, id, gpu_plain, 4096, 0, 0), -EEXIST);
	T_EQ(hf3fs_iovwrap_device(&b, p, id, gpu_plain, 4096, 0, 0), -EEXIST);
	T_CHECK(!memcmp(&b, &before, sizeof(b)));
	hf3fs_iovdestroy(&a);
	T_OK(hf3fs_iovwrap_device(&b, p + 4096, id, gpu_plain, 4096, 0, 0));
	hf3fs_iovdestroy(&b);
	/* The UUID of a host buffer is in use, too. */
	T_OK(hf3fs_iovcreate(&a, gpu_plain, 4096, 0, -1));
	memcpy(id, a.id, 16);
	T_EQ(hf3fs_iovwrap_device(&b, p, id, gpu_plain, 4096, 0, 0), -EEXIST);
	hf3fs_iovdestroy(&a);
	(void)pst_mem_free(m);
}

/* ------------------------------------------------------------------ errors */

static void wrong_arguments(void)
{
	struct hf3fs_iov iov, before;
	uint8_t *p, id[16];
	struct pst_mem *m = own("soft:0", 8192, &p);
	char longest[300], host[64];
	unsigned fds = t_count_fds();

	memcpy(id, gpu_id(), 16);
	memset(longest, 'x', sizeof(longest));
	longest[0] = '/';
	longest[256] = '\0';
	memset(&before, 0x77, sizeof(before));
	iov = before;
	T_EQ(hf3fs_iovcreate_device(NULL, gpu_plain, 1, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovcreate_device(&iov, NULL, 1, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovcreate_device(&iov, "", 1, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovcreate_device(&iov, longest, 1, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, 0, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, 1, 0, -1), -ENODEV);
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, 1, 0, 2), -ENODEV);
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, 1, 0, INT32_MIN), -ENODEV);
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, 1, 0, INT32_MAX), -ENODEV);
	T_EQ(hf3fs_iovcreate_device(&iov, "/nonexistent", 1, 0, 0), -ENOENT);
	T_EQ(hf3fs_iovcreate_device(&iov, rig_dir, 1, 0, 0), -ENOENT);
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, SIZE_MAX, 0, 0), -ENOMEM);
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, (size_t)1 << 60, 0, 0), -ENOMEM);

	T_EQ(hf3fs_iovwrap_device(&iov, NULL, id, gpu_plain, 1, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(&iov, p, NULL, gpu_plain, 1, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(NULL, p, id, gpu_plain, 1, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(&iov, p, id, gpu_plain, 0, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(&iov, p, id, gpu_plain, 8193, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(&iov, p, id, gpu_plain, SIZE_MAX, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(&iov, p - 1, id, gpu_plain, 8192, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(&iov, host, id, gpu_plain, 8, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(&iov, p, id, gpu_plain, 8192, 0, 1), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(&iov, p, id, gpu_plain, 8192, 0, 7), -ENODEV);

	T_EQ(hf3fs_iovopen_device(&iov, NULL, gpu_plain, 1, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovopen_device(NULL, id, gpu_plain, 1, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovopen_device(&iov, id, gpu_plain, 0, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovopen_device(&iov, id, gpu_plain, 1, 0, 9), -ENODEV);
	T_CHECK(!memcmp(&iov, &before, sizeof(iov)));
	T_EQ(t_count_fds(), fds);
	T_EQ(gpu_links(gpu_plain, NULL), 0);
	(void)pst_mem_free(m);
	T_EQ(hf3fs_iovwrap_device(&iov, p, id, gpu_plain, 8192, 0, 0), -EINVAL);
	hf3fs_iovunlink_gpu(NULL);
	hf3fs_iovdestroy_gpu(NULL);
	hf3fs_iovdestroy(NULL);
}

/* Another process' memory cannot be opened in a plain directory, whatever links exist. */
static void plain_directories_carry_none(void)
{
	struct hf3fs_iov iov = create(4096), other;
	char path[300];

	T_EQ(hf3fs_iovopen_device(&other, (const uint8_t *)iov.id, gpu_plain, 4096, 0, 0), -ENOENT);
	(void)snprintf(path, sizeof(path),
		       "%s/3fs-virt/iovs/01234567-89ab-4def-8123-456789abcdef.gdr.d0", gpu_plain);
	T_EQ(symlink("gdr://v2/device/0/allocation/1/offset/0/size/1/ipc/00", path), 0);
	T_EQ(hf3fs_iovopen_device(&other,
				  (const uint8_t[16]){ 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0x4d,
						       0xef, 0x81, 0x23, 0x45, 0x67, 0x89, 0xab,
						       0xcd, 0xef },
				  gpu_plain, 1, 0, 0),
	     -ENOENT);
	T_EQ(unlink(path), 0);
	/* Nothing is published, so unlinking removes nothing. */
	rig_make(gpu_file("kept"), 2, 4096);
	hf3fs_iovunlink(&iov);
	hf3fs_iovunlink_gpu(&iov);
	T_EQ(gpu_read(&iov, 0, gpu_file("kept"), 0, 4096), 4096);
	T_EQ(gpu_differs(iov.base, 4096, 2, 0), 4096);
	hf3fs_iovdestroy(&iov);
	T_EQ(unlink(gpu_file("kept")), 0);
}

/* Publish on a daemon's mount whose daemon does not answer. */
static void a_daemon_is_told_of_it(void)
{
	uint8_t *p;
	struct pst_mem *m = own("soft:1", 8192, &p);
	struct hf3fs_iov iov, again, before;
	struct usrbio_gdr g;
	unsigned fds;

	memset(&before, 0x77, sizeof(before));
	again = before;
	T_OK(hf3fs_iovcreate_device(&iov, gpu_daemon, 4096, 0, 0));
	fds = t_count_fds(); /* the library keeps the directory open */
	g = gpu_published(&iov, 0);
	T_CHECK(g.device == 0 && g.off == 0 && g.size == 4096 && g.allocation >= 4096);
	T_OK(hf3fs_iovopen_device(&again, (uint8_t *)iov.id, gpu_daemon, 4096, 0, 0));
	gpu_fill(iov.base, 4096, 62, 0);
	T_EQ(gpu_differs(again.base, 4096, 62, 0), 4096);
	hf3fs_iovdestroy(&again);
	T_EQ(gpu_links(gpu_daemon, NULL), 1);
	hf3fs_iovdestroy(&iov);
	T_EQ(gpu_links(gpu_daemon, NULL), 0);
	again = before;
	T_OK(hf3fs_iovwrap_device(&iov, p + 100, gpu_id(), gpu_daemon, 8000, 0, 1));
	g = gpu_published(&iov, 1);
	T_CHECK(g.device == 1 && g.off == 100 && g.size == 8000 && g.allocation == 8192);
	T_EQ(hf3fs_iovopen_device(&again, (uint8_t *)iov.id, gpu_daemon, 8001, 0, 1), -EINVAL);
	hf3fs_iovdestroy(&iov);
	T_EQ(hf3fs_iovopen_device(&again, gpu_id(), gpu_daemon, 8192, 0, 0), -ENOENT);
	T_CHECK(!memcmp(&again, &before, sizeof(again)));
	/* the memory had two descriptors: its own, and one for other processes to open */
	T_EQ(t_count_fds(), fds - 2);
	T_EQ(gpu_links(gpu_daemon, NULL), 0);
	(void)pst_mem_free(m);
}

/* ------------------------------------------------------------------- forks */

static void a_child_gets_errors(void)
{
	struct hf3fs_iov iov = create(4096);
	int status;
	pid_t pid;

	gpu_fill(iov.base, 4096, 3, 0);
	(void)fflush(stdout);
	pid = fork();
	if (!pid) {
		struct hf3fs_iov mine;

		if (hf3fs_gdr_available() || hf3fs_gdr_device_count())
			_exit(1);
		if (hf3fs_iovcreate_device(&mine, gpu_plain, 4096, 0, 0) != -EOWNERDEAD)
			_exit(2);
		if (hf3fs_iovsync(&iov, 0) != -EOWNERDEAD)
			_exit(3);
		hf3fs_iovunlink(&iov);
		hf3fs_iovdestroy(&iov);
		_exit(iov.iovh ? 4 : 0);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	T_EQ(gpu_differs(iov.base, 4096, 3, 0), 4096);
	T_OK(hf3fs_iovsync(&iov, 0));
	hf3fs_iovdestroy(&iov);
}

/* Calls keep errno, on success and on failure. */
static void errno_stays(void)
{
	struct hf3fs_iov iov;

	errno = 4711;
	T_OK(hf3fs_iovcreate_device(&iov, gpu_plain, 4096, 0, 0));
	T_EQ(errno, 4711);
	T_EQ(hf3fs_iovcreate_device(&(struct hf3fs_iov){ 0 }, "/nonexistent", 4096, 0, 0), -ENOENT);
	T_EQ(errno, 4711);
	T_OK(hf3fs_iovsync(&iov, 0));
	T_CHECK(hf3fs_gdr_available());
	hf3fs_iovdestroy(&iov);
	T_EQ(errno, 4711);
}

int main(void)
{
	(void)setenv("PST_USRBIO_DEVICE", "soft", 1);
	(void)setenv("PST_SOFT_DEVICES", "2", 1);
	gpu_rig_init();
	T_RUN(R1_devices_are_counted);
	T_RUN(R1_a_wrong_kind_is_none);
	T_RUN(create_and_destroy);
	T_RUN(R6a_host_memory_is_told_apart);
	T_RUN(sync_waits_and_checks);
	T_RUN(R2a_a_handle_as_long_as_the_memory);
	T_RUN(R2c_garbage_is_no_handle);
	T_RUN(there_and_back);
	T_RUN(R3a_host_and_device_in_one_batch);
	T_RUN(R3d_holes_and_ends);
	T_RUN(blocks);
	T_RUN(R6a_ranges_of_opaque_pointers);
	T_RUN(R5d_wraps_of_parts);
	T_RUN(R5e_two_over_the_same);
	T_RUN(R5b_addresses_come_again);
	T_RUN(R5a_nothing_is_left);
	T_RUN(one_uuid_once);
	T_RUN(wrong_arguments);
	T_RUN(plain_directories_carry_none);
	T_RUN(a_daemon_is_told_of_it);
	T_RUN(a_child_gets_errors);
	T_RUN(errno_stays);
	return gpu_rig_done();
}
