/* SPDX-License-Identifier: MIT */
/* A client without the library; see foreign_peer.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "foreign_peer.h"

struct peer_path peer_path(const char *mnt, const char *name)
{
	struct peer_path path;

	(void)snprintf(path.text, sizeof(path.text), "%s/3fs-virt/iovs%s%s", mnt, *name ? "/" : "",
		       name);
	return path;
}

/* --------------------------------------------------------------------- memory */

int peer_memory(struct peer_iov *iov, const char *mnt, size_t size)
{
	char uuid[KEY_UUID_LEN + 1];
	uint8_t shm_id[16];
	void *base = MAP_FAILED;
	int fd, r = 0;

	*iov = (struct peer_iov){ .size = size };
	(void)snprintf(iov->mnt, sizeof(iov->mnt), "%s", mnt);
	key_new_uuid(iov->id);
	/* The memory's name is independent of the link's. */
	key_new_uuid(shm_id);
	key_uuid_text(shm_id, uuid);
	(void)snprintf(iov->shm, sizeof(iov->shm), "/foreign-iov-%s", uuid);
	fd = shm_open(iov->shm, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) == 0 && size)
		base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED && size)
		r = -errno;
	iov->base = base == MAP_FAILED ? NULL : base;
	(void)close(fd);
	if (r < 0)
		peer_iov_done(iov);
	return r;
}

int peer_publish(struct peer_iov *iov, const char *attrs)
{
	char uuid[KEY_UUID_LEN + 1], name[sizeof(iov->name)], target[128];

	key_uuid_text(iov->id, uuid);
	(void)snprintf(name, sizeof(name), "%s%s", uuid, attrs);
	(void)snprintf(target, sizeof(target), "/dev/shm%s", iov->shm);
	if (symlink(target, peer_path(iov->mnt, name).text) < 0)
		return -errno;
	(void)strcpy(iov->name, name);
	return 0;
}

void peer_shm_unlink(struct peer_iov *iov)
{
	if (*iov->shm)
		(void)shm_unlink(iov->shm);
	*iov->shm = '\0';
}

void peer_iov_done(struct peer_iov *iov)
{
	if (*iov->name)
		(void)unlink(peer_path(iov->mnt, iov->name).text);
	*iov->name = '\0';
	peer_shm_unlink(iov);
	if (iov->base)
		(void)munmap(iov->base, iov->size);
	iov->base = NULL;
}

/* ---------------------------------------------------------------------- files */

int peer_open(struct peer_file *f, const char *path, int flags)
{
	struct statx st;
	int r;

	*f = (struct peer_file){ .fd = open(path, flags | O_CLOEXEC, 0644), .dupfd = -1 };
	if (f->fd < 0)
		return -errno;
	if (statx(f->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &st) == 0) {
		f->ino = st.stx_ino;
		f->dupfd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
	}
	if (f->dupfd >= 0)
		return 0;
	r = -errno;
	(void)close(f->fd);
	return r;
}

void peer_close(struct peer_file *f)
{
	(void)close(f->dupfd);
	(void)close(f->fd);
	f->fd = f->dupfd = -1;
}

int peer_fsync(const struct peer_file *f)
{
	uint32_t unused = 0;

	return ioctl(f->fd, (unsigned long)WIRE_FSYNC, &unused) < 0 ? -errno : 0;
}

/* ---------------------------------------------------------------------- rings */

