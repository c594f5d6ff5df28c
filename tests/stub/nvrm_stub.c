/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "nvrm_stub_int.h"

#define NOT_OURS 1
#define ENOTSUPP_KERNEL 524

int __real_open(const char *path, int flags, ...);
int __real_open64(const char *path, int flags, ...);
int __real_ioctl(int fd, unsigned long request, ...);
void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
void *__real_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__real_fopen64(const char *path, const char *mode);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);

struct stub_rm stub_rm_state = {
	.files = LIST_INIT(stub_rm_state.files),
	.objects = LIST_INIT(stub_rm_state.objects),
	.mappings = LIST_INIT(stub_rm_state.mappings),
	.linear = UINT64_C(0x380000000000),
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define AS_BEFORE                                                               \
	{                                                                       \
		.version = "580.159.04", .reply = NVRM_VERSION_KNOWN,           \
		.partition = NVRM_NO_PARTITION, .max_objects = 1, .objects = 1, \
		.type = NVRM_TYPE_VIDEO_MEMORY, .caching = NVRM_WRITE_COMBINED  \
	}

struct stub_nvrm stub_nvrm = AS_BEFORE;

void stub_nvrm_reset(void)
{
	stub_nvrm = (struct stub_nvrm)AS_BEFORE;
}

void stub_wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)fputs("stub nvrm: ", stderr);
	(void)vfprintf(stderr, fmt, ap);
	(void)fputc('\n', stderr);
	va_end(ap);
	abort();
}

/* ------------------------------------------------------------ the machine */

uint32_t stub_minor_of(int device)
{
	return 4 + (uint32_t)device;
}

uint32_t stub_instance_of(int device)
{
	return STUB_GPUS - 1 - (uint32_t)device;
}

uint32_t stub_id_of(int device)
{
	return 0x1000 + 0x100 * (uint32_t)device;
}

void stub_nvrm_device(unsigned device, char pci[16], uint8_t uuid[16])
{
	(void)snprintf(pci, 16, "fff%x:%02x:00.0", device & 15, (0x17 + device) & 255);
	memcpy(uuid, "stub cuda device", 16);
	uuid[0] = (uint8_t)('0' + device);
}

static void cards(struct nvrm_cards *ret)
{
	*ret = (struct nvrm_cards){ 0 };
	for (unsigned i = 0; i < (stub_nvrm.cards ? stub_nvrm.cards : STUB_GPUS); i++)
		/* List the cards in reverse order, with the first slot empty. */
		ret->card[5 - i] = (struct nvrm_card){ .valid = 1,
						       .domain = 0xfff0 + i,
						       .bus = (uint8_t)(0x17 + i),
						       .vendor = 0x10de,
						       .gpu_id = stub_id_of((int)i),
						       .minor = stub_minor_of((int)i) };
}

/* ------------------------------------------------------------------- files */

struct file *stub_file_of(int fd)
{
	struct stat st;
	struct list *e;

	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	list_for_each (e, &stub_rm_state.files) {
		struct file *f = list_entry(e, struct file, link);

		if (f->dev == st.st_dev && f->ino == st.st_ino)
			return f;
	}
	return NULL;
}

static unsigned count_links(const char *prefix)
{
	DIR *d = opendir("/proc/self/fd");
	char path[300], to[128];
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)) != NULL) {
		ssize_t len;

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		len = readlink(path, to, sizeof(to) - 1);
		if (len <= 0)
			continue;
		to[len] = '\0';
		n += !strncmp(to, prefix, strlen(prefix));
	}
	if (d)
		(void)closedir(d);
	return n;
}

/* Return true if the process has a descriptor of the device's file. */
bool stub_is_open(int device)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "/memfd:stub-nvidia%" PRIu32 " ", stub_minor_of(device));
	return count_links(name) > 0;
}

/* Count the call and return true if it has to fail. */
static bool fails(void)
{
	stub_nvrm.calls++;
	if (!stub_nvrm.fail_at || --stub_nvrm.fail_at)
		return false;
	stub_nvrm.failed = true;
	return true;
}

static int file_open(int device, int flags)
{
	struct file *f = calloc(1, sizeof(*f)), *old;
	struct stat st;
	char name[32];
	int fd;

	if ((flags & (O_ACCMODE | O_CLOEXEC)) != (O_RDWR | O_CLOEXEC))
		stub_wrong("a device file is opened with flags 0x%x", (unsigned)flags);
	(void)snprintf(name, sizeof(name), device < 0 ? "stub-nvctl" : "stub-nvidia%" PRIu32,
		       stub_minor_of(device));
	fd = memfd_create(name, MFD_CLOEXEC);
	if (!f || fd < 0 || fstat(fd, &st) < 0) {
		free(f);
		return -EMFILE;
	}
	old = stub_file_of(fd);
	if (old) {
		list_del(&old->link);
		free(old);
	}
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	f->device = device;
	f->mem_fd = -1;
	list_add_tail(&stub_rm_state.files, &f->link);
	stub_nvrm.gpu_opens += device >= 0;
	return fd;
}

