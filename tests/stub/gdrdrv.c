/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gdrdrv_stub.h"

#define FILES 64
#define PINS 8
#define GPU_PAGE 65536u
#define PAGE 4096u

struct pin {
	uint64_t handle; /* handle of the pin; 0: free entry */
	uint64_t va, size;
	uint64_t offset; /* bytes from the GPU page's start to the requested address */
	uint32_t want, type;
	void *map;
	size_t map_len;
};

struct file {
	bool used, open;
	int fd;
	pid_t pid;
	uint64_t next;
	struct pin pins[PINS];
};

struct stub_gdrdrv stub_gdrdrv;

static struct file files[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Names that the linker's --wrap prescribes. */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
void *__real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__real_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off);
int __real_munmap(void *addr, size_t len);
int __wrap_munmap(void *addr, size_t len);

void stub_gdrdrv_reset(void)
{
	stub_gdrdrv = (struct stub_gdrdrv){
		.version = 2 << 16 | 6,
		.minimum = 2 << 16,
		.persistent = true,
		.type = 1,
		.types = 1u << 1,
		.files = stub_gdrdrv.files,
		.pins = stub_gdrdrv.pins,
		.maps = stub_gdrdrv.maps,
	};
}

static void broke(const char *rule)
{
	if (!stub_gdrdrv.broken[0])
		(void)snprintf(stub_gdrdrv.broken, sizeof(stub_gdrdrv.broken), "%s", rule);
}

static bool fails(void)
{
	return ++stub_gdrdrv.calls == stub_gdrdrv.fail_at;
}

static struct file *file_of(int fd)
{
	for (unsigned i = 0; i < FILES; i++)
		if (files[i].used && files[i].open && files[i].fd == fd)
			return &files[i];
	return NULL;
}

static struct pin *pin_of(struct file *f, uint64_t handle)
{
	for (unsigned i = 0; handle && i < PINS; i++)
		if (f->pins[i].handle == handle)
			return &f->pins[i];
	return NULL;
}

/* End the file and its pins if no descriptor and no mapping refers to it. */
static void file_end(struct file *f)
{
	for (unsigned i = 0; i < PINS; i++)
		if (f->pins[i].map)
			return;
	if (f->open)
		return;
	for (unsigned i = 0; i < PINS; i++)
		stub_gdrdrv.pins -= f->pins[i].handle != 0;
	memset(f, 0, sizeof(*f));
	stub_gdrdrv.files--;
}

/* ------------------------------------------------------------ open, close */

static int file_new(int flags)
{
	struct file *f = files;

	if (stub_gdrdrv.open_errno || fails()) {
		errno = stub_gdrdrv.open_errno ? stub_gdrdrv.open_errno : EIO;
		return -1;
	}
	if ((flags & O_ACCMODE) != O_RDWR || !(flags & O_CLOEXEC))
		broke("opened other than O_RDWR | O_CLOEXEC");
	while (f < files + FILES && f->used)
		f++;
	if (f == files + FILES)
		abort();
	*f = (struct file){ .used = true, .open = true, .pid = getpid(), .next = 7 };
	f->fd = memfd_create("stub-gdrdrv", MFD_CLOEXEC);
	stub_gdrdrv.files++;
	return f->fd;
}

static int do_open(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode)
{
	int fd;

	if (strcmp(path, "/dev/gdrdrv") != 0)
		return real(path, flags, mode);
	(void)pthread_mutex_lock(&lock);
	fd = file_new(flags);
	(void)pthread_mutex_unlock(&lock);
	return fd;
}

#define MODE(mode, flags)                               \
	va_list ap;                                     \
	mode_t mode = 0;                                \
	va_start(ap, flags);                            \
	if ((flags & O_CREAT) || (flags & __O_TMPFILE)) \
		mode = va_arg(ap, mode_t);              \
	va_end(ap)

int __wrap_open(const char *path, int flags, ...)
{
	MODE(mode, flags);
	return do_open(__real_open, path, flags, mode);
}