/* Open the semaphore of a priority; its name is chosen by the running daemon. */
static int open_submit(const char *mnt, char prio, sem_t **ret_sem)
{
	static const char prefix[] = "/dev/shm/sem.";
	char link[32], target[256], name[256];
	ssize_t n;

	(void)snprintf(link, sizeof(link), prio ? "submit-ios.p%c" : "submit-ios", prio);
	n = readlink(peer_path(mnt, link).text, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (strncmp(target, prefix, sizeof(prefix) - 1) != 0)
		return -EPROTO;
	(void)snprintf(name, sizeof(name), "/%s", target + sizeof(prefix) - 1);
	*ret_sem = sem_open(name, 0);
	return *ret_sem == SEM_FAILED ? -errno : 0;
}

static void ring_attrs(const struct peer_ring_opts *o, char *attrs, size_t size)
{
	char prio[4] = "", flags[72] = "";

	if (o->prio)
		(void)snprintf(prio, sizeof(prio), ".p%c", o->prio);
	if (o->flags)
		(void)snprintf(flags, sizeof(flags), ".f%s", o->flags);
	(void)snprintf(attrs, size, ".%c%d%s.t%d%s", o->for_read ? 'r' : 'w', o->depth, prio,
		       o->timeout_ms, flags);
}

int peer_ring_init(struct peer_ring *r, const char *mnt, const struct peer_ring_opts *opts)
{
	char attrs[64];
	int res;

	*r = (struct peer_ring){ .for_read = opts->for_read };
	(void)pthread_mutex_init(&r->lock, NULL);
	res = peer_memory(&r->iov, mnt, wire_ring_size(opts->entries));
	if (res < 0)
		return res;
	ring_attrs(opts, attrs, sizeof(attrs));
	res = peer_publish(&r->iov, attrs);
	peer_shm_unlink(&r->iov);
	if (res == 0)
		res = open_submit(mnt, opts->prio, &r->submit);
	r->free_slots = calloc((size_t)opts->entries, sizeof(int32_t));
	if (res == 0 && !r->free_slots)
		res = -ENOMEM;
	if (res < 0) {
		r->submit = NULL;
		peer_ring_done(r);
		return res;
	}
	/* The daemon has initialised the ring's semaphore by now. */
	if (!wire_ring_at(r->iov.base, r->iov.size, &r->wire))
		abort();
	for (r->nr_free = 0; r->nr_free < opts->entries; r->nr_free++)
		r->free_slots[r->nr_free] = opts->entries - 1 - r->nr_free;
	return 0;
}

void peer_ring_done(struct peer_ring *r)
{
	peer_iov_done(&r->iov);
	if (r->submit)
		(void)sem_close(r->submit);
	r->submit = NULL;
	free(r->free_slots);
	r->free_slots = NULL;
	(void)pthread_mutex_destroy(&r->lock);
}

static int32_t take_slot(struct peer_ring *r)
{
	int32_t slot;

	(void)pthread_mutex_lock(&r->lock);
	slot = r->nr_free ? r->free_slots[--r->nr_free] : -EAGAIN;
	(void)pthread_mutex_unlock(&r->lock);
	return slot;
}

/* Free a slot.  Return false if it was free already. */
static bool give_slot(struct peer_ring *r, int32_t slot)
{
	bool ok = slot >= 0 && slot < r->wire.n - 1;

	(void)pthread_mutex_lock(&r->lock);
	for (int32_t i = 0; i < r->nr_free; i++)
		ok = ok && r->free_slots[i] != slot;
	if (ok)
		r->free_slots[r->nr_free++] = slot;
	(void)pthread_mutex_unlock(&r->lock);
	return ok;
}

int peer_prep(struct peer_ring *r, const struct peer_io *io)
{
	struct wire_marks *m = r->wire.marks;
	int32_t head = atomic_load(&m->sqe_head);
	struct wire_args *args;
	int32_t slot;

	if ((head + 1) % r->wire.n == atomic_load(&m->sqe_tail))
		return -EAGAIN;
	slot = take_slot(r);
	if (slot < 0)
		return slot;
	args = &r->wire.args[slot];
	memcpy(args->buf_id, io->buf_id, sizeof(args->buf_id));
	args->buf_off = io->buf_off;
	args->file_ino = io->file_ino;
	args->file_off = io->file_off;
	args->len = io->len;
	args->userdata = io->userdata;
	r->wire.sqes[head] = (struct wire_sqe){ .index = slot, .userdata = io->userdata };
	/* The daemon may take the entry from here on. */
	atomic_store(&m->sqe_head, (head + 1) % r->wire.n);
	return slot;
}

void peer_submit(struct peer_ring *r)
{
	(void)sem_post(r->submit);
}

static int harvest(struct peer_ring *r, struct wire_cqe *cqes, int max)
{
	struct wire_marks *m = r->wire.marks;
	int32_t tail = atomic_load(&m->cqe_tail);
	int n = 0;

	while (n < max && tail != atomic_load(&m->cqe_head)) {
		/* Copy before advancing the tail: then the daemon may overwrite the entry. */
		cqes[n] = r->wire.cqes[tail];
		tail = (tail + 1) % r->wire.n;
		atomic_store(&m->cqe_tail, tail);
		if (!give_slot(r, cqes[n].index))
			return -EPROTO;
		n++;
	}
	if (n)
		(void)sem_post(r->submit); /* the ring has room for completions again */
	return n;
}

int peer_reap(struct peer_ring *r, struct wire_cqe *cqes, int max, int min, int timeout_ms)
{
	struct timespec end;
	int n = 0, got;

	(void)clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += timeout_ms / 1000;
	end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_nsec -= 1000000000;
		end.tv_sec++;
	}
	for (;;) {
		got = harvest(r, cqes + n, max - n);
		if (got < 0)
			return got;
		n += got;
		if (n >= min)
			return n;
		/* A post means that there may be more completions, not how many. */
		if (sem_clockwait(r->wire.done, CLOCK_MONOTONIC, &end) < 0 && errno == ETIMEDOUT)
			return n;
	}
}
