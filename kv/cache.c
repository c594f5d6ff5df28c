/* SPDX-License-Identifier: MIT */
/* The index of blocks, the limit of their bytes, and their files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "base/err.h"
#include "base/log.h"

#include "kv/event.h"
#include "kv/lend.h"
#include "kv/store.h"

/* Maximum evictions for each directory by which one set restores the reserve.  The number is per
 * directory because a victim may be in any of them. */
#define RESERVE_EVICTIONS 16u

/* If a file system has room for bytes but not for another file, evict this many blocks for each
 * directory, and try again. */
#define FULL_EVICTIONS 4u
#define FULL_TRIES 2u /* attempts for one set */

uint64_t kv_key_hash(const struct pst_kv *kv, const struct space *sp, const void *key, size_t len)
{
	struct hash_part parts[] = { { &sp->hash, sizeof(sp->hash) }, { key, len } };

	return kv_hash(&kv->root.key, parts, ARRAY_SIZE(parts));
}

struct entry *cache_find(const struct cache *c, uint64_t hash)
{
	struct entry *e = index_find(c->policy->index, hash);

	return e && e->queue < c->policy->ops->cached ? e : NULL;
}

void cache_lock_file(struct pst_kv *kv, uint32_t space, uint64_t hash)
{
	(void)pthread_rwlock_rdlock(&kv->spaces[space]->dropping);
	(void)pthread_mutex_lock(&kv->stripes[hash % STRIPES]);
}

void cache_unlock_file(struct pst_kv *kv, uint32_t space, uint64_t hash)
{
	(void)pthread_mutex_unlock(&kv->stripes[hash % STRIPES]);
	(void)pthread_rwlock_unlock(&kv->spaces[space]->dropping);
}

/* Called with the lock: release the bytes of removed files of one block, now or when their reader
 * ends. */
static void give_bytes(struct pst_kv *kv, struct cache *c, uint64_t hash, uint64_t size,
		       uint64_t files)
{
	for (unsigned i = 0; i < kv->nr_workers + CALLERS_MAX; i++) {
		struct worker *w = i < CALLERS_MAX ? &kv->callers[i]
						   : &kv->workers[i - CALLERS_MAX];

		if (w->is_reading && w->reading == hash && (!w->zombie || w->zombie_cache == c)) {
			w->zombie += size;
			w->zombies += files;
			w->zombie_cache = c;
			return;
		}
	}
	kv->used -= size;
	kv->files -= files;
	c->used -= size;
}

void cache_read_ends(struct worker *w)
{
	uint64_t size = w->zombie, files = w->zombies;

	w->is_reading = false;
	w->zombie = 0;
	w->zombies = 0;
	/* Another worker may still read the same file. */
	if (size)
		give_bytes(w->kv, w->zombie_cache, w->reading, size, files);
}

/* Return the number of blocks of a cache. */
static uint64_t cache_blocks(const struct cache *c)
{
	uint64_t nr = 0;

	for (unsigned q = 0; q < c->policy->ops->cached; q++)
		nr += c->policy->index->q[q].nr;
	return nr;
}

void cache_trim(struct pst_kv *kv, struct cache *c)
{
	struct index *ix = c->policy->index;
	uint64_t now = ix->nr - cache_blocks(c);

	kv->remembered += now - c->remembered;
	c->remembered = now;
	while (c->remembered && kv->remembered > kv->max_blocks) {
		unsigned longest = c->policy->ops->cached;

		for (unsigned q = longest + 1; q < INDEX_QUEUES; q++)
			if (ix->q[q].nr > ix->q[longest].nr)
				longest = q;
		c->policy->ops->forget(c->policy, index_oldest(ix, longest)->id);
		kv->remembered--;
		c->remembered--;
	}
	index_shrink(ix);
}

/*
 * Unlink the file of a block that is no longer in the index, unless a new block was published with
 * that name meanwhile.  Then release its bytes.  Readers of events need the key: if the caller does
 * not know the key, this function reads it from the file.
 */
