/* SPDX-License-Identifier: MIT */
/* SipHash-2-4 with 64 bits (Aumasson and Bernstein, 2012).  Without its secret key, nobody can
 * choose block keys that collide. */
#ifndef KV_HASH_H
#define KV_HASH_H

#include "base/base.h"

struct hash_key {
	uint64_t k[2];
};

struct hash_part {
	const void *at;
	size_t len;
};

/* Hash several parts.  Each part's length is hashed as well, so that "ab" "c" and "a" "bc"
 * differ. */
uint64_t kv_hash(const struct hash_key *key, const struct hash_part *parts, unsigned nr);

#endif
