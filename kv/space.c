/* SPDX-License-Identifier: MIT */
/*
 * Spaces.  The directory of a space is named by a hash of the space's name.  In addition, a file of
 * words has quota, identity and tenant, each ended by a zero byte.  The salt is only part of the
 * hash and is not stored.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/err.h"
#include "base/fork.h"
#include "base/opts.h"

#include "kv/event.h"
#include "kv/lend.h"
#include "kv/name.h"
#include "kv/store.h"

#define WORDS_MAX (2 * PST_KV_TEXT_MAX + 64)

void space_free(struct space *sp)
{
	if (!sp)
		return;
	if (sp->own.policy)
		(void)sp->own.policy->ops->free(sp->own.policy);
	(void)pthread_rwlock_destroy(&sp->dropping);
	free(sp->prefix);
	free(sp->identity);
	free(sp->tenant);
	free(sp);
}

bool space_find(const struct pst_kv *kv, uint64_t hash, uint32_t *ret)
{
	for (unsigned i = 0; i < kv->nr_spaces; i++) {
		if (kv->spaces[i]->hash == hash) {
			*ret = i;
			return true;
		}
	}
	return false;
}

uint64_t space_hash(const struct pst_kv *kv, const char *identity, const char *tenant,
		    const char *salt)
{
	struct hash_part parts[] = {
		{ identity, strlen(identity) },
		{ tenant, strlen(tenant) },
		{ salt, strlen(salt) },
	};

	return kv_hash(&kv->root.key, parts, ARRAY_SIZE(parts));
}

static int space_check_room(const struct pst_kv *kv)
{
	if (kv->nr_spaces < PST_KV_SPACES_MAX)
		return 0;
	return err_set(ENOSPC,
		       "a store has at most %u spaces; drop tenants, then close and open the store",
		       PST_KV_SPACES_MAX);
}

int space_add(struct pst_kv *kv, uint64_t hash, uint64_t quota, uint32_t *ret)
{
	pthread_rwlockattr_t drops_first;
	struct space *sp;
	int r;

	if (space_find(kv, hash, ret))
		return 0;
	r = space_check_room(kv);
	if (r < 0)
		return r;
	sp = calloc(1, sizeof(*sp));
	if (!sp)
		return err_set(ENOMEM, "out of memory");
	/* A drop must not wait for ever behind sets that overlap. */
	(void)pthread_rwlockattr_init(&drops_first);
	(void)pthread_rwlockattr_setkind_np(&drops_first,
					    PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	(void)pthread_rwlock_init(&sp->dropping, &drops_first);
	(void)pthread_rwlockattr_destroy(&drops_first);
	sp->hash = hash;
	sp->quota = quota;
	sp->cache = &kv->common;
	if (quota && !kv->reader) {
		sp->own.capacity = quota;
		sp->own.policy = kv->ops->new (quota, 0);
		if (!sp->own.policy) {
			space_free(sp);
			return err_set(ENOMEM, "out of memory");
		}
		sp->cache = &sp->own;
	}
	kv->spaces[kv->nr_spaces] = sp;
	*ret = kv->nr_spaces++;
	return 0;
}

int space_words(int dir, const char *name, char **identity, char **tenant, uint64_t *ret_quota)
{
	_cleanup_(closep) int fd = -1;
	char path[32], text[WORDS_MAX + 1];
	char *second, *third;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "spaces/%.16s", name);
	fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	n = fd < 0 ? -1 : read(fd, text, WORDS_MAX);
	if (n < 0)
		return -errno;
	text[n] = '\0';
	second = memchr(text, '\0', (size_t)n);
	third = second ? memchr(second + 1, '\0', (size_t)(text + n - second - 1)) : NULL;
	if (!third || text[n - 1] != '\0')
		return -EBADMSG;
	*ret_quota = strtoull(text, NULL, 10);
	*identity = strdup(second + 1);
	*tenant = strdup(third + 1);
	if (!*identity || !*tenant) {
		free(*identity);
		free(*tenant);
		return -ENOMEM;
	}
	return 0;
}

/* Return true if a directory of the store may contain blocks of a space. */
static bool has_blocks(const struct pst_kv *kv, uint64_t hash)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "b/%016" PRIx64, hash);
	for (unsigned i = 0; i < kv->root.nr; i++)
		if (faccessat(kv->root.dir[i], path, F_OK, 0) == 0 || errno != ENOENT)
			return true;
	return false;
}