/* Open a device file: return 0 and a descriptor, -errno, or NOT_OURS. */
static int dev_open(const char *path, int flags, int *ret)
{
	int device = -1, e;
	unsigned minor;

	if (sscanf(path, "/dev/nvidia%u", &minor) == 1)
		device = (int)minor - (int)stub_minor_of(0);
	else if (strcmp(path, "/dev/nvidiactl") != 0)
		return NOT_OURS;
	if (device >= (int)STUB_GPUS || device < -1)
		return -ENXIO;
	(void)pthread_mutex_lock(&lock);
	e = device < 0 ? stub_nvrm.ctl_errno : stub_nvrm.gpu_errno;
	if (!e && device >= 0 && stub_nvrm.gpu_closed >> device & 1)
		e = ENOENT;
	if (!e && fails())
		e = stub_nvrm.fail_errno ? stub_nvrm.fail_errno : EMFILE;
	if (!e) {
		*ret = file_open(device, flags);
		e = *ret < 0 ? -*ret : 0;
	}
	(void)pthread_mutex_unlock(&lock);
	return -e;
}

/* ----------------------------------------------------------------- escapes */

/* Return true if stub_nvrm.refuse names this escape, class or control. */
static bool refused(unsigned nr, const void *arg)
{
	uint32_t more = 0;

	if (nr == NVRM_ALLOC)
		more = ((const struct nvrm_alloc *)arg)->class;
	if (nr == NVRM_CONTROL)
		more = ((const struct nvrm_control *)arg)->cmd;
	return stub_nvrm.refuse && (stub_nvrm.refuse == nr || stub_nvrm.refuse == more);
}

static int do_tie(struct file *f, const struct nvrm_tie *t)
{
	struct file *ctl = stub_file_of(t->ctl_fd);

	if (!ctl || ctl->device >= 0 || f->device < 0 || f->tied)
		return -EINVAL;
	f->tied = true;
	return 0;
}

static int do_version(struct nvrm_version *v)
{
	if (v->cmd != NVRM_VERSION_QUERY)
		return -EINVAL;
	v->reply = stub_nvrm.reply;
	memcpy(v->text, stub_nvrm.version, sizeof(v->text));
	return 0;
}

static int do_escape(struct file *f, unsigned nr, void *arg, uint32_t fail)
{
	switch (nr) {
	case NVRM_TIE:
		return fail ? -EINVAL : do_tie(f, arg);
	case NVRM_VERSION:
		return fail ? -EINVAL : do_version(arg);
	case NVRM_CARDS:
		cards(arg);
		return fail ? -EINVAL : 0;
	default:
		return stub_rm(nr, arg, fail);
	}
}

static int dev_ioctl(struct file *f, unsigned long request, void *arg)
{
	static const struct {
		unsigned long request;
		bool on_gpu;
	} known[] = {
		{ 0xc0104629, false }, { 0xc020462a, false }, { 0xc020462b, false },
		{ 0xc01c4634, false }, { 0xc038464e, false }, { 0xc020464f, false },
		{ 0xc90046c8, false }, { 0xc00446c9, true },  { 0xc04846d2, false },
	};
	unsigned nr = request & 255;
	uint32_t status = 0;
	bool good = false;

	for (unsigned i = 0; i < ARRAY_SIZE(known); i++)
		good |= known[i].request == request && known[i].on_gpu == (f->device >= 0);
	if (!good)
		stub_wrong("request 0x%lx on %s", request, f->device < 0 ? "nvidiactl" : "a GPU");
	if (refused(nr, arg))
		status = stub_nvrm.status;
	if (fails()) {
		if (stub_nvrm.fail_errno && nr != NVRM_FREE && nr != NVRM_UNMAP)
			return -stub_nvrm.fail_errno;
		status = NVRM_NO_RESOURCES;
	}
	return do_escape(f, nr, arg, status);
}

unsigned stub_nvrm_descriptors(void)
{
	return count_links("/memfd:stub-nv");
}

unsigned stub_nvrm_left(void)
{
	unsigned n = stub_nvrm_descriptors();
	struct list *e;

	(void)pthread_mutex_lock(&lock);
	list_for_each (e, &stub_rm_state.objects)
		n++;
	list_for_each (e, &stub_rm_state.mappings)
		n++;
	(void)pthread_mutex_unlock(&lock);
	return n;
}

