/* SPDX-License-Identifier: MIT */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/scheme.h"
#include "file/file.h"
#include "file/names.h"

/* ---------------------------------------------------------------- providers */

static int err_cannot(const char *name, const char *what)
{
	return err_set(EOPNOTSUPP, "%.*s: files of %.*s:// %s", scheme_shown_len(name), name,
		       (int)scheme_len(name), name, what);
}

/* Find the calls on names of the provider that opens such a name. */
static int find_ops(const char *name, const struct names_ops **ret)
{
	const struct file_ops *ops;
	int r;

	if (!*name)
		return err_set(ENOENT, "the name is empty");
	if (strlen(name) >= PATH_MAX)
		return err_set(ENAMETOOLONG, "the name is too long: %.*s...",
			       MIN(64, scheme_shown_len(name)), name);
	if (!scheme_len(name)) {
		*ret = &local_names_ops;
		return 0;
	}
	r = file_provider_find(name, &ops);
	if (r < 0)
		return r;
	if (!ops->names)
		return err_cannot(name, "have no calls by name");
	*ret = ops->names;
	return 0;
}

int names_stat(const char *name, struct pst_name_info *ret)
{
	const struct names_ops *ops;
	int r = find_ops(name, &ops);

	*ret = (struct pst_name_info){ .sz = sizeof(*ret) };
	if (r < 0)
		return r;
	return ops->stat ? ops->stat(name, ret) : err_cannot(name, "tell no facts by name");
}

int names_unlink(const char *name)
{
	const struct names_ops *ops;
	int r = find_ops(name, &ops);

	if (r < 0)
		return r;
	return ops->unlink ? ops->unlink(name) : err_cannot(name, "cannot be removed from here");
}

int names_rename(const char *name, const char *to)
{
	const struct names_ops *ops, *to_ops;
	int r = find_ops(name, &ops);

	if (r == 0)
		r = find_ops(to, &to_ops);
	if (r < 0)
		return r;
	if (scheme_len(name) != scheme_len(to) || memcmp(name, to, scheme_len(name)) != 0)
		return err_set(EXDEV,
			       "%.*s and %.*s are not of one service; copy the file with "
			       "penstock cp, and remove the old one",
			       scheme_shown_len(name), name, scheme_shown_len(to), to);
	return ops->rename ? ops->rename(name, to)
			   : err_cannot(name, "are not renamed in one step; copy the file with "
					      "penstock cp, and remove the old one");
}

int names_truncate(const char *name, uint64_t size)
{
	const struct names_ops *ops;
	int r = find_ops(name, &ops);

	if (r < 0)
		return r;
	if (size > INT64_MAX)
		return err_set(EFBIG, "no file has %llu bytes", (unsigned long long)size);
	return ops->truncate ? ops->truncate(name, size)
			     : err_cannot(name, "are written as a whole; write a new one");
}

/* -------------------------------------------------------------------- trees */

/* A directory still to be listed: its name relative to the tree's root, "" for the root. */
struct dir {
	struct dir *next;
	unsigned level;
	char name[];
};

struct tree {
	const struct names_ops *ops;
	const char *root;
	uint32_t flags;
	pst_name_fn fn;
	void *arg;
	struct dir *now, *todo;
	int stop; /* nonzero result of fn, which ends the listing */
};

/* Return DIR/NAME, or NAME if dir is "". */
static char *names_join(const char *dir, const char *name)
{
	char *text;

	return asprintf(&text, "%s%s%s", dir, *dir ? "/" : "", name) < 0 ? NULL : text;
}

static int push_dir(struct tree *t, const char *dir, const char *name)
{
	size_t len = strlen(dir) + strlen(name) + 2;
	struct dir *d = malloc(sizeof(*d) + len);

	if (!d)
		return err_set(ENOMEM, "out of memory");
	d->level = t->now ? t->now->level + 1 : 0;
	if (d->level > NAMES_LEVELS_MAX) {
		free(d);
		return err_set(ELOOP, "%s/%s: the tree has more than %u levels", t->root, dir,
			       NAMES_LEVELS_MAX);
	}
	(void)snprintf(d->name, len, "%s%s%s", dir, *dir ? "/" : "", name);
	d->next = t->todo;
	t->todo = d;
	return 0;
}

static int tree_entry(void *arg, const char *name, const struct pst_name_info *info)
{
	struct tree *t = arg;
	char *path;

	if (info->kind == PST_NAME_DIR)
		return push_dir(t, t->now->name, name);
	path = names_join(t->now->name, name);
	if (!path)
		return err_set(ENOMEM, "out of memory");
	t->stop = t->fn(t->arg, path, info);
	free(path);
	return t->stop;
}

static int list_dir(struct tree *t)
{
	const char *slash = t->root[strlen(t->root) - 1] == '/' ? "" : "/";
	char *path;
	int r;

	if (!*t->now->name)
		return t->ops->list(t->root, t->flags, tree_entry, t);
	if (asprintf(&path, "%s%s%s", t->root, slash, t->now->name) < 0)
		return err_set(ENOMEM, "out of memory");
	r = t->ops->list(path, t->flags, tree_entry, t);
	/* The directory was removed or replaced by a file after its entry was read. */
	if ((r == -ENOENT || r == -ENOTDIR) && !t->stop)
		r = 0;
	free(path);
	return r;
}

static int list_tree(struct tree *t)
{
	int r = push_dir(t, "", "");

	while (r == 0 && t->todo) {
		t->now = t->todo;
		t->todo = t->now->next;
		r = list_dir(t);
		free(t->now);
		t->now = NULL;
	}
	while (t->todo) {
		struct dir *d = t->todo;

		t->todo = d->next;
		free(d);
	}
	return r;
}

int names_list(const char *name, uint32_t flags, pst_name_fn fn, void *arg)
{
	const struct names_ops *ops;
	int r = find_ops(name, &ops);

	if (r < 0)
		return r;
	if (!ops->list)
		return err_cannot(name, "are not listed");
	if (flags & PST_NAME_TREE && !ops->lists_trees)
		return list_tree(&(struct tree){
			.ops = ops,
			.root = name,
			.flags = flags & ~PST_NAME_TREE,
			.fn = fn,
			.arg = arg,
		});
	return ops->list(name, flags, fn, arg);
}
