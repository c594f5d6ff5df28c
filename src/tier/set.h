/* SPDX-License-Identifier: MIT */
/*
 * A set is one name space of files, spread over up to TIER_ROOTS_MAX roots.  A root is a directory,
 * or a prefix of a bucket, and has a class (enum tier_class), which says how fast it is.
 *
 * Its state directory, <state>/NAME, contains
 *	set.conf     identity, policy, limits and roots, as text; written once by init
 *	catalog.db   the catalogue and the journal (catalog.h)
 *	lock         locked with flock() while a process moves, scans or recovers
 * Each root has .tier/id, which names the set and the root.  If a disk is not mounted, this file is
 * missing, and nothing is written to the mount point.  A prefix of a bucket (object.h) has no
 * descriptor.
 */
#ifndef PST_TIER_SET_H
#define PST_TIER_SET_H

#include <limits.h>
#include <sys/types.h>

#include "base/base.h"
#include "tier/catalog.h"
#include "tier/policy.h"

enum tier_class { TIER_NVME, TIER_SSD, TIER_HDD, TIER_OBJECT, TIER_CLASSES };

#define TIER_DISK_CLASSES TIER_OBJECT /* classes whose roots are directories */

#define TIER_ROOTS_MAX 64u
#define TIER_ID_SIZE 33u /* 128 random bits as hexadecimal digits, and NUL */

/* Limits of one class, over all its roots. */
struct tier_limits {
	/* Most bytes in all roots of the class; 0: no quota.  The class object needs one, because
	 * a store does not tell its size. */
	uint64_t quota;
	unsigned low, high; /* per cent: above high, the mover demotes until low */
	uint64_t rate;      /* most bytes per second that the mover reads or writes; 0: unlimited */
};

struct tier_root {
	enum tier_class class;
	char path[PATH_MAX]; /* of class object: s3://BUCKET/PREFIX, without a slash at the end */
	char id[TIER_ID_SIZE];
	/* -1: the root cannot be used, and the cause is in @why; or the root is of class object. */
	int fd;
	bool marked; /* of class object: the marker was seen */
	dev_t dev;
	bool read_only;
	char why[256];
};

struct epochs;
struct progress;

struct tier_set {
	char name[NAME_MAX + 1];
	char id[TIER_ID_SIZE];
	const struct tier_policy_ops *policy;
	bool same_fs; /* allow roots on one file system */
	struct tier_limits limits[TIER_CLASSES];
	struct tier_root roots[TIER_ROOTS_MAX]; /* tier_file.root is an index into this */
	unsigned nr_roots;
	char state[PATH_MAX];
	struct catalog *catalog;
	struct epochs *epochs;
	struct progress *progress;
	bool background; /* moves give way to other programs' I/O */
	int lock_fd;
};

/* Return true for the root of class object. */
static inline bool root_is_object(const struct tier_root *root)
{
	return root->class == TIER_OBJECT;
}

/* Return true if a file is an object, by its row of the catalogue. */
static inline bool file_is_object(const struct tier_set *set, const struct tier_file *file)
{
	return file->root < set->nr_roots && root_is_object(&set->roots[file->root]);
}

/* Return true if a root can be used. */
static inline bool root_usable(const struct tier_root *root)
{
	return root_is_object(root) || root->fd >= 0;
}

/* Return the index of the set's root of class object, or -1. */
int object_root(const struct tier_set *set);

/* For set_init(), in object.c: write PREFIX/.tier/id.  Return -EEXIST with a sentence if there is
 * one. */
int object_marker_make(const struct tier_set *set, const struct tier_root *root);

const char *tier_class_name(enum tier_class class);
int tier_class_find(const char *name, enum tier_class *ret); /* return 0 or -EINVAL */

/*
 * Return the state directory of a set: below PST_TIER_DIR, or below /var/lib/penstock/tier for
 * root, or below the user's own directory.
 */
int set_state_dir(const char *name, char ret[PATH_MAX]);

/*
 * Create a set from the filled in members: name, policy, same_fs, limits, and class and path of
 * each root.  Writes markers and set.conf.  Before set.conf exists, the set does not exist, so a
 * failed call may be repeated.
 */
int set_init(struct tier_set *set);

/* Open a set without its catalogue; otherwise as set_open(). */
int set_open_roots(const char *name, struct tier_set **ret);

/* Open a set, even if some roots cannot be used: their fd is -1, and their @why has the cause.  The
 * store of an object root is not asked. */
int set_open(const char *name, struct tier_set **ret);
struct tier_set *set_close(struct tier_set *set);

static inline void set_closep(struct tier_set **set)
{
	(void)set_close(*set);
}

/* Return 0, or -ENODEV if a root is unusable, with the first such root's sentence. */
int set_whole(const struct tier_set *set);

/*
 * Rename a damaged catalogue, and rebuild it from the contents of the roots.  For a name in two
 * roots, remove the slower copy if both have the same bytes.  Checksums, pins and accesses are
 * lost.
 */
int set_rebuild(const char *name);

/* Announce that a file may be in another root: processes that have it open look it up again. */
void set_moved(const struct tier_set *set, const char *name);

/* Become the set's only mover, waiting for another one.  Held until set_unlock() or set_close(). */
int set_lock(struct tier_set *set);
/* Try to become the set's only mover: return -EWOULDBLOCK, without a sentence, while another
 * process is. */
int set_try_lock(struct tier_set *set);
void set_unlock(struct tier_set *set);

struct tier_space {
	uint64_t size;  /* bytes: the quota, or what the file systems can hold for the set */
	uint64_t used;  /* bytes used by files of the set */
	uint64_t avail; /* bytes that can be written now */
};

/* Return the space of one root: of its file system, or the quota of class object; used is filled in
 * for class object only. */
int root_space(const struct tier_set *set, const struct tier_root *root, struct tier_space *ret);

/* Return the space of a class: its usable roots together, limited by the quota; used is filled
 * in. */
int class_space(struct tier_set *set, enum tier_class class, struct tier_space *ret);

#endif
