/* SPDX-License-Identifier: MIT */
/*
 * The examples in the documentation of the calls on device memory, unchanged except for the mount
 * point, the file, and parts left to the reader: on the software device, or on CUDA with
 * PST_TEST_DEVICE=cuda; in a plain directory, or on the mount of PST_TEST_MOUNT.
 */
#include "gpu_rig.h"
#include "mount_rig.h"

#define BYTES RIG_MIB(4)

static char file_bin[160];
static const char *device = "soft";

/* -------------------------------------------- memory that the library made */

static int created(size_t buffer_size, int gpu_device_id, uint64_t seed)
{
	// Check if GDR is available on this system
	if (hf3fs_gdr_available()) {
		int gpu_count = hf3fs_gdr_device_count();
		printf("# GDR available with %d GPUs\n", gpu_count);
	}

	// Create GPU iov - library allocates GPU memory internally
	struct hf3fs_iov iov;
	int ret = hf3fs_iovcreate_gpu(&iov, gpu_plain, buffer_size, 0, gpu_device_id);
	if (ret != 0) {
		fprintf(stderr, "Failed to create GPU iov: %d\n", ret);
		return ret;
	}

	// Create I/O ring (same as regular usrbio)
	struct hf3fs_ior ior;
	hf3fs_iorcreate4(&ior, gpu_plain, 64, true, 0, 0, -1, 0);

	// Register file
	int fd = open(file_bin, O_RDONLY);
	hf3fs_reg_fd(fd, 0);

	// Submit read to GPU memory (same as regular usrbio)
	hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, buffer_size, NULL);
	hf3fs_submit_ios(&ior);

	// Wait for completion
	struct hf3fs_cqe cqe;
	hf3fs_wait_for_ios(&ior, &cqe, 1, 1, NULL);

	// Use data in GPU memory...
	T_EQ(cqe.result, (int64_t)buffer_size);
	T_EQ(gpu_differs(iov.base, buffer_size, seed, 0), buffer_size);

	// Check if an iov contains GPU memory
	if (hf3fs_iov_is_gpu(&iov)) {
		// Get GPU device ID
		int device_id = hf3fs_iov_gpu_device(&iov);
		printf("# GPU iov on device %d\n", device_id);
	}

	// Synchronize GPU memory for coherency (usually automatic)
	T_OK(hf3fs_iovsync_gpu(&iov, 0));

	// Cleanup
	hf3fs_iovdestroy_gpu(&iov);
	hf3fs_iordestroy(&ior);
	hf3fs_dereg_fd(fd);
	close(fd);
	return 0;
}

static void memory_of_the_library(void)
{
	rig_make(file_bin, 11, BYTES);
	T_EQ(created(BYTES, 0, 11), 0);
	T_EQ(created(1 << 20, 0, 11), 0);
}

/* ------------------------------------------------ memory of the framework's */

static int wrapped(struct hf3fs_ior *ior, void *gpu_ptr, const uint8_t uuid[16], int fd,
		   size_t offset, size_t len)
{
	const size_t buffer_size = len;
	const int gpu_device_id = 0;

	// Wrap the existing GPU memory
	struct hf3fs_iov iov;
	int ret = hf3fs_iovwrap_gpu(&iov, gpu_ptr, uuid, gpu_plain, buffer_size, 0, gpu_device_id);
	if (ret != 0) {
		fprintf(stderr, "Failed to wrap GPU memory: %d\n", ret);
		return ret;
	}

	// Use for I/O (same as above)
	hf3fs_prep_io(ior, &iov, true, gpu_ptr, fd, offset, len, NULL);
	hf3fs_submit_ios(ior);

	struct hf3fs_cqe cqe;
	T_EQ(hf3fs_wait_for_ios(ior, &cqe, 1, 1, NULL), 1);
	T_EQ(cqe.result, (int64_t)len);

	// Cleanup - only releases RDMA registration, does NOT free GPU memory
	hf3fs_iovdestroy_gpu(&iov);
	return 0;
}

static void memory_of_the_framework(void)
{
	struct pst_mem *m = rig_alloc(*device == 's' ? "soft:0" : "cuda:0", BYTES);
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct hf3fs_ior ior;
	int fd;

	rig_make(file_bin, 12, BYTES);
	T_OK(pst_mem_info(m, &info));
	T_OK(hf3fs_iorcreate4(&ior, gpu_plain, 64, true, 0, 0, -1, 0));
	fd = open(file_bin, O_RDONLY);
	T_CHECK(hf3fs_reg_fd(fd, 0) <= 0);
	for (uint64_t part = 0; part < 4; part++)
		T_EQ(wrapped(&ior, (void *)(uintptr_t)(info.addr + part * RIG_MIB(1)), gpu_id(), fd,
			     part * RIG_MIB(1), RIG_MIB(1)),
		     0);
	T_EQ(rig_mem_differs(m, 0, BYTES, 12, 0), BYTES);
	hf3fs_iordestroy(&ior);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	(void)pst_mem_free(m);
}