int __wrap_open64(const char *path, int flags, ...)
{
	MODE(mode, flags);
	return do_open(__real_open64, path, flags, mode);
}

int __wrap_close(int fd)
{
	struct file *f;

	(void)pthread_mutex_lock(&lock);
	f = file_of(fd);
	if (f) {
		f->open = false;
		file_end(f);
	}
	(void)pthread_mutex_unlock(&lock);
	return __real_close(fd);
}

/* ---------------------------------------------------------------- requests */

static uint64_t u64(const void *arg, unsigned at)
{
	uint64_t v;

	memcpy(&v, (const char *)arg + at, sizeof(v));
	return v;
}

static uint32_t u32(const void *arg, unsigned at)
{
	uint32_t v;

	memcpy(&v, (const char *)arg + at, sizeof(v));
	return v;
}

static void put64(void *arg, unsigned at, uint64_t v)
{
	memcpy((char *)arg + at, &v, sizeof(v));
}

static void put32(void *arg, unsigned at, uint32_t v)
{
	memcpy((char *)arg + at, &v, sizeof(v));
}

static int pin_new(struct file *f, uint64_t va, uint64_t size, uint64_t *ret_handle)
{
	struct pin *p = f->pins;

	if (stub_gdrdrv.pin_errno)
		return stub_gdrdrv.pin_errno;
	if (!va || !size)
		return EINVAL;
	while (p->handle)
		p++;
	p->offset = va % GPU_PAGE;
	p->va = va - p->offset;
	p->size = (va + size - p->va + GPU_PAGE - 1) / GPU_PAGE * GPU_PAGE;
	p->handle = f->next;
	f->next += p->size / PAGE;
	stub_gdrdrv.pins++;
	*ret_handle = p->handle;
	return 0;
}

static int get_info(struct file *f, void *arg, bool v2)
{
	struct pin *p = pin_of(f, u64(arg, 0));

	if (!p)
		return EINVAL;
	put64(arg, 8, p->va);
	put64(arg, 16, p->size);
	put32(arg, 24, GPU_PAGE);
	put32(arg, 40, v2 ? p->type : p->map != NULL);
	if (!v2)
		put32(arg, 44, p->type == 1);
	return 0;
}

static int req_type(struct file *f, const void *arg)
{
	struct pin *p = pin_of(f, u64(arg, 0));
	uint32_t type = u32(arg, 8);

	stub_gdrdrv.asked_types++;
	if (!p || type > 3)
		return EINVAL;
	if (p->map)
		return EBUSY;
	if (!(stub_gdrdrv.types & 1u << type))
		return EOPNOTSUPP;
	p->want = type;
	return 0;
}

static int need(uint32_t minor)
{
	return stub_gdrdrv.version >= (2 << 16 | minor) ? 0 : ENOTTY;
}

/* Execute an ioctl; return 0 or the errno. */
static int request(struct file *f, unsigned long nr, void *arg)
{
	uint64_t handle;
	int e;

	if (f->pid != getpid())
		return EACCES;
	switch (nr) {
	case 0xc028da01:
		stub_gdrdrv.pinned_v1++;
		if (u64(arg, 16) || u32(arg, 24))
			broke("PIN_BUFFER with a token");
		e = pin_new(f, u64(arg, 0), u64(arg, 8), &handle);
		if (!e)
			put64(arg, 32, handle);
		return e;
	case 0xc008da04:
		return get_info(f, arg, false);
	case 0xc008da05:
		return need(4) ? ENOTTY : get_info(f, arg, true);
	case 0xc008da06:
		if (need(5))
			return ENOTTY;
		if (u32(arg, 0) != 1)
			return EINVAL;
		put32(arg, 4, stub_gdrdrv.persistent);
		return 0;
	case 0xc020da07:
		if (need(5))
			return ENOTTY;
		stub_gdrdrv.pinned_v2++;
		if (u32(arg, 16))
			broke("PIN_BUFFER_V2 with a flag");
		e = pin_new(f, u64(arg, 0), u64(arg, 8), &handle);
		if (!e)
			put64(arg, 24, handle);
		return e;
	case 0xc008da08:
		return need(5) ? ENOTTY : req_type(f, arg);
	case 0xc008daff:
		put32(arg, 0, stub_gdrdrv.version);
		put32(arg, 4, stub_gdrdrv.minimum);
		return 0;
	default:
		broke("an unknown request");
		return ENOTTY;
	}
}

