/* SPDX-License-Identifier: MIT */
/*
 * libhf3fs_api_shared - device memory in usrbio, by the original names of the calls.
 *
 * The calls of <hf3fs_usrbio.h> that end in _device are the same calls under newer names, and a
 * program may mix both.  The rules of <hf3fs_usrbio.h> hold here too.
 */
#ifndef HF3FS_USRBIO_GDR_H
#define HF3FS_USRBIO_GDR_H

#include "hf3fs_usrbio.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The right to use device memory of another process.  Treat the handle as a secret, because it
 * opens the whole allocation.  The handle's 80 bytes mean nothing to the caller.
 */
typedef struct {
	uint8_t data[80];
} hf3fs_gpu_ipc_handle_t;

/** hf3fs_iovcreate_gpu() - as hf3fs_iovcreate_device(), with any @block_size up to @size */
HF3FS_API int hf3fs_iovcreate_gpu(struct hf3fs_iov *iov, const char *hf3fs_mount_point, size_t size,
				  size_t block_size, int gpu_device_id);

/** hf3fs_iovopen_gpu() - as hf3fs_iovopen_device(), with any @block_size up to @size */
HF3FS_API int hf3fs_iovopen_gpu(struct hf3fs_iov *iov, const uint8_t id[16],
				const char *hf3fs_mount_point, size_t size, size_t block_size,
				int gpu_device_id);

/** hf3fs_iovwrap_gpu() - as hf3fs_iovwrap_device(), with any @block_size up to @size */
HF3FS_API int hf3fs_iovwrap_gpu(struct hf3fs_iov *iov, void *gpu_ptr, const uint8_t id[16],
				const char *hf3fs_mount_point, size_t size, size_t block_size,
				int gpu_device_id);

/** hf3fs_iovunlink_gpu() - withdraw published memory without freeing it */
HF3FS_API void hf3fs_iovunlink_gpu(struct hf3fs_iov *iov);

/** hf3fs_iovdestroy_gpu() - release device memory, as hf3fs_iovdestroy() */
HF3FS_API void hf3fs_iovdestroy_gpu(struct hf3fs_iov *iov);

/** hf3fs_iov_is_gpu() - return true for device memory */
HF3FS_API bool hf3fs_iov_is_gpu(const struct hf3fs_iov *iov);

/** hf3fs_iov_gpu_device() - return the device of an iov, or -1 for host memory */
HF3FS_API int hf3fs_iov_gpu_device(const struct hf3fs_iov *iov);

/** hf3fs_iovsync_gpu() - as hf3fs_iovsync(), but -EINVAL for host memory */
HF3FS_API int hf3fs_iovsync_gpu(const struct hf3fs_iov *iov, int direction);

/**
 * hf3fs_iov_export_gpu() - create a handle for another process of the same user
 * @iov:    device memory
 * @handle: written on success only
 *
 * Return: 0; -EINVAL for host memory; -ENOTSUP without CUDA, or for memory that CUDA IPC cannot
 * export (virtual memory management, pools, managed).
 */
HF3FS_API int hf3fs_iov_export_gpu(const struct hf3fs_iov *iov, hf3fs_gpu_ipc_handle_t *handle);

/**
 * hf3fs_iov_import_gpu() - use device memory of another process
 * @iov:    filled in on success, with a UUID of its own
 * @handle: from hf3fs_iov_export_gpu() of another process; the call trusts nothing in it
 *
 * Return: 0; -EINVAL for an invalid handle, or a handle of this process; -ENOTSUP without CUDA;
 * -ENODEV if its device is not visible to this process.
 */
HF3FS_API int hf3fs_iov_import_gpu(struct hf3fs_iov *iov, const hf3fs_gpu_ipc_handle_t *handle,
				   const char *hf3fs_mount_point);

#ifdef __cplusplus
}
#endif
#endif