/* ------------------------------------------------ memory of another process */

static int send_to_consumer(const struct hf3fs_iov *iov, hf3fs_gpu_ipc_handle_t handle)
{
	return gpu_other("import", iov, &handle, sizeof(handle));
}

static int recv_from_owner(hf3fs_gpu_ipc_handle_t *handle)
{
	return read(0, handle, sizeof(*handle)) == sizeof(*handle) ? 0 : -1;
}

static int exported(size_t size, int device_id)
{
	// Create or wrap GPU iov
	struct hf3fs_iov iov;
	hf3fs_iovcreate_gpu(&iov, gpu_plain, size, 0, device_id);

	// Export IPC handle for sharing
	hf3fs_gpu_ipc_handle_t handle;
	int ret = hf3fs_iov_export_gpu(&iov, &handle);
	int status = -1;
	if (ret == 0) {
		// Send handle to consumer process via IPC mechanism
		gpu_fill(iov.base, size, 14, 0);
		status = send_to_consumer(&iov, handle);
	}
	T_EQ(ret, 0);
	T_EQ(status, 0);
	/* The bytes that the other process read are in this process' memory. */
	T_EQ(gpu_differs(iov.base, size, 13, 0), size);
	hf3fs_iovdestroy_gpu(&iov);
	return 0;
}

static int imported(void)
{
	struct hf3fs_ior ior;
	struct hf3fs_cqe cqe;
	uint64_t offset = 0;
	int fd = open(file_bin, O_RDONLY);

	GPU_CHILD(hf3fs_iorcreate4(&ior, gpu_plain, 64, true, 0, 0, -1, 0) == 0);
	GPU_CHILD(hf3fs_reg_fd(fd, 0) <= 0);

	// Receive handle from owner process
	hf3fs_gpu_ipc_handle_t handle;
	GPU_CHILD(recv_from_owner(&handle) == 0);

	// Import the GPU memory
	struct hf3fs_iov iov;
	int ret = hf3fs_iov_import_gpu(&iov, &handle, gpu_plain);
	if (ret == 0) {
		// Can now use for RDMA operations
		GPU_CHILD(gpu_differs(iov.base, iov.size, 14, 0) == iov.size);
		hf3fs_prep_io(&ior, &iov, true, iov.base, fd, offset, iov.size, NULL);
		hf3fs_submit_ios(&ior);
		GPU_CHILD(hf3fs_wait_for_ios(&ior, &cqe, 1, 1, NULL) == 1);
		GPU_CHILD(cqe.result == (int64_t)iov.size);
	}

	// Cleanup
	hf3fs_iovdestroy_gpu(&iov);
	GPU_CHILD(ret == 0);
	hf3fs_iordestroy(&ior);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	return 0;
}

static void memory_of_another_process(void)
{
	rig_make(file_bin, 13, BYTES);
	T_EQ(exported(BYTES, 0), 0);
	T_EQ(exported(4096, 0), 0);
}

/* ------------------------------------------------------------------- begin */

static struct mount_rig rig;

static void no_mount(void)
{
	T_SKIP("%s", rig.why);
}

static void mount_ends(void)
{
	T_EQ(mount_rig_stop(&rig), 0);
}

int main(int argc, char **argv)
{
	if (getenv("PST_TEST_DEVICE"))
		device = getenv("PST_TEST_DEVICE");
	(void)setenv("PST_USRBIO_DEVICE", device, 1);
	gpu_self = argv[0];
	if (argc == 5) {
		(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", argv[2]);
		(void)snprintf(file_bin, sizeof(file_bin), "%s/file.bin", gpu_plain);
		return imported();
	}
	gpu_rig_init();
	if (getenv("PST_TEST_MOUNT") && mount_rig_start(&rig, "penstock-mount", NULL) < 0) {
		T_RUN(no_mount);
		return gpu_rig_done();
	}
	if (rig.pid)
		(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", rig.mnt);
	(void)snprintf(file_bin, sizeof(file_bin), "%s/file.bin", gpu_plain);
	T_RUN(memory_of_the_library);
	T_RUN(memory_of_the_framework);
	T_RUN(memory_of_another_process);
	if (rig.pid)
		T_RUN(mount_ends);
	return gpu_rig_done();
}
