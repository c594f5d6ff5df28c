/* SPDX-License-Identifier: MIT */
/* SipHash-2-4 of 64 bits (Aumasson and Bernstein, 2012): keyed, so that nobody who does not know
 * the key of a root makes two keys of blocks collide. */
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

/* Each part is hashed with its length, so that parts never run into each other. */
uint64_t kv_hash(const struct hash_key *key, const struct hash_part *parts, unsigned nr);

#endif