int __wrap_ioctl(int fd, unsigned long nr, ...)
{
	struct file *f;
	va_list ap;
	void *arg;
	int e = 0;

	va_start(ap, nr);
	arg = va_arg(ap, void *);
	va_end(ap);
	(void)pthread_mutex_lock(&lock);
	f = file_of(fd);
	if (f)
		e = fails() ? EIO : request(f, nr, arg);
	(void)pthread_mutex_unlock(&lock);
	if (!f)
		return __real_ioctl(fd, nr, arg);
	errno = e;
	return e ? -1 : 0;
}

/* ---------------------------------------------------------------- mappings */

static int cuda_fd(uint64_t va, uint64_t *ret_off)
{
	void *lib = dlopen(getenv("PST_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
	int (*get)(unsigned long long ptr, uint64_t *off) = NULL;
	void *fn = lib ? dlsym(lib, "stub_cuda_fd") : NULL;

	memcpy(&get, &fn, sizeof(fn));
	return get ? get(va, ret_off) : -1;
}

/* Map pinned memory; return NULL and set errno on failure. */
static void *map_new(struct file *f, uint64_t handle, size_t len, int prot)
{
	struct pin *p = pin_of(f, handle);
	uint64_t off = 0;
	void *map;
	int fd;

	errno = EINVAL;
	if (!p || p->map || p->offset || len > p->size)
		return NULL;
	fd = cuda_fd(p->va, &off);
	if (fd < 0 || off % PAGE) {
		broke("mapped what the driver does not know");
		return NULL;
	}
	map = __real_mmap(NULL, len, prot, MAP_SHARED, fd,
			  (off_t)(stub_gdrdrv.lies ? off + PAGE : off));
	(void)__real_close(fd);
	if (map == MAP_FAILED)
		return NULL;
	p->type = p->want ? p->want : stub_gdrdrv.type;
	p->map = map;
	p->map_len = len;
	stub_gdrdrv.maps++;
	return map;
}

/* Execute mmap() of a gdrdrv file; return false if fd is another file. */
static bool do_mmap(size_t len, int prot, int flags, int fd, off_t off, void **ret)
{
	struct file *f;

	(void)pthread_mutex_lock(&lock);
	f = fd >= 0 ? file_of(fd) : NULL;
	if (f) {
		if (flags != MAP_SHARED)
			broke("mapped other than MAP_SHARED");
		*ret = NULL;
		if (f->pid != getpid())
			errno = EACCES;
		else if (fails())
			errno = EIO;
		else
			*ret = map_new(f, (uint64_t)off / PAGE, len, prot);
		if (!*ret)
			*ret = MAP_FAILED;
	}
	(void)pthread_mutex_unlock(&lock);
	return f;
}

void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *map;

	return do_mmap(len, prot, flags, fd, off, &map)
		       ? map
		       : __real_mmap(addr, len, prot, flags, fd, off);
}

void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *map;

	return do_mmap(len, prot, flags, fd, off, &map)
		       ? map
		       : __real_mmap64(addr, len, prot, flags, fd, off);
}

int __wrap_munmap(void *addr, size_t len)
{
	(void)pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < FILES * PINS; i++) {
		struct file *f = &files[i / PINS];
		struct pin *p = &f->pins[i % PINS];

		if (!p->map || p->map != addr)
			continue;
		if (len != p->map_len)
			broke("unmapped a part");
		p->map = NULL;
		stub_gdrdrv.maps--;
		file_end(f);
		break;
	}
	(void)pthread_mutex_unlock(&lock);
	return __real_munmap(addr, len);
}
