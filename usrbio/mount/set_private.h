/* SPDX-License-Identifier: MIT */
/* Declarations that set.c and set_names.c share. */
#ifndef MOUNT_SET_PRIVATE_H
#define MOUNT_SET_PRIVATE_H

#include <limits.h>
#include <sys/sysmacros.h>

#include "tier/set.h"
#include "usrbio/mount/set.h"

/* Device number of nodes of files; no file system of the machine has it. */
#define SET_DEV makedev(0xfff, 0xfffff)

#define SET_ACCESSES 256u

struct set_access {
	char path[TIER_NAME_SIZE];
	uint64_t nr;
};

struct set_source {
	struct tier_set *set;
	pthread_mutex_t lock;
	unsigned tree; /* index of the root that is the tree */
	char tree_path[PATH_MAX];
	size_t tree_len;
	/* Opens that are not in the catalogue yet; under lock. */
	struct set_access accesses[SET_ACCESSES];
	unsigned nr_accesses;
	uint64_t flushed_ns;
	bool told_object; /* a warning about files that are objects was logged */
};

/* Make the path in the set of a name in a directory; with name "" that of the directory itself.
 * Return 0 or -errno. */
int set_path(const struct set_source *s, const struct node *dir, const char *name,
	     char ret[TIER_NAME_SIZE]);

/*
 * Operations that meet the mover, or another process' change of the catalogue, fail with
 * -EWOULDBLOCK.  Operations on names are then tried again, with the lock dropped in between.  After
 * SET_WAIT_NS they fail with -EBUSY, because the kernel keeps the directory locked.
 *
 *	uint64_t until = set_deadline();
 *
 *	do {
 *		lock; err = ...; unlock;
 *	} while (set_try_again(&err, until));
 */
#define SET_WAIT_NS (10 * NSEC_PER_SEC)

uint64_t set_deadline(void);
bool set_try_again(int *err, uint64_t until);

/* set_names.c: members of source_set. */
int set_create(struct fs *fs, const struct node *dir, const struct new_file *f);
int set_remove(struct fs *fs, struct node *dir, const char *name, int flags);
int set_rename(struct fs *fs, struct node *dir, const char *name, struct node *to,
	       const char *to_name, unsigned flags);
int set_list(struct fs *fs, struct node *dir, struct source_entry **ret, size_t *ret_nr);
int set_statfs(struct fs *fs, const struct node *n, struct statvfs *ret);
/* Copy owner and mode of a directory to the other roots. */
void set_dir_attr(struct fs *fs, const struct node *dir);

/* Count an open, for the policy.  With the lock. */
void set_note_access(struct set_source *s, const char *path);
void set_flush_accesses(struct set_source *s);

#endif
