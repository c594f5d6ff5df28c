/* SPDX-License-Identifier: MIT */
/*
 * Every function of libcuda.so.1 that Penstock calls, once, under the exact name of the binary
 * interface.  Include this file with SYM(name, args) and OPT(name, args) defined; see base/dl.h.
 * All return cu_result.  Functions of CUDA 11.2 are required.
 *
 * The formatter is off because it takes a type before a star for a factor.
 */
/* clang-format off */
SYM(cuInit, (unsigned flags))
SYM(cuGetErrorName, (cu_result err, const char **ret))
SYM(cuDriverGetVersion, (int *ret))

SYM(cuDeviceGetCount, (int *ret))
SYM(cuDeviceGet, (cu_device *ret, int ordinal))
SYM(cuDeviceGetName, (char *ret, int len, cu_device dev))
SYM(cuDeviceGetUuid, (struct cu_uuid *ret, cu_device dev))
OPT(cuDeviceGetUuid_v2, (struct cu_uuid *ret, cu_device dev))
SYM(cuDeviceGetPCIBusId, (char *ret, int len, cu_device dev))
SYM(cuDeviceTotalMem_v2, (size_t *ret, cu_device dev))
SYM(cuDeviceGetAttribute, (int *ret, uint32_t attr, cu_device dev))
SYM(cuDevicePrimaryCtxRetain, (cu_ctx *ret, cu_device dev))
SYM(cuDevicePrimaryCtxRelease_v2, (cu_device dev))
SYM(cuDevicePrimaryCtxGetState, (cu_device dev, unsigned *ret_flags, int *ret_active))

SYM(cuCtxPushCurrent_v2, (cu_ctx ctx))
SYM(cuCtxPopCurrent_v2, (cu_ctx *ret))
SYM(cuCtxGetDevice, (cu_device *ret))
/* Since CUDA 12.0.  A new context may have an old one's handle, but has another number. */
OPT(cuCtxGetId, (cu_ctx ctx, unsigned long long *ret))
SYM(cuCtxSynchronize, (void))
SYM(cuCtxEnablePeerAccess, (cu_ctx other, unsigned flags))
SYM(cuThreadExchangeStreamCaptureMode, (uint32_t *mode))

SYM(cuPointerGetAttribute, (void *ret, uint32_t attr, cu_ptr ptr))
/* Returns zeros, and no error, for attributes that an address does not have. */
SYM(cuPointerGetAttributes, (unsigned nr, uint32_t *attrs, void **ret, cu_ptr ptr))
SYM(cuPointerSetAttribute, (const void *value, uint32_t attr, cu_ptr ptr))
SYM(cuMemGetAddressRange_v2, (cu_ptr *ret_base, size_t *ret_size, cu_ptr ptr))
SYM(cuMemAlloc_v2, (cu_ptr *ret, size_t len))
SYM(cuMemFree_v2, (cu_ptr ptr))
SYM(cuIpcGetMemHandle, (struct cu_ipc *ret, cu_ptr ptr))
SYM(cuIpcOpenMemHandle_v2, (cu_ptr *ret, struct cu_ipc ipc, unsigned flags))
SYM(cuIpcCloseMemHandle, (cu_ptr ptr))

SYM(cuMemGetAllocationGranularity, (size_t *ret, const struct cu_prop *prop, uint32_t which))
SYM(cuMemCreate,
    (cu_handle *ret, size_t len, const struct cu_prop *prop, unsigned long long flags))
SYM(cuMemRetainAllocationHandle, (cu_handle *ret, void *addr))
SYM(cuMemGetAllocationPropertiesFromHandle, (struct cu_prop *ret, cu_handle handle))
SYM(cuMemGetAccess, (unsigned long long *ret, const struct cu_location *loc, cu_ptr ptr))
SYM(cuMemExportToShareableHandle,
    (void *ret, cu_handle handle, uint32_t type, unsigned long long flags))
SYM(cuMemImportFromShareableHandle, (cu_handle *ret, void *shareable, uint32_t type))
SYM(cuMemRelease, (cu_handle handle))
SYM(cuMemAddressReserve,
    (cu_ptr *ret, size_t len, size_t align, cu_ptr wish, unsigned long long flags))
SYM(cuMemAddressFree, (cu_ptr ptr, size_t len))
SYM(cuMemMap, (cu_ptr ptr, size_t len, size_t off, cu_handle handle, unsigned long long flags))
SYM(cuMemUnmap, (cu_ptr ptr, size_t len))
SYM(cuMemSetAccess, (cu_ptr ptr, size_t len, const struct cu_access *desc, size_t nr))
OPT(cuMemGetHandleForAddressRange,
    (void *ret, cu_ptr ptr, size_t len, uint32_t type, unsigned long long flags))

SYM(cuMemHostRegister_v2, (void *host, size_t len, unsigned flags))
SYM(cuMemHostUnregister, (void *host))
SYM(cuMemHostGetDevicePointer_v2, (cu_ptr *ret, void *host, unsigned flags))

SYM(cuStreamCreate, (cu_stream *ret, unsigned flags))
SYM(cuStreamDestroy_v2, (cu_stream st))
SYM(cuStreamSynchronize, (cu_stream st))
SYM(cuStreamGetCtx, (cu_stream st, cu_ctx *ret))
SYM(cuStreamIsCapturing, (cu_stream st, uint32_t *ret))
/* Since CUDA 11.7, on every device.  The earlier form had to be enabled by an administrator. */
OPT(cuStreamWaitValue32_v2, (cu_stream st, cu_ptr addr, uint32_t value, unsigned flags))
OPT(cuStreamWriteValue32_v2, (cu_stream st, cu_ptr addr, uint32_t value, unsigned flags))
SYM(cuStreamWaitEvent, (cu_stream st, cu_event ev, unsigned flags))
SYM(cuEventCreate, (cu_event *ret, unsigned flags))
SYM(cuEventDestroy_v2, (cu_event ev))
SYM(cuEventRecord, (cu_event ev, cu_stream st))
SYM(cuEventQuery, (cu_event ev))
SYM(cuStreamQuery, (cu_stream st))

SYM(cuMemcpyHtoDAsync_v2, (cu_ptr dst, const void *src, size_t len, cu_stream st))
SYM(cuMemcpyDtoHAsync_v2, (void *dst, cu_ptr src, size_t len, cu_stream st))
/* Copies between any two addresses, even of two devices: addresses are unified. */
SYM(cuMemcpyAsync, (cu_ptr dst, cu_ptr src, size_t len, cu_stream st))
/* The first function exists since CUDA 13.0. The second is the form of CUDA 12.8, which also
 * returns the index of the failed copy. */
OPT(cuMemcpyBatchAsync_v2,
    (cu_ptr *dst, cu_ptr *src, size_t *len, size_t nr, struct cu_batch_attr *attr,
     size_t *attr_from, size_t nr_attrs, cu_stream st))
OPT(cuMemcpyBatchAsync,
    (cu_ptr *dst, cu_ptr *src, size_t *len, size_t nr, struct cu_batch_attr *attr,
     size_t *attr_from, size_t nr_attrs, size_t *ret_failed, cu_stream st))

SYM(cuModuleLoadDataEx,
    (cu_module *ret, const void *image, unsigned nr, uint32_t *options, void **values))
SYM(cuModuleUnload, (cu_module module))
SYM(cuModuleGetFunction, (cu_func *ret, cu_module module, const char *name))
SYM(cuLaunchKernel, (cu_func fn, unsigned grid_x, unsigned grid_y, unsigned grid_z,
		     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
		     cu_stream st, void **params, void **extra))

#undef SYM
#undef OPT
