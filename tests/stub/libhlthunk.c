/* SPDX-License-Identifier: MIT */
/* A stub of libhl-thunk.so without a driver, for tests; see gaudi_stub.h. */
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/list.h"
#include "mem/gaudi/gaudi_types.h"
#include "stub/fail.h"
#include "stub/gaudi_export.h"
#include "stub/gaudi_stub.h"

#define SYM(ret, name, args) ret name args;
#define OPT SYM
#include "mem/gaudi/hlthunk_syms.h"

#define PAGE 4096u
#define FLAGS ((uint32_t)(O_RDWR | O_CLOEXEC))
#define FIRST_VA (UINT64_C(0x1001) << 48) /* no CPU has such an address */
#define SIGNALS 30                        /* contexts that can be distinguished */
#define FIRST_SIGNAL 34
#define HW_IP_LEN 336 /* bytes that the library fills */

/* A part of a mapping that was exported as a dma-buf: its bytes are in a separate memfd. */
struct piece {
	struct list link;
	int memfd;
	uint64_t off, len;
};

struct memory {
	struct list link;
	unsigned ctx;
	uint64_t handle, va, size; /* va 0: not mapped */
	int memfd;
	char *bytes;
	struct list pieces;
	struct list exports;
};

/* Contexts are distinguished by the signal set on their descriptor (F_SETSIG), which duplicates
 * share. */
struct context {
	bool used, dead;
	int dev;
	int lock_fd; /* lock that excludes other processes; -1: none */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context contexts[SIGNALS];
static struct list memories = LIST_INIT(memories);
static bool resetting[STUB_GAUDI_MAX];
static uint64_t next_va = FIRST_VA, next_handle = 1, used[STUB_GAUDI_MAX];
static struct stub_gaudi_state count;
static struct stub_fail fail;
static bool fail_read, forgives;

static __attribute__((noreturn, format(printf, 1, 2))) void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)fputs("stub libhl-thunk: ", stderr);
	(void)vfprintf(stderr, fmt, ap);
	(void)fputc('\n', stderr);
	va_end(ap);
	abort();
}

/* ------------------------------------------------------------------ state */

static int env_int(const char *name, int other)
{
	const char *s = getenv(name);

	return s && *s ? atoi(s) : other;
}

/* Return the errno that a call has to fail with, or 0.  Call it with the lock held. */
static int enter(const char *name)
{
	count.calls++;
	if (!fail_read) {
		fail_read = true;
		(void)stub_fail_set(&fail, getenv("STUB_GAUDI_FAIL"));
	}
	return stub_fail_hit(&fail, name);
}

int stub_gaudi_injected(const char *name)
{
	int e;

	(void)pthread_mutex_lock(&lock);
	e = enter(name);
	(void)pthread_mutex_unlock(&lock);
	return e;
}

bool stub_gaudi_fail(const char *spec)
{
	bool met;

	(void)pthread_mutex_lock(&lock);
	fail_read = true;
	met = stub_fail_set(&fail, spec);
	(void)pthread_mutex_unlock(&lock);
	return met;
}

void stub_gaudi_forgive(void)
{
	forgives = true;
}

/* ------------------------------------------------------------------ exports */

/* Return the number of open dma-bufs of a memory, and forget the closed ones. */
static unsigned exports_open(struct memory *m)
{
	struct list *e, *n;
	unsigned nr = 0;

	list_for_each_safe (e, n, &m->exports) {
		struct export *x = list_entry(e, struct export, link);

		if (export_is_open(x)) {
			nr++;
			continue;
		}
		list_del(e);
		free(x);
		count.exports--;
	}
	return nr;
}

/* ------------------------------------------------------------------ memory */

static void memory_free(struct memory *m)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &m->pieces) {
		struct piece *p = list_entry(e, struct piece, link);

		(void)close(p->memfd);
		free(p);
	}
	list_for_each_safe (e, n, &m->exports) {
		free(list_entry(e, struct export, link));
		count.exports--;
	}
	used[contexts[m->ctx].dev] -= m->size;
	(void)munmap(m->bytes, m->size);
	(void)close(m->memfd);
	list_del(&m->link);
	count.handles--;
	count.mappings -= m->va != 0;
	free(m);
}

