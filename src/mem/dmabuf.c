/* SPDX-License-Identifier: MIT */
/*
 * Memory that another driver exports as a dma-buf: of AMD, Intel and Gaudi accelerators,
 * /dev/udmabuf and /dev/dma_heap.  The library knows only the buffer's descriptor.
 *
 * pst_mem_import() takes the descriptor in a grant.  The library has no engine that copies such
 * memory.  The CPU reaches it by mmap() if the exporter allows that.  Other devices reach it by
 * export_dmabuf(), which returns the same buffer again.
 *
 * A buffer may be in the caches of its device, or may be moving to other memory.  So every use by
 * the CPU is between its own DMA_BUF_SYNC_START and DMA_BUF_SYNC_END.  A load then sees earlier
 * stores of the device, and a store is written back when its use ends, whatever other uses there
 * are.
 *
 * On machines whose devices do not see the CPU's caches, the start of a use for loads drops cache
 * lines.  Concurrent stores in such a cached mapping would be lost.  On these machines, loads and
 * stores exclude each other, in all imports of the buffer.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/dma-buf.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/err.h"
#include "base/log.h"
#include "mem/dmabuf.h"
#include "mem/mem.h"

#define MAGIC 0x444d4142 /* DMA_BUF_MAGIC of linux/magic.h: type of the file system of dma-bufs */
#define EXPORTER_MAX 32u /* bytes for an exporter's name; the kernel uses names of drivers */

/* A dma-buf.  All imports of it share this struct. */
struct buffer {
	struct buffer *next;
	unsigned refs;
	dev_t dev;
	ino_t ino;
	unsigned loads, stores; /* uses for loads and stores that have not ended, if they exclude
				 * each other */
};

/* Covers the list and its buffers.  Not held during calls that may wait. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *buffers;

#if defined(__x86_64__) || defined(__i386__)
uint32_t dmabuf_excludes;
#else
uint32_t dmabuf_excludes = 1u << PST_CACHING_CACHED;
#endif

struct dmabuf {
	struct mem_alloc a; /* must be the first member */
	int fd;
	uint32_t caching; /* enum pst_caching */

	struct buffer *of;
};

static const struct dmabuf *dmabuf_of(const struct mem_alloc *a)
{
	return container_of(a, struct dmabuf, a);
}

/* ------------------------------------------------------------------ devices */

/*
 * All dma-bufs count as memory of one device, because a descriptor does not tell which device has
 * the memory.
 */
static unsigned dmabuf_devices(void)
{
	return 1;
}

static void dmabuf_device_info(unsigned idx, struct pst_device *ret)
{
	(void)idx;
	ret->kind = PST_KIND_DMABUF;
	ret->numa_node = -1;
	memcpy(ret->uuid, "penstock-dmabuf", sizeof(ret->uuid));
	(void)snprintf(ret->name, sizeof(ret->name), "dmabuf:0");
	(void)snprintf(ret->model, sizeof(ret->model), "dma-bufs of other drivers");
}

static bool dmabuf_owns(uint64_t addr, uint64_t len)
{
	(void)addr;
	(void)len;
	return false; /* memory of a dma-buf has no address */
}

/* -------------------------------------------------------------- descriptors */

/* Read the exporter's name from the kernel; "" if /proc is missing. */
static void exporter_name(int fd, char ret[static EXPORTER_MAX])
{
	char path[64], line[128];
	FILE *f;

	ret[0] = '\0';
	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "exp_name: %31s", ret) == 1)
			break;
	(void)fclose(f);
}

/* Return the caching of an mmap() by the exporter's name.  udmabuf and system give ordinary memory.
 * An accelerator's memory is mapped write combining; copies made for such mappings are correct for
 * every caching. */
static uint32_t dmabuf_caching_of(const char *exporter)
{
	return !strcmp(exporter, "udmabuf") || !strcmp(exporter, "system") ? PST_CACHING_CACHED
									   : PST_CACHING_WC;
}

/* Describe the open file of a descriptor, for a message. */
static const char *what_it_is(int fd, char *buf, size_t len)
{
	char path[64];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, buf, len - 1);
	if (n < 0)
		return "another file";
	buf[n] = '\0';
	return buf;
}

static int check_mode(int mode, uint32_t rights)
{
	if (rights & PST_RIGHT_WRITE && (mode & O_ACCMODE) == O_RDONLY)
		return err_set(EACCES, "the grant says writing, and the dma-buf was exported "
				       "read-only; have it exported with O_RDWR (DRM_RDWR for a "
				       "DRM driver), or leave PST_RIGHT_WRITE out");
	if (rights & PST_RIGHT_READ && (mode & O_ACCMODE) == O_WRONLY)
		return err_set(EACCES, "the grant says reading, and the dma-buf was exported "
				       "write-only; have it exported with O_RDWR");
	return 0;
}

