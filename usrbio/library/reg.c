/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <linux/kcmp.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <penstock.h>

#include <hf3fs_usrbio.h>
#include "keep.h"
#include "lock.h"
#include "log.h"
#include "mount.h"
#include "plain.h"
#include "reg.h"
#include "usrbio/server/server.h"

/* A table by descriptor number, in pages that are allocated when first used and never freed. */
#define PAGE_BITS 12
#define PAGE_PLACES (1u << PAGE_BITS)
#define PAGES (1u << (31 - PAGE_BITS))

typedef struct reg *_Atomic place_t;

static place_t *_Atomic pages[PAGES]; /* written with LOCK_FDS */
static struct reg *free_regs;         /* under LOCK_FDS */
static uint64_t last_number;          /* under LOCK_FDS */

/* ------------------------------------------------------------------- table */

static place_t *place_at(int fd)
{
	place_t *page = fd >= 0 ? atomic_load(&pages[(unsigned)fd >> PAGE_BITS]) : NULL;

	return page ? &page[(unsigned)fd % PAGE_PLACES] : NULL;
}

static struct reg *occupant(int fd)
{
	place_t *place = place_at(fd);

	return place ? atomic_load(place) : NULL;
}

static int make_place(int fd)
{
	place_t *page;

	if (place_at(fd))
		return 0;
	page = calloc(PAGE_PLACES, sizeof(*page));
	if (!page)
		return -ENOMEM;
	atomic_store(&pages[(unsigned)fd >> PAGE_BITS], page);
	return 0;
}

/* Return the table index of a number that a program passes: a descriptor, or hf3fs_reg_fd()'s
 * negative result. */
static int reg_number_of(int fd)
{
	return fd >= 0 || fd == INT32_MIN ? fd : -fd;
}

struct reg *reg_get(int fd)
{
	place_t *place = place_at(reg_number_of(fd));

	for (;;) {
		struct reg *r = place ? atomic_load(place) : NULL;
		unsigned refs;

		if (!r)
			return NULL;
		refs = atomic_load(&r->refs);
		while (refs && !atomic_compare_exchange_weak(&r->refs, &refs, refs + 1))
			;
		/* Check the table again: the registration may have been reused for another file
		 * since.  A registration without references has already left the table. */
		if (refs && atomic_load(place) == r)
			return r;
		if (refs)
			reg_put(r);
	}
}

static void recycle(struct reg *r)
{
	lock_take(LOCK_FDS);
	r->next_free = free_regs;
	free_regs = r;
	lock_drop(LOCK_FDS);
}

void reg_put(struct reg *r)
{
	int err;

	if (atomic_fetch_sub(&r->refs, 1) != 1)
		return;
	if (r->file && r->forks == lock_forks())
		server_file_remove(plain_server(&err), r->file);
	(void)close(r->dup);
	recycle(r);
}

/* -------------------------------------------------------------- registering */

/* Return true if two descriptors are the same open file, not only the same inode. */
static bool same_file(int a, int b)
{
	long pid = getpid(), r = syscall(SYS_kcmp, pid, pid, KCMP_FILE, a, b);
	struct stat sa, sb;

	if (r >= 0)
		return r == 0;
	/* kcmp(2) is forbidden in some containers: then compare everything that is visible. */
	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino && fcntl(a, F_GETFL) == fcntl(b, F_GETFL);
}

/*
 * Duplicate a descriptor under a number that is not in the table.  The number of a registered
 * descriptor that was closed still means that file, so it must not be used.
 */
static int duplicate(int fd)
{
	int dup = -1, least = 0;

	do {
		closep(&dup);
		dup = fcntl(fd, F_DUPFD_CLOEXEC, least);
		least = dup + 1;
	} while (dup >= 0 && occupant(dup));
	if (dup < 0 && errno == EINVAL) /* EINVAL: the number least is above RLIMIT_NOFILE. */
		errno = EMFILE;
	return dup >= 0 ? dup : log_fail(errno, "cannot duplicate descriptor %d: %m", fd);
}

static int inode_number(int fd, uint64_t *ret)
{
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &sx) < 0)
		return log_fail(errno, "cannot look at descriptor %d: %m", fd);
	*ret = sx.stx_ino;
	return 0;
}

/*
 * Return the error text of a refused file.  pst_error_text() is the thread's last error, which may
 * be from an earlier call, so ask libpenstock again: if it refused the file, it refuses again.
 */
