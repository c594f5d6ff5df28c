/* SPDX-License-Identifier: MIT */
/*
 * The index file: the state of the policies.  The file is written when a store is closed, and
 * removed when it is read, so an existing file is up to date.  The file has a head, the hashes of
 * the spaces in the order of their numbers, and the entries of each cache, queue by queue, oldest
 * first.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"

#include "kv/store.h"

#define NAME "index"
#define VERSION 1u
#define AHEAD 16u    /* number of records by which the table is prefetched */
#define CHUNK 32768u /* records that are written or read at a time */

/* A space of the index file without a file of words, because it was dropped or never had a
 * block. */
#define SPACE_UNKNOWN UINT32_MAX

static const char magic[8] = "PSTKVI\r\n";

struct head {
	char magic[8];
	uint32_t version, nr_spaces;
	uint8_t id[16];
	char policy[16];
	uint64_t nr; /* number of records */
	uint64_t pad;
};

struct record {
	uint64_t id;
	uint64_t size; /* bytes in bits 0 to 47; uses and queue above */
	uint32_t user;
	uint32_t cache; /* 0: the shared cache; else number of a space + 1 */
};

struct out {
	int fd;
	uint32_t crc;
	unsigned nr;
	int err;
	struct record r[CHUNK];
};

static void snapshot_put(struct out *o, const void *buf, size_t len)
{
	const char *p = buf;

	o->crc = crc32c(o->crc, buf, len);
	while (len && !o->err) {
		ssize_t n = write(o->fd, p, len);

		if (n < 0)
			o->err = errno;
		else
			p += n, len -= (size_t)n;
	}
}

static void flush_records(struct out *o)
{
	snapshot_put(o, o->r, o->nr * sizeof(o->r[0]));
	o->nr = 0;
}

static uint64_t snapshot_count(const struct cache *c)
{
	return c->policy->index->nr;
}

static void put_cache(struct out *o, const struct cache *c, uint32_t number)
{
	const struct index *ix = c->policy->index;

	for (unsigned q = 0; q < INDEX_QUEUES; q++) {
		for (const struct entry *e = index_oldest(ix, q); e; e = index_newer(ix, e)) {
			o->r[o->nr++] = (struct record){
				.id = e->id,
				.size = e->size | (uint64_t)e->uses << 48 | (uint64_t)q << 56,
				.user = e->user,
				.cache = number,
			};
			if (o->nr == CHUNK)
				flush_records(o);
		}
	}
}

static int snapshot_write_all(const struct pst_kv *kv, struct out *o)
{
	struct head h = { .version = VERSION, .nr_spaces = kv->nr_spaces };

	memcpy(h.magic, magic, sizeof(magic));
	memcpy(h.id, kv->root.id, sizeof(h.id));
	(void)snprintf(h.policy, sizeof(h.policy), "%s", kv->ops->name);
	h.nr = snapshot_count(&kv->common);
	for (unsigned i = 0; i < kv->nr_spaces; i++)
		h.nr += kv->spaces[i]->own.policy ? snapshot_count(&kv->spaces[i]->own) : 0;
	snapshot_put(o, &h, sizeof(h));
	for (unsigned i = 0; i < kv->nr_spaces; i++)
		snapshot_put(o, &kv->spaces[i]->hash, sizeof(kv->spaces[i]->hash));
	put_cache(o, &kv->common, 0);
	for (unsigned i = 0; i < kv->nr_spaces; i++)
		if (kv->spaces[i]->own.policy)
			put_cache(o, &kv->spaces[i]->own, i + 1);
	flush_records(o);
	snapshot_put(o, &(uint32_t){ o->crc }, sizeof(uint32_t));
	if (!o->err && fsync(o->fd) < 0)
		o->err = errno;
	return -o->err;
}

