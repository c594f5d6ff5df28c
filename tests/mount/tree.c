/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tree.h"

struct node *tree_root;
struct node *tree_all[TREE_NODES];
unsigned tree_nr, tree_nr_dirs;

static char longest[256], long_name[101];

/* Short names, and names with unusual bytes and lengths. */
static const char *const names[TREE_NAMES] = {
	"a",
	"b",
	"c",
	"d",
	"e",
	"f",
	"g",
	"h",
	"i",
	"j",
	"k",
	"l",
	"m",
	"n",
	"o",
	longest,
	long_name,
	"a name with blanks ",
	"...",
	"-rf",
	"\377\376\200",
	"new\nline\t\033[31m",
	"\303\244\303\266\303\274",
	".fuse_hidden0000000100000001",
};

const char *tree_name(unsigned slot)
{
	return names[slot];
}

int tree_slot(const char *name)
{
	for (unsigned i = 0; i < TREE_NAMES; i++)
		if (strcmp(names[i], name) == 0)
			return (int)i;
	return -1;
}

struct node *node_new(enum node_kind kind, mode_t mode)
{
	struct node *node = tree_nr < TREE_NODES ? calloc(1, sizeof(*node)) : NULL;

	if (!node)
		abort();
	node->kind = kind;
	node->mode = mode;
	for (unsigned i = 0; i < TREE_XATTRS; i++)
		node->value_len[i] = -1;
	if (kind == NODE_FILE) {
		node->data = calloc(1, TREE_FILE);
		if (!node->data)
			abort();
	}
	tree_nr_dirs += kind == NODE_DIR;
	tree_all[tree_nr++] = node;
	return node;
}

static void node_free(struct node *node)
{
	for (unsigned i = 0; i < tree_nr; i++) {
		if (tree_all[i] == node) {
			tree_all[i] = tree_all[--tree_nr];
			break;
		}
	}
	tree_nr_dirs -= node->kind == NODE_DIR;
	free(node->data);
	free(node);
}

static void node_drop(struct node *node)
{
	if (!node->names && !node->handles)
		node_free(node);
}

void node_put_handle(struct node *node)
{
	node->handles--;
	node_drop(node);
}

bool node_is_empty(const struct node *dir)
{
	for (unsigned i = 0; i < TREE_NAMES; i++)
		if (dir->slot[i])
			return false;
	return true;
}

bool node_is_below(const struct node *node, const struct node *dir)
{
	for (; node; node = node->parent)
		if (node == dir)
			return true;
	return false;
}

void tree_init(void)
{
	memset(longest, 'L', sizeof(longest) - 1);
	memset(long_name, 'M', sizeof(long_name) - 1);
	tree_root = node_new(NODE_DIR, 0755);
	tree_root->names = 1;
}

void tree_done(void)
{
	while (tree_nr)
		node_free(tree_all[0]);
	tree_root = NULL;
}

void tree_put(const struct place *at, struct node *node)
{
	at->dir->slot[at->slot] = node;
	node->names++;
	if (node->kind == NODE_DIR)
		node->parent = at->dir;
}

void tree_take(const struct place *at)
{
	struct node *node = at->dir->slot[at->slot];

	at->dir->slot[at->slot] = NULL;
	node->names--;
	node_drop(node);
}

static int walk(struct node *dir, const char *path, bool follow, unsigned *links,
		struct place *ret);

/* Walk one part of a path; *dir becomes the directory to which the part leads. */
static int step(struct node **dir, const char *part, bool follow, unsigned *links,
		struct place *ret)
{
	int slot;

	if ((*dir)->kind != NODE_DIR)
		return ENOTDIR;
	if (strcmp(part, ".") == 0 || strcmp(part, "..") == 0) {
		if (part[1] && *dir == tree_root)
			return TREE_OUTSIDE;
		*ret = (struct place){ .node = part[1] ? (*dir)->parent : *dir };
	} else {
		slot = tree_slot(part);
		if (slot < 0)
			abort(); /* no test makes such a path */
		*ret = (struct place){ *dir, (unsigned)slot, (*dir)->slot[slot] };
		if (ret->node && ret->node->kind == NODE_LINK && follow) {
			if ((*links)++ >= TREE_LINKS)
				return ELOOP;
			return walk(*dir, ret->node->target, true, links, ret);
		}
	}
	return 0;
}

static int walk(struct node *dir, const char *path, bool follow, unsigned *links, struct place *ret)
{
	char part[256];
	size_t len;
	bool last;
	int r;

	for (;; path += len + 1, dir = ret->node) {
		len = strcspn(path, "/");
		last = !path[len];
		memcpy(part, path, len);
		part[len] = '\0';
		r = step(&dir, part, follow || !last, links, ret);
		if (r || last)
			return r;
		if (!ret->node)
			return ENOENT;
	}
}

int tree_walk(const char *path, bool follow, struct place *ret)
{
	unsigned links = 0;
	struct place at;
	int r = walk(tree_root, path, follow, &links, &at);

	if (!r)
		*ret = at;
	return r;
}

void tree_path(const struct node *dir, unsigned slot, char ret[TREE_PATH])
{
	char *at = ret + TREE_PATH - 1;
	const char *name = names[slot];

	/* Build the path from its end to its beginning. */
	*at = '\0';
	for (;;) {
		size_t len = strlen(name);

		at -= len;
		memcpy(at, name, len);
		if (dir == tree_root)
			break;
		*--at = '/';
		for (unsigned i = 0; i < TREE_NAMES; i++)
			if (dir->parent->slot[i] == dir)
				name = names[i];
		dir = dir->parent;
	}
	memmove(ret, at, strlen(at) + 1);
}
