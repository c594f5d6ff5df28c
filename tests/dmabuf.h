/* SPDX-License-Identifier: MIT */
/*
 * Exporters of dma-bufs for tests: the kernel's, if it has them, and a stub that works anywhere.
 *
 * The stub's buffer is a memfd.  The program defines fstatfs(), ioctl() and mmap(), which the
 * loader finds before libc's, so the library takes the memfd for a dma-buf.  They also check
 * DMA_BUF_IOCTL_SYNC on the buffers of every exporter: each end must have a start of its kind.
 * Include this in one file of a program.
 */
#ifndef PST_TESTS_DMABUF_H
#define PST_TESTS_DMABUF_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../lab/hl/labhl.h"
#include "t.h"

#define DMABUF_MAGIC 0x444d4142
#define DMABUF_MAX 16 /* maximum buffers watched at a time */

/* Watched buffers, identified by inode. */
static struct {
	pthread_mutex_t lock;
	unsigned nr;
	struct {
		dev_t dev;
		ino_t ino;
		bool stub;              /* a memfd that plays a dma-buf */
		bool no_mmap;           /* mmap() fails with EINVAL */
		_Atomic unsigned busy;  /* next polls that report a device's access in progress */
		unsigned loads, stores; /* STARTs without an END */
	} of[DMABUF_MAX];
	unsigned starts, ends;
	uint64_t flags; /* all start flags, or-ed */
	bool misused;
	bool mixed;   /* loads and stores overlapped */
	int mmap_err; /* errno of mmap() calls; 0: none */
	int sync_err; /* errno of start calls; 0: none */
} dmabufs = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Return a buffer's index, or -1 if it is not watched.  With the lock. */
static int dmabuf_find(int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	for (unsigned i = 0; i < dmabufs.nr; i++)
		if (dmabufs.of[i].dev == st.st_dev && dmabufs.of[i].ino == st.st_ino)
			return (int)i;
	return -1;
}

/* The state of a buffer, copied under the lock for any thread. */
struct dmabuf_seen {
	int index; /* -1: not watched */
	bool stub, no_mmap;
};

static struct dmabuf_seen dmabuf_see(int fd)
{
	struct dmabuf_seen ret = { .index = -1 };

	if (fd < 0)
		return ret;
	(void)pthread_mutex_lock(&dmabufs.lock);
	ret.index = dmabuf_find(fd);
	if (ret.index >= 0) {
		ret.stub = dmabufs.of[ret.index].stub;
		ret.no_mmap = dmabufs.of[ret.index].no_mmap;
	}
	(void)pthread_mutex_unlock(&dmabufs.lock);
	return ret;
}

static inline int dmabuf_index(int fd)
{
	return dmabuf_see(fd).index;
}

static int dmabuf_add(int fd, bool is_stub)
{
	struct stat st;
	int i;

	if (fd < 0)
		return fd;
	T_EQ(fstat(fd, &st), 0);
	(void)pthread_mutex_lock(&dmabufs.lock);
	i = dmabuf_find(fd); /* a closed buffer may have had the same inode */
	if (i < 0 && dmabufs.nr == DMABUF_MAX)
		dmabufs.nr = 0; /* drop the buffers of earlier cases */
	if (i < 0)
		i = (int)dmabufs.nr++;
	dmabufs.of[i].dev = st.st_dev;
	dmabufs.of[i].ino = st.st_ino;
	dmabufs.of[i].stub = is_stub;
	dmabufs.of[i].no_mmap = false;
	dmabufs.of[i].loads = dmabufs.of[i].stores = 0;
	dmabufs.of[i].busy = 0;
	(void)pthread_mutex_unlock(&dmabufs.lock);
	return fd;
}

/* ------------------------------------------------------------ calls of libc */

