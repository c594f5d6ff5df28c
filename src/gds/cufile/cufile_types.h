/* SPDX-License-Identifier: MIT */
/*
 * Types and constants of the cuFile API under Penstock's own names, so that a build needs no SDK.
 * tests/unit/test-cufile-abi.c compares them with <cufile.h> where that is installed.
 *
 * The ABI is stable except for the statistics: level 1 grew in 1.19, which moved the other levels.
 * A library writes as much as it knows, so the buffer must be larger than any version's.
 */
#ifndef PST_CUFILE_TYPES_H
#define PST_CUFILE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

typedef void *cuf_handle; /* a registered file */

/* Result of most calls, returned by value. */
struct cuf_error {
	int err;    /* CUF_*; newer libraries have more codes */
	int cu_err; /* CUresult, when err is CUF_CUDA_DRIVER_ERROR */
};

enum {
	CUF_OK = 0,
	CUF_BASE = 5000, /* base of the codes below */
	CUF_DRIVER_NOT_INITIALIZED = 5001,
	CUF_DRIVER_INVALID_PROPS = 5002,
	CUF_DRIVER_UNSUPPORTED_LIMIT = 5003,
	CUF_DRIVER_VERSION_MISMATCH = 5004,
	CUF_DRIVER_VERSION_READ_ERROR = 5005,
	CUF_DRIVER_CLOSING = 5006,
	CUF_PLATFORM_NOT_SUPPORTED = 5007,
	CUF_IO_NOT_SUPPORTED = 5008,
	CUF_DEVICE_NOT_SUPPORTED = 5009,
	CUF_NVFS_DRIVER_ERROR = 5010,
	CUF_CUDA_DRIVER_ERROR = 5011,
	CUF_CUDA_POINTER_INVALID = 5012,
	CUF_CUDA_MEMORY_TYPE_INVALID = 5013,
	CUF_CUDA_POINTER_RANGE_ERROR = 5014,
	CUF_CUDA_CONTEXT_MISMATCH = 5015,
	CUF_INVALID_MAPPING_SIZE = 5016,
	CUF_INVALID_MAPPING_RANGE = 5017,
	CUF_INVALID_FILE_TYPE = 5018,
	CUF_INVALID_FILE_OPEN_FLAG = 5019,
	CUF_DIO_NOT_SET = 5020,
	CUF_INVALID_VALUE = 5022,
	CUF_MEMORY_ALREADY_REGISTERED = 5023,
	CUF_MEMORY_NOT_REGISTERED = 5024,
	CUF_PERMISSION_DENIED = 5025,
	CUF_DRIVER_ALREADY_OPEN = 5026,
	CUF_HANDLE_NOT_REGISTERED = 5027,
	CUF_HANDLE_ALREADY_REGISTERED = 5028,
	CUF_DEVICE_NOT_FOUND = 5029,
	CUF_INTERNAL_ERROR = 5030,
	CUF_GETNEWFD_FAILED = 5031,
	CUF_NVFS_SETUP_ERROR = 5033,
	CUF_IO_DISABLED = 5034,
	CUF_BATCH_SUBMIT_FAILED = 5035,
	CUF_GPU_MEMORY_PINNING_FAILED = 5036,
	CUF_BATCH_FULL = 5037,
	CUF_ASYNC_NOT_SUPPORTED = 5038,
	CUF_INTERNAL_BATCH_SETUP_ERROR = 5039,
	CUF_INTERNAL_BATCH_SUBMIT_ERROR = 5040,
	CUF_INTERNAL_BATCH_GETSTATUS_ERROR = 5041,
	CUF_INTERNAL_BATCH_CANCEL_ERROR = 5042,
	CUF_NOMEM_ERROR = 5043,
	CUF_IO_ERROR = 5044,
	CUF_INTERNAL_BUF_REGISTER_ERROR = 5045,
	CUF_HASH_OPR_ERROR = 5046,
	CUF_INVALID_CONTEXT_ERROR = 5047,
	CUF_NVFS_INTERNAL_DRIVER_ERROR = 5048,
	CUF_BATCH_NOCOMPAT_ERROR = 5049,
	CUF_LAST = 5050, /* end of the range, not an error */
};

enum {
	CUF_FD = 1, /* handle type: a file descriptor */
	CUF_READ = 0,
	CUF_WRITE = 1,
	CUF_PARAM_ALLOW_COMPAT = 1,
	CUF_CONTROL_ALLOW_COMPAT = 1 << 1, /* bit of cuf_props.control */
	CUF_TYPE_NVME = 4,
	CUF_P2P_P2PDMA = 1 << 0,
	CUF_P2P_C2C = 1 << 3,
	CUF_STATS_LEVEL = 3, /* level with per-GPU counters */
	CUF_GPUS = 16,
};

struct cuf_descr {
	int type; /* always CUF_FD */
	union {
		int fd;
		void *handle;
	} u;
	const void *fs_ops; /* always NULL */
};

struct cuf_props {
	struct {
		unsigned major, minor; /* 0.0: nvidia-fs is not loaded */
		size_t poll_threshold; /* KiB, like the sizes below */
		size_t max_direct_io;
		unsigned status, control;
	} nvfs;
	unsigned features, max_device_cache, per_buffer_cache, max_device_pinned;
	unsigned max_batch, batch_timeout_ms;
};

/* Counters of one GPU, in level 3 of the statistics. */
struct cuf_gpu_stats {
	uint8_t uuid[16];
	uint64_t read_bytes, read_bw, read_utilization, read_us;
	uint64_t reads, p2p_reads, nvfs_reads, posix_reads, unaligned_reads, routed_reads;
	uint64_t sparse_regions, inline_regions, failed_reads;
	uint64_t write_bytes, write_bw, write_utilization, write_us;
	uint64_t writes, p2p_writes, nvfs_writes, posix_writes, unaligned_writes, routed_writes;
	uint64_t failed_writes;
	uint64_t maps, maps_ok, maps_failed, unmaps, registered_bytes;
};

/* Byte offset of level 3's number of GPUs (uint32_t).  The GPUs' counters begin 8 bytes later. */
enum {
	CUF_STATS_AT_1150 = 1024, /* in versions 1.15 to 1.18 */
	CUF_STATS_AT_1190 = 1136, /* in versions 1.19 and 1.20 */
	CUF_STATS_ROOM = 32768,   /* bytes; larger than the statistics of any version */
};

_Static_assert(sizeof(struct cuf_error) == 8, "returned in a register");
_Static_assert(sizeof(struct cuf_descr) == 24 && offsetof(struct cuf_descr, u) == 8 &&
		       offsetof(struct cuf_descr, fs_ops) == 16,
	       "CUfileDescr_t");
_Static_assert(sizeof(struct cuf_props) == 56 && offsetof(struct cuf_props, nvfs.control) == 28 &&
		       offsetof(struct cuf_props, features) == 32 &&
		       offsetof(struct cuf_props, max_device_pinned) == 44,
	       "CUfileDrvProps_t");
_Static_assert(sizeof(struct cuf_gpu_stats) == 248 &&
		       offsetof(struct cuf_gpu_stats, posix_reads) == 72 &&
		       offsetof(struct cuf_gpu_stats, failed_writes) == 200,
	       "CUfilePerGpuStats_t");

#endif
