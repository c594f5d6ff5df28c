/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <penstock.h>

#include "base/handle.h"
#include "iov.h"
#include "keep.h"
#include "lock.h"
#include "log.h"
#include "mount.h"
#include "plain.h"
#include "shm.h"
#include "usrbio/server/server.h"

#define DRAIN_NS (5 * NSEC_PER_SEC) /* longest wait for requests on memory that is being freed */

/* ----------------------------------------------------------------- handles */

/* The handles that programs hold in hf3fs_iov.iovh. */
static struct handle_table handles = HANDLE_TABLE(HANDLES_MAX);

struct iov *iov_new(struct mount *mount, enum iov_origin origin)
{
	struct iov *iov = calloc(1, sizeof(*iov));

	if (!iov) {
		(void)mount_put(mount);
		return NULL;
	}
	iov->origin = origin;
	iov->forks = lock_forks();
	iov->device = -1;
	atomic_init(&iov->fd, -1);
	iov->mount = mount;
	return iov;
}

int iov_begin(const char *mount_point, enum iov_origin origin, struct iov **ret)
{
	struct mount *mount;
	int r = mount_get(mount_point, &mount);

	if (r < 0)
		return r;
	*ret = iov_new(mount, origin);
	return *ret ? 0 : -ENOMEM;
}

int iov_link(struct iov *iov, const struct usrbio_name *name, const char *target)
{
	char text[USRBIO_NAME_MAX];

	usrbio_name_format(name, text);
	if (symlinkat(target, iov->mount->iovs, text) < 0)
		return log_fail(errno, "cannot publish %s at %s: %m%s", text, iov->mount->path,
				errno == EINVAL ? "; a server that has another /dev/shm does not "
						  "find the memory: a container needs the server's"
						: "");
	memcpy(iov->link, text, sizeof(text));
	return 0;
}

/* Return the block size.  A wrap has the block size of its publication, not the caller's, because
 * rings find it under the publication's UUID. */
static size_t block_of(const struct iov *iov, const struct hf3fs_iov *filled)
{
	return iov->wraps ? iov->block : filled->block_size;
}

/* Add the memory to this process' server.  Return -EEXIST for device memory with the UUID of
 * another buffer. */
static int remember(struct iov *iov, const struct hf3fs_iov *filled)
{
	const uint8_t *id = (const uint8_t *)filled->id;
	struct server *w;
	int r = 0;

	w = plain_server(&r);
	if (!w)
		return r;
	lock_take(LOCK_SERVER);
	if (iov->device >= 0 && server_buffer_known(w, id))
		r = -EEXIST;
	else if (iov->origin == IOV_OPENED)
		r = server_buffer_add_view(w, id, iov->mem, filled->size, filled->block_size,
					   &iov->buffer);
	else
		r = server_buffer_add(w, id, iov->mem, filled->size, block_of(iov, filled),
				      &iov->buffer);
	lock_drop(LOCK_SERVER);
	return r < 0 ? log_fail(r, "cannot add a buffer: %s", strerror(-r)) : 0;
}

int iov_publish(struct iov *iov, struct hf3fs_iov *ret, const struct hf3fs_iov *filled)
{
	uintptr_t handle;
	int r = iov->mount->kind == MOUNT_PLAIN ? remember(iov, filled) : 0;

	if (r < 0)
		return r;
	r = handle_new(&handles, iov, &handle);
	if (r < 0)
		return log_fail(r, "no handle for shared memory is to be had: %s", strerror(-r));
	*ret = *filled;
	ret->iovh = (void *)handle;
	return 0;
}

/*
 * Programs wrap a region again for each transfer and never destroy the wraps, because in 3FS's
 * library a wrap owns nothing.  So wraps of the same memory under the same UUID share one object.
 */
#define WRAP_BUCKETS 256u

static struct iov *wraps[WRAP_BUCKETS]; /* wraps by hash, newest first; under LOCK_WRAPS */

static struct iov **wrap_bucket(const struct hf3fs_iov *iov)
{
	return &wraps[(uint8_t)iov->id[0] ^ (uint8_t)iov->id[15]];
}

