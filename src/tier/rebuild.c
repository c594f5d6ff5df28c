/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "base/err.h"
#include "tier/copy.h"
#include "tier/object.h"
#include "tier/scan.h"
#include "tier/stamp.h"

/* Rename the file to a name that is not in use. */
static int put_aside(const char *state, const char *file)
{
	char from[PATH_MAX], to[PATH_MAX];

	(void)snprintf(from, sizeof(from), "%s/%s", state, file);
	for (unsigned i = 1; i < 1000; i++) {
		(void)snprintf(to, sizeof(to), "%s/%s.damaged-%u", state, file, i);
		if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 ||
		    errno == ENOENT)
			return 0;
		if (errno != EEXIST)
			break;
	}
	return err_set(errno, "cannot put %s aside: %s", from, strerror(errno));
}

/* Remove a slower copy of a file if it has the same bytes. */
static int remove_second(struct tier_set *set, const struct tier_file *f, unsigned root)
{
	_cleanup_(closep) int first = -1, second = -1, dir = -1;
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
	const char *base;

	second = name_open(set->roots[root].fd, f->name, flags, 0);
	if (second < 0)
		return 0;
	first = name_open(set->roots[f->root].fd, f->name, flags, 0);
	if (first < 0 || copy_equal(first, second) != 1)
		return 0;
	dir = name_parent(set->roots[root].fd, f->name, &base);
	/* Sync the copy that stays before removing the other one. */
	if (dir < 0 || fsync(first) < 0 || unlinkat(dir, base, 0) < 0 || fsync(dir) < 0)
		return err_set(errno, "%s: cannot remove its second copy: %s", f->name,
			       strerror(errno));
	return 0;
}

static int one_copy(const struct tier_file *f, void *arg)
{
	struct tier_set *set = arg;
	int r = 0;

	for (unsigned i = 0; i < set->nr_roots && r == 0; i++)
		if (i != f->root && set->roots[i].fd >= 0 && !set->roots[i].read_only)
			r = remove_second(set, f, i);
	return r;
}

struct found_object {
	struct tier_set *set;
	unsigned root;
	unsigned later; /* objects of a name that a newer object or a directory has */
};

/* Return true if the catalogue's object of the file was made later than made_ns. */
static int is_older(const struct found_object *s, const struct tier_file *f, int64_t made_ns)
{
	struct object_facts facts;
	struct object_attrs attrs;
	struct tier_object o;
	int r = catalog_object(s->set->catalog, f->id, &o);

	if (r == 0)
		r = object_head(&s->set->roots[s->root], o.key, &facts);
	if (r == 0)
		r = object_attrs(s->set, facts.meta, &attrs);
	return r < 0 ? r : attrs.made_ns > made_ns;
}

/* Record an object as a file.  A file in a directory comes first, then the newest object. */
static int rebuild_object(struct found_object *s, const char *key, size_t len,
			  const struct object_facts *facts, const struct object_attrs *a)
{
	struct catalog *c = s->set->catalog;
	struct tier_file f = { 0 };
	struct tier_object o;
	char name[TIER_NAME_SIZE];
	int r;

	(void)snprintf(name, sizeof(name), "%.*s", (int)len, key);
	if (name_check(name) < 0)
		return 0;
	r = catalog_find(c, name, &f);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0) {
		r = f.root == s->root ? is_older(s, &f, a->made_ns) : 1;
		if (r) {
			s->later++;
			return MIN(r, 0);
		}
	}
	memcpy(f.name, name, sizeof(name));
	f.root = s->root;
	f.gen++;
	f.bytes = facts->size;
	f.stamp = (struct tier_stamp){ facts->size, stamp_ns(&a->mtime), stamp_ns(&a->mtime), 0 };
	f.has_crc = true;
	f.crc = a->crc;
	(void)snprintf(o.key, sizeof(o.key), "%s", key);
	(void)snprintf(o.etag, sizeof(o.etag), "%s", facts->etag);
	(void)snprintf(o.meta, sizeof(o.meta), "%s", facts->meta);
	r = catalog_put(c, &f);
	return r < 0 ? r : catalog_object_put(c, f.id, &o);
}

static int find_object(void *arg, const char *key, uint64_t size)
{
	struct found_object *s = arg;
	const char *tilde = strrchr(key, '~');
	struct object_facts facts;
	struct object_attrs attrs;
	int r;

	(void)size;
	if (!tilde || tilde == key || strlen(key) >= OBJECT_KEY_SIZE || !object_id_valid(tilde + 1))
		return 0;
	r = object_head(&s->set->roots[s->root], key, &facts);
	/* Another program removed an object meanwhile. */
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	/* Objects of others stay as they are. */
	if (object_attrs(s->set, facts.meta, &attrs) < 0)
		return 0;
	return rebuild_object(s, key, (size_t)(tilde - key), &facts, &attrs);
}

/* Find the files that are objects. */
static int rebuild_objects(struct tier_set *set)
{
	int root = object_root(set), r;
	struct found_object s = { .set = set, .root = (unsigned)MAX(root, 0) };

	if (root < 0)
		return 0;
	r = catalog_begin(set->catalog);
	if (r < 0)
		return r;
	r = object_list(&set->roots[root], find_object, &s);
	/* If the store fails, the catalogue stays unusable until it is made again. */
	if (r == 0)
		r = catalog_set_whole(set->catalog);
	if (r == 0)
		return catalog_commit(set->catalog);
	catalog_rollback(set->catalog);
	return r;
}

int set_rebuild(const char *name)
{
	static const char *const files[] = { "catalog.db-wal", "catalog.db-shm", "catalog.db" };
	_cleanup_(set_closep) struct tier_set *set = NULL;
	struct scan_counts counts;
	int r = set_open_roots(name, &set), root;

	if (r == 0)
		r = set_lock(set);
	/* Require all roots: files on an absent root would be forgotten. */
	if (r == 0)
		r = set_whole(set);
	/* Ask the store before the old catalogue is renamed. */
	root = r == 0 ? object_root(set) : -1;
	if (root >= 0)
		r = object_marker(set, &set->roots[root]);
	for (size_t i = 0; i < ARRAY_SIZE(files) && r == 0; i++)
		r = put_aside(set->state, files[i]);
	if (r == 0)
		r = catalog_open(set->state, &set->catalog);
	if (r == 0)
		r = scan_set(set, &counts);
	if (r == 0)
		r = rebuild_objects(set);
	if (r == 0 && counts.twice)
		r = catalog_each(set->catalog, one_copy, set);
	return r;
}
