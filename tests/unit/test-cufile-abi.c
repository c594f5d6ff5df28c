/* SPDX-License-Identifier: MIT */
/*
 * Compare our declarations of the cuFile API with the vendor's, if <cufile.h> of version 1.15 or
 * newer is installed.  The compiler makes all of the checks.
 */
#include <stdbool.h>

#if __has_include(<cufile.h>) && __has_include(<cuda.h>)
#include <cufile.h>
#endif

#include "bench/cufile/batch_types.h"

#include "t.h"

/* Defined since 1.15. */
#ifdef CUFILE_GPU_UUID_LEN

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(CUF_OK, CU_FILE_SUCCESS);
SAME(CUF_BASE, CUFILEOP_BASE_ERR);
/* Constants whose names differ only in the prefix. */
#define ERR(name) SAME(CUF_##name, CU_FILE_##name)
ERR(DRIVER_NOT_INITIALIZED);
ERR(DRIVER_INVALID_PROPS);
ERR(DRIVER_UNSUPPORTED_LIMIT);
ERR(DRIVER_VERSION_MISMATCH);
ERR(DRIVER_VERSION_READ_ERROR);
ERR(DRIVER_CLOSING);
ERR(PLATFORM_NOT_SUPPORTED);
ERR(IO_NOT_SUPPORTED);
ERR(DEVICE_NOT_SUPPORTED);
ERR(NVFS_DRIVER_ERROR);
ERR(CUDA_DRIVER_ERROR);
ERR(CUDA_POINTER_INVALID);
ERR(CUDA_MEMORY_TYPE_INVALID);
ERR(CUDA_POINTER_RANGE_ERROR);
ERR(CUDA_CONTEXT_MISMATCH);
ERR(INVALID_MAPPING_SIZE);
ERR(INVALID_MAPPING_RANGE);
ERR(INVALID_FILE_TYPE);
ERR(INVALID_FILE_OPEN_FLAG);
ERR(DIO_NOT_SET);
ERR(INVALID_VALUE);
ERR(MEMORY_ALREADY_REGISTERED);
ERR(MEMORY_NOT_REGISTERED);
ERR(PERMISSION_DENIED);
ERR(DRIVER_ALREADY_OPEN);
ERR(HANDLE_NOT_REGISTERED);
ERR(HANDLE_ALREADY_REGISTERED);
ERR(DEVICE_NOT_FOUND);
ERR(INTERNAL_ERROR);
ERR(GETNEWFD_FAILED);
ERR(NVFS_SETUP_ERROR);
ERR(IO_DISABLED);
ERR(BATCH_SUBMIT_FAILED);
ERR(GPU_MEMORY_PINNING_FAILED);
ERR(BATCH_FULL);
ERR(ASYNC_NOT_SUPPORTED);
ERR(INTERNAL_BATCH_SETUP_ERROR);
ERR(INTERNAL_BATCH_SUBMIT_ERROR);
ERR(INTERNAL_BATCH_GETSTATUS_ERROR);
ERR(INTERNAL_BATCH_CANCEL_ERROR);
ERR(NOMEM_ERROR);
ERR(IO_ERROR);
ERR(INTERNAL_BUF_REGISTER_ERROR);
ERR(HASH_OPR_ERROR);
ERR(INVALID_CONTEXT_ERROR);
ERR(NVFS_INTERNAL_DRIVER_ERROR);
ERR(BATCH_NOCOMPAT_ERROR);
SAME(CUF_LAST, CU_FILE_IO_MAX_ERROR);

SAME(CUF_FD, CU_FILE_HANDLE_TYPE_OPAQUE_FD);
SAME(CUF_READ, CUFILE_READ);
SAME(CUF_WRITE, CUFILE_WRITE);
SAME(CUF_BATCH, CUFILE_BATCH);
SAME(CUF_CONTROL_ALLOW_COMPAT, 1 << CU_FILE_ALLOW_COMPAT_MODE);
SAME(CUF_TYPE_NVME, CU_FILE_NVME_SUPPORTED);
SAME(CUF_WAITING, CUFILE_WAITING);
SAME(CUF_PENDING, CUFILE_PENDING);
SAME(CUF_INVALID, CUFILE_INVALID);
SAME(CUF_CANCELED, CUFILE_CANCELED);
SAME(CUF_COMPLETE, CUFILE_COMPLETE);
SAME(CUF_TIMEOUT, CUFILE_TIMEOUT);
SAME(CUF_FAILED, CUFILE_FAILED);