int dmabuf_check_fd(int fd, int named, uint64_t size, uint32_t rights)
{
	int mode = fcntl(fd, F_GETFL);
	struct statfs fs;
	char what[80];
	off_t real;

	if (fstatfs(fd, &fs) < 0 || fs.f_type != MAGIC)
		return err_set(EINVAL,
			       "the grant's descriptor %d is no dma-buf but %s; pass the "
			       "one that the exporter gave, and do not close it before",
			       named, what_it_is(fd, what, sizeof(what)));
	real = lseek(fd, 0, SEEK_END);
	if (real < 0)
		return err_set(EINVAL, "the kernel does not tell the size of the dma-buf: %s",
			       err_name(errno));
	if (size > (uint64_t)real)
		return err_set(EINVAL,
			       "the grant says %" PRIu64 " bytes, and its dma-buf has %jd; "
			       "set size to what lseek(fd, 0, SEEK_END) gives",
			       size, (intmax_t)real);
	return check_mode(mode, rights);
}

int dmabuf_again(int fd)
{
	int ret = fcntl(fd, F_DUPFD_CLOEXEC, 0), e = errno;

	if (ret >= 0)
		return ret;
	if (e == EBADF)
		return err_set(EBADF,
			       "the grant's descriptor %d is not open; keep it open until "
			       "pst_mem_import() returns",
			       fd);
	return err_set(e, "no free descriptor for the dma-buf: %s; raise RLIMIT_NOFILE (ulimit -n)",
		       err_name(e));
}

/* ------------------------------------------------------------------ buffers */

static struct buffer *buffer_of_stat(const struct stat *st)
{
	struct buffer *b = buffers;

	while (b && (b->dev != st->st_dev || b->ino != st->st_ino))
		b = b->next;
	return b;
}

/* Return the buffer of a descriptor.  The buffer must be released by buffer_put().  NULL without
 * memory. */
static struct buffer *buffer_get(int fd)
{
	struct stat st = { 0 };
	struct buffer *b;

	(void)fstat(fd, &st);
	(void)pthread_mutex_lock(&lock);
	b = buffer_of_stat(&st);
	if (!b) {
		b = calloc(1, sizeof(*b));
		if (b) {
			b->dev = st.st_dev;
			b->ino = st.st_ino;
			b->next = buffers;
			buffers = b;
		}
	}
	if (b)
		b->refs++;
	(void)pthread_mutex_unlock(&lock);
	return b;
}

static void buffer_put(struct buffer *b)
{
	struct buffer **at = &buffers;

	(void)pthread_mutex_lock(&lock);
	if (--b->refs == 0) {
		while (*at != b)
			at = &(*at)->next;
		*at = b->next;
		free(b);
	}
	(void)pthread_mutex_unlock(&lock);
}

/* -------------------------------------------------------------- allocations */

static int dmabuf_import(const struct pst_grant *grant, struct mem_alloc **ret)
{
	char exporter[EXPORTER_MAX];
	_cleanup_(closep) int fd = -1;
	struct buffer *of;
	struct dmabuf *d;
	int r;

	/*
	 * Check the duplicate, because another thread may close the grant's descriptor and reuse
	 * its number.
	 */
	fd = dmabuf_again(grant->fd);
	if (fd < 0)
		return fd;
	r = dmabuf_check_fd(fd, grant->fd, grant->size, grant->rights);
	if (r < 0)
		return r;
	d = calloc(1, sizeof(*d));
	of = d ? buffer_get(fd) : NULL;
	if (!of) {
		free(d);
		return err_set(ENOMEM, "no memory to describe a dma-buf");
	}
	exporter_name(fd, exporter);
	log_debug("a dma-buf of %" PRIu64 " bytes, exported by %s", grant->size,
		  *exporter ? exporter : "an unknown driver");
	d->a = (struct mem_alloc){
		.ops = &mem_dmabuf_ops,
		.size = grant->size,
		.buffer_id = mem_buffer_id(), /* unique, because imports differ in rights and
					       * size */
		.rights = grant->rights,
		.owned = true,
	};
	d->fd = TAKE_FD(fd);
	d->caching = dmabuf_caching_of(exporter);
	d->of = of;
	*ret = &d->a;
	return 0;
}

/* A dma-buf cannot be opened again, so the receiver's descriptor has the same access mode. */
static int dmabuf_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret)
{
	int fd = dmabuf_again(dmabuf_of(a)->fd);

	(void)rights;
	if (fd < 0)
		return fd;
	ret->fd = fd;
	return 0;
}

static int dmabuf_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
				struct mem_dmabuf *ret)
{
	const struct dmabuf *d = dmabuf_of(a);
	int fd = dmabuf_again(d->fd);

	(void)len;
	if (fd < 0)
		return fd;
	*ret = (struct mem_dmabuf){ .fd = fd, .off = off, .size = a->size, .caching = d->caching };
	return 0;
}

static void dmabuf_free(struct mem_alloc *a)
{
	struct dmabuf *d = container_of(a, struct dmabuf, a);

	buffer_put(d->of);
	(void)close(d->fd);
	free(d);
}

/* --------------------------------------------------------- uses by the CPU */

