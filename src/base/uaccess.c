/* SPDX-License-Identifier: MIT */
/*
 * Copies by process_vm_writev(2) and process_vm_readv(2) on this process.  The program's memory is
 * the local side of both, because the kernel can access device mappings only there.  If a filter or
 * the kernel's configuration refuses these calls, a pipe is used, with two copies.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"
#include "base/uaccess.h"

#define CHUNK KIB(64) /* bytes; small enough to stay cached between the kernel's copy and its use */

enum dir {
	FROM_PROGRAM,
	FROM_PAGE, /* copy from the program's memory as the remote side of the call, which may
		    * span several objects */
	TO_PROGRAM,
};

static int gone(const void *addr, uint64_t len)
{
	return err_set(EFAULT,
		       "the memory (%" PRIu64
		       " bytes at %p) was unmapped or protected, or the file "
		       "behind it shrank, while it was in use; keep it until the request is over",
		       len, addr);
}

static int uaccess_failed(const void *addr, uint64_t len, int err)
{
	return err == EFAULT ? gone(addr, len)
			     : err_set(err, "the kernel does not copy memory of the program: %s",
				       err_name(err));
}

/* Copy by process_vm_readv() or process_vm_writev().  Return 0; -EFAULT; another -errno if the
 * kernel refuses the call. */
static int copy_by_vm(enum dir dir, void *addr, void *ours, uint64_t len)
{
	struct iovec local = { .iov_base = addr, .iov_len = len };
	struct iovec remote = { .iov_base = ours, .iov_len = len };
	ssize_t n;

	if (dir == FROM_PROGRAM)
		n = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
	else if (dir == TO_PROGRAM)
		n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
	else
		n = process_vm_readv(getpid(), &remote, 1, &local, 1, 0);
	if (n < 0)
		return -errno;
	return (uint64_t)n == len ? 0 : -EFAULT;
}

static int copy_by_pipe(enum dir dir, void *addr, void *ours, uint64_t len)
{
	char *from = dir == TO_PROGRAM ? ours : addr, *to = dir == TO_PROGRAM ? addr : ours;
	_cleanup_(closep) int rd = -1;
	_cleanup_(closep) int wr = -1;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	rd = fds[0];
	wr = fds[1];
	while (len) {
		ssize_t n = write(wr, from, len), m;

		if (n < 0)
			return -errno;
		m = read(rd, to, (size_t)n);
		if (m != n)
			return m < 0 ? -errno : -EFAULT;
		from += n;
		to += n;
		len -= (uint64_t)n;
	}
	return 0;
}

static int uaccess_copy(enum dir dir, void *addr, void *ours, uint64_t len)
{
	static atomic_bool by_pipe;
	int saved = errno, r;

	if (!atomic_load_explicit(&by_pipe, memory_order_relaxed)) {
		r = copy_by_vm(dir, addr, ours, len);
		if (r != -ENOSYS && r != -EPERM && r != -EACCES)
			goto out;
		if (!atomic_exchange(&by_pipe, true))
			log_info("process_vm_writev(2) is refused (%s): memory of the program is "
				 "copied through pipes",
				 err_name(r));
	}
	r = copy_by_pipe(dir, addr, ours, len);
out:
	errno = saved;
	return r < 0 ? uaccess_failed(addr, len, -r) : 0;
}

int uaccess_read(void *ours, const void *addr, uint64_t len)
{
	return uaccess_copy(FROM_PROGRAM, (void *)(uintptr_t)addr, ours, len);
}

int uaccess_read_page(void *ours, const void *addr, uint64_t len)
{
	return uaccess_copy(FROM_PAGE, (void *)(uintptr_t)addr, ours, len);
}

int uaccess_write(void *addr, const void *ours, uint64_t len)
{
	return uaccess_copy(TO_PROGRAM, addr, (void *)(uintptr_t)ours, len);
}

int uaccess_write_all(const struct iovec *to, const struct iovec *from, unsigned nr)
{
	int saved = errno, r = 0;
	size_t all = 0;
	ssize_t n;

	for (unsigned i = 0; i < nr; i++)
		all += to[i].iov_len;
	n = process_vm_readv(getpid(), to, nr, from, nr, 0);
	if (n < 0)
		r = -errno;
	else if ((size_t)n != all)
		r = -EFAULT;
	errno = saved;
	return r;
}

static char *chunk_new(uint64_t len)
{
	char *buf = malloc(MIN(len, CHUNK));

	if (!buf)
		(void)err_set(ENOMEM, "no memory to copy through");
	return buf;
}

int uaccess_move(void *to, const void *from, uint64_t len)
{
	_cleanup_(freep) char *buf = chunk_new(len);
	/* If the target is after the source, copy the last chunk first: they may overlap. */
	bool back = (uintptr_t)to > (uintptr_t)from;
	int r = buf ? 0 : -ENOMEM;

	for (uint64_t done = 0, n; r == 0 && done < len; done += n) {
		uint64_t at;

		n = MIN(len - done, CHUNK);
		at = back ? len - done - n : done;
		r = uaccess_read(buf, (const char *)from + at, n);
		if (r == 0)
			r = uaccess_write((char *)to + at, buf, n);
	}
	return r;
}

int uaccess_crc32c(uint32_t *crc, const void *addr, uint64_t len)
{
	_cleanup_(freep) char *buf = chunk_new(len);
	int r = buf ? 0 : -ENOMEM;

	for (uint64_t at = 0, n; r == 0 && at < len; at += n) {
		n = MIN(len - at, CHUNK);
		r = uaccess_read(buf, (const char *)addr + at, n);
		if (r == 0)
			*crc = crc32c(*crc, buf, n);
	}
	return r;
}

int uaccess_same(const void *addr, const void *ours, uint64_t len)
{
	_cleanup_(freep) char *buf = chunk_new(len);

	if (!buf)
		return -ENOMEM;
	for (uint64_t at = 0, n; at < len; at += n) {
		int r;

		n = MIN(len - at, CHUNK);
		r = uaccess_read(buf, (const char *)addr + at, n);
		if (r < 0)
			return r;
		if (memcmp(buf, (const char *)ours + at, n) != 0)
			return 0;
	}
	return 1;
}
