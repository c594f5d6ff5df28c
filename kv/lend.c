/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/log.h"

#include "kv/lend.h"
#include "kv/name.h"
#include "kv/store.h"

/* The bytes and the number of new blocks that one client writes. */
struct share {
	struct list link; /* in kv->shares */
	uint64_t bytes, files;
	char who[];
};

struct lend {
	/* The store's lock protects link, refs and gone. */
	struct list link; /* on kv->lent until it ends */
	struct pst_kv *kv;
	unsigned refs;
	bool write;
	bool gone; /* for reading: the file was truncated, or must be once it is open */
	struct block_id id;
	uint32_t space;
	int fd;
	uint64_t len; /* length of the block, bytes */

	/* Members for a new block. */
	pthread_mutex_t io; /* taken before the store's lock: fd and the file's bytes */
	uint64_t file_len, size, until_ns;
	struct share *share; /* the share that counts size; under the store's lock */
	char temp[TEMP_LEN];

	uint8_t key[]; /* storage for id.key */
};

static void lend_unref(struct lend *l)
{
	bool last;

	(void)pthread_mutex_lock(&l->kv->lock);
	last = --l->refs == 0;
	(void)pthread_mutex_unlock(&l->kv->lock);
	if (!last)
		return;
	closep(&l->fd);
	(void)pthread_mutex_destroy(&l->io);
	free(l);
}

static struct lend *lend_new(struct pst_kv *kv, uint32_t space, const struct block_name *n)
{
	struct lend *l = calloc(1, sizeof(*l) + n->key_len);

	if (!l)
		return NULL;
	memcpy(l->key, n->key, n->key_len);
	l->kv = kv;
	l->refs = 1;
	l->fd = -1;
	l->space = space;
	l->id = (struct block_id){
		.space = kv->spaces[space]->hash,
		.hash = kv_key_hash(kv, kv->spaces[space], l->key, n->key_len),
		.key = l->key,
		.key_len = n->key_len,
	};
	(void)pthread_mutex_init(&l->io, NULL);
	list_init(&l->link);
	return l;
}

static void lend_add(struct lend *l)
{
	(void)pthread_mutex_lock(&l->kv->lock);
	list_add_tail(&l->kv->lent, &l->link);
	(void)pthread_mutex_unlock(&l->kv->lock);
}

/* ---------------------------------------------------------------- names */

/* Return true if clients may create another space of that tenant.  Called with the lock. */
static bool lend_has_room(const struct pst_kv *kv, const char *tenant)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < kv->nr_spaces; i++)
		nr += kv->spaces[i]->tenant && !strcmp(kv->spaces[i]->tenant, tenant);
	return nr < LEND_SPACES_MAX;
}

/* Find the space of a name.  If make is set, create a missing one with that quota. */
static int lend_space(struct pst_kv *kv, const struct block_name *n, bool make, uint64_t quota,
		      uint32_t *ret)
{
	struct pst_kv_space_opts o = {
		.sz = sizeof(o),
		.identity = n->identity,
		.tenant = n->tenant,
		.salt = n->salt,
		.quota = quota,
	};
	uint64_t hash = space_hash(kv, n->identity, n->tenant, n->salt);
	bool found, room = true;

	(void)pthread_mutex_lock(&kv->lock);
	found = space_find(kv, hash, ret) && kv->spaces[*ret]->identity;
	if (!found && make)
		room = lend_has_room(kv, n->tenant);
	(void)pthread_mutex_unlock(&kv->lock);
	if (found)
		return 0;
	if (!make)
		return -ENOENT;
	return room ? pst_kv_space(kv, &o, ret) : -ENOSPC;
}

static int lend_name(const char *name, const char *tenant, bool has_len, struct block_name *ret)
{
	int r = name_read(name, ret);

	if (r < 0)
		return r;
	if (has_len != (ret->len > 0))
		return -ENOENT;
	if (!tenant)
		return 0;
	if (*ret->tenant && strcmp(ret->tenant, tenant) != 0)
		return -EACCES;
	(void)snprintf(ret->tenant, sizeof(ret->tenant), "%s", tenant);
	return 0;
}