static int sync_fd(int fd, uint64_t edge, uint32_t rights)
{
	struct dma_buf_sync s = {
		.flags = edge | (rights & PST_RIGHT_READ ? DMA_BUF_SYNC_READ : 0) |
			 (rights & PST_RIGHT_WRITE ? DMA_BUF_SYNC_WRITE : 0),
	};
	int r;

	do
		r = ioctl(fd, DMA_BUF_IOCTL_SYNC, &s);
	while (r < 0 && (errno == EINTR || errno == EAGAIN));
	return r < 0 ? -errno : 0;
}

/* Return true if loads and stores through the buffer's mappings exclude each other. */
static bool excludes(const struct dmabuf *d)
{
	return dmabuf_excludes >> d->caching & 1;
}

/* Count a use.  Return false if it must not begin, because uses of the other kind have not
 * ended. */
static bool cpu_use_begin(struct dmabuf *d, uint32_t rights)
{
	struct buffer *b = d->of;
	bool load = rights & PST_RIGHT_READ, store = rights & PST_RIGHT_WRITE, may;

	if (!excludes(d))
		return true;
	(void)pthread_mutex_lock(&lock);
	may = !(load && b->stores) && !(store && b->loads);
	if (may) {
		b->loads += load;
		b->stores += store;
	}
	(void)pthread_mutex_unlock(&lock);
	return may;
}

static void cpu_use_end(struct dmabuf *d, uint32_t rights)
{
	if (!excludes(d))
		return;
	(void)pthread_mutex_lock(&lock);
	d->of->loads -= !!(rights & PST_RIGHT_READ);
	d->of->stores -= !!(rights & PST_RIGHT_WRITE);
	(void)pthread_mutex_unlock(&lock);
}

/* Return true if the kernel knows of no device that is using the buffer: for loads, none that
 * stores into it; for stores, none at all. */
static bool is_ready(const struct dmabuf *d, uint32_t rights)
{
	struct pollfd p = { d->fd, rights & PST_RIGHT_WRITE ? POLLOUT : POLLIN, 0 };

	return poll(&p, 1, 0) != 0;
}

static int dmabuf_cpu_begin(const struct mem_alloc *a, uint32_t rights, bool wait)
{
	struct dmabuf *d = container_of(a, struct dmabuf, a);
	int r;

	if (!wait && !is_ready(d, rights))
		return err_set(EAGAIN, "a device uses the dma-buf; try again later");
	if (!cpu_use_begin(d, rights))
		return err_set(EAGAIN, "requests load from or store into the dma-buf; reap them "
				       "first");
	r = sync_fd(d->fd, DMA_BUF_SYNC_START, rights);
	if (r == 0)
		return 0;
	cpu_use_end(d, rights);
	return err_set(-r,
		       "the exporter does not let the CPU use its dma-buf now: %s; see "
		       "the kernel's log for its device",
		       err_name(-r));
}

static void dmabuf_cpu_end(const struct mem_alloc *a, uint32_t rights)
{
	struct dmabuf *d = container_of(a, struct dmabuf, a);
	int r = sync_fd(d->fd, DMA_BUF_SYNC_END, rights);

	cpu_use_end(d, rights);
	if (r < 0)
		log_warn("a dma-buf's exporter failed after the CPU used it: %s", err_name(-r));
}

/*
 * Return true only for ordinary memory, as udmabuf and dma-heaps export.  A network card's stores
 * to it are ordered with its completion, and the CPU and other devices then see them.
 *
 * A descriptor does not tell whether an accelerator orders stores that arrive in its own memory.
 * Some accelerators need a flush, such as that of AMD's host data path, which no call on a dma-buf
 * does.
 *
 * A card does not wait for other devices, so return false while another device uses the buffer; the
 * CPU, which moves the bytes instead, does wait.  Also return false if devices do not see the CPU's
 * caches, because only uses by the CPU are told to the exporter.
 */
static bool dmabuf_lands(const struct mem_alloc *a)
{
	const struct dmabuf *d = dmabuf_of(a);

	return d->caching == PST_CACHING_CACHED && !excludes(d) && is_ready(d, PST_RIGHT_WRITE);
}

/* The number of mapped bytes is not limited: a buffer has its place in the device's aperture
 * already. */
static uint64_t dmabuf_aperture(unsigned device)
{
	(void)device;
	return UINT64_MAX;
}

const struct mem_ops mem_dmabuf_ops = {
	.name = "dmabuf",
	.kind = PST_KIND_DMABUF,
	.caps = MEM_CAP_EXPORT | MEM_CAP_FD,
	.devices = dmabuf_devices,
	.device_info = dmabuf_device_info,
	.owns = dmabuf_owns,
	.import = dmabuf_import,
	.export = dmabuf_export,
	.export_dmabuf = dmabuf_export_dmabuf,
	.cpu_begin = dmabuf_cpu_begin,
	.cpu_end = dmabuf_cpu_end,
	.lands = dmabuf_lands,
	.aperture = dmabuf_aperture,
	.free = dmabuf_free,
};
