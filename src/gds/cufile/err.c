/* SPDX-License-Identifier: MIT */
/*
 * Translate cuFile's errors.  Calls return a struct with a cuFile code and, for one code, a CUDA
 * result.  Transfers return -1 with errno set to a system errno or to a cuFile code; or a negative
 * code; or an impossible count.  All of these were observed.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"
#include "gds/cufile/internal.h"

struct said {
	int code, err;
	const char *name, *cure;
};

/* Codes that are not listed become -EIO. */
static const struct said table[] = {
	{ CUF_DRIVER_NOT_INITIALIZED, EOPNOTSUPP, "DRIVER_NOT_INITIALIZED",
	  "load the module nvidia-fs or set up P2PDMA, without which there is no direct way" },
	{ CUF_DRIVER_INVALID_PROPS, EINVAL, "DRIVER_INVALID_PROPS",
	  "look at cufile.json (CUFILE_ENV_PATH_JSON)" },
	{ CUF_DRIVER_UNSUPPORTED_LIMIT, EINVAL, "DRIVER_UNSUPPORTED_LIMIT",
	  "look at cufile.json (CUFILE_ENV_PATH_JSON)" },
	{ CUF_DRIVER_VERSION_MISMATCH, EOPNOTSUPP, "DRIVER_VERSION_MISMATCH",
	  "the module nvidia-fs is of another version; install the one of this CUDA" },
	{ CUF_DRIVER_VERSION_READ_ERROR, EOPNOTSUPP, "DRIVER_VERSION_READ_ERROR",
	  "the module nvidia-fs gives no version; give the container /dev/nvidia-fs* and /proc" },
	{ CUF_DRIVER_CLOSING, ESHUTDOWN, "DRIVER_CLOSING", "somebody closes its driver" },
	{ CUF_PLATFORM_NOT_SUPPORTED, EOPNOTSUPP, "PLATFORM_NOT_SUPPORTED", NULL },
	{ CUF_IO_NOT_SUPPORTED, EOPNOTSUPP, "IO_NOT_SUPPORTED",
	  "the file system or its disk has no direct way" },
	{ CUF_DEVICE_NOT_SUPPORTED, EOPNOTSUPP, "DEVICE_NOT_SUPPORTED",
	  "this GPU has no direct way" },
	{ CUF_CUDA_POINTER_INVALID, EFAULT, "CUDA_POINTER_INVALID", NULL },
	{ CUF_CUDA_MEMORY_TYPE_INVALID, EOPNOTSUPP, "CUDA_MEMORY_TYPE_INVALID",
	  "memory of cudaMalloc is what it takes" },
	{ CUF_CUDA_POINTER_RANGE_ERROR, EFAULT, "CUDA_POINTER_RANGE_ERROR",
	  "the allocation is shorter" },
	{ CUF_CUDA_CONTEXT_MISMATCH, EINVAL, "CUDA_CONTEXT_MISMATCH", NULL },
	{ CUF_INVALID_MAPPING_SIZE, EINVAL, "INVALID_MAPPING_SIZE", NULL },
	{ CUF_INVALID_MAPPING_RANGE, EINVAL, "INVALID_MAPPING_RANGE", NULL },
	{ CUF_INVALID_FILE_TYPE, EOPNOTSUPP, "INVALID_FILE_TYPE",
	  "it takes regular files and block devices" },
	{ CUF_INVALID_FILE_OPEN_FLAG, EOPNOTSUPP, "INVALID_FILE_OPEN_FLAG",
	  "it takes no file opened with O_APPEND, O_NONBLOCK, O_NOFOLLOW or O_TMPFILE" },
	{ CUF_DIO_NOT_SET, EOPNOTSUPP, "DIO_NOT_SET", "the file has no O_DIRECT" },
	{ CUF_INVALID_VALUE, EINVAL, "INVALID_VALUE", NULL },
	{ CUF_MEMORY_ALREADY_REGISTERED, EBUSY, "MEMORY_ALREADY_REGISTERED",
	  "another user of cuFile in this process has registered it" },
	{ CUF_MEMORY_NOT_REGISTERED, EFAULT, "MEMORY_NOT_REGISTERED", NULL },
	{ CUF_PERMISSION_DENIED, EACCES, "PERMISSION_DENIED",
	  "give this user or container /dev/nvidia-fs*" },
	{ CUF_DRIVER_ALREADY_OPEN, EBUSY, "DRIVER_ALREADY_OPEN", NULL },
	{ CUF_HANDLE_NOT_REGISTERED, EOPNOTSUPP, "HANDLE_NOT_REGISTERED",
	  "it finds nothing about the disk: a container needs /run/udev and /sys of its host" },
	{ CUF_HANDLE_ALREADY_REGISTERED, EBUSY, "HANDLE_ALREADY_REGISTERED", NULL },
	{ CUF_DEVICE_NOT_FOUND, ENODEV, "DEVICE_NOT_FOUND", NULL },
	{ CUF_GETNEWFD_FAILED, EOPNOTSUPP, "GETNEWFD_FAILED",
	  "it opens the file again by its name, which is gone or closed to this user" },
	{ CUF_NVFS_SETUP_ERROR, ENODEV, "NVFS_SETUP_ERROR",
	  "it finds no CUDA, or the module nvidia-fs refuses it" },
	{ CUF_IO_DISABLED, EOPNOTSUPP, "IO_DISABLED", "cufile.json forbids this file" },
	{ CUF_GPU_MEMORY_PINNING_FAILED, ENOMEM, "GPU_MEMORY_PINNING_FAILED",
	  "the GPU shows other devices no more of its memory (BAR1)" },
	{ CUF_BATCH_FULL, EAGAIN, "BATCH_FULL", NULL },
	{ CUF_ASYNC_NOT_SUPPORTED, EOPNOTSUPP, "ASYNC_NOT_SUPPORTED",
	  "cufile.json must allow parallel_io and threads" },
	{ CUF_NOMEM_ERROR, ENOMEM, "NOMEM_ERROR", NULL },
	{ CUF_BATCH_NOCOMPAT_ERROR, EOPNOTSUPP, "BATCH_NOCOMPAT_ERROR", NULL },
	/* Codes that need no added text. */
	{ CUF_NVFS_DRIVER_ERROR, EIO, "NVFS_DRIVER_ERROR", NULL },
	{ CUF_INTERNAL_ERROR, EIO, "INTERNAL_ERROR", NULL },
	{ CUF_BATCH_SUBMIT_FAILED, EIO, "BATCH_SUBMIT_FAILED", NULL },
	{ CUF_INTERNAL_BATCH_SETUP_ERROR, EIO, "INTERNAL_BATCH_SETUP_ERROR", NULL },
	{ CUF_INTERNAL_BATCH_SUBMIT_ERROR, EIO, "INTERNAL_BATCH_SUBMIT_ERROR", NULL },
	{ CUF_INTERNAL_BATCH_GETSTATUS_ERROR, EIO, "INTERNAL_BATCH_GETSTATUS_ERROR", NULL },
	{ CUF_INTERNAL_BATCH_CANCEL_ERROR, EIO, "INTERNAL_BATCH_CANCEL_ERROR", NULL },
	{ CUF_IO_ERROR, EIO, "IO_ERROR", NULL },
	{ CUF_INTERNAL_BUF_REGISTER_ERROR, EIO, "INTERNAL_BUF_REGISTER_ERROR", NULL },
	{ CUF_HASH_OPR_ERROR, EIO, "HASH_OPR_ERROR", NULL },
	{ CUF_INVALID_CONTEXT_ERROR, EINVAL, "INVALID_CONTEXT_ERROR", NULL },
	{ CUF_NVFS_INTERNAL_DRIVER_ERROR, EIO, "NVFS_INTERNAL_DRIVER_ERROR", NULL },
};