/* -------------------------------------------------------------- reading */

/* Open the file of a block.  Called with the block's stripe.  Return 0 or -errno. */
static int lend_open_file(struct lend *l)
{
	struct pst_kv *kv = l->kv;
	char path[BLOCK_PATH_LEN];
	bool gone;
	int fd;

	block_path(path, l->id.space, l->id.hash);
	/* O_RDWR, so that lend_revoke() can truncate the file. */
	fd = openat(kv->root.dir[root_dir_of(&kv->root, l->id.hash)], path,
		    O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	(void)pthread_mutex_lock(&kv->lock);
	l->fd = fd;
	gone = l->gone;
	(void)pthread_mutex_unlock(&kv->lock);
	if (gone && ftruncate(fd, 0) < 0)
		log_warn("kv: cannot cut the file of a block: %s, ignoring", strerror(errno));
	return gone ? -ESTALE : 0;
}

/* Check the foot of the file.  A client does not know the space and the hash. */
static int lend_check(struct lend *l, uint64_t *ret_len)
{
	size_t n = l->id.key_len + FOOT_LEN;
	char tail[TAIL_MAX];
	struct stat st;
	uint32_t crc;
	ssize_t got;

	if (fstat(l->fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)n)
		return err_set(EBADMSG, "the file of a block is shorter than its foot");
	got = pread(l->fd, tail, n, st.st_size - (off_t)n);
	if (got != (ssize_t)n)
		return got < 0 ? -errno : -EBADMSG;
	*ret_len = (uint64_t)st.st_size;
	return block_check(tail, n, *ret_len, &l->id, &l->len, &crc, NULL, NULL);
}

/* Count a get.  Return true if the block is in the index. */
static bool lend_use(struct lend *l)
{
	struct pst_kv *kv = l->kv;
	struct cache *c = kv->spaces[l->space]->cache;
	struct entry *e;
	bool there;

	(void)pthread_mutex_lock(&kv->lock);
	kv->stat.gets++;
	e = cache_find(c, l->id.hash);
	there = e;
	if (e)
		(void)c->policy->ops->access(c->policy, l->id.hash, e->size, kv->use++);
	(void)pthread_mutex_unlock(&kv->lock);
	return there;
}

/* Count the result r of reading a file's foot.  Return r, or -ESTALE if the file was truncated
 * while it was read. */
static int lend_count(struct lend *l, int r)
{
	struct pst_kv *kv = l->kv;

	(void)pthread_mutex_lock(&kv->lock);
	if (l->gone)
		r = -ESTALE;
	kv->stat.hits += r == 0;
	kv->stat.got_bytes += r == 0 ? l->len : 0;
	kv->stat.corrupt += r == -EBADMSG;
	(void)pthread_mutex_unlock(&kv->lock);
	return r;
}

static int lend_read(struct lend *l, uint64_t *ret_len)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	struct pst_kv *kv = l->kv;
	struct stat st;
	int r;

	if (!lend_use(l))
		return -ENOENT;
	/* Take the stripe before lend_add(): a block that is published while this thread waits must
	 * not be truncated. */
	cache_lock_file(kv, l->space, l->id.hash);
	lend_add(l);
	r = lend_open_file(l);
	cache_unlock_file(kv, l->space, l->id.hash);
	if (r == 0)
		r = lend_check(l, ret_len);
	r = lend_count(l, r);
	if (r == -EBADMSG)
		log_warn("kv: %s, removing it", err_text());
	if (r == -EBADMSG || r == -ENOENT)
		(void)cache_remove(kv, l->space, &l->id);
	if (r == -EBADMSG || r == -ESTALE)
		return -ENOENT;
	if (r == 0 && fstat(l->fd, &st) == 0 &&
	    clock_ns(CLOCK_REALTIME) > (uint64_t)st.st_mtim.tv_sec * NSEC_PER_SEC + kv->touch_ns)
		(void)futimens(l->fd, times);
	return r;
}

/* Move an entry to a list that lend_settle() handles without the lock.  Called with the lock. */
static void lend_set_aside(struct list *to, struct lend *l)
{
	l->refs++;
	list_move_tail(to, &l->link);
}

