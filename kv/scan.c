/* SPDX-License-Identifier: MIT */
/*
 * Build the index from the directories if there is no index file.  File names give hash and space;
 * inodes give length and time of last use.  Blocks are checked only when they are read.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "base/err.h"

#include "kv/store.h"

struct found {
	uint64_t hash, len, time_ns;
	uint32_t space;
};

struct scan {
	struct pst_kv *kv;
	struct found *at;
	size_t nr, room;
	uint64_t last_hash; /* hash and number of the space that was found last */
	uint32_t last;
	bool any;
};

static int by_time(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns);
}

static int scan_add(void *arg, uint64_t space, uint64_t hash, const struct stat *st)
{
	struct scan *s = arg;
	int r;

	if (!s->any || s->last_hash != space) {
		r = space_add(s->kv, space, 0, &s->last);
		if (r < 0)
			return r;
		s->any = true;
		s->last_hash = space;
	}
	if (st->st_size < (off_t)FOOT_LEN + 2 ||
	    (uint64_t)st->st_size > PST_KV_BLOCK_MAX + TAIL_MAX)
		return 0;
	if (s->nr == s->room) {
		size_t room = s->room ? 2 * s->room : 4096;
		struct found *more = reallocarray(s->at, room, sizeof(*more));

		if (!more)
			return err_set(ENOMEM, "out of memory");
		s->at = more;
		s->room = room;
	}
	s->at[s->nr++] = (struct found){
		.hash = hash,
		.len = (uint64_t)st->st_size,
		.time_ns = (uint64_t)st->st_mtim.tv_sec * NSEC_PER_SEC +
			   (uint64_t)st->st_mtim.tv_nsec,
		.space = s->last,
	};
	return 0;
}

/* Reserve the bytes of a file.  Return false if they exceed budget or quota. */
static bool scan_keep(struct pst_kv *kv, const struct found *f)
{
	struct cache *c = kv->spaces[f->space]->cache;
	uint64_t size = size_of_file(f->len);

	if (kv->used + size > kv->budget || c->used + size > c->capacity)
		return false;
	kv->used += size;
	kv->files++;
	c->used += size;
	return true;
}

static int unlink_found(struct pst_kv *kv, struct found *f)
{
	unsigned dir = root_dir_of(&kv->root, f->hash);
	char path[BLOCK_PATH_LEN];

	block_path(path, kv->spaces[f->space]->hash, f->hash);
	f->len = 0;
	if (unlinkat(kv->root.dir[dir], path, 0) < 0 && errno != ENOENT)
		return err_set(errno, "cannot remove %s/%s, which is above the budget: %s",
			       kv->root.path[dir], path, strerror(errno));
	kv->stat.evicted++;
	return 0;
}

int scan_load(struct pst_kv *kv)
{
	struct scan s = { .kv = kv };
	int r = 0;

	for (unsigned i = 0; r == 0 && i < kv->root.nr; i++)
		r = root_scan(&kv->root, i, scan_add, &s);
	if (r == 0 && s.nr)
		qsort(s.at, s.nr, sizeof(*s.at), by_time);
	/* Keep the newest files, and remove those that do not fit, before the index is filled. */
	for (size_t i = s.nr; r == 0 && i-- > 0;)
		if (!scan_keep(kv, &s.at[i]))
			r = unlink_found(kv, &s.at[i]);
	for (size_t i = 0; r == 0 && i < s.nr; i++)
		if (s.at[i].len)
			r = cache_insert(kv, s.at[i].space, s.at[i].hash, s.at[i].len);
	if (r == -ENOMEM)
		(void)err_set(ENOMEM, "out of memory");
	if (r == 0)
		kv->stat.scanned = s.nr;
	free(s.at);
	return r;
}