static struct memory *by_handle(unsigned ctx, uint64_t handle)
{
	struct list *e;

	list_for_each (e, &memories) {
		struct memory *m = list_entry(e, struct memory, link);

		if (m->handle == handle && m->ctx == ctx)
			return m;
	}
	return NULL;
}

static struct memory *by_va(uint64_t va)
{
	struct list *e;

	list_for_each (e, &memories) {
		struct memory *m = list_entry(e, struct memory, link);

		if (m->va && va >= m->va && va - m->va < m->size)
			return m;
	}
	return NULL;
}

/* ------------------------------------------------------------------ contexts */

static int context_of(int fd)
{
	int sig = fcntl(fd, F_GETSIG), i = sig - FIRST_SIGNAL;

	if (sig < 0)
		return -EBADF;
	return i >= 0 && i < SIGNALS && contexts[i].used ? i : -ENOTTY;
}

static bool context_has_fd(int ctx)
{
	for (int fd = 0; fd < FDS; fd++)
		if (fcntl(fd, F_GETSIG) == ctx + FIRST_SIGNAL)
			return true;
	return false;
}

/* End a context that has no descriptors, unless a dma-buf of it is open. */
static void context_settle(int ctx)
{
	struct context *c = &contexts[ctx];
	struct list *e, *n;
	bool busy = false;

	if (!c->used || context_has_fd(ctx))
		return;
	list_for_each_safe (e, n, &memories) {
		struct memory *m = list_entry(e, struct memory, link);

		if (m->ctx != (unsigned)ctx)
			continue;
		if (exports_open(m)) {
			busy = true;
			continue;
		}
		if (!c->dead)
			count.leaked++;
		memory_free(m);
	}
	if (busy)
		return;
	if (c->lock_fd >= 0)
		(void)close(c->lock_fd);
	memset(c, 0, sizeof(*c));
	count.contexts--;
}

static bool is_busy(int dev)
{
	bool busy = false;

	for (int i = 0; i < SIGNALS; i++) {
		context_settle(i);
		busy |= contexts[i].used && contexts[i].dev == dev;
	}
	return busy;
}

static int context_new(int dev)
{
	int ctx = 0, fd, lock_fd;

	if (resetting[dev])
		return -EAGAIN;
	if (is_busy(dev))
		return -EBUSY;
	while (ctx < SIGNALS && contexts[ctx].used)
		ctx++;
	if (ctx == SIGNALS)
		die("too many contexts that are not quiet");
	lock_fd = lock_device(dev);
	if (lock_fd == -EBUSY)
		return -EBUSY;
	fd = open(dev ? "/dev/zero" : "/dev/null", O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		int e = errno;

		if (lock_fd >= 0)
			(void)close(lock_fd);
		return -e;
	}
	if (fcntl(fd, F_SETSIG, ctx + FIRST_SIGNAL) < 0)
		die("no signal for a descriptor");
	contexts[ctx] = (struct context){ .used = true, .dev = dev, .lock_fd = lock_fd };
	count.contexts++;
	return fd;
}

int hlthunk_open(int device_name, const char *busid)
{
	static const char *const pci[STUB_GAUDI_MAX] = { STUB_GAUDI_PCI_0, STUB_GAUDI_PCI_1 };
	int nr = env_int("STUB_GAUDI_DEVICES", 1), r = -EINVAL, e;

	if (device_name != HL_DONT_CARE || !busid)
		die("open by a name");
	(void)pthread_mutex_lock(&lock);
	e = enter("hlthunk_open");
	for (int i = 0; !e && i < MIN(nr, STUB_GAUDI_MAX); i++)
		if (!strcmp(pci[i], busid) || !strcmp(pci[i] + strlen("0000:"), busid))
			r = context_new(i);
	(void)pthread_mutex_unlock(&lock);
	return e ? -e : r;
}

int hlthunk_close(int fd)
{
	int ctx, r;

	(void)pthread_mutex_lock(&lock);
	ctx = context_of(fd);
	if (ctx < 0 && !forgives)
		die("close of %d, which is no device", fd);
	r = close(fd);
	if (ctx >= 0)
		context_settle(ctx);
	(void)pthread_mutex_unlock(&lock);
	return r;
}