/* Call fn for each entry of the list.  Called with the lock, which is released during fn. */
static void lend_settle(struct pst_kv *kv, struct list *aside, void (*fn)(struct lend *l))
{
	while (!list_empty(aside)) {
		struct lend *l = list_first(aside, struct lend, link);

		list_del(&l->link);
		(void)pthread_mutex_unlock(&kv->lock);
		fn(l);
		lend_unref(l);
		(void)pthread_mutex_lock(&kv->lock);
	}
}

static void lend_cut(struct lend *l)
{
	if (ftruncate(l->fd, 0) < 0)
		log_warn("kv: cannot cut the file of a block: %s, ignoring", strerror(errno));
}

void lend_revoke(struct pst_kv *kv, uint64_t space, const uint64_t *hash)
{
	struct list cut = LIST_INIT(cut), *at, *n;

	(void)pthread_mutex_lock(&kv->lock);
	/* Mark all files first, because several entries may refer to the same file. */
	list_for_each_safe (at, n, &kv->lent) {
		struct lend *l = list_entry(at, struct lend, link);

		if (l->write || l->id.space != space || (hash && l->id.hash != *hash))
			continue;
		l->gone = true;
		if (l->fd >= 0)
			lend_set_aside(&cut, l);
		else
			list_del(&l->link);
	}
	lend_settle(kv, &cut, lend_cut);
	(void)pthread_mutex_unlock(&kv->lock);
}

/* -------------------------------------------------------------- writing */

/* Find or create the share of a client.  Called with the lock.  Return NULL without memory. */
static struct share *lend_share(struct pst_kv *kv, const char *who)
{
	struct share *s;
	struct list *at;

	list_for_each (at, &kv->shares) {
		s = list_entry(at, struct share, link);
		if (!strcmp(s->who, who))
			return s;
	}
	s = calloc(1, sizeof(*s) + strlen(who) + 1);
	if (!s)
		return NULL;
	memcpy(s->who, who, strlen(who));
	list_add_tail(&kv->shares, &s->link);
	return s;
}

/* Free a share whose client writes no block.  Called with the lock. */
static void lend_share_put(struct share *s)
{
	if (s->files)
		return;
	list_del(&s->link);
	free(s);
}

/*
 * Count a new block among those of its client.  All clients together may use half of the budget and
 * of the number of blocks.  One client may use half of what the others leave of that half, so that
 * no client takes all.
 */
static int lend_take_share(struct lend *l, const char *who)
{
	struct pst_kv *kv = l->kv;
	uint64_t others, other_files;
	struct share *s;
	bool fits;

	(void)pthread_mutex_lock(&kv->lock);
	s = lend_share(kv, who);
	if (!s) {
		(void)pthread_mutex_unlock(&kv->lock);
		return -ENOMEM;
	}
	others = kv->lent_bytes - s->bytes;
	other_files = kv->lent_files - s->files;
	fits = s->bytes + l->size <= (kv->budget / 2 - others) / 2 &&
	       s->files + 1 <= (kv->max_blocks / 2 - other_files) / 2;
	if (fits) {
		kv->lent_bytes += l->size;
		kv->lent_files++;
		s->bytes += l->size;
		s->files++;
		l->share = s;
	} else {
		lend_share_put(s);
	}
	(void)pthread_mutex_unlock(&kv->lock);
	return fits ? 0 : err_set(ENOSPC, "the client is writing as much as it may at once");
}

/* Remove the bytes of a new block from its client's share.  Called with the lock. */
static void lend_give_share(struct lend *l)
{
	l->kv->lent_bytes -= l->size;
	l->kv->lent_files--;
	l->share->bytes -= l->size;
	l->share->files--;
	lend_share_put(TAKE_PTR(l->share));
}

/* Stop counting a new block as being written: all its bytes are in its file, or it was aborted.
 * Called with the lock. */
static void lend_ends(struct lend *l)
{
	l->kv->pending[root_dir_of(&l->kv->root, l->id.hash)] -= l->size;
	lend_give_share(l);
}

