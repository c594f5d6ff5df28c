/* SPDX-License-Identifier: MIT */
/*
 * All calls on device memory on a machine without CUDA: wrong arguments give the usual errors,
 * valid calls -ENOTSUP.  PST_LIBCUDA names a library that does not exist.
 */
#include "gpu_rig.h"

#define ROUNDS 1000

static struct hf3fs_iov iov, before;
static hf3fs_gpu_ipc_handle_t handle, handle_before;
static uint8_t id[16];

static void R1a_there_is_none(void)
{
	T_CHECK(!hf3fs_gdr_available());
	T_EQ(hf3fs_gdr_device_count(), 0);
}

/* Make every call, and check that its arguments are unchanged. */
static void every_call(void)
{
	static char memory[64];
	const char *const mounts[] = { gpu_plain, gpu_daemon, "/unused" };

	for (unsigned i = 0; i < RIG_NR(mounts); i++) {
		const char *mp = mounts[i];

		T_EQ(hf3fs_iovcreate_gpu(&iov, mp, 4096, 0, 0), -ENOTSUP);
		T_EQ(hf3fs_iovcreate_device(&iov, mp, 4096, 0, 0), -ENOTSUP);
		T_EQ(hf3fs_iovopen_gpu(&iov, id, mp, 4096, 0, 0), -ENOTSUP);
		T_EQ(hf3fs_iovopen_device(&iov, id, mp, 4096, 0, 0), -ENOTSUP);
		T_EQ(hf3fs_iovwrap_gpu(&iov, memory, id, mp, 64, 0, 0), -ENOTSUP);
		T_EQ(hf3fs_iovwrap_device(&iov, memory, id, mp, 64, 0, 0), -ENOTSUP);
		T_EQ(hf3fs_iov_import_gpu(&iov, &handle, mp), -ENOTSUP);
	}
	/* Arguments are checked first. */
	T_EQ(hf3fs_iovcreate_gpu(&iov, "/unused", 0, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovcreate_gpu(&iov, "/unused", 4096, 4097, 0), -EINVAL);
	T_EQ(hf3fs_iovcreate_gpu(NULL, "/unused", 4096, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovcreate_gpu(&iov, NULL, 4096, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovcreate_device(&iov, "/unused", 4096, 1, 0), -EINVAL);
	T_EQ(hf3fs_iovopen_gpu(&iov, NULL, "/unused", 4096, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovopen_device(&iov, id, "/unused", 4096, 1, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_gpu(&iov, NULL, id, "/unused", 4096, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_gpu(&iov, memory, NULL, "/unused", 4096, 0, 0), -EINVAL);
	T_EQ(hf3fs_iovwrap_device(&iov, memory, id, "/unused", 4096, 1, 0), -EINVAL);
	T_EQ(hf3fs_iov_import_gpu(&iov, NULL, "/unused"), -EINVAL);
	T_EQ(hf3fs_iov_import_gpu(NULL, &handle, "/unused"), -EINVAL);
	T_EQ(hf3fs_iov_import_gpu(&iov, &handle, NULL), -EINVAL);

	T_EQ(hf3fs_iov_export_gpu(&iov, &handle), -EINVAL);
	T_EQ(hf3fs_iovsync_gpu(&iov, 0), -EINVAL);
	T_EQ(hf3fs_iovsync(&iov, 0), -EINVAL);
	T_CHECK(!hf3fs_iov_is_gpu(&iov));
	T_EQ(hf3fs_iov_gpu_device(&iov), -1);
	T_EQ(hf3fs_iov_device_id(&iov), -1);
	T_EQ(hf3fs_iov_mem_type(&iov), HF3FS_MEM_HOST);
	hf3fs_iovunlink_gpu(&iov);
	T_CHECK(!memcmp(&iov, &before, sizeof(iov)));
	T_CHECK(!memcmp(&handle, &handle_before, sizeof(handle)));
}

static void R1a_every_call_says_so(void)
{
	unsigned fds = t_count_fds();

	memcpy(id, gpu_id(), 16);
	before.base = (uint8_t *)(uintptr_t)0x1000; /* not a handle of the library, but not NULL */
	before.size = 4096;
	iov = before;
	memset(&handle, 0x77, sizeof(handle));
	handle_before = handle;
	for (unsigned i = 0; i < ROUNDS; i++)
		every_call();
	T_CHECK(t_fds_left(fds) <= fds);
	T_EQ(gpu_links(gpu_plain, NULL), 0);
	T_EQ(gpu_links(gpu_daemon, NULL), 0);
}

/* Host memory still works. */
static void R1a_host_rings_work(void)
{
	struct hf3fs_iov host;

	rig_make(gpu_file("host"), 3, 100000);
	T_OK(hf3fs_iovcreate(&host, gpu_plain, 100000, 0, -1));
	T_EQ(gpu_read(&host, 0, gpu_file("host"), 0, 100000), 100000);
	T_EQ(t_differs(host.base, 3, 0, 100000), 100000);
	T_OK(hf3fs_iovsync(&host, 1));
	hf3fs_iovdestroy(&host);
}

int main(void)
{
	(void)setenv("PST_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
	(void)setenv("HF3FS_USRBIO_LIB_LOG", "OFF", 1);
	(void)unsetenv("PST_USRBIO_DEVICE");
	gpu_rig_init();
	T_RUN(R1a_there_is_none);
	T_RUN(R1a_every_call_says_so);
	T_RUN(R1a_host_rings_work);
	return gpu_rig_done();
}
