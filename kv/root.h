/* SPDX-License-Identifier: MIT */
/*
 * The directories of a store:
 *
 *	penstock-kv	   identifies the store, and this directory of it
 *	b/SPACE/HH/HASH	   blocks; HH are the first two digits of HASH
 *	tmp/N		   files that are being written
 *	gone/N		   trees of dropped spaces that are being removed
 *	lock, index, spaces/SPACE   in the first directory only
 */
#ifndef KV_ROOT_H
#define KV_ROOT_H

#include <stdio.h>

#include "base/base.h"
#include "kv/hash.h"
#include "kv/warm.h"

#define DIRS_MAX 64u
/* "b/", 16 digits, "/", 2, "/", 16 and the end */
#define BLOCK_PATH_LEN 40u

struct root {
	unsigned nr;
	int dir[DIRS_MAX]; /* open descriptors, or -1 */
	enum warm_fs warm[DIRS_MAX];
	char *path[DIRS_MAX];
	int lock; /* descriptor of the owner's lock, or -1 */
	uint8_t id[16];
	struct hash_key key;
};

enum root_use {
	ROOT_READ,
	ROOT_OWN,   /* create a store in empty directories, lock it, remove temporary files */
	ROOT_CHECK, /* only check whether ROOT_OWN would succeed; change nothing */
};

/* Open the directories.  Return 0, or -errno with a sentence. */
int root_open(struct root *r, const char *const *dirs, unsigned nr, enum root_use use);
void root_close(struct root *r);

/* As the owner: record budget, bound of blocks and this process' number for other processes.  A
 * failure is ignored: only statistics read these values. */
void root_put_bounds(const struct root *r, uint64_t budget, uint64_t max_blocks);
/* Read the bounds that the last owner wrote.  Both are 0 if there are none. */
void root_get_bounds(const struct root *r, uint64_t *ret_budget, uint64_t *ret_max_blocks);

static inline unsigned root_dir_of(const struct root *r, uint64_t hash)
{
	return (unsigned)((hash >> 8) % r->nr);
}

static inline void block_path(char path[BLOCK_PATH_LEN], uint64_t space, uint64_t hash)
{
	(void)snprintf(path, BLOCK_PATH_LEN, "b/%016llx/%02x/%016llx", (unsigned long long)space,
		       (unsigned)(hash >> 56), (unsigned long long)hash);
}

/* Create the directories for a block's file. */
int root_make_place(const struct root *r, uint64_t space, uint64_t hash);

/* Remove a tree below a directory.  Return 0 or -errno. */
int root_remove_tree(int dir, const char *name);

/* Parse a name of 16 hexadecimal digits.  Return false for other names. */
bool root_parse_name(const char *name, uint64_t *ret);

/*
 * Call fn for each block's file in one directory, with its space, its hash and its stat.  If fn
 * does not return 0, stop and return that value.
 */
struct stat;
int root_scan(const struct root *r, unsigned dir,
	      int (*fn)(void *arg, uint64_t space, uint64_t hash, const struct stat *st),
	      void *arg);

/* Write a small file atomically: write to a temporary name, sync, rename. */
int root_write_file(int dir, const char *name, const void *buf, size_t len);

#endif