int space_load(struct pst_kv *kv)
{
	int fd = openat(kv->root.dir[0], "spaces", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		r = errno;
		closep(&fd);
		return err_set(r, "cannot read %s/spaces: %s", kv->root.path[0], strerror(r));
	}
	while (r == 0 && (e = readdir(d))) {
		char *identity, *tenant;
		uint64_t hash, quota;
		uint32_t at;

		if (!root_parse_name(e->d_name, &hash))
			continue;
		/* Remove the files of spaces without blocks, so that there is room for others. */
		if (!kv->reader && !has_blocks(kv, hash)) {
			(void)unlinkat(dirfd(d), e->d_name, 0);
			continue;
		}
		if (space_words(kv->root.dir[0], e->d_name, &identity, &tenant, &quota) < 0)
			continue;
		quota = kv->quota ? kv->quota : quota;
		r = space_add(kv, hash, quota >= BUDGET_MIN ? quota : 0, &at);
		if (r == 0) {
			kv->spaces[at]->identity = identity;
			kv->spaces[at]->tenant = tenant;
		} else {
			free(identity);
			free(tenant);
		}
		/* Ignore -ENOSPC: further spaces are not loaded, and their keys are not found. */
		if (r == -ENOSPC)
			r = 0;
	}
	(void)closedir(d);
	return r;
}

static int write_words(struct pst_kv *kv, uint64_t hash, const struct pst_kv_space_opts *o)
{
	char text[WORDS_MAX], name[32];
	int n = snprintf(text, sizeof(text), "%" PRIu64 "%c%s%c%s", o->quota, '\0', o->identity,
			 '\0', o->tenant);

	(void)snprintf(name, sizeof(name), "spaces/%016" PRIx64, hash);
	return root_write_file(kv->root.dir[0], name, text, (size_t)n + 1);
}

/* Find the space with these words.  Called with the lock. */
static int kv_space_find(struct pst_kv *kv, uint64_t hash, const struct pst_kv_space_opts *o,
			 uint32_t *ret)
{
	for (unsigned i = 0; i < kv->nr_spaces; i++) {
		const struct space *sp = kv->spaces[i];

		if (sp->hash != hash || !sp->identity)
			continue;
		if (sp->quota != o->quota && !kv->reader)
			return err_set(EINVAL,
				       "the space has a quota of %" PRIu64 " bytes, not %" PRIu64
				       "; drop it, then close and open the store, to change that",
				       sp->quota, o->quota);
		*ret = i;
		return 1;
	}
	return 0;
}

/* Find or create a space.  Called with kv->naming, because two threads would write the same
 * file. */
static int name_space(struct pst_kv *kv, uint64_t hash, const struct pst_kv_space_opts *o,
		      uint32_t *ret)
{
	struct space *sp;
	uint32_t at;
	int r;

	(void)pthread_mutex_lock(&kv->lock);
	r = kv_space_find(kv, hash, o, ret);
	if (r == 0 && !space_find(kv, hash, &at))
		r = space_check_room(kv);
	(void)pthread_mutex_unlock(&kv->lock);
	if (r != 0)
		return r < 0 ? r : 0;
	r = kv->reader ? 0 : write_words(kv, hash, o);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&kv->lock);
	r = space_add(kv, hash, o->quota, &at);
	sp = r < 0 ? NULL : kv->spaces[at];
	if (sp && !sp->identity) {
		/* Set the tenant first: a thread that sees the identity uses the tenant as well. */
		if (!sp->tenant)
			sp->tenant = strdup(o->tenant);
		sp->identity = sp->tenant ? strdup(o->identity) : NULL;
		if (!sp->identity)
			r = err_set(ENOMEM, "out of memory");
	}
	(void)pthread_mutex_unlock(&kv->lock);
	if (r == 0)
		*ret = at;
	return r;
}

/* Find or add a space of a served store, whose words are part of the names of its blocks. */
static int name_served_space(struct pst_kv *kv, const struct pst_kv_space_opts *o, uint32_t *ret)
{
	char *prefix;
	uint32_t i;
	int r = 0;

	if (o->quota)
		return err_set(EINVAL,
			       "quotas of a served store are those of its server; give none");
	if (strlen(o->salt) > PST_KV_TEXT_MAX)
		return err_set(ENAMETOOLONG, "a salt has at most %u bytes in a served store",
			       PST_KV_TEXT_MAX);
	prefix = name_of_space(o->identity, o->tenant, o->salt);
	if (!prefix)
		return err_set(ENOMEM, "out of memory");
	(void)pthread_mutex_lock(&kv->lock);
	for (i = 0; i < kv->nr_spaces && strcmp(kv->spaces[i]->prefix, prefix) != 0;)
		i++;
	if (i == kv->nr_spaces) {
		/* Use the number as a hash that no other space has. */
		r = space_add(kv, i, 0, &i);
		if (r == 0)
			kv->spaces[i]->prefix = TAKE_PTR(prefix);
	}
	(void)pthread_mutex_unlock(&kv->lock);
	free(prefix);
	if (r == 0)
		*ret = i;
	return r;
}