/* Remove a new block that is not published, and release its bytes. Called with l->io held. */
static void lend_abort(struct lend *l)
{
	struct pst_kv *kv = l->kv;
	unsigned dir = root_dir_of(&kv->root, l->id.hash);
	bool removed;

	if (l->fd < 0)
		return;
	(void)close(TAKE_FD(l->fd));
	removed = unlinkat(kv->root.dir[dir], l->temp, 0) == 0 || errno == ENOENT;
	(void)pthread_mutex_lock(&kv->lock);
	lend_ends(l);
	(void)pthread_mutex_unlock(&kv->lock);
	/* A file that cannot be removed uses its bytes until the store is opened again. */
	if (removed)
		cache_unreserve(kv, l->space, l->size);
}

static void lend_end(struct lend *l)
{
	(void)pthread_mutex_lock(&l->io);
	lend_abort(l);
	(void)pthread_mutex_unlock(&l->io);
}

/* Abort new blocks that have passed their time limit.  Return true if there was one. */
static bool lend_expire(struct pst_kv *kv)
{
	struct list over = LIST_INIT(over), *at, *n;
	uint64_t now = now_ns();
	bool any;

	(void)pthread_mutex_lock(&kv->lock);
	list_for_each_safe (at, n, &kv->lent) {
		struct lend *l = list_entry(at, struct lend, link);

		if (l->write && l->until_ns <= now)
			lend_set_aside(&over, l);
	}
	any = !list_empty(&over);
	lend_settle(kv, &over, lend_end);
	(void)pthread_mutex_unlock(&kv->lock);
	return any;
}

static int lend_reserve(struct lend *l, const char *who)
{
	struct pst_kv *kv = l->kv;
	int r = lend_take_share(l, who);

	if (r < 0)
		return r;
	r = cache_reserve(kv, l->space, l->id.hash, l->size);
	(void)pthread_mutex_lock(&kv->lock);
	if (r < 0)
		lend_give_share(l);
	(void)pthread_mutex_unlock(&kv->lock);
	return r;
}

static int lend_create(struct lend *l, const char *who, uint64_t len)
{
	struct pst_kv *kv = l->kv;
	int r;

	l->write = true;
	l->len = len;
	l->file_len = len + l->id.key_len + FOOT_LEN;
	l->size = size_of_file(l->file_len);
	l->until_ns = now_ns() + kv->timeout_ns;
	r = lend_reserve(l, who);
	if (r == -ENOSPC && lend_expire(kv))
		r = lend_reserve(l, who);
	if (r == -ENOSPC) {
		(void)pthread_mutex_lock(&kv->lock);
		kv->stat.no_room++;
		(void)pthread_mutex_unlock(&kv->lock);
	}
	if (r < 0)
		return r;
	r = cache_create(kv, root_dir_of(&kv->root, l->id.hash), l->temp);
	if (r >= 0) {
		l->fd = r;
		lend_add(l);
		return 0;
	}
	(void)pthread_mutex_lock(&kv->lock);
	lend_ends(l);
	(void)pthread_mutex_unlock(&kv->lock);
	cache_unreserve(kv, l->space, l->size);
	return r;
}