static int unlink_block(struct pst_kv *kv, struct cache *c, uint32_t space, struct block_id id,
			uint64_t size)
{
	char path[BLOCK_PATH_LEN], tail[TAIL_MAX];
	uint64_t hash = id.hash;
	bool again, asked;
	int r = 0;

	block_path(path, id.space, hash);
	cache_lock_file(kv, space, hash);
	(void)pthread_mutex_lock(&kv->lock);
	again = cache_find(c, hash);
	asked = !again && !list_empty(&kv->events);
	(void)pthread_mutex_unlock(&kv->lock);
	if (asked && !id.key)
		event_read_key(kv, path, &id, tail);
	if (!again && unlinkat(kv->root.dir[root_dir_of(&kv->root, hash)], path, 0) < 0 &&
	    errno != ENOENT)
		r = -errno;
	if (!again && r == 0)
		lend_revoke(kv, id.space, &hash);
	(void)pthread_mutex_lock(&kv->lock);
	/* Also tell queues that were created after asked was set: their readers may have seen the
	 * file.  If the key was not read, these queues count a lost event. */
	if (!again)
		event_add(kv, PST_KV_REMOVED, space, &id, 0);
	/* A file that cannot be unlinked still counts. */
	if (r == 0)
		give_bytes(kv, c, hash, size, 1);
	else
		kv->broken = true;
	(void)pthread_mutex_unlock(&kv->lock);
	cache_unlock_file(kv, space, hash);
	return r;
}

/* Evict one block of a cache.  Called with the lock, which is released in between.  Return false if
 * there is no block, or its file cannot be unlinked. */
static bool evict_one(struct pst_kv *kv, struct cache *c)
{
	struct block_id id = { 0 };
	struct entry e;
	uint32_t space;
	int r;

	if (!c->policy->ops->evict(c->policy, &e))
		return false;
	cache_trim(kv, c);
	kv->stat.evicted++;
	space = user_space(e.user);
	id.space = kv->spaces[space]->hash;
	id.hash = e.id;
	(void)pthread_mutex_unlock(&kv->lock);
	r = unlink_block(kv, c, space, id, e.size);
	if (r < 0)
		log_warn("kv: cannot unlink a block: %s, ignoring", strerror(-r));
	(void)pthread_mutex_lock(&kv->lock);
	return r == 0;
}

static uint64_t evictable(const struct cache *c)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < c->policy->ops->cached; i++)
		bytes += c->policy->index->q[i].bytes;
	return bytes;
}

/* Return the cache with the most bytes, from which blocks are evicted for the store's budget. */
static struct cache *largest(struct pst_kv *kv)
{
	struct cache *best = &kv->common;

	for (unsigned i = 0; i < kv->nr_spaces; i++)
		if (evictable(kv->spaces[i]->cache) > evictable(best))
			best = kv->spaces[i]->cache;
	return best;
}

/* Return the cache with the most blocks, from which one is evicted to bound their number. */
static struct cache *fullest(struct pst_kv *kv)
{
	struct cache *best = &kv->common;

	for (unsigned i = 0; i < kv->nr_spaces; i++)
		if (cache_blocks(kv->spaces[i]->cache) > cache_blocks(best))
			best = kv->spaces[i]->cache;
	return best;
}

/* Return 1 if the disk has room for the reserve and for all bytes still to be written, else 0 or
 * -errno. */
static int disk_has_room(struct pst_kv *kv, unsigned dir)
{
	uint64_t pending;
	struct statvfs st;

	if (!kv->reserve)
		return 1;
	if (fstatvfs(kv->root.dir[dir], &st) < 0)
		return -errno;
	(void)pthread_mutex_lock(&kv->lock);
	pending = kv->pending[dir];
	(void)pthread_mutex_unlock(&kv->lock);
	return (uint64_t)st.f_bavail * st.f_frsize >= kv->reserve + pending;
}