int snapshot_save(struct pst_kv *kv)
{
	int dir = kv->root.dir[0], r;
	struct out *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->fd = openat(dir, "tmp/" NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
		       0666);
	r = o->fd < 0 ? -errno : snapshot_write_all(kv, o);
	/* Sync removals first: after a crash, a file could come back that is neither in the index
	 * nor counted. */
	for (unsigned i = 0; r == 0 && i < kv->root.nr; i++)
		if (syncfs(kv->root.dir[i]) < 0)
			r = -errno;
	if (r == 0 && renameat(dir, "tmp/" NAME, dir, NAME) < 0)
		r = -errno;
	if (r == 0 && fsync(dir) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(dir, "tmp/" NAME, 0);
	closep(&o->fd);
	free(o);
	return r;
}

struct in {
	int fd;
	uint32_t crc;
};

static bool snapshot_get(struct in *in, void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = read(in->fd, p, len);

		if (n <= 0)
			return false;
		in->crc = crc32c(in->crc, p, (size_t)n);
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static int snapshot_take(struct pst_kv *kv, const struct record *r, const uint32_t *spaces,
			 uint32_t nr_spaces)
{
	uint32_t space = user_space(r->user), number = r->cache;
	uint64_t size = r->size & INDEX_SIZE_MAX;
	uint64_t most = size_of_file(PST_KV_BLOCK_MAX + TAIL_MAX);
	unsigned queue = (unsigned)(r->size >> 56);
	struct cache *c;
	struct entry *e;

	if (space >= nr_spaces || number > nr_spaces || queue >= INDEX_QUEUES || size == 0 ||
	    size > most || user_slack(r->user) >= size)
		return -EBADMSG;
	space = spaces[space];
	if (space == SPACE_UNKNOWN || (number && spaces[number - 1] == SPACE_UNKNOWN))
		return queue < kv->ops->cached ? -EBADMSG : 0;
	/* The quotas may have changed since the index was written. */
	c = kv->spaces[space]->cache;
	if (index_find(c->policy->index, r->id))
		return -EBADMSG;
	if (queue < c->policy->ops->cached) {
		kv->used += size;
		kv->files++;
		c->used += size;
		kv->stat.loaded++;
	}
	e = index_add(c->policy->index, r->id, size);
	if (!e)
		return -ENOMEM;
	e->uses = (r->size >> 48) & 0xff;
	index_enter(c->policy->index, e, queue);
	e->user = user_of(user_slack(r->user), space);
	return 0;
}

static int load_records(struct pst_kv *kv, struct in *in, const struct head *h,
			const uint32_t *spaces)
{
	struct record *buf = malloc(CHUNK * sizeof(*buf));
	uint32_t crc, want;
	int r = 0;

	if (!buf)
		return -ENOMEM;
	for (uint64_t left = h->nr; r == 0 && left;) {
		unsigned n = (unsigned)MIN(left, (uint64_t)CHUNK);

		if (!snapshot_get(in, buf, n * sizeof(*buf)))
			r = -EBADMSG;
		for (unsigned i = 0; r == 0 && i < n; i++) {
			/* Prefetch, because each record would miss the CPU's caches. */
			if (i + AHEAD < n)
				index_prefetch(kv->common.policy->index, buf[i + AHEAD].id);
			r = snapshot_take(kv, &buf[i], spaces, h->nr_spaces);
		}
		left -= n;
	}
	free(buf);
	crc = in->crc;
	if (r == 0 && (!snapshot_get(in, &want, sizeof(want)) || want != crc))
		r = -EBADMSG;
	return r;
}

static int kv_snapshot_load(struct pst_kv *kv, struct in *in)
{
	uint32_t *spaces = NULL;
	struct head h;
	struct stat st;
	int r = 0;

	if (!snapshot_get(in, &h, sizeof(h)) || memcmp(h.magic, magic, sizeof(magic)) != 0 ||
	    h.version != VERSION || memcmp(h.id, kv->root.id, sizeof(h.id)) != 0 ||
	    h.nr_spaces > PST_KV_SPACES_MAX || fstat(in->fd, &st) < 0 ||
	    h.nr > (uint64_t)st.st_size / sizeof(struct record))
		return -EBADMSG;
	/* Queues of another policy cannot be used. */
	if (strncmp(h.policy, kv->ops->name, sizeof(h.policy)) != 0)
		return -EBADMSG;
	spaces = calloc(h.nr_spaces + 1, sizeof(*spaces));
	r = spaces ? 0 : -ENOMEM;
	for (unsigned i = 0; r == 0 && i < h.nr_spaces; i++) {
		uint64_t hash;

		r = snapshot_get(in, &hash, sizeof(hash)) ? 0 : -EBADMSG;
		if (r == 0 && !space_find(kv, hash, &spaces[i]))
			spaces[i] = SPACE_UNKNOWN;
	}
	/* Allocate in the shared cache for all records, because few spaces have a quota. */
	if (r == 0)
		r = index_reserve(kv->common.policy->index, h.nr);
	if (r == 0)
		r = load_records(kv, in, &h, spaces);
	free(spaces);
	return r;
}

/* Discard everything that was read from an index file, because the file is damaged. */
static int begin_anew(struct pst_kv *kv)
{
	for (unsigned i = 0; i <= kv->nr_spaces; i++) {
		struct cache *c = i < kv->nr_spaces ? &kv->spaces[i]->own : &kv->common;

		if (!c->policy)
			continue;
		(void)c->policy->ops->free(c->policy);
		c->policy = kv->ops->new (c->capacity, 0);
		c->used = 0;
		c->remembered = 0;
		if (!c->policy)
			return err_set(ENOMEM, "out of memory");
	}
	kv->used = 0;
	kv->files = 0;
	kv->remembered = 0;
	kv->stat.loaded = 0;
	return 0;
}

int snapshot_load(struct pst_kv *kv)
{
	int dir = kv->root.dir[0], r;
	struct in in = { .fd = openat(dir, NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) };

	if (in.fd < 0)
		return errno == ENOENT ? 0
				       : err_set(errno, "cannot open %s/" NAME ": %s",
						 kv->root.path[0], strerror(errno));
	r = kv_snapshot_load(kv, &in);
	closep(&in.fd);
	/* Remove the file before the store changes, so that no outdated index remains after a power
	 * loss. */
	if (unlinkat(dir, NAME, 0) < 0 || fsync(dir) < 0)
		return err_set(errno, "cannot remove %s/" NAME ": %s", kv->root.path[0],
			       strerror(errno));
	if (r == 0)
		return 1;
	log_warn("kv: the index of %s is damaged or of another policy, reading the "
		 "directories",
		 kv->root.path[0]);
	return begin_anew(kv);
}