int lend_write(struct lend *l, const void *buf, size_t len, uint64_t off)
{
	const char *from = buf;
	int r = 0;

	(void)pthread_mutex_lock(&l->io);
	if (!l->write || l->fd < 0)
		r = -ESTALE;
	else if (len > l->file_len || off > l->file_len - len)
		r = -EFBIG;
	while (r == 0 && len) {
		ssize_t n = pwrite(l->fd, from, len, (off_t)off);

		if (n <= 0) {
			r = n < 0 ? -errno : -EIO;
			r = r == -EINTR ? 0 : r;
			continue;
		}
		from += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	(void)pthread_mutex_unlock(&l->io);
	return r;
}

/* Check the foot that the client wrote, and replace it by one with space and hash.  Called with
 * io. */
static int lend_seal(const struct lend *l)
{
	size_t n = l->id.key_len + FOOT_LEN;
	uint32_t crc, key_len;
	const void *key;
	char tail[TAIL_MAX];
	uint64_t len;
	ssize_t got = pread(l->fd, tail, n, (off_t)l->len);
	int r;

	if (got != (ssize_t)n)
		return got < 0 ? -errno : -EBADMSG;
	r = block_check(tail, n, l->file_len, NULL, &len, &crc, &key, &key_len);
	if (r == 0 && (key_len != l->id.key_len || memcmp(key, l->id.key, key_len) != 0))
		r = -EBADMSG;
	if (r < 0)
		return r;
	(void)block_tail(tail, &l->id, l->len, crc);
	got = pwrite(l->fd, tail, n, (off_t)l->len);
	if (got != (ssize_t)n)
		return got < 0 ? -errno : -EIO;
	return l->kv->sync && fdatasync(l->fd) < 0 ? -errno : 0;
}

int lend_publish(struct lend *l)
{
	struct pst_kv *kv = l->kv;
	unsigned dir = root_dir_of(&kv->root, l->id.hash);
	int r;

	(void)pthread_mutex_lock(&l->io);
	r = !l->write || l->fd < 0 ? -ESTALE : lend_seal(l);
	if (r == 0)
		r = cache_publish(kv, l->space, &l->id, l->file_len, kv->root.dir[dir], l->temp);
	if (r == 0) {
		(void)close(TAKE_FD(l->fd));
		(void)pthread_mutex_lock(&kv->lock);
		lend_ends(l);
		list_del(&l->link);
		kv->stat.sets++;
		kv->stat.set_bytes += l->len;
		kv->stat.written += l->file_len;
		(void)pthread_mutex_unlock(&kv->lock);
	}
	(void)pthread_mutex_unlock(&l->io);
	return r;
}

/* ---------------------------------------------------------------- calls */

int lend_open(struct pst_kv *kv, const char *name, const struct lend_client *client, uint64_t quota,
	      bool write, struct lend **ret, int *ret_fd, uint64_t *ret_len)
{
	struct block_name n;
	struct lend *l;
	uint32_t space;
	int r = lend_name(name, client->tenant, write, &n);

	if (r == 0)
		r = lend_space(kv, &n, write, quota, &space);
	if (r < 0)
		return r;
	l = lend_new(kv, space, &n);
	if (!l)
		return -ENOMEM;
	r = write ? lend_create(l, client->who, n.len) : lend_read(l, ret_len);
	if (r < 0) {
		lend_close(l);
		return r;
	}
	*ret_fd = write ? -1 : l->fd;
	*ret = l;
	return 0;
}

void lend_close(struct lend *l)
{
	if (l->write)
		lend_end(l);
	(void)pthread_mutex_lock(&l->kv->lock);
	list_del(&l->link);
	(void)pthread_mutex_unlock(&l->kv->lock);
	lend_unref(l);
}

int lend_find(struct pst_kv *kv, const char *name, const char *tenant, uint64_t *ret_len)
{
	struct pst_kv_item item = { 0 };
	struct block_name n;
	uint32_t space;
	int64_t len, r = lend_name(name, tenant, false, &n);

	if (r == 0)
		r = lend_space(kv, &n, false, 0, &space);
	if (r < 0)
		return (int)r;
	item.key = n.key;
	item.key_len = n.key_len;
	r = pst_kv_lookup(kv, space, &item, 1, &len);
	if (r < 0 || len < 0)
		return (int)(r < 0 ? r : len);
	*ret_len = (uint64_t)len;
	return 0;
}

int lend_delete(struct pst_kv *kv, const char *name, const char *tenant)
{
	struct block_id id = { 0 };
	struct block_name n;
	uint32_t space;
	int r = lend_name(name, tenant, false, &n);

	if (r == 0)
		r = lend_space(kv, &n, false, 0, &space);
	if (r < 0)
		return r;
	id = (struct block_id){
		.space = kv->spaces[space]->hash,
		.hash = kv_key_hash(kv, kv->spaces[space], n.key, n.key_len),
		.key = n.key,
		.key_len = (uint32_t)n.key_len,
	};
	r = cache_delete(kv, space, &id);
	return r > 0 ? 0 : r == 0 ? -ENOENT : r;
}
