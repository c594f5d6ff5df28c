/* SPDX-License-Identifier: MIT */
/*
 * Memory that was taken away gives an error and no signal, by both ways of copying.
 *
 * The linker's --wrap redirects process_vm_readv() and process_vm_writev() here, which refuse as
 * a filter for system calls would.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/uaccess.h"
#include "t.h"

#define PAGES 40u
#define LEN (PAGES * 4096u)
#define SEED 7

typedef ssize_t vm_fn(pid_t pid, const struct iovec *local, unsigned long nr_local,
		      const struct iovec *remote, unsigned long nr_remote, unsigned long flags);

vm_fn __real_process_vm_readv, __real_process_vm_writev;
vm_fn __wrap_process_vm_readv, __wrap_process_vm_writev;

static int refuse; /* errno of refused calls; 0: allow them */
static unsigned nr_refused;

static bool refused(void)
{
	nr_refused += refuse != 0;
	errno = refuse;
	return refuse;
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nr_local,
				const struct iovec *remote, unsigned long nr_remote,
				unsigned long flags)
{
	return refused() ? -1
			 : __real_process_vm_readv(pid, local, nr_local, remote, nr_remote, flags);
}

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long nr_local,
				 const struct iovec *remote, unsigned long nr_remote,
				 unsigned long flags)
{
	return refused() ? -1
			 : __real_process_vm_writev(pid, local, nr_local, remote, nr_remote, flags);
}

/* Map memory of a "program", in a file that can be truncated. */
static char *map_new(int *ret_fd)
{
	char *p;

	*ret_fd = memfd_create("program", MFD_CLOEXEC);
	T_CHECK(*ret_fd >= 0);
	T_EQ(ftruncate(*ret_fd, LEN), 0);
	p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
	T_CHECK(p != MAP_FAILED);
	t_fill(p, SEED, 0, LEN);
	return p;
}

/* Take the second half away. */
static void take_away(char *p, int fd, unsigned how)
{
	if (how == 0)
		T_EQ(ftruncate(fd, LEN / 2), 0);
	else if (how == 1)
		T_EQ(mprotect(p + LEN / 2, LEN / 2, PROT_NONE), 0);
	else
		T_EQ(munmap(p + LEN / 2, LEN / 2), 0);
}

static void map_free(char *p, int fd)
{
	T_EQ(munmap(p, LEN), 0);
	T_EQ(close(fd), 0);
}

static void copies(void)
{
	static const uint64_t lens[] = { 0, 1, 4095, 65536, 65537, LEN - 5 };
	char *ours = malloc(LEN);
	uint32_t crc;
	int fd;
	char *p = map_new(&fd);

	for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint64_t n = lens[i];

		memset(ours, 0, LEN);
		T_EQ(uaccess_read(ours, p + 3, n), 0);
		T_EQ(t_differs(ours, SEED, 3, n), n);
		T_EQ(ours[n], 0);
		memset(ours, 0, LEN);
		T_EQ(uaccess_read_page(ours, p + 3, n), 0);
		T_EQ(t_differs(ours, SEED, 3, n), n);
		T_EQ(ours[n], 0);
		T_EQ(uaccess_same(p + 3, ours, n), 1);
		crc = 5;
		T_EQ(uaccess_crc32c(&crc, p + 3, n), 0);
		T_EQ(crc, crc32c(5, ours, n));
		if (n) {
			ours[n - 1] ^= 1;
			T_EQ(uaccess_same(p + 3, ours, n), 0);
		}
		t_fill(ours, SEED + 1, 3, n);
		T_EQ(uaccess_write(p + 3, ours, n), 0);
		T_EQ(t_differs(p + 3, SEED + 1, 3, n), n);
		T_EQ(t_differs(p + 3 + n, SEED, 3 + n, LEN - 3 - n), LEN - 3 - n);
		t_fill(p, SEED, 0, LEN);
		/* Move between overlapping ranges, in both directions. */
		T_EQ(uaccess_move(p, p + 5, n), 0);
		T_EQ(t_differs(p, SEED, 5, n), n);
		t_fill(p, SEED, 0, LEN);
		T_EQ(uaccess_move(p + 5, p, n), 0);
		T_EQ(t_differs(p + 5, SEED, 0, n), n);
		t_fill(p, SEED, 0, LEN);
	}
	free(ours);
	map_free(p, fd);
}

static void what_is_gone_is_an_error(void)
{
	char *ours = malloc(LEN);
	uint32_t crc = 0;

	for (unsigned how = 0; how < 3; how++) {
		int fd;
		char *p = map_new(&fd);

		T_EQ(uaccess_read(ours, p, LEN), 0);
		take_away(p, fd, how);
		errno = 77;
		T_EQ(uaccess_read(ours, p, LEN), -EFAULT);
		T_CHECK(strstr(err_text(), "unmapped"));
		T_EQ(uaccess_read_page(ours, p, LEN), -EFAULT);
		T_EQ(uaccess_write(p, ours, LEN), -EFAULT);
		T_EQ(uaccess_same(p, ours, LEN), -EFAULT);
		T_EQ(uaccess_crc32c(&crc, p, LEN), -EFAULT);
		T_EQ(uaccess_move(ours, p, LEN), -EFAULT);
		T_EQ(uaccess_move(p, ours, LEN), -EFAULT);
		T_EQ(errno, 77);
		/* The first half is still there. */
		T_EQ(uaccess_read(ours, p, LEN / 2), 0);
		T_EQ(uaccess_same(p, ours, LEN / 2), 1);
		map_free(p, fd);
	}
	free(ours);
}

static void the_kernel_refuses(void)
{
	static const int errs[] = { EPERM, ENOSYS };
	int fd;
	char *p = map_new(&fd), *ours = malloc(LEN);

	refuse = errs[getpid() % 2];
	T_EQ(uaccess_read(ours, p, LEN), 0);
	T_EQ(t_differs(ours, SEED, 0, LEN), LEN);
	T_EQ(nr_refused, 1); /* the refused call is not tried again */
	copies();
	what_is_gone_is_an_error();
	T_EQ(nr_refused, 1);
	free(ours);
	map_free(p, fd);
}

/* No descriptors for a pipe are left: no way to copy remains, and the error says so. */
static void nothing_is_left(void)
{
	struct rlimit was, none = { 0, 0 };
	char a[8] = "", b[8] = "";
	int r;

	T_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
	none.rlim_max = was.rlim_max;
	T_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	r = uaccess_read(a, b, sizeof(a));
	T_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
	T_EQ(r, -EMFILE);
	T_CHECK(strstr(err_text(), "EMFILE"));
}

int main(void)
{
	T_RUN(copies);
	T_RUN(what_is_gone_is_an_error);
	T_RUN(the_kernel_refuses);
	T_RUN(nothing_is_left);
	return t_done();
}
