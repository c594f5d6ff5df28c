/* SPDX-License-Identifier: MIT */
/*
 * The library's object for an iov: hf3fs_iov.iovh is its handle.
 *
 * A handle is valid from iov_publish() until iov_end().  Every call looks it up first, because
 * programs copy the public structure and destroy the copies.
 */
#ifndef USRBIO_IOV_H
#define USRBIO_IOV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hf3fs_usrbio.h>
#include "usrbio/proto/link.h"
#include "usrbio/proto/name.h"

struct mount;
struct pst_mem;
struct server_buffer;

enum iov_origin {
	IOV_CREATED, /* the library made the memory and the publication */
	IOV_OPENED,  /* the library made only the mapping */
	/* the library made nothing (host memory), or only the publication (device memory) */
	IOV_WRAPPED,
};

struct iov {
	enum iov_origin origin;
	/* lock_forks() at creation: a forked child frees only the mapping */
	unsigned forks;
	int device;                    /* CUDA's device number; -1 for host memory */
	struct mount *mount;           /* mount of the publication, with a reference */
	char link[USRBIO_NAME_MAX];    /* name of our publication, or "" */
	char shm[USRBIO_SHM_NAME_MAX]; /* POSIX name of shared memory that we must remove, or "" */
	void *base;                    /* our mapping, or NULL */
	size_t size;
	struct pst_mem *mem;          /* NULL for host memory on a daemon's mount */
	struct server_buffer *buffer; /* mem in our server; NULL on a daemon's mount */
	_Atomic int fd;               /* descriptor of the software device's mem, or -1 */

	/* Members of wrapped host memory, used by iov.c with LOCK_WRAPS. */
	struct iov *next;
	unsigned wraps; /* number of wraps under the same UUID */
	struct hf3fs_iov like;
	size_t block; /* no request may cross a multiple of this many bytes; 0: no limit */
};

/* Make an empty iov, device -1.  Takes over the reference to the mount.  NULL if out of memory. */
struct iov *iov_new(struct mount *mount, enum iov_origin origin);

/* Make an empty iov for a mount point's path.  Return 0, or the error of mount_get(). */
int iov_begin(const char *mount_point, enum iov_origin origin, struct iov **ret);

/*
 * Publish the iov by a link on its mount, which iov_end() removes.
 *
 * Return: 0, or the error of symlink(2), by which a daemon answers about the memory.
 */
int iov_link(struct iov *iov, const struct usrbio_name *name, const char *target);

/*
 * Make the iov public: fill in the caller's structure and, in a plain directory, let the rings of
 * this process find the memory by its UUID. Return 0; -EEXIST for device memory whose UUID is in
 * use in that directory; -errno.  After an error nothing has changed.
 */
int iov_publish(struct iov *iov, struct hf3fs_iov *ret, const struct hf3fs_iov *filled);

/* Return the object of a public structure, or NULL if it has ended. */
struct iov *iov_get(const struct hf3fs_iov *iov);

/*
 * End one wrap of memory that was wrapped several times.  Otherwise end the iov: remove
 * publication, buffer and memory, in this order.  Sets the structure's iovh to NULL.  Nothing
 * changes if the publication of device memory cannot be removed: the daemon could still write to
 * the freed memory.
 */
void iov_end(struct hf3fs_iov *iov);

/* Remove only the publication.  Return 0, even if it is already gone; -errno if it remains. */
int iov_withdraw(struct iov *iov);

/* Free an iov that never became public, with everything it owns.  Return NULL. */
struct iov *iov_free(struct iov *iov);
static inline void iov_freep(struct iov **iov)
{
	(void)iov_free(*iov);
}

/*
 * Check and fill in the fields that all kinds of iov have.
 *
 * Return: 0; -EINVAL for NULL, a size of 0, a block size above the size, or a mount point that is
 * empty or too long.
 */
int iov_fill(struct hf3fs_iov *ret, const char *mount_point, size_t size, size_t block_size,
	     int numa);

#endif
