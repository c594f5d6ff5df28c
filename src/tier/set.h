/* SPDX-License-Identifier: MIT */
/*
 * A set: directories with classes that hold the files of one name space.
 *
 * Its directory of state, <state>/NAME, has
 *	set.conf     identity, policy, limits and roots, as text; written once by init
 *	catalog.db   the catalogue and the journal (catalog.h)
 *	lock         held with flock() by who moves, scans or recovers
 * Each root has .tier/id, which names the set and the root.  Where a disk is not mounted this file
 * is missing, and nothing is written there.
 */
#ifndef PST_TIER_SET_H
#define PST_TIER_SET_H

#include <limits.h>
#include <sys/types.h>

#include "base/base.h"
#include "tier/catalog.h"
#include "tier/policy.h"

enum tier_class { TIER_NVME, TIER_SSD, TIER_HDD, TIER_CLASSES };

#define TIER_ROOTS_MAX 64u
#define TIER_ID_SIZE 33u /* 128 random bits in hexadecimal digits, and NUL */

/* Limits of one class. */
struct tier_limits {
	uint64_t quota;     /* bytes of all roots of the class; 0: what the file systems have */
	unsigned low, high; /* per cent: above high the mover demotes until low */
	uint64_t rate;      /* bytes per second that the mover reads or writes there; 0: no limit */
};

struct tier_root {
	enum tier_class class;
	char path[PATH_MAX];
	char id[TIER_ID_SIZE];
	int fd; /* -1: the root cannot be used, and why says it */
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
	bool same_fs; /* roots may be on one file system */
	struct tier_limits limits[TIER_CLASSES];
	struct tier_root roots[TIER_ROOTS_MAX]; /* a file's root is an index here */
	unsigned nr_roots;
	char state[PATH_MAX];
	struct catalog *catalog;
	struct epochs *epochs;
	struct progress *progress;
	bool background; /* moves let other programs' I/O go first */
	int lock_fd;
};

const char *tier_class_name(enum tier_class class);
int tier_class_find(const char *name, enum tier_class *ret); /* 0 or -EINVAL */

/*
 * The directory of state of a set: below PST_TIER_DIR, /var/lib/penstock/tier for root, or the
 * user's.
 */
int set_state_dir(const char *name, char ret[PATH_MAX]);

/*
 * Make a set of what is filled in: name, policy, same_fs, limits, and class and path of each root.
 * Writes markers and set.conf.  Until set.conf is there the set does not exist, and init may be
 * called again.
 */
int set_init(struct tier_set *set);

/* As set_open(), without the catalogue. */
int set_open_roots(const char *name, struct tier_set **ret);

/* Open a set whatever its roots are like: a root that cannot be used has fd -1 and why. */
int set_open(const char *name, struct tier_set **ret);
struct tier_set *set_close(struct tier_set *set);

static inline void set_closep(struct tier_set **set)
{
	(void)set_close(*set);
}

/* 0, or -ENODEV with the first root's sentence if one cannot be used. */
int set_whole(const struct tier_set *set);

/*
 * Put a damaged catalogue aside, and make it again of what the roots hold.  Of a name in two roots
 * the slower copy is removed if both have the same bytes.  Checksums, pins and accesses are lost.
 */
int set_rebuild(const char *name);

/* A file may lie in another root than before: processes that have it open look for it. */
void set_moved(const struct tier_set *set, const char *name);

/* Be the only mover of the set; waits for another one.  Held until set_unlock() or set_close(). */
int set_lock(struct tier_set *set);
/* The same without waiting: -EWOULDBLOCK, without a sentence, while another process is it. */
int set_try_lock(struct tier_set *set);
void set_unlock(struct tier_set *set);

struct tier_space {
	uint64_t size;  /* bytes that the class or root may hold: quota or file system */
	uint64_t used;  /* bytes of files of the set */
	uint64_t avail; /* bytes that can be written now */
};

/* Space of one root's file system; used is not filled in. */
int root_space(const struct tier_root *root, struct tier_space *ret);

/* The same for a class, of its roots that can be used, within the quota; used as well. */
int class_space(struct tier_set *set, enum tier_class class, struct tier_space *ret);

#endif
