/* SPDX-License-Identifier: MIT */
/* Operations on names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

#define UMASK 022u /* set by model.c */

static bool is_full(void)
{
	return tree_nr + 1 >= TREE_NODES;
}

/* --------------------------------------------------------------- open */

static int some_flags(void)
{
	static const int access[] = { O_RDWR, O_RDWR, O_WRONLY, O_RDONLY };
	int flags = access[below(4)];

	if (one_in(2))
		flags |= O_CREAT | (one_in(3) ? O_EXCL : 0);
	else if (one_in(20))
		flags |= O_DIRECTORY;
	/* O_TRUNC only with the right to write: otherwise its effect is unspecified. */
	if (one_in(4) && flags & O_ACCMODE)
		flags |= O_TRUNC;
	if (one_in(5))
		flags |= O_APPEND;
	if (one_in(10) && !(flags & O_DIRECTORY))
		flags |= O_NOFOLLOW;
	if (model.burst) /* a burst of operations on names must not change bytes */
		flags = (flags & ~(O_TRUNC | O_DIRECTORY)) | O_CREAT | O_EXCL;
	if (is_full())
		flags &= ~(O_CREAT | O_EXCL);
	return flags;
}

/* Return the error that open() must give for an existing node. */
static int open_error(const struct node *node, int flags)
{
	if (flags & O_EXCL)
		return EEXIST;
	if (node->kind == NODE_LINK)
		return ELOOP;
	if (node->kind == NODE_DIR)
		return flags & (O_CREAT | O_ACCMODE) ? EISDIR : 0;
	return flags & O_DIRECTORY ? ENOTDIR : 0;
}

static void opened(int fd, int flags, struct node *node, struct timespec before)
{
	if (flags & O_TRUNC) {
		if (node->size)
			time_since(node, before);
		else
			node->time = TIME_ANY;
		memset(node->data, 0, node->size);
		node->size = 0;
	}
	if (model.burst || one_in(3)) {
		(void)close(fd);
		return;
	}
	(void)handle_add(fd, flags, node);
}

void deed_open(void)
{
	int flags = some_flags(), r, fd;
	mode_t mode = 0600 | (mode_t)below(0200);
	char path[TREE_PATH];
	struct timespec before;
	struct place at;

	some_path(!(flags & O_EXCL), path);
	deed_is("open %s flags 0%o mode 0%o", path, (unsigned)flags, mode);
	r = tree_walk(path, !(flags & (O_EXCL | O_NOFOLLOW)), &at);
	if (r == TREE_OUTSIDE)
		return;
	before = time_before();
	fd = open(full(model.view, path), flags | O_CLOEXEC, mode);
	if (!r && at.node)
		r = open_error(at.node, flags);
	else if (!r && !(flags & O_CREAT))
		r = ENOENT;
	if (!ended(fd, r))
		return;
	if (!at.node) {
		at.node = node_new(NODE_FILE, mode & ~UMASK);
		tree_put(&at, at.node);
		time_since(at.dir, before);
		time_since(at.node, before);
	}
	if (at.node->kind == NODE_DIR)
		(void)close(fd);
	else
		opened(fd, flags, at.node, before);
}

/* -------------------------------------------------------- one name */

/* Find the node that a path leads to.  Return false to leave the operation out. */
static bool find(const char *path, struct place *at, int *ret_error)
{
	*ret_error = tree_walk(path, false, at);
	if (*ret_error)
		at->node = NULL;
	return *ret_error != TREE_OUTSIDE;
}

void deed_mkdir(void)
{
	mode_t mode = 0700 | (mode_t)below(0100);
	char path[TREE_PATH];
	struct timespec before;
	struct place at;
	int r;

	if (is_full() || tree_nr_dirs == TREE_DIRS)
		return;
	some_path(false, path);
	deed_is("mkdir %s mode 0%o", path, mode);
	if (!find(path, &at, &r))
		return;
	before = time_before();
	if (!ended(mkdir(full(model.view, path), mode), r ? r : at.node ? EEXIST : 0))
		return;
	tree_put(&at, node_new(NODE_DIR, mode & ~UMASK));
	time_since(at.dir, before);
}

void deed_rmdir(void)
{
	char path[TREE_PATH];
	struct timespec before;
	struct place at;
	int r;

	some_path(true, path);
	deed_is("rmdir %s", path);
	if (!find(path, &at, &r))
		return;
	if (!r)
		r = !at.node                    ? ENOENT
		    : at.node->kind != NODE_DIR ? ENOTDIR
		    : !node_is_empty(at.node)   ? ENOTEMPTY
						: 0;
	before = time_before();
	if (!ended(rmdir(full(model.view, path)), r))
		return;
	tree_take(&at);
	time_since(at.dir, before);
}

void deed_unlink(void)
{
	char path[TREE_PATH];
	struct timespec before;
	struct place at;
	int r;

	some_path(true, path);
	deed_is("unlink %s", path);
	if (!find(path, &at, &r))
		return;
	if (!r)
		r = !at.node ? ENOENT : at.node->kind == NODE_DIR ? EISDIR : 0;
	before = time_before();
	if (!ended(unlink(full(model.view, path)), r))
		return;
	tree_take(&at);
	time_since(at.dir, before);
}