/* If this memory is already wrapped under this UUID, return the same handle and true. */
static bool wrap_again(const struct mount *mount, size_t block, const struct hf3fs_iov *filled,
		       struct hf3fs_iov *ret)
{
	struct iov *it;
	bool same;

	lock_take(LOCK_WRAPS);
	it = *wrap_bucket(filled);
	while (it && (it->mount != mount || it->forks != lock_forks() ||
		      memcmp(it->like.id, filled->id, sizeof(filled->id)) != 0))
		it = it->next;
	same = it && it->like.base == filled->base && it->like.size == filled->size &&
	       it->block == block;
	if (same) {
		it->wraps++;
		*ret = *filled;
		ret->iovh = it->like.iovh;
	}
	lock_drop(LOCK_WRAPS);
	return same;
}

static void wrap_add(struct iov *it, const struct hf3fs_iov *like)
{
	struct iov **bucket = wrap_bucket(like);

	lock_take(LOCK_WRAPS);
	it->like = *like;
	it->next = *bucket;
	*bucket = it;
	lock_drop(LOCK_WRAPS);
}

/* Drop one wrap of a handle.  Return true if others remain; otherwise the handle becomes invalid
 * and *ret is its iov, or NULL. */
static bool wrap_drop(uintptr_t handle, struct iov **ret)
{
	struct iov *it, **at;
	bool left;

	lock_take(LOCK_WRAPS);
	it = handle_get(&handles, handle);
	left = it && it->wraps > 1;
	if (left) {
		it->wraps--;
	} else {
		it = handle_hide(&handles, handle);
		if (it && it->wraps) {
			for (at = wrap_bucket(&it->like); *at && *at != it;)
				at = &(*at)->next;
			if (*at)
				*at = it->next;
		}
	}
	lock_drop(LOCK_WRAPS);
	*ret = it;
	return left;
}

struct iov *iov_get(const struct hf3fs_iov *iov)
{
	return iov ? handle_get(&handles, (uintptr_t)iov->iovh) : NULL;
}

int iov_withdraw(struct iov *iov)
{
	/* Ignore errors of a daemon that has ended: its links are gone. */
	if (iov->link[0] && unlinkat(iov->mount->iovs, iov->link, 0) < 0 && errno != ENOENT &&
	    errno != ENOTCONN)
		return log_fail(errno, "cannot withdraw %s from %s: %m", iov->link,
				iov->mount->path);
	iov->link[0] = '\0';
	return 0;
}

void iov_end(struct hf3fs_iov *iov)
{
	uintptr_t handle = (uintptr_t)iov->iovh;
	struct iov *it;

	if (wrap_drop(handle, &it)) {
		iov->iovh = NULL;
		return;
	}
	if (it && it->device >= 0 && it->forks == lock_forks() && iov_withdraw(it) < 0) {
		handle_show(&handles, handle);
		return;
	}
	if (it)
		handle_drop(&handles, handle);
	iov->iovh = NULL;
	(void)iov_free(it);
}

/* Remove the memory from the server.  Return false if a request may still touch it. */
static bool iov_forget(struct iov *iov)
{
	bool quiet = true;
	int r;

	if (iov->buffer)
		server_buffer_remove(plain_server(&r), iov->buffer);
	if (iov->mem)
		quiet = pst_mem_drain(iov->mem, now_ns() + DRAIN_NS) == 0;
	if (!quiet)
		log_line(LOG_ERROR,
			 "%zu bytes of shared memory were destroyed under requests, which do not "
			 "end: its pages stay",
			 iov->size);
	(void)pst_mem_free(iov->mem);
	return quiet;
}

struct iov *iov_free(struct iov *iov)
{
	bool quiet = true;

	if (!iov)
		return NULL;
	if (iov->forks == lock_forks()) {
		(void)iov_withdraw(iov);
		quiet = iov_forget(iov);
		if (iov->shm[0])
			shm_remove(iov->shm);
	}
	if (iov->base && quiet)
		(void)munmap(iov->base, iov->size);
	if (atomic_load(&iov->fd) >= 0)
		(void)close(atomic_load(&iov->fd));
	(void)mount_put(iov->mount);
	free(iov);
	return NULL;
}

