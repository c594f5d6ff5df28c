/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <sys/mman.h>

#include "base/err.h"
#include "mem/mapped.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

#define PAGES 8

/* How the kernel tells about mappings: by ioctl, by text, or not at all. */
static enum { CALL, TEXT, NOTHING } kernel;
static unsigned calls;

int __real_ioctl(int fd, unsigned long nr, void *arg);
int __wrap_ioctl(int fd, unsigned long nr, ...);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);

int __wrap_ioctl(int fd, unsigned long nr, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, nr);
	arg = va_arg(ap, void *);
	va_end(ap);
	calls++;
	errno = ENOTTY;
	return kernel == CALL ? __real_ioctl(fd, nr, arg) : -1;
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	errno = ENOENT;
	return kernel == NOTHING ? NULL : __real_fopen(path, mode);
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	return __wrap_fopen(path, mode);
}

static uint64_t page;
static char *at;

static void map_pages(void)
{
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	at = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(at != MAP_FAILED);
}

static int ask(uint64_t from, uint64_t to)
{
	int r;

	errno = 99;
	r = mapped_check(&(struct mapped){ (uintptr_t)at + from, to - from }, 1);
	T_EQ(errno, 99);
	return r;
}

static void look(void)
{
	unsigned char there[PAGES];
	char *big;

	map_pages();
	T_OK(ask(0, PAGES * page));
	T_OK(ask(5, 6));
	T_OK(ask(page - 1, page + 1));
	/* Read or write access is enough.  Several mappings form one range. */
	T_EQ(mprotect(at + page, page, PROT_READ), 0);
	T_EQ(mprotect(at + 2 * page, page, PROT_WRITE), 0);
	T_OK(ask(0, PAGES * page));
	/* No page is faulted in. */
	T_EQ(mincore(at, PAGES * page, there), 0);
	for (unsigned i = 0; i < PAGES; i++)
		T_EQ(there[i] & 1, 0);

	T_EQ(munmap(at + 5 * page, page), 0);
	T_OK(ask(0, 5 * page));
	T_OK(ask(6 * page, PAGES * page));
	T_EQ(ask(5 * page, 5 * page + 1), -EFAULT);
	T_EQ(ask(5 * page - 1, 5 * page + 1), -EFAULT);
	T_EQ(ask(0, PAGES * page), -EFAULT);
	T_EQ(ask(6 * page - 1, PAGES * page), -EFAULT);
	T_CHECK(strstr(err_text(), "no memory that the CPU may use"));

	/* Addresses reserved without access.  Without /proc, the answer is unknown. */
	T_EQ(mprotect(at + 3 * page, page, PROT_NONE), 0);
	T_EQ(ask(3 * page + 7, 3 * page + 8), kernel == NOTHING ? 0 : -EFAULT);
	T_EQ(ask(0, 5 * page), kernel == NOTHING ? 0 : -EFAULT);
	T_OK(ask(0, 3 * page));
	T_OK(ask(4 * page, 5 * page));
	T_EQ(munmap(at, PAGES * page), 0);

	/* No mapping at all, below and above all others. */
	T_EQ(mapped_check(&(struct mapped){ 4096, 1 }, 1), -EFAULT);
	T_EQ(mapped_check(&(struct mapped){ UINT64_C(1) << 62, 1 }, 1), -EFAULT);
	/* A long mapping. */
	big = mmap(NULL, GIB(512), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	T_CHECK(big != MAP_FAILED);
	T_OK(mapped_check(&(struct mapped){ (uintptr_t)big + 1, GIB(512) - 2 }, 1));
	T_EQ(munmap(big, GIB(512)), 0);
}

/* Several ranges at once, some of which overlap. */
static void look_at_many(void)
{
	struct mapped list[5];

	map_pages();
	T_EQ(munmap(at + 4 * page, page), 0);
	for (unsigned i = 0; i < 5; i++)
		list[i] = (struct mapped){ (uintptr_t)at + i * page / 2, page };
	T_OK(mapped_check(list, 5));
	list[3] = (struct mapped){ (uintptr_t)at + page + 1, 3 * page - 1 };
	list[4] = (struct mapped){ (uintptr_t)at + 5 * page, 3 * page };
	T_OK(mapped_check(list, 5));
	list[3].len++;
	T_EQ(mapped_check(list, 5), -EFAULT);
	list[3].len--;
	T_OK(mapped_check(list, 5));
	list[4].addr--;
	T_EQ(mapped_check(list, 5), -EFAULT);
	T_EQ(munmap(at, PAGES * page), 0);
}

static void by_call(void)
{
	kernel = CALL;
	calls = 0;
	look();
	look_at_many();
	T_CHECK(calls > 0);
}

static void by_text(void)
{
	kernel = TEXT;
	look();
	look_at_many();
}

static void without_proc(void)
{
	kernel = NOTHING;
	look();
	look_at_many();
}

int main(void)
{
	T_RUN(by_call);
	T_RUN(by_text);
	T_RUN(without_proc);
	return t_done();
}
