/* SPDX-License-Identifier: MIT */
/*
 * Interposed libc calls for file data: the loader searches the program for a symbol first, so
 * libpenstock.so calls these functions.  io_uring bypasses them, so cases use queues of
 * PST_BACKEND_THREADS.  Include this in one file of a program.
 *
 *	static ssize_t half(const struct call *c)
 *	{
 *		return call_real(c, c->len / 2);
 *	}
 *	...
 *	call_hook = half;
 */
#ifndef PST_TESTS_CALLS_H
#define PST_TESTS_CALLS_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum call_kind { CALL_READ, CALL_READ_NOWAIT, CALL_WRITE, CALL_FSYNC, CALL_FDATASYNC };

struct call {
	enum call_kind kind;
	int fd;
	void *buf; /* buffer of a read or write */
	size_t len;
	off_t off;
};

/* Replaces the call: return a count, or -1 and errno.  NULL: call libc.  May run in any thread. */
static ssize_t (*_Atomic call_hook)(const struct call *c);

static inline void *call_libc(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* Call libc's function with the first len bytes. */
static ssize_t call_real(const struct call *c, size_t len)
{
	ssize_t (*reads)(int, void *, size_t, off_t);
	ssize_t (*reads2)(int, const struct iovec *, int, off_t, int);
	ssize_t (*writes)(int, const void *, size_t, off_t);
	int (*syncs)(int);
	struct iovec v = { c->buf, len };
	void *fn;

	switch (c->kind) {
	case CALL_READ:
		fn = call_libc("pread64");
		memcpy(&reads, &fn, sizeof(fn));
		return reads(c->fd, c->buf, len, c->off);
	case CALL_READ_NOWAIT:
		fn = call_libc("preadv64v2");
		memcpy(&reads2, &fn, sizeof(fn));
		return reads2(c->fd, &v, 1, c->off, RWF_NOWAIT);
	case CALL_WRITE:
		fn = call_libc("pwrite64");
		memcpy(&writes, &fn, sizeof(fn));
		return writes(c->fd, c->buf, len, c->off);
	case CALL_FSYNC:
	default:
		fn = call_libc(c->kind == CALL_FSYNC ? "fsync" : "fdatasync");
		memcpy(&syncs, &fn, sizeof(fn));
		return syncs(c->fd);
	}
}

static inline ssize_t call_make(struct call c)
{
	ssize_t (*hook)(const struct call *) = call_hook;

	return hook ? hook(&c) : call_real(&c, c.len);
}

static inline bool call_is_direct(const struct call *c)
{
	return fcntl(c->fd, F_GETFL) & O_DIRECT;
}

#define CALL_SEEN __attribute__((visibility("default")))

/* The symbols that the library uses with a 64-bit off_t. */
CALL_SEEN ssize_t pread64(int fd, void *buf, size_t len, off_t off);
CALL_SEEN ssize_t preadv64v2(int fd, const struct iovec *v, int nr, off_t off, int flags);
CALL_SEEN ssize_t pwrite64(int fd, const void *buf, size_t len, off_t off);

CALL_SEEN ssize_t pread64(int fd, void *buf, size_t len, off_t off)
{
	return call_make((struct call){ CALL_READ, fd, buf, len, off });
}

CALL_SEEN ssize_t preadv64v2(int fd, const struct iovec *v, int nr, off_t off, int flags)
{
	enum call_kind kind = flags == RWF_NOWAIT ? CALL_READ_NOWAIT : CALL_READ;

	if (nr != 1 || flags & ~RWF_NOWAIT) {
		errno = EINVAL;
		return -1;
	}
	return call_make((struct call){ kind, fd, v->iov_base, v->iov_len, off });
}

CALL_SEEN ssize_t pwrite64(int fd, const void *buf, size_t len, off_t off)
{
	return call_make((struct call){ CALL_WRITE, fd, (void *)(uintptr_t)buf, len, off });
}

CALL_SEEN int fsync(int fd)
{
	return (int)call_make((struct call){ .kind = CALL_FSYNC, .fd = fd });
}

CALL_SEEN int fdatasync(int fd)
{
	return (int)call_make((struct call){ .kind = CALL_FDATASYNC, .fd = fd });
}

#endif
