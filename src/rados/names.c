/* SPDX-License-Identifier: MIT */
/*
 * Calls on names of objects.  A pool has neither directories nor an order: a directory of rados://
 * is a prefix of names that ends in a slash, and each listing reads all names of the pool.
 */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/names.h"
#include "rados/lib.h"
#include "rados/rados.h"

#define DIRS_MAX 1000000u /* directories remembered during one listing */

int name_split(const char *name, char pool[256], const char **ret_object)
{
	const char *at = name + strlen("rados://"), *slash = strchr(at, '/');
	size_t len = slash ? (size_t)(slash - at) : strlen(at);

	if (!len || len >= 256)
		return err_set(EINVAL,
			       "%.200s has no pool, or too long a name of one; write "
			       "rados://POOL/OBJECT",
			       name);
	memcpy(pool, at, len);
	pool[len] = '\0';
	*ret_object = slash ? slash + 1 : at + len;
	if (strlen(*ret_object) > LAYOUT_NAME_MAX - LAYOUT_SUFFIX)
		return err_set(ENAMETOOLONG, "%.200s: a name of an object has at most %u bytes",
			       name, LAYOUT_NAME_MAX - LAYOUT_SUFFIX);
	return 0;
}

/* -------------------------------------------------------------------- lists */

struct listing {
	const char *pool;
	char *prefix; /* "", or a directory with a trailing slash */
	uint32_t flags;
	pst_name_fn fn;
	void *arg;
	void *io;   /* I/O context for reading facts */
	void *dirs; /* tree of tsearch(): directories already listed */
	unsigned nr_dirs;
	bool any;
	int given; /* result of fn, or -errno with a sentence */
};

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int give_dir(struct listing *l, const char *name, size_t len)
{
	struct pst_name_info info = { .sz = sizeof(info), .kind = PST_NAME_DIR };
	char *copy = strndup(name, len), **at;
	int r;

	at = copy ? tsearch(copy, &l->dirs, compare_names) : NULL;
	if (!at) {
		free(copy);
		return err_set(ENOMEM, "out of memory");
	}
	if (*at != copy) {
		free(copy);
		return 0;
	}
	if (++l->nr_dirs > DIRS_MAX)
		return err_set(EFBIG, "rados://%.100s/%.100s has more than a million directories",
			       l->pool, l->prefix);
	r = l->fn(l->arg, copy, &info);
	return r;
}

static int give_file(struct listing *l, const char *object)
{
	struct pst_name_info info = { .sz = sizeof(info), .kind = PST_NAME_FILE };
	char shown[320];
	struct facts facts;
	int r;

	if (l->flags & PST_NAME_FACTS) {
		(void)snprintf(shown, sizeof(shown), "rados://%.100s/%.200s", l->pool, object);
		r = rados_ask_facts(l->io, object, shown, &facts);
		if (r == -ENOENT)
			return 0; /* the object was removed in between */
		if (r < 0)
			return r;
		info.has = PST_NAME_HAS_SIZE | PST_NAME_HAS_MTIME;
		info.size = facts.size;
		info.mtime_ns = (int64_t)facts.mtime * (int64_t)NSEC_PER_SEC;
	}
	return l->fn(l->arg, object + strlen(l->prefix), &info);
}

static int give(struct listing *l, const char *object)
{
	char name[LAYOUT_NAME_MAX + 1];
	size_t prefix = strlen(l->prefix), len = strlen(object);
	const char *slash;
	uint64_t nth = 0;

	if (len > LAYOUT_NAME_MAX || strncmp(object, l->prefix, prefix) != 0)
		return 0;
	/* Of a striped file, list only the first object. */
	memcpy(name, object, len + 1);
	if (layout_suffix(name, &nth))
		name[len - LAYOUT_SUFFIX] = '\0';
	if (nth || !name[prefix])
		return 0;
	l->any = true;
	slash = strchr(name + prefix, '/');
	if (slash && !(l->flags & PST_NAME_TREE))
		return slash == name + prefix
			       ? 0
			       : give_dir(l, name + prefix, (size_t)(slash - name) - prefix);
	return give_file(l, name);
}

