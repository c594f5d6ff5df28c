/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "base/user.h"
#include "keep.h"
#include "log.h"
#include "usrbio/proto/plain.h"
#include "shm.h"

#define NODES_MAX 1024u
#define ULONG_BITS (8 * sizeof(unsigned long))
/* bytes per fallocate(2): a signal interrupts the call, which then starts again */
#define PIECE (UINT64_C(64) << 20)

struct posix_name {
	char text[USRBIO_SHM_NAME_MAX + 1];
};

static struct posix_name posix(const char *name)
{
	struct posix_name n;

	(void)snprintf(n.text, sizeof(n.text), "/%s", name);
	return n;
}

void shm_remove(const char *name)
{
	struct posix_name n = posix(name);

	if (shm_unlink(n.text) < 0 && errno != ENOENT)
		log_line(LOG_WARN, "cannot remove " USRBIO_SHM_DIR "%s: %m, ignoring", name);
}

/* ------------------------------------------------------------------- NUMA */

void shm_bind(void *base, size_t size, int numa)
{
	unsigned long mask[NODES_MAX / ULONG_BITS] = { 0 };
	unsigned node = (unsigned)numa;

	if (numa < 0)
		return;
	if (node < NODES_MAX) {
		mask[node / ULONG_BITS] |= 1ul << node % ULONG_BITS;
		/* Pass one more than the number of bits: the kernel subtracts one. */
		if (syscall(SYS_mbind, base, size, MPOL_BIND, mask, NODES_MAX + 1, 0) == 0)
			return;
	} else {
		errno = EINVAL;
	}
	log_line(LOG_WARN, "cannot bind %zu bytes to NUMA node %d: %m, ignoring", size, numa);
}

/* ------------------------------------------------------------- allocation */

static _Atomic bool told_full; /* logged that memory is full; reset at success */

/* Log that memory is full, once, because programs retry.  Return -ENOSPC. */
static int shm_full(uint64_t size)
{
	log_line(atomic_exchange(&told_full, true) ? LOG_DEBUG : LOG_WARN,
		 "shared memory has no room for %" PRIu64 " bytes: see 'df " USRBIO_SHM_DIR
		 "'; a container takes --shm-size, a machine 'mount -o remount,size='",
		 size);
	return -ENOSPC;
}

/* Check for room first, to fail before most of the memory was allocated.  A file system limit of 0
 * means no limit. */
static int shm_check_room(int fd, uint64_t size)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0 || fs.f_blocks == 0 || fs.f_bsize <= 0 ||
	    size / (uint64_t)fs.f_bsize <= fs.f_bavail)
		return 0;
	return shm_full(size);
}

/*
 * Allocate every page: otherwise a write to memory that the machine lacks would raise SIGBUS. Call
 * this after binding, because allocation chooses the NUMA nodes.
 */
static int allocate(int fd, uint64_t size)
{
	uint64_t at = 0;

	while (at < size) {
		if (fallocate(fd, 0, (off_t)at, (off_t)MIN(PIECE, size - at)) == 0)
			at += MIN(PIECE, size - at);
		else if (errno == ENOSPC)
			return shm_full(size);
		else if (errno != EINTR)
			return log_fail(errno, "cannot allocate %" PRIu64 " bytes: %m", size);
	}
	return 0;
}

static int library_shm_map(int fd, size_t size, void **ret_base)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return log_fail(errno, "cannot map %zu bytes of shared memory: %m", size);
	*ret_base = p;
	return 0;
}

static int shm_fill(int fd, size_t size, int numa, void **ret_base)
{
	void *base = NULL;
	int r = shm_check_room(fd, size);

	if (r < 0)
		return r;
	if (ftruncate(fd, (off_t)size) < 0)
		return log_fail(errno, "cannot make shared memory of %zu bytes: %m", size);
	r = library_shm_map(fd, size, &base);
	if (r < 0)
		return r;
	shm_bind(base, size, numa);
	r = allocate(fd, size);
	if (r < 0)
		(void)munmap(base, size);
	else
		*ret_base = base;
	return r;
}

static int new_name(char ret_name[USRBIO_SHM_NAME_MAX])
{
	uint8_t id[USRBIO_ID_LEN];
	struct usrbio_owner self;
	int r = usrbio_owner_self(&self);

	if (r < 0)
		return log_fail(r, "cannot tell this process from others by /proc: %s",
				strerror(-r));
	r = usrbio_id_new(id);
	if (r == 0)
		usrbio_owner_shm(&self, id, ret_name);
	return r;
}

int shm_create(size_t size, int numa, char ret_name[USRBIO_SHM_NAME_MAX], void **ret_base)
{
	_cleanup_(closep) int fd = -1;
	char name[USRBIO_SHM_NAME_MAX];
	int r;

	if (size > INT64_MAX)
		return shm_full(size);
	r = new_name(name);
	if (r < 0)
		return r;
	fd = shm_open(posix(name).text, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return log_fail(errno, "cannot make " USRBIO_SHM_DIR "%s: %m", name);
	r = shm_fill(fd, size, numa, ret_base);
	if (r < 0) {
		shm_remove(name);
		return r;
	}
	atomic_store(&told_full, false);
	(void)snprintf(ret_name, USRBIO_SHM_NAME_MAX, "%s", name);
	return 0;
}

/* ------------------------------------------------------------- attachment */

static int shm_check(int fd, const char *name, size_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return log_fail(errno, USRBIO_SHM_DIR "%s: %m", name);
	if (!user_is_own(st.st_uid))
		return log_fail(EPERM, USRBIO_SHM_DIR "%s belongs to user %u", name, st.st_uid);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < size)
		return log_fail(EINVAL, USRBIO_SHM_DIR "%s has %" PRId64 " bytes, fewer than %zu",
				name, (int64_t)st.st_size, size);
	return 0;
}

int shm_attach(const char *name, size_t size, void **ret_base)
{
	_cleanup_(closep) int fd = shm_open(posix(name).text, O_RDWR, 0);
	int r;

	if (fd < 0)
		return log_fail(errno == EACCES ? EPERM : errno,
				"cannot open " USRBIO_SHM_DIR "%s: %m", name);
	r = shm_check(fd, name, size);
	return r < 0 ? r : library_shm_map(fd, size, ret_base);
}
