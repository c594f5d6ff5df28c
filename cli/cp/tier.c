/* SPDX-License-Identifier: MIT */
/*
 * Targets in a set of tiers: tier://SET/NAME.
 *
 * Such a target is a plain file below one of the set's roots, and is written like any other file.
 * The set is locked while an existing file is looked up and opened; afterwards the mover does not
 * move the file, because it is open for writing.  A new file gets its name while the set is locked,
 * if no root has that name.
 */
#include "cli/cp/cp.h"

#include <libgen.h>

#include "base/err.h"
#include "tier/bring.h"
#include "tier/lookup.h"
#include "tier/move.h"
#include "tier/object.h"
#include "tier/place.h"
#include "tier/stamp.h"

#define SCHEME "tier://"

struct cp_tier {
	struct tier_set *set;
	unsigned root;
	char name[TIER_NAME_SIZE];
};

bool cp_names_tier(const char *name)
{
	return !strncmp(name, SCHEME, sizeof(SCHEME) - 1);
}

static int fail_set(int err)
{
	return fail(err, "%s", err_text());
}

/* Open the set at the beginning of a name, and return the rest of the name. */
static int open_set(const char *name, struct tier_set **ret, const char **ret_rest)
{
	const char *at = name + sizeof(SCHEME) - 1, *slash = strchr(at, '/');
	char set[NAME_MAX + 1];
	int r;

	if (!slash || slash == at || (size_t)(slash - at) > NAME_MAX)
		return fail(EINVAL, "%s is not " SCHEME "SET/NAME", name);
	memcpy(set, at, (size_t)(slash - at));
	set[slash - at] = '\0';
	*ret_rest = slash + 1;
	r = set_open(set, ret);
	return r < 0 ? fail_set(r) : 0;
}

/* The copy of an object gets the file's mode, as that of a file on a disk does. */
static int stat_object(struct tier_set *set, const struct tier_file *file, struct stat *ret)
{
	struct object_attrs attrs;
	struct tier_object o;
	int r = catalog_object(set->catalog, file->id, &o);

	if (r == -ENOENT)
		return fail(EAGAIN, "%s is being moved; try again", file->name);
	if (r == 0)
		r = object_attrs(set, o.meta, &attrs);
	if (r < 0)
		return fail_set(r);
	*ret = (struct stat){
		.st_mode = S_IFREG | attrs.mode,
		.st_uid = attrs.uid,
		.st_gid = attrs.gid,
		.st_size = (off_t)file->stamp.size,
		.st_mtim = attrs.mtime,
	};
	return 0;
}

int cp_tier_stat(const char *name, struct stat *ret)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	_cleanup_(closep) int fd = -1;
	struct tier_file file;
	const char *rest;
	int r = open_set(name, &set, &rest);

	if (r < 0)
		return r;
	fd = lookup_open(set, rest, O_RDONLY, &file);
	if (fd == -EREMOTE)
		return stat_object(set, &file, ret);
	if (fd < 0)
		return fail_set(fd);
	return fstat(fd, ret) < 0 ? fail(errno, "%s: %s", name, strerror(errno)) : 0;
}

/* Set the file's name.  If it ends with a slash, it is a directory: append the source's file
 * name. */
static int set_name(struct cp_tier *t, const char *rest, const char *src)
{
	_cleanup_(freep) char *copy = strdup(src);
	size_t len = strlen(rest);
	bool dir = len == 0 || rest[len - 1] == '/';

	if (!copy)
		return fail(ENOMEM, "out of memory");
	if (snprintf(t->name, sizeof(t->name), "%s%s", rest, dir ? basename(copy) : "") >=
	    (int)sizeof(t->name))
		return fail(ENAMETOOLONG, "the target's name is too long");
	return name_check(t->name) < 0 ? fail_set(-EINVAL) : 0;
}

/* Find the root that has the file, or in which it will be created. */
static int find_root(struct cp_tier *t, uint64_t size)
{
	_cleanup_(closep) int fd = -1, dir = -1;
	struct tier_file file;
	const char *base;
	int root;

	/* The set is locked: move a file that is an object to a disk first. */
	root = bring_up(t->set, t->name);
	if (root < 0)
		return fail_set(root);
	fd = lookup_open(t->set, t->name, O_RDONLY, &file);
	if (fd >= 0) {
		t->root = file.root;
		/* A mover that was killed after a move may not have told readers of the file's new
		 * root. */
		set_moved(t->set, t->name);
		return 0;
	}
	if (fd != -ENOENT)
		return fail_set(fd);
	root = place_root(t->set, size);
	if (root < 0)
		return fail_set(root);
	t->root = (unsigned)root;
	dir = place_dir(t->set, t->root, t->name, &base);
	return dir < 0 ? fail_set(dir) : 0;
}

int cp_tier_resolve(struct copy *c, const char *dst)
{
	struct recover_counts recovered;
	const char *rest;
	int r;

	c->tier = calloc(1, sizeof(*c->tier));
	if (!c->tier)
		return fail(ENOMEM, "out of memory");
	r = open_set(dst, &c->tier->set, &rest);
	if (r == 0)
		r = set_name(c->tier, rest, c->src);
	if (r < 0)
		return r;
	r = set_lock(c->tier->set);
	/* A killed mover may have left two copies, of which recovery will remove one. */
	if (r == 0)
		r = recover_set(c->tier->set, &recovered);
	if (r < 0)
		return fail_set(r);
	r = find_root(c->tier, c->size);
	if (r == 0 && asprintf(&c->dst, "%s/%s", c->tier->set->roots[c->tier->root].path,
			       c->tier->name) < 0) {
		c->dst = NULL;
		r = fail(ENOMEM, "out of memory");
	}
	return r;
}

void cp_tier_resolved(struct copy *c)
{
	if (c->tier && c->tier->set)
		set_unlock(c->tier->set);
}

static int tier_publish(struct copy *c)
{
	struct cp_tier *t = c->tier;
	_cleanup_(closep) int fd = -1;
	struct tier_file file = { .root = t->root }, other;
	struct stat st;
	int r;

	fd = lookup_open(t->set, t->name, O_RDONLY, &other);
	if (fd >= 0)
		return fail(EEXIST, "somebody made %s in the set %s meanwhile; it stays", t->name,
			    t->set->name);
	if (fd != -ENOENT)
		return fail_set(fd);
	r = cp_publish(c);
	if (r < 0)
		return r;
	if (fstat(c->dst_fd, &st) < 0)
		return fail(errno, "%s: %s", c->dst, strerror(errno));
	(void)snprintf(file.name, sizeof(file.name), "%s", t->name);
	file.stamp = stamp_of(&st);
	file.bytes = (uint64_t)st.st_blocks * 512;
	r = catalog_put(t->set->catalog, &file);
	return r < 0 ? fail_set(r) : 0;
}

int cp_tier_publish(struct copy *c)
{
	int r;

	/* An existing file keeps its name; the next scan records its new size. */
	if (c->in_place)
		return cp_publish(c);
	r = set_lock(c->tier->set);
	if (r < 0)
		return fail_set(r);
	r = tier_publish(c);
	set_unlock(c->tier->set);
	return r;
}

void cp_tier_done(struct copy *c)
{
	if (c->tier)
		(void)set_close(c->tier->set);
	free(c->tier);
}
