/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <penstock.h>

#include "base/handle.h"
#include "base/user.h"
#include "iov.h"
#include "keep.h"
#include "lock.h"
#include "log.h"
#include "mount.h"
#include "plain.h"
#include "reg.h"
#include "ring.h"
#include "shm.h"
#include "usrbio/server/server.h"

#define FLAGS_KNOWN ((uint64_t)(HF3FS_IOR_ALLOW_READ_UNCOMMITTED | HF3FS_IOR_FORBID_READ_HOLES))

_Static_assert(SERVER_RING_FORBID_HOLES == HF3FS_IOR_FORBID_READ_HOLES, "one number for both");

/* The arguments of hf3fs_iorcreate and its variants. */
struct wish {
	const char *mount_point;
	void *base; /* memory of the caller; NULL: allocate it */
	size_t size;
	bool for_read;
	int io_depth;
	int priority;
	int timeout;
	int numa;
	uint64_t flags;
};

/* ------------------------------------------------------------------ objects */

/* The handles that programs hold in hf3fs_ior.iorh. */
static struct handle_table rings = HANDLE_TABLE(HANDLES_MAX);

struct ring *ring_get(const struct hf3fs_ior *ior)
{
	return ior ? handle_get(&rings, (uintptr_t)ior->iorh) : NULL;
}

bool ring_is_dead(const struct ring *r)
{
	return atomic_load(&r->broken) || atomic_load(&r->iov->mount->gone);
}

bool ring_is_foreign(const struct ring *r)
{
	return r->server && r->forks != lock_forks();
}

static struct ring *ior_ring_free(struct ring *r)
{
	if (!r)
		return NULL;
	if (r->server && r->forks == lock_forks())
		server_ring_remove(plain_server(&(int){ 0 }), r->server);
	for (uint32_t i = 0; i < r->entries; i++)
		if (r->slots[i].reg)
			reg_put(r->slots[i].reg);
	(void)iov_free(r->iov);
	if (r->submit)
		(void)munmap(r->submit, sizeof(*r->submit));
	free(r);
	return NULL;
}

static void ring_freep(struct ring **r)
{
	(void)ior_ring_free(*r);
}

/* Make a ring.  Takes over the reference to the mount. */
static struct ring *ior_ring_new(struct mount *mount, const struct wish *wish)
{
	uint32_t entries = (uint32_t)usrbio_ring_entries(wish->size);
	struct ring *r = calloc(1, sizeof(*r) + entries * sizeof(r->slots[0]));

	if (!r) {
		(void)mount_put(mount);
		return NULL;
	}
	r->for_read = wish->for_read;
	r->forks = lock_forks();
	r->entries = entries;
	r->iov = iov_new(mount, wish->base ? IOV_WRAPPED : IOV_CREATED);
	return r->iov ? r : ior_ring_free(r);
}

/* ------------------------------------------------------------------- server */

static enum usrbio_priority priority_of(int priority)
{
	if (priority < 0)
		return USRBIO_HIGH;
	return priority ? USRBIO_LOW : USRBIO_NORMAL;
}

/* Return true if the semaphore belongs to root, to the user who mounted the file system, or to this
 * user. */
static bool may_own_sem(const struct mount *m, uid_t uid)
{
	return uid == 0 || user_is_own(uid) || (uid == m->user && user_is_mapped(uid));
}

/* Map a daemon's semaphore.  The daemon chooses the name, so check the opened file first. */
static int map_sem(const struct mount *m, const char *name, sem_t **ret)
{
	char path[sizeof("/sem.") + USRBIO_SHM_NAME_MAX];
	_cleanup_(closep) int fd = -1;
	struct stat st;
	void *p;

	(void)snprintf(path, sizeof(path), "/sem.%s", name + 1);
	fd = shm_open(path, O_RDWR | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0 && errno != ELOOP && errno != EINVAL && errno != ENXIO)
		return log_fail(errno, "cannot open the daemon's semaphore %s: %m", name);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size < (off_t)sizeof(sem_t))
		return log_fail(EIO, "/dev/shm%s is no semaphore", path);
	if (!may_own_sem(m, st.st_uid))
		return log_fail(EPERM,
				"the daemon's semaphore %s belongs to user %u, who is neither "
				"root nor this user nor who mounted %s",
				name, st.st_uid, m->path);
	p = mmap(NULL, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return log_fail(errno, "cannot map the daemon's semaphore %s: %m", name);
	*ret = p;
	return 0;
}

/* Map the semaphore that tells the daemon about requests. */
static int open_submit(struct ring *r, int priority)
{
	static const char *const links[] = USRBIO_SEM_NAMES;
	const char *link = links[priority_of(priority)];
	const struct mount *m = r->iov->mount;
	char target[PATH_MAX], name[USRBIO_SHM_NAME_MAX];
	ssize_t n = readlinkat(m->iovs, link, target, sizeof(target) - 1);

	if (n < 0)
		return log_fail(errno, "cannot read %s/3fs-virt/iovs/%s: %m", m->path, link);
	target[n] = '\0';
	if (usrbio_link_sem(target, name) < 0)
		return log_fail(EIO, "%s/3fs-virt/iovs/%s leads to no semaphore: %s", m->path, link,
				target);
	return map_sem(m, name, &r->submit);
}