/* ------------------------------------------------------------ shared parts */

int iov_fill(struct hf3fs_iov *ret, const char *mount_point, size_t size, size_t block_size,
	     int numa)
{
	size_t len = mount_point ? strlen(mount_point) : 0;

	if (len == 0 || len >= sizeof(ret->mount_point))
		return log_fail(EINVAL, "a mount point is a path of 1 to %zu bytes",
				sizeof(ret->mount_point) - 1);
	if (size == 0)
		return log_fail(EINVAL, "shared memory of 0 bytes is none");
	if (block_size > size)
		return log_fail(EINVAL, "a block size of %zu is more than the size, %zu",
				block_size, size);
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->mount_point, mount_point, len + 1);
	ret->size = size;
	ret->block_size = block_size;
	ret->numa = numa;
	return 0;
}

/* Let this process' server use the memory through libpenstock. */
static int use_host(struct iov *iov, void *base, size_t size)
{
	struct pst_mem_opts opts = {
		.sz = sizeof(opts),
		.kind = PST_KIND_HOST,
		/* Pin only our own mapping, which stays until the iov ends.  A program may unmap
		 * wrapped memory too early, or map it only after this call; because that memory is
		 * not pinned, requests then get an error. */
		.flags = iov->origin == IOV_WRAPPED ? PST_MEM_LATER : PST_MEM_PINNED,
	};
	int r;

	if (iov->mount->kind != MOUNT_PLAIN)
		return 0;
	r = pst_mem_wrap((uintptr_t)base, size, &opts, &iov->mem);
	return r < 0 ? log_fail(r, "cannot use shared memory: %s", pst_error_text()) : 0;
}

static struct usrbio_name iov_name_of(const struct hf3fs_iov *iov)
{
	struct usrbio_name name = { .kind = USRBIO_BUFFER, .block_size = iov->block_size };

	memcpy(name.id, iov->id, sizeof(name.id));
	return name;
}

/* ------------------------------------------------------------------ create */

static int iov_create(struct iov *iov, struct hf3fs_iov *out)
{
	char target[sizeof(USRBIO_SHM_DIR) + USRBIO_SHM_NAME_MAX];
	struct usrbio_name name;
	int r = usrbio_id_new((uint8_t *)out->id);

	if (r < 0)
		return r;
	r = shm_create(out->size, out->numa, iov->shm, &iov->base);
	if (r < 0)
		return r;
	iov->size = out->size;
	out->base = iov->base;
	r = use_host(iov, iov->base, iov->size);
	if (r < 0)
		return r;
	(void)snprintf(target, sizeof(target), USRBIO_SHM_DIR "%s", iov->shm);
	name = iov_name_of(out);
	return iov_link(iov, &name, target);
}

int hf3fs_iovcreate(struct hf3fs_iov *iov, const char *hf3fs_mount_point, size_t size,
		    size_t block_size, int numa)
{
	KEEP_ERRNO;
	_cleanup_(iov_freep) struct iov *it = NULL;
	struct hf3fs_iov out;
	int r;

	if (!iov)
		return -EINVAL;
	r = iov_fill(&out, hf3fs_mount_point, size, block_size, numa);
	if (r == 0)
		r = iov_begin(hf3fs_mount_point, IOV_CREATED, &it);
	if (r == 0)
		r = iov_create(it, &out);
	if (r == 0)
		r = iov_publish(it, iov, &out);
	if (r == 0)
		TAKE_PTR(it);
	return r;
}

/* -------------------------------------------------------------------- open */

/* Find the name of the shared memory that a link leads to. */
static int iov_follow(const struct mount *mount, const struct hf3fs_iov *out,
		      char ret_shm[USRBIO_SHM_NAME_MAX])
{
	char text[USRBIO_NAME_MAX], target[PATH_MAX];
	struct usrbio_name name = iov_name_of(out);
	ssize_t n;
	int r;

	usrbio_name_format(&name, text);
	n = readlinkat(mount->iovs, text, target, sizeof(target) - 1);
	if (n < 0)
		return log_fail(errno, "there is no %s at %s: %m", text, mount->path);
	target[n] = '\0';
	r = usrbio_link_shm(target, ret_shm);
	return r < 0 ? log_fail(r, "%s at %s is no shared memory", text, mount->path) : 0;
}

