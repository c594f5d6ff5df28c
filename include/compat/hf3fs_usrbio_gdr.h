/* SPDX-License-Identifier: MIT */
/*
 * libhf3fs_api_shared - device memory in usrbio by the names of its first form.
 *
 * The calls ending in _device of <hf3fs_usrbio.h> are the same ones under later names, and both
 * may be mixed.  Rules are those of <hf3fs_usrbio.h>.
 */
#ifndef HF3FS_USRBIO_GDR_H
#define HF3FS_USRBIO_GDR_H

#include "hf3fs_usrbio.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The right to use device memory of another process: it opens the whole allocation, so it is a
 * secret.  80 bytes without meaning to the caller.
 */
typedef struct {
	uint8_t data[80];
} hf3fs_gpu_ipc_handle_t;

/** hf3fs_iovcreate_gpu() - hf3fs_iovcreate_device(), and any @block_size up to @size */
HF3FS_API int hf3fs_iovcreate_gpu(struct hf3fs_iov *iov, const char *hf3fs_mount_point, size_t size,
				  size_t block_size, int gpu_device_id);

/** hf3fs_iovopen_gpu() - hf3fs_iovopen_device(), and any @block_size up to @size */
HF3FS_API int hf3fs_iovopen_gpu(struct hf3fs_iov *iov, const uint8_t id[16],
				const char *hf3fs_mount_point, size_t size, size_t block_size,
				int gpu_device_id);

/** hf3fs_iovwrap_gpu() - hf3fs_iovwrap_device(), and any @block_size up to @size */
HF3FS_API int hf3fs_iovwrap_gpu(struct hf3fs_iov *iov, void *gpu_ptr, const uint8_t id[16],
				const char *hf3fs_mount_point, size_t size, size_t block_size,
				int gpu_device_id);

/** hf3fs_iovunlink_gpu() - withdraw the publication and keep the memory */
HF3FS_API void hf3fs_iovunlink_gpu(struct hf3fs_iov *iov);

/** hf3fs_iovdestroy_gpu() - hf3fs_iovdestroy() */
HF3FS_API void hf3fs_iovdestroy_gpu(struct hf3fs_iov *iov);

/** hf3fs_iov_is_gpu() - is this device memory? */
HF3FS_API bool hf3fs_iov_is_gpu(const struct hf3fs_iov *iov);

/** hf3fs_iov_gpu_device() - its device, -1 for host memory */
HF3FS_API int hf3fs_iov_gpu_device(const struct hf3fs_iov *iov);

/** hf3fs_iovsync_gpu() - hf3fs_iovsync(), and -EINVAL for host memory */
HF3FS_API int hf3fs_iovsync_gpu(const struct hf3fs_iov *iov, int direction);

/**
 * hf3fs_iov_export_gpu() - make a handle for another process of the same user
 * @iov:    device memory
 * @handle: written on success only
 *
 * Return: 0; -EINVAL for host memory; -ENOTSUP without CUDA, or for memory that CUDA IPC does
 * not know (virtual memory management, pools, managed).
 */
HF3FS_API int hf3fs_iov_export_gpu(const struct hf3fs_iov *iov, hf3fs_gpu_ipc_handle_t *handle);

/**
 * hf3fs_iov_import_gpu() - use device memory of another process
 * @iov:    filled in on success, with a UUID of its own
 * @handle: from hf3fs_iov_export_gpu() of another process; nothing in it is believed
 *
 * Return: 0 with memory that is there; -EINVAL for a handle that does not check, or of this
 * very process; -ENOTSUP without CUDA; -ENODEV when its device is not visible here.
 */
HF3FS_API int hf3fs_iov_import_gpu(struct hf3fs_iov *iov, const hf3fs_gpu_ipc_handle_t *handle,
				   const char *hf3fs_mount_point);

#ifdef __cplusplus
}
#endif
#endif