static void some_target(char ret[TREE_TARGET])
{
	const char *one = tree_name(below(TREE_NAMES)), *two = tree_name(below(TREE_NAMES));

	switch (below(5)) {
	case 0:
	case 1:
		(void)snprintf(ret, TREE_TARGET, "%s", one);
		break;
	case 2:
		(void)snprintf(ret, TREE_TARGET, "../%s", one);
		break;
	case 3:
		(void)snprintf(ret, TREE_TARGET, "%s/%s", one, two);
		break;
	default:
		(void)snprintf(ret, TREE_TARGET, "%s", one_in(2) ? "." : "..");
	}
}

void deed_symlink(void)
{
	char path[TREE_PATH], target[TREE_TARGET];
	struct timespec before;
	struct place at;
	struct node *node;
	int r;

	if (is_full())
		return;
	some_path(false, path);
	some_target(target);
	deed_is("symlink %s to %s", path, target);
	if (!find(path, &at, &r))
		return;
	before = time_before();
	if (!ended(symlink(target, full(model.view, path)), r             ? r
							    : at.node     ? EEXIST
							    : model.tiers ? EPERM
									  : 0))
		return;
	node = node_new(NODE_LINK, 0777);
	(void)strcpy(node->target, target);
	tree_put(&at, node);
	time_since(at.dir, before);
}

/* ------------------------------------------------------- two names */

void deed_link(void)
{
	char from[TREE_PATH], to[TREE_PATH];
	struct timespec before;
	struct place old, new;
	int r, r2;

	some_path(true, from);
	some_path(false, to);
	deed_is("link %s to %s", from, to);
	if (!find(from, &old, &r) || !find(to, &new, &r2))
		return;
	if (!r && !old.node)
		r = ENOENT;
	if (!r)
		r = r2                                          ? r2
		    : new.node                                  ? EEXIST
		    : old.node->kind == NODE_DIR || model.tiers ? EPERM
								: 0;
	before = time_before();
	if (!ended(link(full(model.view, from), full(model.view, to)), r))
		return;
	tree_put(&new, old.node);
	time_since(new.dir, before);
}

/* Return the error of renaming between two places in existing directories.  *or_else: another
 * error, if the order of checks may differ. */
static int rename_error(const struct place *old, const struct place *new, unsigned flags,
			int *or_else)
{
	bool is_dir = old->node && old->node->kind == NODE_DIR;
	int r = 0;

	if (!old->node)
		return ENOENT;
	if (flags == RENAME_NOREPLACE && new->node)
		r = EEXIST;
	else if (flags == RENAME_EXCHANGE && !new->node)
		r = ENOENT;
	if (node_is_below(new->dir, old->node))
		*or_else = EINVAL;
	else if (new->node && node_is_below(old->dir, new->node))
		*or_else = flags == RENAME_EXCHANGE ? EINVAL : ENOTEMPTY;
	if (r || *or_else)
		return r ? r : *or_else;
	if (!new->node || new->node == old->node || flags == RENAME_EXCHANGE)
		return 0;
	if (is_dir != (new->node->kind == NODE_DIR))
		return is_dir ? ENOTDIR : EISDIR;
	return is_dir && !node_is_empty(new->node) ? ENOTEMPTY : 0;
}

/*
 * Return the errno that a rename must give on a set of tiers, which refuses some renames.  r: the
 * errno on an ordinary file system.  *or_else: a second errno that is accepted, because the model
 * does not know on which roots the files are.
 */
static int refuses(const struct place *old, const struct place *new, unsigned flags, int r,
		   int *or_else)
{
	if ((r && r != ENOTEMPTY) || old->node == new->node)
		return r;
	if (flags == RENAME_EXCHANGE)
		return r ? r : EINVAL;
	if (old->node->kind == NODE_DIR && !node_is_empty(old->node)) {
		*or_else = r ? r : EXDEV;
		return EXDEV;
	}
	/* The two files may be on different roots. */
	if (!r && new->node &&new->node->kind == NODE_FILE)
		*or_else = EXDEV;
	return r;
}

static void renamed(struct place *old, struct place *new, unsigned flags)
{
	struct node *a = old->node, *b = new->node;

	if (a == b)
		return;
	/* Keep both nodes during the exchange. */
	a->handles++;
	if (b)
		b->handles++;
	tree_take(old);
	if (b)
		tree_take(new);
	tree_put(new, a);
	if (b && flags == RENAME_EXCHANGE)
		tree_put(old, b);
	if (a->kind == NODE_DIR)
		a->time = TIME_ANY;
	if (b && b->kind == NODE_DIR)
		b->time = TIME_ANY;
	node_put_handle(a);
	if (b)
		node_put_handle(b);
}

void deed_rename(void)
{
	static const unsigned modes[] = { 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE };
	unsigned flags = modes[below(5)];
	char from[TREE_PATH], to[TREE_PATH];
	struct timespec before;
	struct place old, new;
	int r, r2, or_else = 0;

	some_path(true, from);
	some_path(flags == RENAME_EXCHANGE || one_in(2), to);
	deed_is("rename %s to %s flags %u", from, to, flags);
	if (!find(from, &old, &r) || !find(to, &new, &r2))
		return;
	if (!r)
		r = r2;
	if (!r)
		r = rename_error(&old, &new, flags, &or_else);
	if (model.tiers && old.node && old.dir)
		r = refuses(&old, &new, flags, r, &or_else);
	before = time_before();
	if (!ended_either(renameat2(AT_FDCWD, full(model.view, from), AT_FDCWD,
				    full(model.view, to), flags),
			  r, or_else ? or_else : r))
		return;
	if (old.node != new.node) {
		time_since(old.dir, before);
		time_since(new.dir, before);
	}
	renamed(&old, &new, flags);
}