static int attach(struct iov *iov, struct hf3fs_iov *out)
{
	char shm[USRBIO_SHM_NAME_MAX];
	int r = iov_follow(iov->mount, out, shm);

	if (r < 0)
		return r;
	r = shm_attach(shm, out->size, &iov->base);
	if (r < 0)
		return r;
	iov->size = out->size;
	out->base = iov->base;
	return use_host(iov, iov->base, iov->size);
}

int hf3fs_iovopen(struct hf3fs_iov *iov, const uint8_t id[16], const char *hf3fs_mount_point,
		  size_t size, size_t block_size, int numa)
{
	KEEP_ERRNO;
	_cleanup_(iov_freep) struct iov *it = NULL;
	struct hf3fs_iov out;
	int r;

	if (!iov || !id)
		return -EINVAL;
	r = iov_fill(&out, hf3fs_mount_point, size, block_size, numa);
	if (r == 0)
		r = iov_begin(hf3fs_mount_point, IOV_OPENED, &it);
	if (r < 0)
		return r;
	memcpy(out.id, id, sizeof(out.id));
	r = attach(it, &out);
	if (r == 0)
		r = iov_publish(it, iov, &out);
	if (r == 0)
		TAKE_PTR(it);
	return r;
}

/* -------------------------------------------------------------------- wrap */

/* Return the block size under which the memory is published, which no request may cross; 0 for
 * none. */
static size_t published_block(const struct mount *mount, const struct hf3fs_iov *out)
{
	struct usrbio_name name = iov_name_of(out);
	char text[USRBIO_NAME_MAX];

	if (mount->kind != MOUNT_PLAIN || !out->block_size)
		return 0;
	usrbio_name_format(&name, text);
	return faccessat(mount->iovs, text, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? out->block_size : 0;
}

static int wrap_new(struct iov *it, struct hf3fs_iov *iov, const struct hf3fs_iov *out)
{
	int r;

	it->wraps = 1;
	r = use_host(it, out->base, out->size);
	if (r == 0)
		r = iov_publish(it, iov, out);
	if (r == 0)
		wrap_add(it, iov);
	return r;
}

int hf3fs_iovwrap(struct hf3fs_iov *iov, void *base, const uint8_t id[16],
		  const char *hf3fs_mount_point, size_t size, size_t block_size, int numa)
{
	KEEP_ERRNO;
	_cleanup_(iov_freep) struct iov *it = NULL;
	struct hf3fs_iov out;
	int r;

	if (!iov || !base || !id)
		return -EINVAL;
	r = iov_fill(&out, hf3fs_mount_point, size, block_size, numa);
	if (r == 0)
		r = iov_begin(hf3fs_mount_point, IOV_WRAPPED, &it);
	if (r < 0)
		return r;
	memcpy(out.id, id, sizeof(out.id));
	out.base = base;
	shm_bind(base, size, numa);
	it->block = published_block(it->mount, &out);
	if (wrap_again(it->mount, it->block, &out, iov))
		return 0;
	r = wrap_new(it, iov, &out);
	if (r == 0)
		TAKE_PTR(it);
	return r;
}

/* --------------------------------------------------------------------- end */

void hf3fs_iovunlink(struct hf3fs_iov *iov)
{
	KEEP_ERRNO;
	struct iov *it = iov_get(iov);

	if (!it || it->forks != lock_forks())
		return;
	if (it->device >= 0) {
		(void)iov_withdraw(it);
	} else if (it->shm[0]) {
		shm_remove(it->shm);
		it->shm[0] = '\0';
	}
}

void hf3fs_iovdestroy(struct hf3fs_iov *iov)
{
	KEEP_ERRNO;

	if (iov)
		iov_end(iov);
}
