/* SPDX-License-Identifier: MIT */
/* Registrations of files and memory. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cufile_stub_int.h"

#define GPU_PAGE 65536u

static uintptr_t last_id = 0xabadcafe00000004u;

struct file *stub_file(cuf_handle handle)
{
	struct list *e;

	list_for_each (e, &cf.files)
		if (list_entry(e, struct file, link)->id == (uintptr_t)handle)
			return list_entry(e, struct file, link);
	return NULL;
}

struct buf *stub_buf(uint64_t base)
{
	struct list *e;

	list_for_each (e, &cf.bufs)
		if (list_entry(e, struct buf, link)->base == base)
			return list_entry(e, struct buf, link);
	return NULL;
}

static void file_end(struct file *f)
{
	if (f->moving)
		stub_cufile_abort("a file is deregistered under %u transfers", f->moving);
	list_del(&f->link);
	(void)close(f->plain);
	free(f);
}

static void buf_end(struct buf *b)
{
	if (b->moving)
		stub_cufile_abort("memory is deregistered under %u transfers", b->moving);
	list_del(&b->link);
	free(b);
}

void stub_files_end(void)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &cf.files)
		file_end(list_entry(e, struct file, link));
	list_for_each_safe (e, n, &cf.bufs)
		buf_end(list_entry(e, struct buf, link));
}

/* ------------------------------------------------------------------- files */

/* Return the code that refuses a descriptor, or 0. */
static int check_fd(int fd, int *ret_flags)
{
	int flags = fcntl(fd, F_GETFL);
	struct stat st;

	if (flags < 0 || fstat(fd, &st) < 0)
		return CUF_INVALID_VALUE;
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return CUF_INVALID_FILE_TYPE;
	/* O_TMPFILE includes the bit of O_DIRECTORY. */
	if (flags & (O_APPEND | O_NONBLOCK | O_NOFOLLOW | O_DIRECTORY))
		return CUF_INVALID_FILE_OPEN_FLAG;
	if (!cf.udev)
		return CUF_HANDLE_NOT_REGISTERED;
	if (!st.st_nlink)
		return CUF_GETNEWFD_FAILED;
	if (stub_strict() && !(flags & O_DIRECT))
		return CUF_DIO_NOT_SET;
	*ret_flags = flags;
	return 0;
}

static int file_add(int fd, int flags, cuf_handle *ret)
{
	struct file *f = calloc(1, sizeof(*f));
	char path[40];

	if (!f)
		return CUF_NOMEM_ERROR;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*f = (struct file){ .fd = fd, .flags = flags };
	f->plain = open(path, (flags & O_ACCMODE) | O_CLOEXEC);
	if (f->plain < 0) {
		free(f);
		return CUF_GETNEWFD_FAILED;
	}
	(void)posix_fadvise(f->plain, 0, 0, POSIX_FADV_RANDOM);
	f->id = ++last_id;
	list_add_tail(&cf.files, &f->link);
	*ret = (cuf_handle)f->id;
	return 0;
}

struct cuf_error cuFileHandleRegister(cuf_handle *ret, struct cuf_descr *descr)
{
	int code = CALL(), flags = 0;
	struct list *e;

	if (!code)
		code = stub_implicit_open();
	if (!code)
		code = descr->type == CUF_FD ? check_fd(descr->u.fd, &flags) : CUF_INVALID_VALUE;
	if (code)
		return stub_error(code);
	(void)pthread_mutex_lock(&cf.lock);
	if (cf.noise)
		(void)puts(" mount option not found in mount table data device: /dev/stub");
	list_for_each (e, &cf.files)
		if (list_entry(e, struct file, link)->fd == descr->u.fd)
			code = CUF_HANDLE_ALREADY_REGISTERED;
	if (!code)
		code = file_add(descr->u.fd, flags, ret);
	(void)pthread_mutex_unlock(&cf.lock);
	return stub_error(code);
}

void cuFileHandleDeregister(cuf_handle handle)
{
	struct file *f;

	(void)CALL();
	(void)pthread_mutex_lock(&cf.lock);
	f = stub_file(handle);
	if (f)
		file_end(f);
	(void)pthread_mutex_unlock(&cf.lock);
}

/* ------------------------------------------------------------------ memory */

/* Return the code that refuses memory, or 0.  Host memory is always accepted. */
static int check_memory(uint64_t base, uint64_t len)
{
	uint64_t used = 0;
	cu_ptr start = 0;
	size_t size = 0;
	unsigned type = 0, managed = 0;
	struct list *e;

	if (!base || !len)
		return CUF_INVALID_VALUE;
	if (stub_buf(base))
		return CUF_MEMORY_ALREADY_REGISTERED;
	if (cuPointerGetAttribute(&type, CU_PTR_MEMORY_TYPE, base) != CU_OK ||
	    type != CU_TYPE_DEVICE)
		return 0;
	if (cuPointerGetAttribute(&managed, CU_PTR_IS_MANAGED, base) == CU_OK && managed)
		return CUF_CUDA_MEMORY_TYPE_INVALID;
	if (cuMemGetAddressRange_v2(&start, &size, base) != CU_OK || base + len > start + size)
		return CUF_CUDA_POINTER_RANGE_ERROR;
	if (cf.mode == MODE_NVFS && len > GPU_PAGE && len % GPU_PAGE)
		return CUF_INVALID_MAPPING_SIZE;
	list_for_each (e, &cf.bufs)
		used += list_entry(e, struct buf, link)->len;
	return cf.pin && used + len > cf.pin ? CUF_GPU_MEMORY_PINNING_FAILED : 0;
}

struct cuf_error cuFileBufRegister(const void *base, size_t len, int flags)
{
	uint64_t at = (uintptr_t)base;
	int code = CALL();
	struct buf *b = NULL;
	cu_ctx ctx = NULL;

	(void)flags; /* the compat mode ignores flags */
	if (!code)
		code = stub_implicit_open();
	if (!code && (cuCtxGetCurrent(&ctx) != CU_OK || !ctx))
		code = CU_INVALID_CONTEXT;
	if (code)
		return stub_error(code);
	(void)pthread_mutex_lock(&cf.lock);
	code = check_memory(at, len);
	if (!code)
		b = calloc(1, sizeof(*b));
	if (b) {
		*b = (struct buf){ .base = at, .len = len };
		list_add_tail(&cf.bufs, &b->link);
	}
	(void)pthread_mutex_unlock(&cf.lock);
	return stub_error(code);
}

/* Abort if registered memory was freed: nvidia-fs keeps it pinned, and the driver may wait for
 * it forever. */
static void check_alive(const struct buf *b)
{
	unsigned type = 0;

	if (cuPointerGetAttribute(&type, CU_PTR_MEMORY_TYPE, b->base) != CU_OK)
		stub_cufile_abort("memory was freed while it was registered");
}

struct cuf_error cuFileBufDeregister(const void *base)
{
	int code = CALL();
	struct buf *b;

	(void)pthread_mutex_lock(&cf.lock);
	b = stub_buf((uintptr_t)base);
	if (b) {
		check_alive(b);
		buf_end(b); /* even on an injected error, as the caller frees the memory next */
	} else if (!code) {
		code = CUF_MEMORY_NOT_REGISTERED;
	}
	(void)pthread_mutex_unlock(&cf.lock);
	return stub_error(code);
}
