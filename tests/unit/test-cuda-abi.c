/* SPDX-License-Identifier: MIT */
/*
 * Our own declarations of the CUDA driver API against the vendor's, where <cuda.h> is to
 * be had: the compiler makes nearly all checks.
 */
#if __has_include(<cuda.h>)
#include <cuda.h>
#else
#define CUDA_VERSION 0
#endif

#include "mem/cuda/cuda_types.h"

#include "t.h"

#if CUDA_VERSION >= 13000

/* Constants. */
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(CU_OK, CUDA_SUCCESS);
SAME(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(CU_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(CU_MAP_FAILED, CUDA_ERROR_MAP_FAILED);
SAME(CU_ALREADY_MAPPED, CUDA_ERROR_ALREADY_MAPPED);
SAME(CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(CU_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
SAME(CU_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME(CU_JIT_COMPILER_NOT_FOUND, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
SAME(CU_CONTAINED, CUDA_ERROR_CONTAINED);
SAME(CU_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM);
SAME(CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CU_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(CU_ASSERT, CUDA_ERROR_ASSERT);
SAME(CU_HOST_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(CU_HOST_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
SAME(CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CU_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(CU_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME(CU_CAPTURE_LAST, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
SAME(CU_UNKNOWN, CUDA_ERROR_UNKNOWN);

SAME(CU_DEV_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED);
SAME(CU_DEV_ASYNC_ENGINES, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
SAME(CU_DEV_UNIFIED_ADDRESSING, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
SAME(CU_DEV_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_DEV_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_DEV_HOST_REGISTER, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
SAME(CU_DEV_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CU_DEV_HANDLE_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(CU_DEV_READ_ONLY_REGISTER, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
SAME(CU_DEV_GDR, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
SAME(CU_DEV_GDR_FLUSH, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
SAME(CU_DEV_GDR_ORDERING, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
SAME(CU_DEV_DMA_BUF, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);

SAME(1, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
SAME(2, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_MEMOPS);
SAME(CU_ORDERING_NONE, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE);
SAME(CU_ORDERING_OWNER, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
SAME(CU_ORDERING_ALL, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES);

SAME(CU_PTR_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(CU_PTR_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CU_PTR_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
SAME(CU_PTR_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(CU_PTR_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(CU_PTR_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CU_PTR_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);

SAME(CU_TYPE_HOST, CU_MEMORYTYPE_HOST);
SAME(CU_TYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(CU_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(CU_REGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(CU_REGISTER_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY);
SAME(CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(CU_WAIT_GEQ, CU_STREAM_WAIT_VALUE_GEQ);
SAME(CU_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CU_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(CU_IPC_LAZY_PEER, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME(CU_LOC_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CU_ALLOC_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(CU_RANGE_DMA_BUF, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
SAME(CU_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME(CU_PROT_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CU_SRC_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);

/* Layouts. */
#define SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define FIELD(ours, a, theirs, b)                                                                  \
	_Static_assert(offsetof(ours, a) == offsetof(theirs, b) &&                                 \
			       sizeof(((ours *)0)->a) == sizeof(((theirs *)0)->b),                 \
		       #ours "." #a)
SIZE(cu_result, CUresult);
SIZE(cu_device, CUdevice);
SIZE(cu_ptr, CUdeviceptr);
SIZE(cu_handle, CUmemGenericAllocationHandle);
SIZE(struct cu_uuid, CUuuid);
SIZE(struct cu_ipc, CUipcMemHandle);
SIZE(struct cu_location, CUmemLocation);
FIELD(struct cu_location, type, CUmemLocation, type);
FIELD(struct cu_location, id, CUmemLocation, id);
SIZE(struct cu_access, CUmemAccessDesc);
FIELD(struct cu_access, location, CUmemAccessDesc, location);
FIELD(struct cu_access, flags, CUmemAccessDesc, flags);
SIZE(struct cu_prop, CUmemAllocationProp);
FIELD(struct cu_prop, type, CUmemAllocationProp, type);
FIELD(struct cu_prop, handle_types, CUmemAllocationProp, requestedHandleTypes);
FIELD(struct cu_prop, location, CUmemAllocationProp, location);
FIELD(struct cu_prop, win32, CUmemAllocationProp, win32HandleMetaData);
FIELD(struct cu_prop, flags.compression, CUmemAllocationProp, allocFlags.compressionType);
FIELD(struct cu_prop, flags.gdr_capable, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
FIELD(struct cu_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);
SIZE(struct cu_batch_attr, CUmemcpyAttributes);
FIELD(struct cu_batch_attr, src_order, CUmemcpyAttributes, srcAccessOrder);
FIELD(struct cu_batch_attr, src_hint, CUmemcpyAttributes, srcLocHint);
FIELD(struct cu_batch_attr, dst_hint, CUmemcpyAttributes, dstLocHint);
FIELD(struct cu_batch_attr, flags, CUmemcpyAttributes, flags);

/*
 * Signatures.  Tags of structs become the vendor's for this; their layouts were compared
 * above.  <cuda.h> does not show the functions that newer versions have replaced.
 */
#define cu_uuid CUuuid_st
#define cu_ipc CUipcMemHandle_st
#define cu_location CUmemLocation_st
#define cu_access CUmemAccessDesc_st
#define cu_prop CUmemAllocationProp_st
#define cu_batch_attr CUmemcpyAttributes_st
CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
				       CUmemcpyAttributes *, size_t *, size_t, CUstream);
#undef cuMemcpyBatchAsync
#undef cuDeviceGetUuid
CUresult CUDAAPI cuDeviceGetUuid(CUuuid *, CUdevice);
CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
				    CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream);

#define SYM(name, args)                                                                            \
	_Static_assert(__builtin_types_compatible_p(__typeof__(name), cu_result args), #name);
#define OPT SYM
#include "mem/cuda/cuda_syms.h"

static void declarations_are_the_vendors(void)
{
	/* Pointers are no constants to every compiler. */
	T_EQ((uintptr_t)CU_STREAM_LEGACY, CU_LEGACY);
	T_EQ((uintptr_t)CU_STREAM_PER_THREAD, CU_PER_THREAD);
}

#else

static void declarations_are_the_vendors(void)
{
	T_SKIP("no <cuda.h> of CUDA 13.0 or newer to compare with");
}

#endif

int main(void)
{
	T_RUN(declarations_are_the_vendors);
	return t_done();
}
