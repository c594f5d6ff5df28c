/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <penstock.h>

#include "base/err.h"
#include "mem/memfd.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* since Linux 6.3 */
#endif

int memfd_new(const char *name, uint64_t len)
{
	_cleanup_(closep) int fd = -1;
	struct rlimit lim;
	int e;

	/*
	 * Try MFD_NOEXEC_SEAL first: if vm.memfd_noexec is 2, the kernel requires it.  Older
	 * kernels do not know it.
	 */
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0) {
		e = errno;
		if (e == EMFILE || e == ENFILE)
			return err_set(e, "no free descriptor for shared memory; raise "
					  "RLIMIT_NOFILE (ulimit -n)");
		return err_set(e, "the kernel refuses memfd_create: %s", err_name(e));
	}

	/* The kernel counts a memfd as a file.  Growing it beyond this limit would raise SIGXFSZ,
	 * which ends the process. */
	if (getrlimit(RLIMIT_FSIZE, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY &&
	    len > lim.rlim_cur)
		return err_set(ENOMEM,
			       "%" PRIu64 " bytes of shared memory are more than RLIMIT_FSIZE "
			       "allows; raise it (ulimit -f)",
			       len);
	if (ftruncate(fd, (off_t)len) < 0) {
		e = errno;
		return err_set(ENOMEM, "no shared memory of %" PRIu64 " bytes: %s", len,
			       err_name(e));
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		e = errno;
		return err_set(e, "shared memory cannot be sealed: %s", err_name(e));
	}
	return TAKE_FD(fd);
}

int memfd_again(int fd, uint32_t rights)
{
	int mode = fcntl(fd, F_GETFL);
	char path[64];
	int e, ret;

	if (mode < 0)
		return err_set(EBADF, "the memory's descriptor is gone");
	if (rights & PST_RIGHT_WRITE || (mode & O_ACCMODE) == O_RDONLY) {
		ret = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	} else {
		/* Open the file again: a duplicate would have the same access mode. */
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ret = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (ret >= 0)
		return ret;
	e = errno;
	if (e == EMFILE || e == ENFILE)
		return err_set(e, "no free descriptor for the grant; raise RLIMIT_NOFILE "
				  "(ulimit -n)");
	return err_set(EACCES,
		       "cannot open the memory read-only through %s (%s); mount /proc, or "
		       "grant writing too",
		       path, err_name(e));
}

int memfd_check(int fd, uint64_t size, uint32_t rights)
{
	struct statfs fs;
	struct stat st;
	int mode, seals;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(EINVAL, "the grant has no open descriptor");
	if (!S_ISREG(st.st_mode))
		return err_set(EINVAL, "the grant's descriptor is no shared memory");
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return err_set(EINVAL,
			       "the grant's descriptor is not sealed against shrinking; its "
			       "owner could crash this process");
	/* Refuse huge pages: a hole that is punched later needs a free page when it is touched, and
	 * without a free huge page the touch raises SIGBUS. */
	if (fstatfs(fd, &fs) < 0 || fs.f_type == HUGETLBFS_MAGIC)
		return err_set(EINVAL, "the grant's descriptor is memory of reserved huge pages, "
				       "which its owner could take away");
	if ((uint64_t)st.st_size != size)
		return err_set(EINVAL,
			       "the grant says %" PRIu64 " bytes, its descriptor has %" PRIu64,
			       size, (uint64_t)st.st_size);

	mode = fcntl(fd, F_GETFL);
	if (mode < 0 || mode & O_PATH || (mode & O_ACCMODE) == O_WRONLY)
		return err_set(EACCES,
			       "the grant's descriptor is not open for reading, which every "
			       "mapping needs");
	if (rights & PST_RIGHT_WRITE && (mode & O_ACCMODE) != O_RDWR)
		return err_set(EACCES, "the grant says writing, its descriptor is read-only");
	/* F_SEAL_FUTURE_WRITE (since Linux 5.1) and F_SEAL_WRITE forbid new writable mappings. */
	if (rights & PST_RIGHT_WRITE && seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		return err_set(EACCES,
			       "the grant says writing, its descriptor is sealed against it");
	return 0;
}
