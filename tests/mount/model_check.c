/* SPDX-License-Identifier: MIT */
/* Compare everything with the model. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "model.h"

/* ------------------------------------------------------------- attributes */

static void check_ino(const struct stat *st, struct node *node, enum view view)
{
	if (node->ino[view] && node->ino[view] != st->st_ino)
		differs("st_ino was %llu and is %llu", (unsigned long long)node->ino[view],
			(unsigned long long)st->st_ino);
	if (node->ino[view])
		return;
	for (unsigned i = 0; i < tree_nr; i++)
		if (tree_all[i]->ino[view] == st->st_ino)
			differs("st_ino %llu is another file's", (unsigned long long)st->st_ino);
	node->ino[view] = st->st_ino;
}

static bool is_before(struct timespec a, struct timespec b)
{
	return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

static void check_mtime(struct timespec is, const struct node *node)
{
	const char *word = node->time == TIME_SET ? "be" : "not be before";

	if (node->time == TIME_ANY || (node->time == TIME_SINCE && !is_before(is, node->mtime)))
		return;
	if (node->time == TIME_SET && is.tv_sec == node->mtime.tv_sec &&
	    is.tv_nsec == node->mtime.tv_nsec)
		return;
	differs("the time of modification is %lld.%09ld and should %s %lld.%09ld",
		(long long)is.tv_sec, is.tv_nsec, word, (long long)node->mtime.tv_sec,
		node->mtime.tv_nsec);
}

void check_stat(const struct stat *st, struct node *node, enum view view)
{
	static const mode_t types[] = { S_IFREG, S_IFDIR, S_IFLNK };

	if ((st->st_mode & S_IFMT) != types[node->kind])
		differs("the mode is 0%o, which is not its type", st->st_mode);
	if (st->st_uid != geteuid())
		differs("it belongs to user %u", st->st_uid);
	check_ino(st, node, view);
	if (node->kind != NODE_DIR && st->st_nlink != node->names)
		differs("st_nlink is %lu and should be %u", (unsigned long)st->st_nlink,
			node->names);
	if (node->kind == NODE_LINK) {
		if ((size_t)st->st_size != strlen(node->target))
			differs("st_size is %lld and should be %zu", (long long)st->st_size,
				strlen(node->target));
		return;
	}
	if ((st->st_mode & 07777) != node->mode)
		differs("the mode is 0%o and should be 0%o", st->st_mode & 07777, node->mode);
	if (node->kind == NODE_FILE && (size_t)st->st_size != node->size)
		differs("st_size is %lld and should be %zu", (long long)st->st_size, node->size);
	check_mtime(st->st_mtim, node);
}

static void check_values(const char *path, const struct node *node)
{
	char list[2000], value[TREE_VALUE + 1];
	ssize_t n = listxattr(path, list, sizeof(list));
	unsigned nr = 0, should = 0;

	if (n < 0)
		differs("listxattr gave errno %d", errno);
	for (char *name = list; name < list + n; name += strlen(name) + 1)
		nr += strncmp(name, "user.", 5) == 0;
	for (unsigned i = 0; i < TREE_XATTRS; i++) {
		int len = node->value_len[i];

		n = getxattr(path, xattr_name(i), value, sizeof(value));
		if (n < 0 && errno != ENODATA)
			differs("getxattr %s gave errno %d", xattr_name(i), errno);
		if (n != len || (n > 0 && memcmp(value, node->value[i], (size_t)n) != 0))
			differs("%s has %zd bytes, or is another, and should have %d",
				xattr_name(i), n, len);
		should += len >= 0;
	}
	if (nr != should)
		differs("there are %u attributes user.* and should be %u", nr, should);
}

/* ------------------------------------------------------------------ names */

static void check_entry(const struct dirent *e, const struct node *dir, bool seen[TREE_NAMES])
{
	static const unsigned char types[] = { DT_REG, DT_DIR, DT_LNK };
	int slot = tree_slot(e->d_name);

	if (slot < 0 || !dir->slot[slot])
		differs("the directory has the name %s", e->d_name);
	if (seen[slot])
		differs("the directory lists %s twice", e->d_name);
	seen[slot] = true;
	if (e->d_type != DT_UNKNOWN && e->d_type != types[dir->slot[slot]->kind])
		differs("the directory lists %s as of type %u", e->d_name, e->d_type);
}

void check_names(const struct node *dir, const char *path, enum view view)
{
	bool seen[TREE_NAMES] = { false };
	DIR *d = opendir(full(view, path));
	struct dirent *e;

	if (!d)
		differs("opendir gave errno %d", errno);
	while ((e = readdir(d)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			check_entry(e, dir, seen);
	(void)closedir(d);
	for (unsigned i = 0; i < TREE_NAMES; i++)
		if (dir->slot[i] && !seen[i])
			differs("the directory does not list %s", tree_name(i));
}

/* --------------------------------------------------------------- all of it */

static void check_contents(const char *path, const struct node *node, enum view view)
{
	char target[TREE_TARGET];
	ssize_t n;
	int fd;

	if (node->kind == NODE_LINK) {
		n = readlink(full(view, path), target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = '\0';
		if (strcmp(target, node->target) != 0)
			differs("the link leads to %s and not %s", target, node->target);
		return;
	}
	fd = open(full(view, path), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		differs("open gave errno %d", errno);
	check_bytes(fd, node);
	(void)close(fd);
}

static const char *word(enum view view)
{
	return !model.has_source    ? ""
	       : view == VIEW_MOUNT ? " through the mount"
				    : " in the source";
}

/* Compare a directory and its contents, or only files. */
static void check_dir(struct node *dir, const char *path, enum view view, bool files_only)
{
	char below_path[TREE_PATH];
	struct stat st;

	if (!files_only) {
		deed_is("look at all: %s%s", path, word(view));
		check_names(dir, path, view);
	}
	for (unsigned i = 0; i < TREE_NAMES; i++) {
		struct node *node = dir->slot[i];

		if (!node)
			continue;
		tree_path(dir, i, below_path);
		deed_is("look at all: %s%s", below_path, word(view));
		if (!files_only && ended(lstat(full(view, below_path), &st), 0))
			check_stat(&st, node, view);
		if (node->kind == NODE_DIR)
			check_dir(node, below_path, view, files_only);
		else if (!files_only || node->kind == NODE_FILE)
			check_contents(below_path, node, view);
		if (!files_only && node->kind != NODE_LINK && model.has_xattrs)
			check_values(full(view, below_path), node);
	}
}

void check_all(enum view view)
{
	check_dir(tree_root, ".", view, false);
}

void check_files(enum view view)
{
	check_dir(tree_root, ".", view, true);
}