/* Evict until a directory's disk has its reserve free.  Return 0, -ENOSPC or -errno. */
static int keep_reserve(struct pst_kv *kv, unsigned dir)
{
	for (unsigned n = 0;; n++) {
		bool evicted;
		int r = disk_has_room(kv, dir);

		if (r != 0)
			return r < 0 ? r : 0;
		/* Other data fills the disk, so evicting all blocks would not help. */
		if (n == RESERVE_EVICTIONS * kv->root.nr)
			return -ENOSPC;
		(void)pthread_mutex_lock(&kv->lock);
		evicted = evict_one(kv, largest(kv));
		(void)pthread_mutex_unlock(&kv->lock);
		if (!evicted)
			return -ENOSPC;
	}
}

/* Evict some blocks because a file system is full.  Return false if there was no block. */
static bool cache_thin_out(struct pst_kv *kv)
{
	unsigned n = 0;

	(void)pthread_mutex_lock(&kv->lock);
	while (n < FULL_EVICTIONS * kv->root.nr && evict_one(kv, largest(kv)))
		n++;
	(void)pthread_mutex_unlock(&kv->lock);
	return n > 0;
}

/* Evict until size more bytes fit, and reserve them.  Called with the lock, which is released in
 * between.  Return 0 or -ENOSPC. */
static int cache_make_room(struct pst_kv *kv, struct cache *c, uint64_t size)
{
	for (;;) {
		if (c->used + size > c->capacity) {
			if (!evict_one(kv, c))
				return -ENOSPC;
		} else if (kv->used + size > kv->budget) {
			if (!evict_one(kv, largest(kv)))
				return -ENOSPC;
		} else if (kv->files >= kv->max_blocks) {
			if (!evict_one(kv, fullest(kv)))
				return -ENOSPC;
		} else {
			return 0;
		}
	}
}

int cache_reserve(struct pst_kv *kv, uint32_t space, uint64_t hash, uint64_t size)
{
	struct cache *c = kv->spaces[space]->cache;
	unsigned dir = root_dir_of(&kv->root, hash);
	int r;

	if (size > c->capacity || size > kv->budget)
		return err_set(ENOSPC, "a block of %llu bytes is larger than budget or quota",
			       (unsigned long long)size);
	/* Add the bytes before the check, so that sets of other threads take them into account. */
	(void)pthread_mutex_lock(&kv->lock);
	kv->pending[dir] += size;
	(void)pthread_mutex_unlock(&kv->lock);
	r = keep_reserve(kv, dir);
	(void)pthread_mutex_lock(&kv->lock);
	if (r == 0)
		r = cache_make_room(kv, c, size);
	if (r == 0) {
		kv->used += size;
		kv->files++;
		c->used += size;
	} else {
		kv->pending[dir] -= size;
	}
	(void)pthread_mutex_unlock(&kv->lock);
	if (r == -ENOSPC)
		return err_set(ENOSPC,
			       "there is no room within budget, reserve and number of blocks, and "
			       "nothing to evict");
	return r;
}

void cache_unreserve(struct pst_kv *kv, uint32_t space, uint64_t size)
{
	(void)pthread_mutex_lock(&kv->lock);
	kv->used -= size;
	kv->files--;
	kv->spaces[space]->cache->used -= size;
	(void)pthread_mutex_unlock(&kv->lock);
}

int cache_insert(struct pst_kv *kv, uint32_t space, uint64_t hash, uint64_t file_len)
{
	struct cache *c = kv->spaces[space]->cache;
	uint64_t size = size_of_file(file_len);
	struct entry *e;
	int r = c->policy->ops->access(c->policy, hash, size, kv->use++);

	e = r < 0 ? NULL : cache_find(c, hash);
	if (!e)
		return -ENOMEM;
	e->user = user_of((uint32_t)(size - file_len), space);
	cache_trim(kv, c);
	return 0;
}

