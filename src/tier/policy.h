/* SPDX-License-Identifier: MIT */
/*
 * Policies: which files belong on a fast tier.
 *
 * A policy instance models one cache of a given capacity.  It sees each access, and rates each file
 * as belonging in the cache or not.  It knows files only by number and size, and uses no clock,
 * random numbers or other files: the same accesses give the same ratings.
 *
 * A set with N classes has N - 1 instances, one for each border between two classes (plan.h).
 */
#ifndef PST_TIER_POLICY_H
#define PST_TIER_POLICY_H

#include "base/base.h"

/* How a policy rates a file, from low to high. */
enum tier_rating {
	TIER_COLD, /* not in the cache; a file on a fast tier may be demoted */
	TIER_ONCE, /* in the cache, used once: not promoted, demoted before hot files */
	TIER_HOT,  /* in the cache, worth a promotion */
};

struct tier_policy;
struct index;
struct entry;

/*
 * One policy per file, with one const table.  An instance is used by one thread at a time; its
 * struct begins with struct tier_policy.
 */
struct tier_policy_ops {
	const char *name;
	const char *summary; /* one line for --help and manuals */

	/* Demote a file as soon as it is cold, not only when its tier is too full. */
	bool demotes;
	/* The first cached queues of the index are the cache; the other queues remember evicted
	 * files.  0: the policy models no cache, and evict is NULL. */
	uint8_t cached;

	/*
	 * Create an instance with capacity bytes.  Border 0 is between the fastest class and the
	 * second.  Return NULL if out of memory.
	 */
	struct tier_policy *(*new)(uint64_t capacity, unsigned border);
	struct tier_policy *(*free)(struct tier_policy *p);

	/*
	 * Count an access to a file and decide what to keep.  now is the caller's virtual time,
	 * which never decreases.  A file larger than capacity is never kept.  Return: 1 if the file
	 * was in the cache before, 0 if not, -ENOMEM.
	 */
	int (*access)(struct tier_policy *p, uint64_t id, uint64_t size, uint64_t now);

	/* Forget a deleted file. */
	void (*forget)(struct tier_policy *p, uint64_t id);

	enum tier_rating (*rate)(const struct tier_policy *p, uint64_t id);

	/*
	 * Evict the least valuable file.  Return: true, with its former entry in *ret; false if the
	 * cache is empty.
	 */
	bool (*evict)(struct tier_policy *p, struct entry *ret);
};

struct tier_policy {
	const struct tier_policy_ops *ops;
	struct index *index; /* the instance's index; its user may read it and set entry.user */
};

extern const struct tier_policy_ops tier_lru, tier_arc, tier_s3fifo, tier_literal;

#define TIER_POLICY_DEFAULT "arc"

/* All policies; the last entry is NULL. */
extern const struct tier_policy_ops *const tier_policies[];

/* Find a policy by name; NULL if there is none. */
const struct tier_policy_ops *tier_policy_find(const char *name);

#endif