static int read_names(struct listing *l)
{
	struct lib_own own;
	const char *object, *key, *space;
	void *list;
	int r = lib_own_get(l->pool, &own);

	if (r < 0)
		return r;
	l->io = own.ioctx;
	r = lib.rados_nobjects_list_open(own.ioctx, &list);
	if (r == 0) {
		while ((r = lib.rados_nobjects_list_next(list, &object, &key, &space)) == 0 &&
		       (l->given = give(l, object)) == 0)
			;
		if (l->given || r == -ENOENT) /* end of the pool */
			r = l->given;
		else
			r = lib_err(r, l->pool);
		lib.rados_nobjects_list_close(list);
	} else {
		r = lib_err(r, l->pool);
	}
	lib_own_put(&own);
	return r;
}

static int rados_list_names(const char *name, struct listing *l)
{
	const char *object;
	char pool[256];
	int r = name_split(name, pool, &object);
	size_t len = r == 0 ? strlen(object) : 0;

	if (r < 0)
		return r;
	l->pool = pool;
	if (asprintf(&l->prefix, "%s%s", object, len && object[len - 1] != '/' ? "/" : "") < 0)
		return err_set(ENOMEM, "out of memory");
	r = read_names(l);
	if (r == 0 && !l->any && len)
		r = err_set(ENOENT, "%.200s: no name of the pool begins so", name);
	tdestroy(l->dirs, free);
	free(l->prefix);
	return r;
}

static int rados_list(const char *name, uint32_t flags, pst_name_fn fn, void *arg)
{
	struct listing l = { .flags = flags, .fn = fn, .arg = arg };

	return rados_list_names(name, &l);
}

/* ------------------------------------------------------------ one at a time */

struct named {
	char pool[256];
	const char *object;
	void *io;
	struct facts facts;
};

static int named_get(const char *name, struct named *n)
{
	int r = name_split(name, n->pool, &n->object);

	if (r == 0 && !*n->object)
		r = err_set(EISDIR, "%.200s is a pool, and no object", name);
	if (r == 0)
		r = lib_pool_get(n->pool, &n->io);
	if (r < 0)
		return r;
	r = rados_ask_facts(n->io, n->object, name, &n->facts);
	if (r < 0)
		lib_pool_put(n->io);
	return r;
}

static int stop_at_first(void *arg, const char *name, const struct pst_name_info *info)
{
	(void)arg;
	(void)name;
	(void)info;
	return 1;
}

static int rados_dir_stat(const char *name, struct pst_name_info *ret)
{
	struct listing l = { .flags = PST_NAME_TREE, .fn = stop_at_first };
	int r = rados_list_names(name, &l);

	if (r >= 0)
		ret->kind = PST_NAME_DIR;
	return MIN(r, 0);
}

static int rados_stat(const char *name, struct pst_name_info *ret)
{
	struct named n;
	int r = name_split(name, n.pool, &n.object);

	if (r < 0)
		return r;
	if (!*n.object) {
		r = lib_pool_get(n.pool, &n.io);
		if (r < 0)
			return r;
		lib_pool_put(n.io);
		ret->kind = PST_NAME_DIR;
		return 0;
	}
	r = n.object[strlen(n.object) - 1] == '/' ? -ENOENT : named_get(name, &n);
	if (r == -ENOENT)
		return rados_dir_stat(name, ret);
	if (r < 0)
		return r;
	ret->kind = PST_NAME_FILE;
	ret->has = PST_NAME_HAS_SIZE | PST_NAME_HAS_MTIME;
	ret->size = n.facts.size;
	ret->mtime_ns = (int64_t)n.facts.mtime * (int64_t)NSEC_PER_SEC;
	lib_pool_put(n.io);
	return 0;
}

static int rados_unlink(const char *name)
{
	struct named n;
	int r = named_get(name, &n);

	if (r < 0)
		return r;
	r = rados_ask_remove(n.io, n.object, name, &n.facts);
	lib_pool_put(n.io);
	return r;
}

static int rados_truncate(const char *name, uint64_t size)
{
	struct named n;
	int r = named_get(name, &n);

	if (r < 0)
		return r;
	r = rados_ask_truncate(n.io, n.object, name, &n.facts, size);
	lib_pool_put(n.io);
	return r;
}

const struct names_ops rados_names_ops = {
	.stat = rados_stat,
	.list = rados_list,
	.lists_trees = true,
	.unlink = rados_unlink,
	.truncate = rados_truncate,
};