/* Let this process' server serve the ring. */
static int ior_serve(struct ring *r, void *base, const struct wish *wish)
{
	struct server_ring_opts opts = {
		.base = base,
		.size = wish->size,
		.for_read = wish->for_read,
		.io_depth = wish->io_depth,
		.priority = priority_of(wish->priority),
		.timeout_ms = wish->timeout,
		.flags = wish->flags,
	};
	int err = 0;
	struct server *w = plain_server(&err);

	if (!w)
		return err;
	err = server_ring_add(w, &opts, &r->server);
	return err < 0 ? log_fail(err, "cannot serve a ring: %s", strerror(-err)) : 0;
}

/* ------------------------------------------------------------------- memory */

static int ior_publish(struct ring *r, const struct wish *wish, const uint8_t id[USRBIO_ID_LEN])
{
	char target[sizeof(USRBIO_SHM_DIR) + USRBIO_SHM_NAME_MAX];
	struct usrbio_name name = {
		.kind = USRBIO_RING,
		.for_read = wish->for_read,
		.io_depth = wish->io_depth,
		.priority = priority_of(wish->priority),
		.timeout_ms = wish->timeout,
		.flags = wish->flags,
	};
	int err;

	memcpy(name.id, id, sizeof(name.id));
	(void)snprintf(target, sizeof(target), USRBIO_SHM_DIR "%s", r->iov->shm);
	err = iov_link(r->iov, &name, target);
	if (err < 0)
		return err;
	/* Remove the name: the server has mapped the memory, and no other process needs it. */
	shm_remove(r->iov->shm);
	r->iov->shm[0] = '\0';
	return 0;
}

/* Get the memory; if it contains an old ring, continue at that ring's positions. */
static int ior_place(struct ring *r, const struct wish *wish, void **ret_base)
{
	void *base = wish->base;
	int err;

	if (!base) {
		err = shm_create(wish->size, wish->numa, r->iov->shm, &r->iov->base);
		if (err < 0)
			return err;
		base = r->iov->base;
		r->iov->size = wish->size;
	}
	err = usrbio_ring_at(base, wish->size, &r->at);
	if (err < 0)
		return log_fail(err, "no ring can be in %zu bytes at %p", wish->size, base);
	r->sq_head = (uint32_t)usrbio_marker(r->at.sq_head);
	r->cq_tail = (uint32_t)usrbio_marker(r->at.cq_tail);
	if (r->sq_head >= r->at.slots || r->cq_tail >= r->at.slots)
		return log_fail(EINVAL, "the memory at %p is not zero and no ring", base);
	*ret_base = base;
	return 0;
}

static int ior_make(struct ring *r, const struct wish *wish, struct hf3fs_ior *out)
{
	bool plain = r->iov->mount->kind == MOUNT_PLAIN;
	void *base = NULL;
	int err;

	/* Begin with the step that fails without a daemon, so that little must be undone. */
	err = plain ? 0 : open_submit(r, wish->priority);
	if (err == 0)
		err = ior_place(r, wish, &base);
	if (err == 0 && plain)
		err = ior_serve(r, base, wish);
	if (err < 0)
		return err;
	out->iov.base = base;
	if (wish->base)
		return 0;
	err = usrbio_id_new((uint8_t *)out->iov.id);
	return err < 0 ? err : ior_publish(r, wish, (const uint8_t *)out->iov.id);
}

/* ------------------------------------------------------------ public calls */

static int ior_check(const struct wish *wish)
{
	int entries = usrbio_ring_entries(wish->size);

	if (entries < 1)
		return log_fail(EINVAL, "a ring has 1 to %d entries", USRBIO_RING_ENTRIES_MAX);
	if (wish->io_depth > entries)
		return log_fail(EINVAL, "batches of %d do not fit a ring of %d entries",
				wish->io_depth, entries);
	if (wish->timeout < 0)
		return log_fail(EINVAL, "a timeout of %d ms", wish->timeout);
	if (wish->flags & ~FLAGS_KNOWN)
		return log_fail(EINVAL, "unknown flags 0x%" PRIx64, wish->flags & ~FLAGS_KNOWN);
	return 0;
}

static int ior_fill(struct hf3fs_ior *out, const struct wish *wish)
{
	int err;

	memset(out, 0, sizeof(*out));
	err = iov_fill(&out->iov, wish->mount_point, wish->size, 0, wish->numa);
	if (err < 0)
		return err;
	memcpy(out->mount_point, out->iov.mount_point, sizeof(out->mount_point));
	out->for_read = wish->for_read;
	out->io_depth = wish->io_depth;
	out->priority = wish->priority;
	out->timeout = wish->timeout;
	out->flags = wish->flags;
	return ior_check(wish);
}