int cache_create(struct pst_kv *kv, unsigned dir, char ret_temp[TEMP_LEN])
{
	for (unsigned n = 0;; n++) {
		int fd;

		(void)pthread_mutex_lock(&kv->lock);
		(void)snprintf(ret_temp, TEMP_LEN, "tmp/%" PRIu64, kv->next_temp++);
		(void)pthread_mutex_unlock(&kv->lock);
		fd = openat(kv->root.dir[dir], ret_temp,
			    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
		if (fd >= 0)
			return fd;
		if (errno != ENOSPC)
			return -errno;
		if (n == FULL_TRIES || !cache_thin_out(kv))
			return err_set(ENOSPC, "the file system has no room for one more file");
	}
}

static int rename_block(struct pst_kv *kv, uint64_t space, uint64_t hash, int dir, const char *temp)
{
	char path[BLOCK_PATH_LEN];
	int r;

	block_path(path, space, hash);
	if (renameat(dir, temp, dir, path) == 0)
		return 0;
	if (errno != ENOENT)
		return -errno;
	r = root_make_place(&kv->root, space, hash);
	if (r < 0)
		return r;
	return renameat(dir, temp, dir, path) < 0 ? -errno : 0;
}

static int publish_once(struct pst_kv *kv, uint32_t space, const struct block_id *id,
			uint64_t file_len, int dir, const char *temp)
{
	struct cache *c = kv->spaces[space]->cache;
	uint64_t hash = id->hash;
	struct entry *e;
	uint64_t old;
	int r;

	cache_lock_file(kv, space, hash);
	r = rename_block(kv, id->space, hash, dir, temp);
	if (r == 0) {
		lend_revoke(kv, id->space, &hash);
		(void)pthread_mutex_lock(&kv->lock);
		e = cache_find(c, hash);
		old = e ? e->size : 0;
		r = cache_insert(kv, space, hash, file_len);
		if (old)
			give_bytes(kv, c, hash, old, 1);
		if (r < 0 && old)
			c->policy->ops->forget(c->policy, hash);
		if (r == 0)
			event_add(kv, PST_KV_STORED, space, id, file_len - id->key_len - FOOT_LEN);
		else if (old)
			event_add(kv, PST_KV_REMOVED, space, id, 0);
		(void)pthread_mutex_unlock(&kv->lock);
		if (r < 0) {
			char path[BLOCK_PATH_LEN];

			block_path(path, id->space, hash);
			(void)unlinkat(dir, path, 0);
		}
	}
	cache_unlock_file(kv, space, hash);
	return r;
}

int cache_publish(struct pst_kv *kv, uint32_t space, const struct block_id *id, uint64_t file_len,
		  int dir, const char *temp)
{
	for (unsigned n = 0;; n++) {
		int r = publish_once(kv, space, id, file_len, dir, temp);

		if (r != -ENOSPC || n == FULL_TRIES || !cache_thin_out(kv))
			return r;
	}
}

int cache_remove(struct pst_kv *kv, uint32_t space, const struct block_id *id)
{
	struct cache *c = kv->spaces[space]->cache;
	uint64_t size = 0;
	struct entry *e;
	int r;

	(void)pthread_mutex_lock(&kv->lock);
	e = cache_find(c, id->hash);
	if (e) {
		size = e->size;
		c->policy->ops->forget(c->policy, id->hash);
		cache_trim(kv, c);
	}
	(void)pthread_mutex_unlock(&kv->lock);
	if (!size)
		return 0;
	r = unlink_block(kv, c, space, *id, size);
	return r < 0 ? r : 1;
}

int cache_delete(struct pst_kv *kv, uint32_t space, const struct block_id *id)
{
	int r = cache_remove(kv, space, id);

	(void)pthread_mutex_lock(&kv->lock);
	kv->stat.removed += r > 0;
	(void)pthread_mutex_unlock(&kv->lock);
	return r;
}

void cache_shrink(struct pst_kv *kv)
{
	bool more = true;

	(void)pthread_mutex_lock(&kv->lock);
	for (unsigned i = 0; i < kv->nr_spaces; i++) {
		struct cache *c = kv->spaces[i]->cache;

		while (more && c->used > c->capacity)
			more = evict_one(kv, c);
	}
	while (more && kv->used > kv->budget)
		more = evict_one(kv, largest(kv));
	while (more && kv->files > kv->max_blocks)
		more = evict_one(kv, fullest(kv));
	/* Forget evicted keys, because the index file may remember too many. */
	for (unsigned i = 0; i < kv->nr_spaces; i++)
		cache_trim(kv, kv->spaces[i]->cache);
	cache_trim(kv, &kv->common);
	(void)pthread_mutex_unlock(&kv->lock);
}
