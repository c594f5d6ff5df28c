/* SPDX-License-Identifier: MIT */
/*
 * Policies: which files belong on a fast tier.
 *
 * An instance of a policy stands for one cache of so many bytes.  It sees each access and tells of
 * each file whether it belongs there.  It knows a file by its number and its size.  It reads no
 * clock, no random numbers and no files: the same accesses give the same answers.
 *
 * A set with N classes has N - 1 instances, one for each border between two classes (plan.h).
 */
#ifndef PST_TIER_POLICY_H
#define PST_TIER_POLICY_H

#include "base/base.h"

/* How a policy rates a file, from low to high. */
enum tier_rating {
	TIER_COLD, /* it does not belong in the cache; a file there may be demoted */
	TIER_ONCE, /* in the cache, but used once only: not promoted, demoted before hot files */
	TIER_HOT,  /* belongs in the cache: worth a promotion */
};

struct tier_policy;
struct index;
struct entry;

/*
 * A table is const and complete at compile time.  An instance is used by one thread at a time.
 * Each policy is one file with one table; its instances begin with struct tier_policy.
 */
struct tier_policy_ops {
	const char *name;
	const char *summary; /* one line for help and manuals */

	/* Demote a file as soon as it is cold, not only when the tier has too little room. */
	bool demotes;
	/* The first so many queues of its index are the cache, the rest is what it remembers of
	 * others.  0: the policy keeps no cache, and evict is NULL. */
	uint8_t cached;

	/*
	 * Make an instance for capacity bytes at a border.  Border 0 is that between the fastest
	 * class and the second.  NULL: out of memory.
	 */
	struct tier_policy *(*new)(uint64_t capacity, unsigned border);
	struct tier_policy *(*free)(struct tier_policy *p);

	/*
	 * Count an access to a file and decide what to keep.  now is the caller's virtual time and
	 * never decreases.  A file larger than capacity is never kept.
	 * Return: 1 if the file was in the cache before, 0 if not, -ENOMEM.
	 */
	int (*access)(struct tier_policy *p, uint64_t id, uint64_t size, uint64_t now);

	/* Forget a file that was deleted. */
	void (*forget)(struct tier_policy *p, uint64_t id);

	enum tier_rating (*rate)(const struct tier_policy *p, uint64_t id);

	/*
	 * Take the file out of the cache that is worth least.
	 * Return: true and its entry as it was in *ret, or false when the cache is empty.
	 */
	bool (*evict)(struct tier_policy *p, struct entry *ret);
};

struct tier_policy {
	const struct tier_policy_ops *ops;
	struct index *index; /* of the instance; who uses it may read, and set entry.user */
};

extern const struct tier_policy_ops tier_lru, tier_arc, tier_s3fifo, tier_literal;

#define TIER_POLICY_DEFAULT "arc"

/* All policies, NULL at the end. */
extern const struct tier_policy_ops *const tier_policies[];

/* NULL: there is none of that name. */
const struct tier_policy_ops *tier_policy_find(const char *name);

#endif