static int ior_create(struct hf3fs_ior *ior, const struct wish *wish)
{
	_cleanup_(ring_freep) struct ring *r = NULL;
	struct mount *mount;
	struct hf3fs_ior out;
	uintptr_t handle;
	int err;

	if (!ior)
		return -EINVAL;
	err = ior_fill(&out, wish);
	if (err == 0)
		err = mount_get(wish->mount_point, &mount);
	if (err < 0)
		return err;
	r = ior_ring_new(mount, wish);
	if (!r)
		return -ENOMEM;
	err = ior_make(r, wish, &out);
	if (err == 0)
		err = handle_new(&rings, r, &handle);
	if (err < 0)
		return err;
	out.iorh = (void *)handle;
	*ior = out;
	TAKE_PTR(r);
	return 0;
}

int hf3fs_iorcreate(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
		    bool for_read, int io_depth, int numa)
{
	return hf3fs_iorcreate3(ior, hf3fs_mount_point, entries, for_read, io_depth, 0, 0, numa);
}

int hf3fs_iorcreate2(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
		     bool for_read, int io_depth, int priority, int numa)
{
	return hf3fs_iorcreate3(ior, hf3fs_mount_point, entries, for_read, io_depth, priority, 0,
				numa);
}

int hf3fs_iorcreate3(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
		     bool for_read, int io_depth, int priority, int timeout, int numa)
{
	KEEP_ERRNO;

	return ior_create(ior, &(struct wish){
				       .mount_point = hf3fs_mount_point,
				       .size = usrbio_ring_size(entries),
				       .for_read = for_read,
				       .io_depth = io_depth,
				       .priority = priority,
				       .timeout = timeout,
				       .numa = numa,
			       });
}

int hf3fs_iorcreate4(struct hf3fs_ior *ior, const char *hf3fs_mount_point, int entries,
		     bool for_read, int io_depth, int timeout, int numa, uint64_t flags)
{
	KEEP_ERRNO;

	return ior_create(ior, &(struct wish){
				       .mount_point = hf3fs_mount_point,
				       .size = usrbio_ring_size(entries),
				       .for_read = for_read,
				       .io_depth = io_depth,
				       .timeout = timeout,
				       .numa = numa,
				       .flags = flags,
			       });
}

int hf3fs_iorwrap(struct hf3fs_ior *ior, void *buf, const char *hf3fs_mount_point, size_t size,
		  bool for_read, int io_depth, int priority, int timeout, uint64_t flags)
{
	KEEP_ERRNO;

	if (!buf)
		return -EINVAL;
	return ior_create(ior, &(struct wish){
				       .mount_point = hf3fs_mount_point,
				       .base = buf,
				       .size = size,
				       .for_read = for_read,
				       .io_depth = io_depth,
				       .priority = priority,
				       .timeout = timeout,
				       .numa = -1,
				       .flags = flags,
			       });
}

/* ---------------------------------------------------------------------- end */

/* Write the names of a set of paths: "direct, cached". */
static void name_paths(uint32_t paths, char *text, size_t room)
{
	size_t at = 0;

	(void)snprintf(text, room, "none");
	for (uint32_t i = 1; i <= PST_PATH_MAX; i++)
		if (paths & PST_PATH_BIT(i) && at < room)
			at += (size_t)snprintf(text + at, room - at, "%s%s", at ? ", " : "",
					       pst_path_name(i));
}

static void ior_tell(const struct ring *r)
{
	struct server_ring_stats st;
	char paths[160], why[400] = "";

	if (ring_is_foreign(r))
		return;
	server_ring_stats(r->server, &st);
	name_paths(st.paths, paths, sizeof(paths));
	if (st.why)
		(void)pst_why_text(st.why, st.detail, why, sizeof(why));
	log_line(LOG_INFO,
		 "ring that %s at %s: %" PRIu64 " requests, %" PRIu64 " of them failed, %" PRIu64
		 " bytes by %s%s%s",
		 r->for_read ? "reads" : "writes", r->iov->mount->path, st.requests, st.errors,
		 st.bytes, paths, why[0] ? "; " : "", why);
}

void hf3fs_iordestroy(struct hf3fs_ior *ior)
{
	KEEP_ERRNO;
	struct ring *r;

	if (!ior)
		return;
	r = handle_take(&rings, (uintptr_t)ior->iorh);
	ior->iorh = NULL;
	if (r && r->server)
		ior_tell(r);
	(void)ior_ring_free(r);
}

size_t hf3fs_ior_size(int entries)
{
	return usrbio_ring_size(entries);
}

int hf3fs_io_entries(const struct hf3fs_ior *ior)
{
	return ior && ior->iorh ? usrbio_ring_entries(ior->iov.size) : 0;
}
