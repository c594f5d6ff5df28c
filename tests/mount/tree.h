/* SPDX-License-Identifier: MIT */
/*
 * A file tree in memory with POSIX semantics: the model's expectation of a directory.  Names come
 * from a fixed list, so a directory is an array with one slot per name.
 */
#ifndef PST_TESTS_MOUNT_TREE_H
#define PST_TESTS_MOUNT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define TREE_NAMES 24u
#define TREE_NODES 160u        /* maximum nodes, including open files without a name */
#define TREE_DIRS 12u          /* maximum directories: the longest path stays below PATH_MAX */
#define TREE_FILE (256u << 10) /* bytes of the longest file */
#define TREE_TARGET 600u       /* bytes for the longest target of a symbolic link */
#define TREE_XATTRS 4u
#define TREE_VALUE 300u /* bytes of the longest value; all values fit into one block of ext4 */
#define TREE_PATH 4096u
#define TREE_LINKS 40u /* maximum links that a walk follows: the kernel's MAXSYMLINKS */

/* Extra errno of tree_walk(): the path leads out of the tree. */
#define TREE_OUTSIDE 4095

enum node_kind { NODE_FILE, NODE_DIR, NODE_LINK };

/* Knowledge of a modification time. */
enum node_time { TIME_ANY, TIME_SET, TIME_SINCE };

struct node {
	enum node_kind kind;
	unsigned names;   /* number of names; a directory has one */
	unsigned handles; /* number of open files */
	mode_t mode;
	uint64_t ino[2]; /* st_ino through mount and source when first seen; 0: not seen */
	enum node_time time;
	struct timespec mtime;      /* TIME_SET: the time; TIME_SINCE: an earlier time */
	int value_len[TREE_XATTRS]; /* bytes; -1: no attribute */
	uint8_t value[TREE_XATTRS][TREE_VALUE];
	/* Members of a file. */
	uint8_t *data; /* TREE_FILE bytes, 0 after the end */
	size_t size;
	/* Members of a directory. */
	struct node *parent;
	struct node *slot[TREE_NAMES];
	/* Members of a symbolic link. */
	char target[TREE_TARGET];
};

/* The place to which a path leads. */
struct place {
	struct node *dir; /* directory of the last name; NULL if the path ends with a dot */
	unsigned slot;
	struct node *node; /* node of the path; NULL: dir->slot[slot] is empty */
};

extern struct node *tree_root;
extern struct node *tree_all[TREE_NODES];
extern unsigned tree_nr, tree_nr_dirs;

/* Return the name of a slot. */
const char *tree_name(unsigned slot);
/* Return the slot of a name, or -1. */
int tree_slot(const char *name);

void tree_init(void);
void tree_done(void);

/* Add a node.  The caller has checked TREE_NODES and TREE_DIRS. */
struct node *node_new(enum node_kind kind, mode_t mode);
bool node_is_empty(const struct node *dir);
/* Return true for dir and everything below it. */
bool node_is_below(const struct node *node, const struct node *dir);

/* Put a node into a place, or remove it; a node without names and handles is freed. */
void tree_put(const struct place *at, struct node *node);
void tree_take(const struct place *at);
void node_put_handle(struct node *node);

/* Walk a path.  Return 0, an errno or TREE_OUTSIDE; ret is written on success, also for an empty
 * place. */
int tree_walk(const char *path, bool follow, struct place *ret);
/* Make the path of that slot. */
void tree_path(const struct node *dir, unsigned slot, char ret[TREE_PATH]);

#endif
