/* SPDX-License-Identifier: MIT */
/*
 * The 80 bytes by which device memory goes to another process.
 *
 *	[ 0..63]  CUDA's IPC handle of the allocation, or the software device's
 *	[64..71]  bits 0 to 43: bytes of the range; above: 20 bits of a hash of the device's UUID
 *	[72..79]  bits 0 to 43: where the range begins in the allocation; above: 20 bits of a hash
 *	          of everything else and of the name of this layout
 *
 * The numbers are in the machine's order, which handles do not leave.  Device numbers are not in
 * it: they are each process' own.  The hashes find accidents: handles of other libraries, of other
 * versions, cut off or never filled in.  A forged handle gains nothing, because CUDA opens only
 * handles that it made, and libpenstock compares the allocation's size.
 */
#ifndef USRBIO_GPU_HANDLE_H
#define USRBIO_GPU_HANDLE_H

#include <penstock.h>
#include <stdbool.h>
#include <stdint.h>

#include <hf3fs_usrbio_gdr.h>

/* 0; -ENOTSUP for memory that CUDA IPC does not know, or a range beyond 16 TiB. */
int gpu_handle_pack(const struct pst_grant *grant, hf3fs_gpu_ipc_handle_t *ret);

/*
 * The grant in a handle, without the device: ret->uuid is zero, and gpu_handle_is_on() tells which
 * it is.  ret->sz must be set.
 *
 * Return: 0; -EINVAL for bytes that are no handle.
 */
int gpu_handle_unpack(const hf3fs_gpu_ipc_handle_t *handle, struct pst_grant *ret);

/* May this be its device? */
bool gpu_handle_is_on(const hf3fs_gpu_ipc_handle_t *handle, const uint8_t uuid[16]);

#endif