static const char *why_not(int dup, int err)
{
	struct pst_file *file = NULL;
	bool refused = pst_file_wrap(dup, 0, NULL, &file) == err;

	(void)pst_file_close(file);
	return refused ? pst_error_text() : strerror(-err);
}

static int add_to_server(struct reg *r)
{
	int err = 0;
	struct server *w = plain_server(&err);

	if (!w)
		return err;
	r->number = ++last_number;
	err = server_file_add(w, r->number, r->dup, &r->file);
	return err < 0 ? log_fail(err, "cannot register descriptor %d: %s", r->fd,
				  why_not(r->dup, err))
		       : 0;
}

/* Fill in facts about the file, before the registration is public.  With LOCK_FDS. */
static int reg_look_at(struct reg *r, int kind)
{
	int flags = fcntl(r->fd, F_GETFL);
	int mode = flags & O_ACCMODE;

	if (flags < 0)
		return log_fail(errno, "descriptor %d: %m", r->fd);
	r->reads = mode == O_RDONLY || mode == O_RDWR;
	r->writes = mode == O_WRONLY || mode == O_RDWR;
	r->plain = kind == MOUNT_PLAIN;
	return r->plain ? add_to_server(r) : inode_number(r->fd, &r->number);
}

static struct reg *take_free(void)
{
	struct reg *r = free_regs;

	if (r)
		free_regs = r->next_free;
	else
		r = calloc(1, sizeof(*r));
	return r;
}

/* Prepare a registration to become public.  After an error the caller cleans up.  With LOCK_FDS. */
static int reg_prepare(struct reg *r, int fd, int kind)
{
	int err = make_place(fd);

	r->fd = fd;
	r->dup = -1;
	r->file = NULL;
	r->forks = lock_forks();
	if (err < 0)
		return err;
	r->dup = duplicate(fd);
	if (r->dup < 0)
		return r->dup;
	err = make_place(r->dup);
	return err < 0 ? err : reg_look_at(r, kind);
}

/* Register a descriptor.  With LOCK_FDS. */
static int reg_add(int fd, int kind, int *ret_dup)
{
	struct reg *old = occupant(fd), *r;
	int err;

	if (old && (old->dup == fd || same_file(fd, old->dup)))
		return log_fail(EINVAL, "descriptor %d is registered already", fd);
	r = take_free();
	if (!r)
		return -ENOMEM;
	err = reg_prepare(r, fd, kind);
	if (err < 0) {
		closep(&r->dup);
		r->next_free = free_regs;
		free_regs = r;
		return err;
	}
	atomic_store(&r->refs, 1);
	/* Replace the registration of a descriptor that was closed: its number now means this
	 * file. */
	atomic_store(place_at(fd), r);
	atomic_store(place_at(r->dup), r);
	*ret_dup = r->dup;
	return 0;
}

int hf3fs_reg_fd(int fd, uint64_t flags)
{
	KEEP_ERRNO;
	char plain[PATH_MAX];
	int r, kind, dup = -1;

	(void)flags;
	kind = mount_of_fd(fd, plain);
	if (kind == -EPERM)
		return -mount_refuse(plain);
	if (kind < 0)
		return -log_fail(kind, "cannot tell what descriptor %d is: %s", fd,
				 strerror(-kind));
	if (!kind)
		return -log_fail(EBADF,
				 "descriptor %d is no open file on 3FS or in a plain directory; "
				 "'penstock mount --plain DIR' prepares one",
				 fd);
	lock_take(LOCK_FDS);
	r = reg_add(fd, kind, &dup);
	lock_drop(LOCK_FDS);
	return r < 0 ? -r : -dup;
}

static void reg_leave(int fd, const struct reg *r)
{
	if (occupant(fd) == r)
		atomic_store(place_at(fd), NULL);
}

void hf3fs_dereg_fd(int fd)
{
	KEEP_ERRNO;
	struct reg *r;

	lock_take(LOCK_FDS);
	r = occupant(reg_number_of(fd));
	if (r) {
		reg_leave(r->fd, r);
		reg_leave(r->dup, r);
	}
	lock_drop(LOCK_FDS);
	if (r)
		reg_put(r);
	else
		log_line(LOG_DEBUG, "descriptor %d is not registered", fd);
}
