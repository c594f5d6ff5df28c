/* SPDX-License-Identifier: MIT */
/*
 * The library's object for an iov: hf3fs_iov.iovh is its handle.
 *
 * A handle is valid from iov_publish() until iov_end(), and is looked up before anything is
 * followed: programs copy the public structure, and destroy copies.
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
	IOV_CREATED, /* memory and publication are ours */
	IOV_OPENED,  /* a mapping is ours, neither memory nor publication */
	IOV_WRAPPED, /* host: nothing is ours.  Device: the publication is */
};

struct iov {
	enum iov_origin origin;
	unsigned forks;      /* lock_forks() when it was made: a child ends only its mapping */
	int device;          /* CUDA's number; -1 for host memory */
	struct mount *mount; /* where it is published; a reference */
	char link[USRBIO_NAME_MAX];    /* its name there, when we put it there; else "" */
	char shm[USRBIO_SHM_NAME_MAX]; /* POSIX name that is ours to remove; else "" */
	void *base;                    /* of the mapping that is ours, or NULL */
	size_t size;
	struct pst_mem *mem;          /* ours; NULL for host memory on a daemon's mount */
	struct server_buffer *buffer; /* known to this process' server; NULL on a daemon's mount */
	_Atomic int fd; /* by which others open memory of the software device; or -1 */

	/* Host memory that was wrapped: iov.c, under LOCK_WRAPS. */
	struct iov *next;
	unsigned wraps; /* how often, the same under the same UUID */
	struct hf3fs_iov like;
	size_t block; /* that requests may not cross: the publication's; 0: none */
};

/* A handle with nothing in it, device -1; NULL without memory.  Takes the reference over. */
struct iov *iov_new(struct mount *mount, enum iov_origin origin);

/* iov_new() for the mount point of that path.  0, or the error of mount_get(). */
int iov_begin(const char *mount_point, enum iov_origin origin, struct iov **ret);

/*
 * Put a link into its mount, which goes with the handle.
 *
 * Return: 0, or the error of symlink(2), which with a daemon is its answer about the memory.
 */
int iov_link(struct iov *iov, const struct usrbio_name *name, const char *target);

/*
 * It becomes public: the caller's structure is filled in, and, on a plain directory, rings of
 * this process find mem by its UUID.  0; -EEXIST when it is device memory and the UUID is in use
 * there; -errno.  Nothing changed then.
 */
int iov_publish(struct iov *iov, struct hf3fs_iov *ret, const struct hf3fs_iov *filled);

/* The object of a public structure, while it lives; or NULL. */
struct iov *iov_get(const struct hf3fs_iov *iov);

/*
 * Memory that was wrapped more often stays for the others.  Else the handle is void, and
 * everything that is ours goes out of the world: publication, buffer, memory, in this order.  The
 * structure's iovh becomes NULL.  Device memory whose publication stays would be a daemon's to
 * write to after it was freed: then nothing changes.
 */
void iov_end(struct hf3fs_iov *iov);

/* Remove only the publication.  0, also when it is gone already; -errno when it stays. */
int iov_withdraw(struct iov *iov);

/* Free an iov that never became public, with everything that it holds.  Returns NULL. */
struct iov *iov_free(struct iov *iov);
static inline void iov_freep(struct iov **iov)
{
	(void)iov_free(*iov);
}

/*
 * The checks and fields that all calls share which fill in an iov.
 *
 * Return: 0; -EINVAL for NULL, a size of 0, a block size above it, a mount point that is empty or
 * too long.
 */
int iov_fill(struct hf3fs_iov *ret, const char *mount_point, size_t size, size_t block_size,
	     int numa);

#endif
