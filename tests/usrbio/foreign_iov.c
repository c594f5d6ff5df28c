/* SPDX-License-Identifier: MIT */
/* The table of published memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "foreign_daemon.h"

#define SHM_DIR "/dev/shm/"

static struct {
	pthread_mutex_t lock;
	struct iov **slots; /* inode numbers are computed from the index */
	size_t nr_slots;
	uint64_t generation;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

void iov_ref(struct iov *iov)
{
	(void)atomic_fetch_add(&iov->refs, 1);
}

void iov_unref(struct iov *iov)
{
	if (!iov || atomic_fetch_sub(&iov->refs, 1) > 1)
		return;
	ring_free(iov->ring);
	if (iov->base)
		(void)munmap(iov->base, iov->size);
	free(iov);
}

static int map_target(struct iov *iov)
{
	const char *shm = iov->target + sizeof(SHM_DIR) - 1;
	struct stat st;
	void *base;
	int fd;

	if (strncmp(iov->target, SHM_DIR, sizeof(SHM_DIR) - 1) != 0 || stat(iov->target, &st) < 0)
		return -EINVAL;
	if (!S_ISREG(st.st_mode) || st.st_size <= 0)
		return -EINVAL;
	if (iov->key.block_size > (uint64_t)st.st_size)
		return -EINVAL;
	fd = shm_open(shm, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return -EACCES;
	base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (base == MAP_FAILED)
		return -EACCES;
	iov->base = base;
	iov->size = (size_t)st.st_size;
	return 0;
}

static int iov_new(const char *name, const char *target, const struct vfs_caller *who,
		   struct iov **ret_iov)
{
	struct iov *iov = calloc(1, sizeof(*iov));
	int r;

	if (!iov)
		return -ENOMEM;
	atomic_init(&iov->refs, 1);
	iov->creator = *who;
	r = key_parse(name, &iov->key);
	if (strlen(name) >= sizeof(iov->name) || strlen(target) >= sizeof(iov->target))
		r = -EINVAL;
	if (r == 0) {
		(void)strcpy(iov->name, name);
		(void)strcpy(iov->target, target);
		r = map_target(iov);
	}
	if (r == 0 && iov->key.is_ring)
		r = ring_new(iov, &iov->ring);
	if (r < 0) {
		iov_unref(iov);
		return r;
	}
	*ret_iov = iov;
	return 0;
}

/* Find a free slot.  Call it with the lock held. */
static int free_slot(size_t *ret_idx)
{
	size_t i, room;
	struct iov **slots;

	for (i = 0; i < table.nr_slots; i++)
		if (!table.slots[i])
			break;
	if (i == options.max_iovs)
		return -EMFILE;
	if (i == table.nr_slots) {
		room = table.nr_slots ? 2 * table.nr_slots : 64;
		slots = realloc(table.slots, room * sizeof(struct iov *));
		if (!slots)
			return -ENOMEM;
		memset(slots + table.nr_slots, 0, (room - table.nr_slots) * sizeof(struct iov *));
		table.slots = slots;
		table.nr_slots = room;
	}
	*ret_idx = i;
	return 0;
}

int iov_publish(const char *name, const char *target, const struct vfs_caller *who,
		struct iov **ret_iov)
{
	struct iov *iov;
	size_t idx;
	int r = iov_new(name, target, who, &iov);

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&table.lock);
	r = free_slot(&idx);
	if (r == 0) {
		iov->ino = INO_IOV(idx);
		iov->generation = ++table.generation;
		table.slots[idx] = iov;
		iov_ref(iov);
	}
	(void)pthread_mutex_unlock(&table.lock);
	if (r < 0) {
		iov_unref(iov);
		return r;
	}
	*ret_iov = iov;
	return 0;
}

/* Return a reference to the newest iov that fits.  Call it with the lock held. */
static struct iov *find(bool (*fits)(const struct iov *iov, const void *what), const void *what)
{
	struct iov *best = NULL;

	for (size_t i = 0; i < table.nr_slots; i++) {
		struct iov *iov = table.slots[i];

		if (iov && (!best || iov->generation > best->generation) && fits(iov, what))
			best = iov;
	}
	if (best)
		iov_ref(best);
	return best;
}

static struct iov *find_locked(bool (*fits)(const struct iov *iov, const void *what),
			       const void *what)
{
	struct iov *iov;

	(void)pthread_mutex_lock(&table.lock);
	iov = find(fits, what);
	(void)pthread_mutex_unlock(&table.lock);
	return iov;
}

static bool has_name(const struct iov *iov, const void *what)
{
	return strcmp(iov->name, what) == 0;
}

static bool has_ino(const struct iov *iov, const void *what)
{
	return iov->ino == *(const uint64_t *)what;
}

static bool is_buffer(const struct iov *iov, const void *what)
{
	return !iov->ring && memcmp(iov->key.id, what, sizeof(iov->key.id)) == 0;
}

struct iov *iov_find_name(const char *name)
{
	return find_locked(has_name, name);
}

struct iov *iov_find_ino(uint64_t ino)
{
	return find_locked(has_ino, &ino);
}

struct iov *iov_find_buffer(const uint8_t id[16])
{
	return find_locked(is_buffer, id);
}

int iov_unpublish(const char *name, uid_t uid)
{
	struct iov *iov;
	int r = 0;

	(void)pthread_mutex_lock(&table.lock);
	iov = find(has_name, name);
	if (!iov)
		r = -ENOENT;
	else if (iov->creator.uid != uid)
		r = -EPERM;
	else
		table.slots[INO_IOV(0) - iov->ino] = NULL;
	(void)pthread_mutex_unlock(&table.lock);
	if (r == 0)
		iov_unref(iov); /* the table's reference */
	iov_unref(iov);
	return r;
}

/* Remove all links, or those of one thread.  Requests in flight hold their own references. */
static void unpublish(bool all, pid_t tid)
{
	(void)pthread_mutex_lock(&table.lock);
	for (size_t i = 0; i < table.nr_slots; i++) {
		struct iov *iov = table.slots[i];

		if (iov && (all || iov->creator.tid == tid)) {
			table.slots[i] = NULL;
			iov_unref(iov);
		}
	}
	(void)pthread_mutex_unlock(&table.lock);
}

void iov_unpublish_of(pid_t tid)
{
	unpublish(false, tid);
}

void iov_unpublish_all(void)
{
	unpublish(true, 0);
	free(table.slots);
	table.slots = NULL;
	table.nr_slots = 0;
}

int iov_each(int (*fn)(struct iov *iov, void *arg), void *arg)
{
	int r = 0;

	(void)pthread_mutex_lock(&table.lock);
	for (size_t i = 0; r == 0 && i < table.nr_slots; i++)
		if (table.slots[i])
			r = fn(table.slots[i], arg);
	(void)pthread_mutex_unlock(&table.lock);
	return r;
}
