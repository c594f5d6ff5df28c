/* SPDX-License-Identifier: MIT */
#include "calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <penstock.h>

int (*calls_hook)(const char *call);
atomic_ullong calls_warm, calls_most;

static int hook(const char *call)
{
	int err = calls_hook ? calls_hook(call) : 0;

	if (err)
		errno = err;
	return err;
}

/* Sanitizers' libraries call these, too, so they are exported. */
#define WRAP(type, fails, name, params, ...)                              \
	type __real_##name params;                                        \
	__attribute__((visibility("default"))) type __wrap_##name params; \
	type __wrap_##name params                                         \
	{                                                                 \
		if (hook(#name))                                          \
			return fails;                                     \
		return __real_##name(__VA_ARGS__);                        \
	}

WRAP(ssize_t, -1, pread64, (int fd, void *buf, size_t len, off_t off), fd, buf, len, off)
WRAP(ssize_t, -1, pwrite64, (int fd, const void *buf, size_t len, off_t off), fd, buf, len, off)
/* Wrap the fortified form, which also checks the buffer's size. */
WRAP(ssize_t, -1, __pread64_chk, (int fd, void *buf, size_t len, off_t off, size_t room), fd, buf,
     len, off, room)
WRAP(int, -1, fsync, (int fd), fd)
WRAP(int, -1, syncfs, (int fd), fd)
WRAP(int, -1, fstat64, (int fd, struct stat *st), fd, st)
WRAP(int, -1, renameat, (int a, const char *from, int b, const char *to), a, from, b, to)
WRAP(int, -1, unlinkat, (int fd, const char *name, int flags), fd, name, flags)
WRAP(int, -1, mkdirat, (int fd, const char *name, mode_t mode), fd, name, mode)
WRAP(int, -1, openat64, (int fd, const char *name, int flags, mode_t mode), fd, name, flags, mode)
WRAP(int, -1, fstatvfs64, (int fd, struct statvfs *st), fd, st)
WRAP(void *, NULL, calloc, (size_t nr, size_t size), nr, size)
WRAP(void *, NULL, malloc, (size_t size), size)
WRAP(void *, NULL, reallocarray, (void *p, size_t nr, size_t size), p, nr, size)
WRAP(int, -errno, pst_queue_new, (const struct pst_queue_opts *o, struct pst_queue **ret), o, ret)
WRAP(int, -errno, pst_queue_prep, (struct pst_queue * q, const struct pst_io *io), q, io)
WRAP(int, -errno, pst_file_wrap,
     (int fd, uint32_t flags, const struct pst_file_opts *o, struct pst_file **ret), fd, flags, o,
     ret)
WRAP(int, -errno, pst_mem_wrap,
     (uint64_t addr, uint64_t len, const struct pst_mem_opts *o, struct pst_mem **ret), addr, len,
     o, ret)
ssize_t __real_preadv64v2(int fd, const struct iovec *iov, int nr, off_t off, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *iov, int nr, off_t off, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *iov, int nr, off_t off, int flags)
{
	unsigned long long warm = calls_warm, most = calls_most;
	struct iovec part[64];
	size_t sum = 0;
	int n = 0;

	if (!warm || (unsigned long long)off >= warm)
		errno = EAGAIN;
	if (!warm || (unsigned long long)off >= warm || hook("preadv64v2"))
		return -1;
	if (most && warm - (unsigned long long)off > most)
		warm = (unsigned long long)off + most;
	for (; n < nr && (size_t)off + sum < warm; sum += part[n++].iov_len) {
		part[n] = iov[n];
		if (part[n].iov_len > warm - (size_t)off - sum)
			part[n].iov_len = warm - (size_t)off - sum;
	}
	return __real_preadv64v2(fd, part, n, off, flags);
}

int __real_warm_open(int dir, const char *path);
int __wrap_warm_open(int dir, const char *path);
int __wrap_warm_open(int dir, const char *path)
{
	int err = calls_warm ? hook("warm_open") : EAGAIN;

	return err ? -err : __real_warm_open(dir, path);
}

/* calls_hook() may hang or fail here, but the file is closed anyway. */
WRAP(struct pst_file *, __real_pst_file_close(file), pst_file_close, (struct pst_file * file), file)
