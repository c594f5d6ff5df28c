/* SPDX-License-Identifier: MIT */
/*
 * A file tree in memory, as POSIX has it: what the model expects of a directory.  Names come from
 * a fixed list, so that a directory is an array with a slot for each of them.
 */
#ifndef PST_TESTS_MOUNT_TREE_H
#define PST_TESTS_MOUNT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define TREE_NAMES 24u
#define TREE_NODES 160u        /* at most, with files that are open and have no name */
#define TREE_DIRS 12u          /* at most: the longest path is shorter than PATH_MAX then */
#define TREE_FILE (256u << 10) /* the longest file */
#define TREE_TARGET 600u       /* room for the longest target of a symbolic link */
#define TREE_XATTRS 4u
#define TREE_VALUE 300u /* the longest value; all of them fit into one block of ext4's */
#define TREE_PATH 4096u
#define TREE_LINKS 40u /* symbolic links that a walk follows: the kernel's MAXSYMLINKS */

/* An errno of tree_walk()'s own: the path leads out of the tree. */
#define TREE_OUTSIDE 4095

enum node_kind { NODE_FILE, NODE_DIR, NODE_LINK };

/* What is known of a time of modification. */
enum node_time { TIME_ANY, TIME_SET, TIME_SINCE };

struct node {
	enum node_kind kind;
	unsigned names;   /* a directory has one */
	unsigned handles; /* open files of the model */
	mode_t mode;
	uint64_t ino[2]; /* st_ino through mount and source as first seen; 0: not yet */
	enum node_time time;
	struct timespec mtime;      /* the time; or a time that has certainly passed */
	int value_len[TREE_XATTRS]; /* -1: there is none */
	uint8_t value[TREE_XATTRS][TREE_VALUE];
	/* of a file */
	uint8_t *data; /* TREE_FILE bytes, 0 behind the end */
	size_t size;
	/* of a directory */
	struct node *parent;
	struct node *slot[TREE_NAMES];
	/* of a symbolic link */
	char target[TREE_TARGET];
};

/* Where a path leads. */
struct place {
	struct node *dir; /* NULL where the path ends with a dot */
	unsigned slot;
	struct node *node; /* NULL: nothing is there, and dir->slot[slot] is its place */
};

extern struct node *tree_root;
extern struct node *tree_all[TREE_NODES];
extern unsigned tree_nr, tree_nr_dirs;

/* The names, by slot. */
const char *tree_name(unsigned slot);
/* The slot of a name, or -1. */
int tree_slot(const char *name);

void tree_init(void);
void tree_done(void);

/* Add a node.  There is room: see TREE_NODES and TREE_DIRS. */
struct node *node_new(enum node_kind kind, mode_t mode);
bool node_is_empty(const struct node *dir);
/* Is it below dir, or dir itself? */
bool node_is_below(const struct node *node, const struct node *dir);

/* Give a place a node, or take it away; a node without names and handles goes. */
void tree_put(const struct place *at, struct node *node);
void tree_take(const struct place *at);
void node_put_handle(struct node *node);

/* 0, an errno or TREE_OUTSIDE; ret is written on success, also if there is nothing. */
int tree_walk(const char *path, bool follow, struct place *ret);
/* The path of what is or would be in that slot. */
void tree_path(const struct node *dir, unsigned slot, char ret[TREE_PATH]);

#endif
