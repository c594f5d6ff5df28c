/* SPDX-License-Identifier: MIT */
/*
 * The types and numbers of the CUDA driver API that Penstock uses, under Penstock's own names, so
 * that no SDK is needed to build it.  These types and numbers are part of a stable binary
 * interface; tests/unit/test-cuda-abi.c compares them with <cuda.h> if that is installed.
 *
 * The tags of handles are the vendor's, so that whole signatures can be compared.
 */
#ifndef PST_CUDA_TYPES_H
#define PST_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t cu_result;
typedef int cu_device;
typedef unsigned long long cu_ptr;
typedef unsigned long long cu_handle; /* handle of an allocation made by cuMemCreate */
typedef struct CUctx_st *cu_ctx;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_func;

struct cu_uuid {
	char bytes[16];
};

struct cu_ipc {
	char reserved[64];
};

struct cu_location {
	uint32_t type; /* CU_LOC_* */
	int id;
};

struct cu_access {
	struct cu_location location;
	uint32_t flags; /* CU_PROT_* */
};

/* Properties of memory for cuMemCreate. */
struct cu_prop {
	uint32_t type;         /* CU_ALLOC_PINNED */
	uint32_t handle_types; /* CU_HANDLE_* */
	struct cu_location location;
	void *win32;
	struct {
		unsigned char compression;
		unsigned char gdr_capable;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

/* Attributes of the copies of a batch. */
struct cu_batch_attr {
	uint32_t src_order; /* CU_SRC_ORDER_STREAM */
	struct cu_location src_hint, dst_hint;
	uint32_t flags;
};

enum {
	CU_OK = 0,
	CU_INVALID_VALUE = 1,
	CU_OUT_OF_MEMORY = 2,
	CU_NOT_INITIALIZED = 3,
	CU_DEINITIALIZED = 4,
	CU_STUB_LIBRARY = 34,
	CU_DEVICE_UNAVAILABLE = 46,
	CU_NO_DEVICE = 100,
	CU_INVALID_DEVICE = 101,
	CU_INVALID_CONTEXT = 201,
	CU_MAP_FAILED = 205,
	CU_ALREADY_MAPPED = 208,
	CU_ECC_UNCORRECTABLE = 214,
	CU_PEER_UNSUPPORTED = 217,
	CU_INVALID_PTX = 218,
	CU_NVLINK_UNCORRECTABLE = 220,
	CU_JIT_COMPILER_NOT_FOUND = 221,
	CU_CONTAINED = 226,
	CU_OPERATING_SYSTEM = 304,
	CU_INVALID_HANDLE = 400,
	CU_NOT_FOUND = 500,
	CU_NOT_READY = 600,
	CU_ILLEGAL_ADDRESS = 700,
	CU_LAUNCH_TIMEOUT = 702,
	CU_PEER_ALREADY_ENABLED = 704,
	CU_CONTEXT_IS_DESTROYED = 709,
	CU_ASSERT = 710,
	CU_HOST_ALREADY_REGISTERED = 712,
	CU_HOST_NOT_REGISTERED = 713,
	CU_LAUNCH_FAILED = 719,
	CU_NOT_PERMITTED = 800,
	CU_NOT_SUPPORTED = 801,
	CU_CAPTURE_UNSUPPORTED = 900,
	CU_CAPTURE_INVALIDATED = 901,
	CU_CAPTURE_IMPLICIT = 906,
	CU_CAPTURE_LAST = 908, /* CUDA_ERROR_CAPTURED_EVENT is 907, _WRONG_THREAD 908 */
	CU_UNKNOWN = 999,
};

/* Attributes of devices. */
enum {
	CU_DEV_MULTIPROCESSORS = 16,
	CU_DEV_INTEGRATED = 18,
	CU_DEV_ASYNC_ENGINES = 40,
	CU_DEV_UNIFIED_ADDRESSING = 41,
	CU_DEV_COMPUTE_MAJOR = 75,
	CU_DEV_COMPUTE_MINOR = 76,
	CU_DEV_HOST_REGISTER = 99,
	CU_DEV_VMM = 102,
	CU_DEV_HANDLE_FD = 103,
	CU_DEV_READ_ONLY_REGISTER = 113,
	CU_DEV_GDR = 116,
	CU_DEV_GDR_FLUSH = 117,    /* bits: 1 by the host, 2 by a stream */
	CU_DEV_GDR_ORDERING = 118, /* CU_ORDERING_* */
	CU_DEV_DMA_BUF = 124,
};

/* Values of CU_DEV_GDR_ORDERING: who sees writes of other PCI devices in order without a flush. */
enum {
	CU_ORDERING_NONE = 0,
	CU_ORDERING_OWNER = 100,
	CU_ORDERING_ALL = 200,
};

/* Attributes of pointers. */
enum {
	CU_PTR_CONTEXT = 1,
	CU_PTR_MEMORY_TYPE = 2,
	CU_PTR_SYNC_MEMOPS = 6,
	CU_PTR_BUFFER_ID = 7,
	CU_PTR_IS_MANAGED = 8,
	CU_PTR_DEVICE_ORDINAL = 9,
	CU_PTR_IPC_CAPABLE = 10,
	CU_PTR_POOL = 17,
};

enum {
	CU_TYPE_HOST = 1,
	CU_TYPE_DEVICE = 2,
};

enum {
	CU_REGISTER_PORTABLE = 1,  /* registered for every context */
	CU_REGISTER_DEVICEMAP = 2, /* gets an address for kernels */
	CU_REGISTER_READ_ONLY = 8,
};

enum {
	CU_CAPTURE_GLOBAL = 0,
	CU_CAPTURE_RELAXED = 2,
};

/* State of a stream: all other values mean that it is captured, even by an invalidated capture. */
enum {
	CU_CAPTURE_NONE = 0,
};

/* Handles of the predefined streams. */
enum {
	CU_LEGACY = 1,
	CU_PER_THREAD = 2,
};

enum {
	CU_NON_BLOCKING = 1,
	CU_DISABLE_TIMING = 2,
	CU_IPC_LAZY_PEER = 1,
	CU_LOC_DEVICE = 1,
	CU_ALLOC_PINNED = 1,
	CU_HANDLE_POSIX_FD = 1,
	CU_GRANULARITY_MINIMUM = 0,
	CU_RANGE_DMA_BUF = 1,
	CU_PROT_READ = 1,
	CU_PROT_READ_WRITE = 3,
	CU_SRC_ORDER_STREAM = 1,
	CU_WAIT_GEQ = 0, /* (int32_t)(*addr - value) >= 0 */
};

#endif