#define SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define FIELD(ours, a, theirs, b)                                                  \
	_Static_assert(offsetof(ours, a) == offsetof(theirs, b) &&                 \
			       sizeof(((ours *)0)->a) == sizeof(((theirs *)0)->b), \
		       #ours "." #a)
SIZE(struct cuf_error, CUfileError_t);
FIELD(struct cuf_error, err, CUfileError_t, err);
FIELD(struct cuf_error, cu_err, CUfileError_t, cu_err);
SIZE(struct cuf_descr, CUfileDescr_t);
FIELD(struct cuf_descr, type, CUfileDescr_t, type);
FIELD(struct cuf_descr, u.fd, CUfileDescr_t, handle.fd);
FIELD(struct cuf_descr, fs_ops, CUfileDescr_t, fs_ops);
SIZE(struct cuf_props, CUfileDrvProps_t);
FIELD(struct cuf_props, nvfs.major, CUfileDrvProps_t, nvfs.major_version);
FIELD(struct cuf_props, nvfs.minor, CUfileDrvProps_t, nvfs.minor_version);
FIELD(struct cuf_props, nvfs.poll_threshold, CUfileDrvProps_t, nvfs.poll_thresh_size);
FIELD(struct cuf_props, nvfs.max_direct_io, CUfileDrvProps_t, nvfs.max_direct_io_size);
FIELD(struct cuf_props, nvfs.status, CUfileDrvProps_t, nvfs.dstatusflags);
FIELD(struct cuf_props, nvfs.control, CUfileDrvProps_t, nvfs.dcontrolflags);
FIELD(struct cuf_props, features, CUfileDrvProps_t, fflags);
FIELD(struct cuf_props, max_device_cache, CUfileDrvProps_t, max_device_cache_size);
FIELD(struct cuf_props, per_buffer_cache, CUfileDrvProps_t, per_buffer_cache_size);
FIELD(struct cuf_props, max_device_pinned, CUfileDrvProps_t, max_device_pinned_mem_size);
FIELD(struct cuf_props, max_batch, CUfileDrvProps_t, max_batch_io_size);
FIELD(struct cuf_props, batch_timeout_ms, CUfileDrvProps_t, max_batch_io_timeout_msecs);
SIZE(struct cuf_io_params, CUfileIOParams_t);
FIELD(struct cuf_io_params, mode, CUfileIOParams_t, mode);
FIELD(struct cuf_io_params, batch.base, CUfileIOParams_t, u.batch.devPtr_base);
FIELD(struct cuf_io_params, batch.file_off, CUfileIOParams_t, u.batch.file_offset);
FIELD(struct cuf_io_params, batch.base_off, CUfileIOParams_t, u.batch.devPtr_offset);
FIELD(struct cuf_io_params, batch.len, CUfileIOParams_t, u.batch.size);
FIELD(struct cuf_io_params, file, CUfileIOParams_t, fh);
FIELD(struct cuf_io_params, opcode, CUfileIOParams_t, opcode);
FIELD(struct cuf_io_params, cookie, CUfileIOParams_t, cookie);
SIZE(struct cuf_io_event, CUfileIOEvents_t);
FIELD(struct cuf_io_event, cookie, CUfileIOEvents_t, cookie);
FIELD(struct cuf_io_event, status, CUfileIOEvents_t, status);
FIELD(struct cuf_io_event, ret, CUfileIOEvents_t, ret);

/*
 * Compare signatures.  The vendor's enums and structs are mapped to our types here; their layouts
 * were compared above.
 */
#define HAS(name, type, ...)                                                                     \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&(name)), type (*)(__VA_ARGS__)), \
		       #name)
HAS(cuFileGetVersion, CUfileError_t, int *);
HAS(cuFileDriverOpen, CUfileError_t, void);
HAS(cuFileDriverClose, CUfileError_t, void);
HAS(cuFileUseCount, long, void);
HAS(cuFileDriverGetProperties, CUfileError_t, CUfileDrvProps_t *);
HAS(cuFileHandleRegister, CUfileError_t, CUfileHandle_t *, CUfileDescr_t *);
HAS(cuFileHandleDeregister, void, CUfileHandle_t);
HAS(cuFileBufRegister, CUfileError_t, const void *, size_t, int);
HAS(cuFileBufDeregister, CUfileError_t, const void *);
HAS(cuFileRead, ssize_t, CUfileHandle_t, void *, size_t, off_t, off_t);
HAS(cuFileWrite, ssize_t, CUfileHandle_t, const void *, size_t, off_t, off_t);
HAS(cuFileBatchIOSetUp, CUfileError_t, CUfileBatchHandle_t *, unsigned);
HAS(cuFileBatchIOSubmit, CUfileError_t, CUfileBatchHandle_t, unsigned, CUfileIOParams_t *,
    unsigned);
HAS(cuFileBatchIOGetStatus, CUfileError_t, CUfileBatchHandle_t, unsigned, unsigned *,
    CUfileIOEvents_t *, struct timespec *);
HAS(cuFileBatchIODestroy, void, CUfileBatchHandle_t);
_Static_assert(__builtin_types_compatible_p(CUfileHandle_t, cuf_handle), "handle");
_Static_assert(__builtin_types_compatible_p(CUfileBatchHandle_t, cuf_batch), "batch");

SAME(CUF_PARAM_ALLOW_COMPAT, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE);
HAS(cuFileSetParameterBool, CUfileError_t, CUFileBoolConfigParameter_t, bool);
HAS(cuFileSetStatsLevel, CUfileError_t, int);
HAS(cuFileGetStatsLevel, CUfileError_t, int *);
HAS(cuFileStatsStart, CUfileError_t, void);
HAS(cuFileStatsStop, CUfileError_t, void);
HAS(cuFileGetStatsL3, CUfileError_t, CUfileStatsLevel3_t *);
SIZE(struct cuf_gpu_stats, CUfilePerGpuStats_t);
FIELD(struct cuf_gpu_stats, uuid, CUfilePerGpuStats_t, uuid);
FIELD(struct cuf_gpu_stats, reads, CUfilePerGpuStats_t, n_total_reads);
FIELD(struct cuf_gpu_stats, p2p_reads, CUfilePerGpuStats_t, n_p2p_reads);
FIELD(struct cuf_gpu_stats, nvfs_reads, CUfilePerGpuStats_t, n_nvfs_reads);
FIELD(struct cuf_gpu_stats, posix_reads, CUfilePerGpuStats_t, n_posix_reads);
FIELD(struct cuf_gpu_stats, unaligned_reads, CUfilePerGpuStats_t, n_unaligned_reads);
FIELD(struct cuf_gpu_stats, failed_reads, CUfilePerGpuStats_t, n_reads_err);
FIELD(struct cuf_gpu_stats, p2p_writes, CUfilePerGpuStats_t, n_p2p_writes);
FIELD(struct cuf_gpu_stats, nvfs_writes, CUfilePerGpuStats_t, n_nvfs_writes);
FIELD(struct cuf_gpu_stats, posix_writes, CUfilePerGpuStats_t, n_posix_writes);
FIELD(struct cuf_gpu_stats, unaligned_writes, CUfilePerGpuStats_t, n_unaligned_writes);
FIELD(struct cuf_gpu_stats, failed_writes, CUfilePerGpuStats_t, n_writes_err);
FIELD(struct cuf_gpu_stats, registered_bytes, CUfilePerGpuStats_t, reg_bytes);
SAME(CUF_GPUS, sizeof(((CUfileStatsLevel3_t *)0)->per_gpu_stats) / sizeof(CUfilePerGpuStats_t));
_Static_assert(offsetof(CUfileStatsLevel3_t, num_gpus) == CUF_STATS_AT_1150 ||
		       offsetof(CUfileStatsLevel3_t, num_gpus) == CUF_STATS_AT_1190,
	       "the third level of statistics moved again");
_Static_assert(offsetof(CUfileStatsLevel3_t, per_gpu_stats) ==
		       offsetof(CUfileStatsLevel3_t, num_gpus) + 8,
	       "the third level of statistics has another form");
_Static_assert(sizeof(CUfileStatsLevel3_t) <= CUF_STATS_ROOM / 2, "make the buffer larger");

/* Since 1.16. */
#ifdef CU_FILE_P2P_FLAG_C2C
SAME(CUF_P2P_P2PDMA, CU_FILE_P2P_FLAG_PCI_P2PDMA);
SAME(CUF_P2P_C2C, CU_FILE_P2P_FLAG_C2C);
HAS(cuFileDriverGetP2PFlags, CUfileError_t, CUfileDriverStatusFlags_t, CUfileP2PFlags_t *);
#endif

static void declarations_are_the_vendors(void)
{
	T_CHECK(sizeof(CUfileStatsLevel3_t) < CUF_STATS_ROOM);
}

#else

static void declarations_are_the_vendors(void)
{
	T_SKIP("no <cufile.h> of 1.15 or newer to compare with");
}

#endif

int main(void)
{
	T_RUN(declarations_are_the_vendors);
	return t_done();
}
