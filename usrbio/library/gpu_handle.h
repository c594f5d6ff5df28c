/* SPDX-License-Identifier: MIT */
/*
 * The 80 bytes that hand device memory to another process.
 *
 * [ 0..63]  IPC handle of the allocation, of CUDA or of the software device
 * [64..71]  bits 0 to 43: bytes of the range; above: 20 bits of a hash of the device's UUID
 * [72..79]  bits 0 to 43: offset of the range in the allocation; above: 20 bits of a hash of
 *           everything else and of the name of this layout
 *
 * Numbers have the machine's byte order, because handles do not leave the machine.  The device
 * number is missing, because it differs per process.  The hashes detect accidents: handles of other
 * libraries or versions, truncated ones, and memory that was never filled in.  A forged handle
 * gains nothing: CUDA opens only handles that CUDA made, and libpenstock compares the allocation's
 * size.
 */
#ifndef USRBIO_GPU_HANDLE_H
#define USRBIO_GPU_HANDLE_H

#include <penstock.h>
#include <stdbool.h>
#include <stdint.h>

#include <hf3fs_usrbio_gdr.h>

/* Pack a grant.  Return 0; -ENOTSUP without a CUDA IPC handle, or for a range beyond 16 TiB. */
int gpu_handle_pack(const struct pst_grant *grant, hf3fs_gpu_ipc_handle_t *ret);

/*
 * Unpack the grant of a handle.  ret->uuid is zero; find the device by gpu_handle_is_on(). ret->sz
 * must be set.
 *
 * Return: 0; -EINVAL for bytes that are not a handle.
 */
int gpu_handle_unpack(const hf3fs_gpu_ipc_handle_t *handle, struct pst_grant *ret);

/* Return true if the hash fits the device of this UUID. */
bool gpu_handle_is_on(const hf3fs_gpu_ipc_handle_t *handle, const uint8_t uuid[16]);

#endif
