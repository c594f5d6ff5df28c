/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/backing.h"

#include <fcntl.h>
#include <sys/sysmacros.h>

#include "usrbio/mount/abi.h"
#include "usrbio/mount/caller.h"
#include "usrbio/mount/counts.h"
#include "usrbio/mount/log.h"

/*
 * Register a backing file, which the kernel then reads and writes itself, with the rights of the
 * registering thread.  The thread has the rights of the user nobody, so that a write clears the
 * set-user-ID bit as usual.  Return the kernel's number of the backing file, or -errno.
 */
static int32_t backing_ask(struct fs *fs, int fd)
{
	struct abi_backing map = { .fd = fd };
	int id, err = nobody_begin();

	if (err < 0)
		return err;
	id = ioctl(fuse_session_fd(fs->se), ABI_BACKING_OPEN, &map);
	return id > 0 ? id : -errno;
}

/*
 * Decide at the first open whether to use passthrough.  A backing file that is made with the node's
 * O_PATH descriptor stays valid while the node has that descriptor.  Kernels before Linux 6.16
 * refuse O_PATH (EBADF), and need an open file that stays open.
 */
static void decide(struct fs *fs, struct node *n, int fd)
{
	bool keeps = !atomic_load(&fs->wants_open);
	int32_t id = backing_ask(fs, keeps ? n->fd : fd);

	if (keeps && id == -EBADF) {
		atomic_store(&fs->wants_open, true);
		keeps = false;
		id = backing_ask(fs, fd);
	}
	if (id > 0) {
		n->backing = id;
		n->keeps_backing = keeps;
		return;
	}
	count_error(counts.refused, id);
	log_warn("the kernel does not pass the bytes of a file on: they go through its cache of "
		 "the mount",
		 "error=%s dev=%u:%u", log_errno(id), major(n->dev), minor(n->dev));
}

/* Count an open by the path that its bytes take. */
static void count_open(const struct fs *fs, const struct node *n)
{
	if (n->backing)
		count_add(&counts.passed, 1);
	else if (!fs->passes)
		count_add(&counts.cached[fs->cause], 1);
	else
		count_add(&counts.cached[n->nr_open == 1 ? CAUSE_REFUSED : CAUSE_SHARED], 1);
}

/* Return true if the file has not changed since its last close, so the kernel's cache of it is
 * valid. */
static bool is_unchanged(const struct node *n, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_size == n->size &&
	       st.st_mtim.tv_sec == n->written.tv_sec && st.st_mtim.tv_nsec == n->written.tv_nsec;
}

static bool is_writer(int fd)
{
	return (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
}

/* Count open files through which rings may write. */
static void add_writer(struct node *n, int fd)
{
	if (is_writer(fd))
		(void)atomic_fetch_add(&n->nr_writers, 1);
}

static void drop_writer(struct node *n, int fd)
{
	if (is_writer(fd))
		(void)atomic_fetch_sub(&n->nr_writers, 1);
}

static void mount_backing_drop(struct fs *fs, struct node *n)
{
	uint32_t id = (uint32_t)n->backing;

	n->backing = 0;
	(void)ioctl(fuse_session_fd(fs->se), ABI_BACKING_CLOSE, &id);
}

void backing_open(struct fs *fs, struct node *n, int fd, struct fuse_open_out *ret)
{
	struct stat st;

	add_writer(n, fd);
	/*
	 * A program that opens the file must see its current size, even if another process changed
	 * the source.  The kernel must not cache attributes of a file that rings may write to.  The
	 * kernel caches the attributes of other files until the next open.
	 */
	if (node_untell(n, !is_writer(fd) && fstat(fd, &st) == 0 ? &st : NULL))
		(void)fuse_lowlevel_notify_inval_inode(fs->se, fs_ino(fs, n), -1, 0);
	(void)pthread_mutex_lock(&n->lock);
	if (!n->nr_open++ && fs->passes && !n->backing)
		decide(fs, n, fd);
	count_open(fs, n);
	if (n->backing) {
		ret->open_flags |= ABI_FOPEN_PASSTHROUGH;
		ABI_BACKING(ret) = (uint32_t)n->backing;
	} else if (is_unchanged(n, fd)) {
		ret->open_flags |= FOPEN_KEEP_CACHE;
	}
	(void)pthread_mutex_unlock(&n->lock);
}

void backing_close(struct fs *fs, struct node *n, int fd)
{
	struct stat st;
	bool keeps;

	drop_writer(n, fd);
	(void)pthread_mutex_lock(&n->lock);
	/* Read these first: once nr_open is 0, another thread may close the node's descriptor
	 * (backing_drop()). */
	keeps = n->backing && n->keeps_backing;
	if (!--n->nr_open && !keeps) {
		if (n->backing) {
			mount_backing_drop(fs, n);
		} else if (fstat(fd, &st) == 0) {
			n->written = st.st_mtim;
			n->size = st.st_size;
		}
	}
	(void)pthread_mutex_unlock(&n->lock);
}

void backing_drop(void *arg, struct node *n)
{
	mount_backing_drop(arg, n);
}