PST_API int pst_kv_space(struct pst_kv *kv, const struct pst_kv_space_opts *opts,
			 uint32_t *ret_space)
{
	struct pst_kv_space_opts o;
	int r = fork_guard();

	if (r == 0)
		r = opts_copy(&o, sizeof(o), opts);
	if (r < 0)
		return r;
	o.tenant = o.tenant ? o.tenant : "";
	o.salt = o.salt ? o.salt : "";
	if (!o.identity || !*o.identity)
		return err_set(EINVAL, "a space needs an identity: model, revision, layout, dtype");
	if (strlen(o.identity) > PST_KV_TEXT_MAX || strlen(o.tenant) > PST_KV_TEXT_MAX)
		return err_set(EINVAL, "identity and tenant of a space have at most %u bytes",
			       PST_KV_TEXT_MAX);
	if (o.quota && o.quota < BUDGET_MIN)
		return err_set(EINVAL, "a quota is at least 1 MiB");
	(void)pthread_mutex_lock(&kv->naming);
	if (kv->server)
		r = name_served_space(kv, &o, ret_space);
	else
		r = name_space(kv, space_hash(kv, o.identity, o.tenant, o.salt), &o, ret_space);
	(void)pthread_mutex_unlock(&kv->naming);
	return r;
}

/* ---------------------------------------------------------------- drop */

/* Remove all blocks of a space from the index.  Called with the lock.  Return their bytes. */
static uint64_t forget_space(struct cache *c, uint32_t space, uint64_t *ret_blocks)
{
	struct tier_policy *p = c->policy;
	uint64_t bytes = 0;

	*ret_blocks = 0;
	for (unsigned q = 0; q < p->ops->cached; q++) {
		struct entry *e = index_oldest(p->index, q), *next;

		for (; e; e = next) {
			next = index_newer(p->index, e);
			if (user_space(e->user) != space)
				continue;
			bytes += e->size;
			(*ret_blocks)++;
			p->ops->forget(p, e->id);
		}
	}
	return bytes;
}

static int drop_space(struct pst_kv *kv, uint32_t space)
{
	struct space *sp = kv->spaces[space];
	char from[32], to[48];
	uint64_t bytes, blocks, nr;
	int r = 0;

	/* Hold the lock, so that threads which store or remove blocks see both changes at once: the
	 * files are moved, and the index has no blocks of the space. */
	(void)pthread_rwlock_wrlock(&sp->dropping);
	(void)pthread_mutex_lock(&kv->lock);
	nr = kv->next_temp++;
	(void)pthread_mutex_unlock(&kv->lock);
	(void)snprintf(from, sizeof(from), "b/%016" PRIx64, sp->hash);
	(void)snprintf(to, sizeof(to), "gone/%" PRIu64, nr);
	for (unsigned i = 0; i < kv->root.nr; i++)
		if (renameat(kv->root.dir[i], from, kv->root.dir[i], to) < 0 && errno != ENOENT)
			r = -errno;
	(void)pthread_mutex_lock(&kv->lock);
	bytes = forget_space(sp->cache, space, &blocks);
	cache_trim(kv, sp->cache);
	kv->stat.removed += blocks;
	event_add(kv, PST_KV_DROPPED, space, NULL, 0);
	(void)pthread_mutex_unlock(&kv->lock);
	lend_revoke(kv, sp->hash, NULL);
	(void)pthread_rwlock_unlock(&sp->dropping);
	for (unsigned i = 0; i < kv->root.nr; i++) {
		int gone = root_remove_tree(kv->root.dir[i], to);

		r = gone < 0 ? gone : r;
	}
	(void)pthread_mutex_lock(&kv->lock);
	if (r == 0) {
		kv->used -= bytes;
		kv->files -= blocks;
		sp->cache->used -= bytes;
	} else {
		kv->broken = true;
	}
	(void)pthread_mutex_unlock(&kv->lock);
	return r;
}

/* Return true if a space has that identity and that tenant; NULL matches any. */
static bool is_named(struct pst_kv *kv, unsigned space, const char *identity, const char *tenant)
{
	const struct space *sp;
	bool is;

	(void)pthread_mutex_lock(&kv->lock);
	sp = kv->spaces[space];
	is = sp->identity && (!identity || !strcmp(sp->identity, identity)) &&
	     (!tenant || !strcmp(sp->tenant, tenant));
	(void)pthread_mutex_unlock(&kv->lock);
	return is;
}

PST_API int pst_kv_drop(struct pst_kv *kv, const char *identity, const char *tenant)
{
	int r = fork_guard(), dropped = 0;
	unsigned nr;

	if (r < 0)
		return r;
	if (kv->server)
		return err_set(EROFS, "blocks of a served store are dropped on its server, by "
				      "penstock kv drop");
	if (kv->reader)
		return err_set(EROFS, "the store was opened for reading: its owner drops");
	if (!identity && !tenant)
		return err_set(EINVAL, "name an identity or a tenant to drop");
	(void)pthread_mutex_lock(&kv->lock);
	nr = kv->nr_spaces;
	(void)pthread_mutex_unlock(&kv->lock);
	for (unsigned i = 0; i < nr; i++) {
		if (!is_named(kv, i, identity, tenant))
			continue;
		r = drop_space(kv, i);
		if (r < 0)
			return err_set(r, "cannot remove all blocks of tenant '%s': %s",
				       kv->spaces[i]->tenant, strerror(-r));
		dropped++;
	}
	return dropped;
}