/* Enter a call that is allowed during a reset: return the context or -errno.  Call it with the
 * lock held. */
static int enter_info(const char *name, int fd)
{
	int e = enter(name), ctx = context_of(fd);

	if (e)
		return -e;
	if (ctx < 0)
		return ctx;
	return contexts[ctx].dead && !resetting[contexts[ctx].dev] ? -ENODEV : ctx;
}

/* Enter a call on a descriptor: return the context or -errno.  Call it with the lock held. */
static int enter_fd(const char *name, int fd)
{
	int e = enter(name), ctx = context_of(fd);

	if (e)
		return -e;
	if (ctx < 0)
		return ctx;
	if (resetting[contexts[ctx].dev])
		return -EBUSY;
	return contexts[ctx].dead ? -ENODEV : ctx;
}

int hlthunk_get_device_name_from_fd(int fd)
{
	int ctx;

	(void)pthread_mutex_lock(&lock);
	ctx = enter_info("hlthunk_get_device_name_from_fd", fd);
	(void)pthread_mutex_unlock(&lock);
	return ctx < 0 ? HL_INVALID : env_int("STUB_GAUDI_NAME", HL_GAUDI2);
}

int hlthunk_get_hw_ip_info(int fd, struct hl_hw_ip *ret)
{
	struct hl_hw_ip info = {
		.dram_size = STUB_GAUDI_TOTAL,
		.dram_page_size = STUB_GAUDI_PAGE,
		.alloc_page_size = STUB_GAUDI_PAGE,
	};
	int ctx;

	if (!ret)
		return -EINVAL;
	(void)pthread_mutex_lock(&lock);
	ctx = enter_info("hlthunk_get_hw_ip_info", fd);
	(void)pthread_mutex_unlock(&lock);
	if (ctx < 0)
		return ctx;
	memcpy(ret, &info, HW_IP_LEN);
	return 0;
}

/* ------------------------------------------------------------------ calls */

static struct memory *memory_new(int ctx, uint64_t size)
{
	struct memory *m = calloc(1, sizeof(*m));