static void *dmabuf_libc(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

#define DMABUF_SEEN __attribute__((visibility("default")))

DMABUF_SEEN int fstatfs(int fd, struct statfs *ret)
{
	void *fn = dmabuf_libc("fstatfs64");
	int (*real)(int, struct statfs *), r;

	memcpy(&real, &fn, sizeof(fn));
	r = real(fd, ret);
	if (r == 0 && dmabuf_see(fd).stub)
		ret->f_type = DMABUF_MAGIC;
	return r;
}

/* Count a start or an end; return 0 or the errno that the call has to fail with. */
static int dmabuf_watch(unsigned i, uint64_t flags)
{
	uint64_t rw = flags & DMA_BUF_SYNC_RW;
	bool end = flags & DMA_BUF_SYNC_END;
	int err = end ? 0 : dmabufs.sync_err;

	unsigned *nr = rw == DMA_BUF_SYNC_READ ? &dmabufs.of[i].loads : &dmabufs.of[i].stores;

	if (rw == DMA_BUF_SYNC_RW || !rw || (end && !*nr))
		dmabufs.misused = true;
	if (err)
		return err;
	*nr += end ? -1u : 1u;
	if (dmabufs.of[i].loads && dmabufs.of[i].stores)
		dmabufs.mixed = true;
	dmabufs.starts += !end;
	dmabufs.ends += end;
	dmabufs.flags |= end ? 0 : rw;
	return 0;
}

DMABUF_SEEN int ioctl(int fd, unsigned long request, ...)
{
	int (*real)(int, unsigned long, void *), i, err;
	bool is_stub;
	void *fn = dmabuf_libc("ioctl"), *arg;
	va_list ap;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	memcpy(&real, &fn, sizeof(fn));
	if (request != DMA_BUF_IOCTL_SYNC)
		return real(fd, request, arg);
	(void)pthread_mutex_lock(&dmabufs.lock);
	i = dmabuf_find(fd);
	err = i < 0 ? 0 : dmabuf_watch((unsigned)i, ((struct dma_buf_sync *)arg)->flags);
	is_stub = i >= 0 && dmabufs.of[i].stub;
	(void)pthread_mutex_unlock(&dmabufs.lock);
	if (err) {
		errno = err;
		return -1;
	}
	return is_stub ? 0 : real(fd, request, arg);
}

/* libc declares poll()'s p as only written, so gcc warns that reading it is uninitialized. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
DMABUF_SEEN int poll(struct pollfd *p, nfds_t nr, int timeout)
{
	int (*real)(struct pollfd *, nfds_t, int), i = nr == 1 ? dmabuf_index(p->fd) : -1;
	void *fn = dmabuf_libc("poll");

	memcpy(&real, &fn, sizeof(fn));
	if (i >= 0 && dmabufs.of[i].busy) {
		dmabufs.of[i].busy--;
		return 0;
	}
	return real(p, nr, timeout);
}
#pragma GCC diagnostic pop

/* NULL before the constructor: the search for libc's mmap() may itself call mmap(). */
static void *(*dmabuf_mmap)(void *, size_t, int, int, int, off_t);

static __attribute__((constructor)) void dmabuf_find_mmap(void)
{
	void *fn = dmabuf_libc("mmap64");

	memcpy(&dmabuf_mmap, &fn, sizeof(fn));
}

DMABUF_SEEN void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	struct dmabuf_seen seen = dmabuf_see(fd);

	if (seen.index >= 0 && dmabufs.mmap_err) {
		errno = dmabufs.mmap_err;
		return MAP_FAILED;
	}
	if (seen.no_mmap) {
		errno = EINVAL; /* as the kernel returns for an exporter without mmap() */
		return MAP_FAILED;
	}
	if (dmabuf_mmap)
		return dmabuf_mmap(at, len, prot, flags, fd, off);
	return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, off);
}

/* ---------------------------------------------------------------- exporters */

static inline int dmabuf_memfd(uint64_t len)
{
	int fd = memfd_create("dmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, (off_t)len), 0);
	T_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

static inline int dmabuf_stub(uint64_t len)
{
	return dmabuf_add(dmabuf_memfd(len), true);
}

static inline int dmabuf_udmabuf(uint64_t len)
{
	struct udmabuf_create c = { .flags = UDMABUF_FLAGS_CLOEXEC, .size = len };
	int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), memfd, fd;

	if (dev < 0)
		T_SKIP("/dev/udmabuf");
	memfd = dmabuf_memfd(len);
	c.memfd = (uint32_t)memfd;
	fd = ioctl(dev, UDMABUF_CREATE, &c);
	(void)close(memfd);
	(void)close(dev);
	T_CHECK(fd >= 0);
	return dmabuf_add(fd, false);
}

static inline int dmabuf_heap(uint64_t len)
{
	struct dma_heap_allocation_data a = { .len = len, .fd_flags = O_RDWR | O_CLOEXEC };
	int dev = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC), r;

	if (dev < 0)
		T_SKIP("/dev/dma_heap/system");
	r = ioctl(dev, DMA_HEAP_IOCTL_ALLOC, &a);
	(void)close(dev);
	T_EQ(r, 0);
	return dmabuf_add((int)a.fd, false);
}

/* Export a PCI BAR; all such buffers have the same bytes. */
static inline int dmabuf_bar(uint64_t len)
{
	struct labhl_bar b = { .len = len };
	int dev = open("/dev/labhl", O_RDWR | O_CLOEXEC), r;

	if (dev < 0)
		T_SKIP("/dev/labhl");
	r = ioctl(dev, LABHL_BAR, &b);
	(void)close(dev);
	T_EQ(r, 0);
	return dmabuf_add(b.fd, false);
}

static const struct dmabuf_exporter {
	const char *name;
	int (*make)(
		uint64_t len); /* return a descriptor; skip the case if there is no such exporter */
} dmabuf_exporters[] = {
	{ "stub", dmabuf_stub },
	{ "udmabuf", dmabuf_udmabuf },
	{ "heap", dmabuf_heap },
	{ "bar", dmabuf_bar },
};

#endif