/* Map as the mapping that is tied to the file says; return 0 or -errno. */
static int dev_mmap(struct file *f, void *at, size_t len, int prot, int flags, off_t off,
		    void **ret)
{
	struct mapping *m = f->mapping;
	struct list *e;

	if (f->device < 0 || !m || off || !(flags & MAP_SHARED))
		return -EINVAL;
	if (len != f->len)
		return -ENXIO;
	if ((prot & PROT_WRITE && f->access == NVRM_MAP_READ_ONLY) || prot & PROT_EXEC)
		return -EACCES;
	if (fails())
		return stub_nvrm.fail_errno ? -stub_nvrm.fail_errno : -ENOMEM;
	if (stub_nvrm.elsewhere)
		*ret = __real_mmap(at, len, prot, flags | MAP_ANONYMOUS, -1, 0);
	else
		*ret = __real_mmap(at, len, prot, flags, f->mem_fd, (off_t)f->off);
	if (*ret == MAP_FAILED)
		return -errno;
	/* A reused address is no longer that of an older, unmapped mapping. */
	list_for_each (e, &stub_rm_state.mappings) {
		struct mapping *o = list_entry(e, struct mapping, link);

		if (o->at < (uintptr_t)*ret + len && (uintptr_t)*ret < o->at + o->len)
			o->at = 0;
	}
	m->at = (uintptr_t)*ret;
	f->mapping = NULL;
	return 0;
}

/* ----------------------------------------------------------- what is wrapped */

static int wrap_open(const char *path, int flags, mode_t mode)
{
	int fd = -1, r = dev_open(path, flags, &fd);

	if (r == NOT_OURS)
		return __real_open(path, flags, mode);
	errno = -r;
	return r < 0 ? -1 : fd;
}

int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode;
	va_list ap;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return wrap_open(path, flags, mode);
}

int __wrap_open64(const char *path, int flags, ...)
{
	mode_t mode;
	va_list ap;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return wrap_open(path, flags, mode);
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	struct file *f;
	va_list ap;
	void *arg;
	int r = 0;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	(void)pthread_mutex_lock(&lock);
	f = stub_file_of(fd);
	if (f)
		r = dev_ioctl(f, request, arg);
	(void)pthread_mutex_unlock(&lock);
	if (!f)
		return __real_ioctl(fd, request, arg);
	errno = -r;
	return r < 0 ? -1 : 0;
}

/* Return true for a dma-buf of the libcuda stub, a memfd; the CPU may not map it. */
static bool is_dmabuf(int fd)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return stub_memory_at(path, "plain") >= 0 || stub_memory_at(path, "vmm") >= 0;
}

void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	struct file *f;
	void *p = MAP_FAILED;
	int r = 0;

	if (fd < 0)
		return __real_mmap(at, len, prot, flags, fd, off);
	(void)pthread_mutex_lock(&lock);
	f = stub_file_of(fd);
	if (f)
		r = dev_mmap(f, at, len, prot, flags, off, &p);
	(void)pthread_mutex_unlock(&lock);
	if (!f && !is_dmabuf(fd))
		return __real_mmap(at, len, prot, flags, fd, off);
	errno = f ? -r : ENOTSUPP_KERNEL;
	return p;
}

void *__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return __wrap_mmap(at, len, prot, flags, fd, off);
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	static char text[STUB_GPUS][160];
	unsigned domain, bus;
	char pci[16];
	uint8_t u[16];
	int n = 0;

	(void)sscanf(path, "/proc/driver/nvidia/gpus/%x:%x:00.0/information%n", &domain, &bus, &n);
	if (!n || path[n])
		return __real_fopen(path, mode);
	domain -= 0xfff0;
	if (stub_nvrm.no_proc || domain >= STUB_GPUS) {
		errno = ENOENT;
		return NULL;
	}
	stub_nvrm_device(domain, pci, u);
	(void)snprintf(text[domain], sizeof(text[0]),
		       "Model: \t\t Stub\nGPU UUID: \t GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-"
		       "%02x%02x-%02x%02x%02x%02x%02x%02x\nBus Type: \t PCIe\n",
		       u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
		       u[12], u[13], u[14], u[15]);
	if (stub_nvrm.proc_unknown)
		(void)snprintf(text[domain], sizeof(text[0]),
			       "GPU UUID: \t GPU-\?\?\?\?\?\?\?\?-\?\?\?\?-\?\?\?\?\n");
	return fmemopen(text[domain], strlen(text[domain]), mode);
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	return __wrap_fopen(path, mode);
}