	if (!m)
		die("out of memory");
	m->memfd = memfd_create("stub-gaudi", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (m->memfd < 0 || ftruncate(m->memfd, (off_t)size) < 0 ||
	    fcntl(m->memfd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
		if (m->memfd >= 0)
			(void)close(m->memfd);
		free(m);
		return NULL;
	}
	m->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, m->memfd, 0);
	if (m->bytes == MAP_FAILED)
		die("no address space");
	m->ctx = (unsigned)ctx;
	m->handle = next_handle++;
	m->size = size;
	list_init(&m->pieces);
	list_init(&m->exports);
	list_add_tail(&memories, &m->link);
	used[contexts[ctx].dev] += size;
	count.handles++;
	return m;
}

uint64_t hlthunk_device_memory_alloc(int fd, uint64_t size, uint64_t page_size, bool contiguous,
				     bool shared)
{
	struct memory *m = NULL;
	int ctx, e = 0;

	(void)contiguous;
	if (shared)
		die("an allocation that other contexts may map");
	if (page_size)
		die("an allocation in pages of %llu", (unsigned long long)page_size);
	(void)pthread_mutex_lock(&lock);
	ctx = enter_fd("hlthunk_device_memory_alloc", fd);
	size = (size + STUB_GAUDI_PAGE - 1) / STUB_GAUDI_PAGE * STUB_GAUDI_PAGE;
	if (ctx < 0)
		e = -ctx;
	else if (!size)
		e = EINVAL;
	else if (size > STUB_GAUDI_TOTAL - used[contexts[ctx].dev])
		e = ENOMEM;
	else
		m = memory_new(ctx, size);
	(void)pthread_mutex_unlock(&lock);
	if (m)
		return m->handle;
	errno = e ? e : ENOMEM;
	return 0;
}

int hlthunk_device_memory_free(int fd, uint64_t handle)
{
	struct memory *m;
	int r;

	(void)pthread_mutex_lock(&lock);
	r = enter_fd("hlthunk_device_memory_free", fd);
	m = r < 0 ? NULL : by_handle((unsigned)r, handle);
	if (r >= 0 && (!m || m->va)) {
		if (!forgives)
			die("free of %s memory", m ? "mapped" : "no");
		r = -EINVAL;
	}
	if (r >= 0) {
		memory_free(m);
		r = 0;
	}
	(void)pthread_mutex_unlock(&lock);
	return r;
}

uint64_t hlthunk_device_memory_map(int fd, uint64_t handle, uint64_t hint)
{
	struct memory *m = NULL;
	int ctx;

	if (hint)
		die("a map with a hint");
	(void)pthread_mutex_lock(&lock);
	ctx = enter_fd("hlthunk_device_memory_map", fd);
	if (ctx >= 0)
		m = by_handle((unsigned)ctx, handle);
	if (m && !m->va) {
		m->va = next_va;
		next_va += align_up(m->size, UINT64_C(1) << 30);
		count.mappings++;
	}
	(void)pthread_mutex_unlock(&lock);
	errno = ctx < 0 ? -ctx : EINVAL;
	return m ? m->va : 0;
}

int hlthunk_memory_unmap(int fd, uint64_t va)
{
	struct memory *m;
	int r;

	(void)pthread_mutex_lock(&lock);
	r = enter_fd("hlthunk_memory_unmap", fd);
	m = by_va(va);
	if (r >= 0 && (!m || m->va != va || m->ctx != (unsigned)r))
		r = -EINVAL;
	if (r >= 0 && exports_open(m)) {
		count.held++;
		r = -EINVAL;
	}
	if (r >= 0) {
		m->va = 0;
		count.mappings--;
		r = 0;
	}
	(void)pthread_mutex_unlock(&lock);
	return r;
}

/* ------------------------------------------------------------------ dma-bufs */

/* Copy the existing bytes of the range from the memory to the piece. */
static void piece_fill(const struct memory *m, struct piece *p)
{
	off_t end = (off_t)(p->off + p->len), at = lseek(m->memfd, (off_t)p->off, SEEK_DATA);
	char buf[PAGE];

	while (at >= 0 && at < end) {
		at = (off_t)align_down((uint64_t)at, PAGE);
		if (pread(m->memfd, buf, PAGE, at) != PAGE ||
		    pwrite(p->memfd, buf, PAGE, at - (off_t)p->off) != PAGE)
			die("cannot move bytes of an export");
		at = lseek(m->memfd, at + (off_t)PAGE, SEEK_DATA);
	}
}

/* Move a piece's bytes back to the memory.  No dma-buf uses the piece any more. */
static void piece_fold(struct memory *m, struct piece *p)
{
	struct list *e;

	list_for_each (e, &m->exports)
		if (list_entry(e, struct export, link)->memfd == p->memfd)
			die("two dma-bufs of overlapping pages want /dev/udmabuf");
	if (pwrite(m->memfd, m->bytes + p->off, p->len, (off_t)p->off) != (ssize_t)p->len ||
	    mmap(m->bytes + p->off, p->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 m->memfd, (off_t)p->off) == MAP_FAILED)
		die("cannot fold a piece");
	(void)close(p->memfd);
	list_del(&p->link);
	free(p);
}

/* Return the memfd with exactly the bytes of a range, or -errno. */
static int piece_of(struct memory *m, uint64_t off, uint64_t len)
{
	struct piece *p;
	struct list *e, *n;

	(void)exports_open(m);
	list_for_each_safe (e, n, &m->pieces) {
		p = list_entry(e, struct piece, link);
		if (p->off == off && p->len == len)
			return p->memfd;
		if (off < p->off + p->len && p->off < off + len)
			piece_fold(m, p);
	}
	if (!off && len == m->size && list_empty(&m->pieces))
		return m->memfd;
	p = calloc(1, sizeof(*p));
	if (!p)
		die("out of memory");
	p->off = off;
	p->len = len;
	p->memfd = memfd_create("stub-gaudi-dmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (p->memfd < 0) {
		int err = errno;

		free(p);
		return -err;
	}
	if (ftruncate(p->memfd, (off_t)len) < 0 || fcntl(p->memfd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		die("a memfd without bytes");
	piece_fill(m, p);
	if (mmap(m->bytes + off, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, p->memfd,
		 0) == MAP_FAILED)
		die("cannot map a piece");
	list_add_tail(&m->pieces, &p->link);
	return p->memfd;
}

static int export(struct memory *m, uint64_t off, uint64_t len)
{
	struct export *x = calloc(1, sizeof(*x));
	int fd;

	if (!x)
		die("out of memory");
	fd = export_udmabuf(m->memfd, off, len, x);
	if (fd < 0) {
		x->memfd = piece_of(m, off, len);
		fd = x->memfd < 0 ? x->memfd : open_again(x->memfd);
		if (fd < 0) {
			int e = x->memfd < 0 ? -x->memfd : errno;

			free(x);
			return -e;
		}
		if (flock(fd, LOCK_SH | LOCK_NB) < 0)
			die("cannot lock a dma-buf");
	}
	list_add_tail(&m->exports, &x->link);
	count.exports++;
	count.exported++;
	return fd;
}

int hlthunk_device_mapped_memory_export_dmabuf_fd(int fd, uint64_t va, uint64_t size, uint64_t off,
						  uint32_t flags)
{
	struct memory *m;
	int r;

	(void)pthread_mutex_lock(&lock);
	r = flags != FLAGS ? -EINVAL
			   : enter_fd("hlthunk_device_mapped_memory_export_dmabuf_fd", fd);
	m = by_va(va);
	if (r >= 0 && (!size || va % PAGE || size % PAGE || off % PAGE))
		r = -EINVAL;
	if (r >= 0 && (!m || m->va != va || m->ctx != (unsigned)r))
		r = -EINVAL;
	if (r >= 0 && (off > m->size || size > m->size - off))
		r = -EINVAL;
	if (r >= 0)
		r = export(m, off, size);
	(void)pthread_mutex_unlock(&lock);
	return r;
}

/* ------------------------------------------------------------------ tests */

void stub_gaudi_state(struct stub_gaudi_state *ret)
{
	struct list *e;

	(void)pthread_mutex_lock(&lock);
	list_for_each (e, &memories)
		(void)exports_open(list_entry(e, struct memory, link));
	for (int i = 0; i < SIGNALS; i++)
		context_settle(i);
	*ret = count;
	(void)pthread_mutex_unlock(&lock);
}

static unsigned dmas;
static pthread_cond_t no_dmas = PTHREAD_COND_INITIALIZER;

bool stub_gaudi_dma(int fd, bool begins)
{
	int ctx;
	bool may;

	(void)pthread_mutex_lock(&lock);
	ctx = begins ? context_of(fd) : 0;
	may = !begins || (ctx >= 0 && !contexts[ctx].dead);
	if (may)
		dmas += begins ? 1u : -1u;
	if (!dmas)
		(void)pthread_cond_broadcast(&no_dmas);
	(void)pthread_mutex_unlock(&lock);
	return may;
}

void stub_gaudi_reset(int dev, bool begins)
{
	(void)pthread_mutex_lock(&lock);
	while (begins && dmas)
		(void)pthread_cond_wait(&no_dmas, &lock);
	resetting[dev] = begins;
	for (int i = 0; begins && i < SIGNALS; i++)
		if (contexts[i].used && contexts[i].dev == dev)
			contexts[i].dead = true;
	(void)pthread_mutex_unlock(&lock);
}

bool stub_gaudi_dead(int fd)
{
	int ctx;
	bool dead;

	(void)pthread_mutex_lock(&lock);
	ctx = context_of(fd);
	dead = ctx < 0 || contexts[ctx].dead;
	(void)pthread_mutex_unlock(&lock);
	return dead;
}

char *stub_gaudi_bytes(uint64_t va, uint64_t len)
{
	struct memory *m;
	char *p;

	(void)pthread_mutex_lock(&lock);
	m = by_va(va);
	p = m && len <= m->size - (va - m->va) ? m->bytes + (va - m->va) : NULL;
	(void)pthread_mutex_unlock(&lock);
	return p;
}

bool stub_gaudi_peek(uint64_t va, void *buf, size_t len)
{
	const char *p = stub_gaudi_bytes(va, len);

	return p && memcpy(buf, p, len);
}

bool stub_gaudi_poke(uint64_t va, const void *buf, size_t len)
{
	char *p = stub_gaudi_bytes(va, len);

	return p && memcpy(p, buf, len);
}