/* Return a distinct errno for each CUDA error that has a specific cure. */
static int said_by_cuda(int cu_err, const char *what)
{
	enum { OUT_OF_MEMORY = 2 };

	/* Transfers report the cuFile code without a CUDA result. */
	if (!cu_err)
		return err_set(EIO,
			       "cuFile could not %s: CUDA_DRIVER_ERROR (%d), of which it says no "
			       "more; look for NVRM in the kernel's log",
			       what, CUF_CUDA_DRIVER_ERROR);
	return err_set(cu_err == OUT_OF_MEMORY ? ENOMEM : EIO,
		       "cuFile could not %s: CUDA gave it error %d", what, cu_err);
}

int cufile_err(struct cuf_error e, const char *fmt, ...)
{
	char what[160];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (e.err == CUF_CUDA_DRIVER_ERROR)
		return said_by_cuda(e.cu_err, what);
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const struct said *s = &table[i];

		if (s->code == e.err)
			return err_set(s->err, "cuFile could not %s: %s (%d)%s%s", what, s->name,
				       e.err, s->cure ? "; " : "", s->cure ? s->cure : "");
	}
	return err_set(EIO, "cuFile could not %s: its error %d", what, e.err);
}

int64_t cufile_result(int64_t ret, int err, uint64_t asked, bool write)
{
	const char *what = write ? "write" : "read";
	int64_t code = ret == -1 ? err : -MAX(ret, -(int64_t)INT32_MAX);

	if (ret >= 0 && (uint64_t)ret <= asked)
		return ret;
	if (ret >= 0)
		return err_set(EIO, "cuFile says it moved %lld bytes of %llu: nothing of it holds",
			       (long long)ret, (unsigned long long)asked);
	if (code > CUF_BASE)
		return cufile_err((struct cuf_error){ (int)code, 0 }, "%s", what);
	/* EPERM is the library's return value -1 taken for an errno. */
	if (code == 0 || code == EPERM || code > 4095)
		return err_set(EIO, "cuFile could not %s and gives no reason", what);
	return err_set((int)code, "cuFile could not %s: %s", what, err_name((int)code));
}
