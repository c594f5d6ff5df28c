/* SPDX-License-Identifier: MIT */
#include <endian.h>

#include "kv/hash.h"

struct sip {
	uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotl(uint64_t x, unsigned n)
{
	return x << n | x >> (64 - n);
}

static inline void rounds(struct sip *s, unsigned nr)
{
	while (nr--) {
		s->v0 += s->v1;
		s->v1 = rotl(s->v1, 13) ^ s->v0;
		s->v0 = rotl(s->v0, 32);
		s->v2 += s->v3;
		s->v3 = rotl(s->v3, 16) ^ s->v2;
		s->v0 += s->v3;
		s->v3 = rotl(s->v3, 21) ^ s->v0;
		s->v2 += s->v1;
		s->v1 = rotl(s->v1, 17) ^ s->v2;
		s->v2 = rotl(s->v2, 32);
	}
}

static inline void hash_word(struct sip *s, uint64_t m)
{
	s->v3 ^= m;
	rounds(s, 2);
	s->v0 ^= m;
}

uint64_t kv_hash(const struct hash_key *key, const struct hash_part *parts, unsigned nr)
{
	struct sip s = {
		key->k[0] ^ UINT64_C(0x736f6d6570736575),
		key->k[1] ^ UINT64_C(0x646f72616e646f6d),
		key->k[0] ^ UINT64_C(0x6c7967656e657261),
		key->k[1] ^ UINT64_C(0x7465646279746573),
	};

	for (unsigned i = 0; i < nr; i++) {
		const unsigned char *p = parts[i].at;
		size_t len = parts[i].len;
		uint64_t m;

		for (; len >= 8; len -= 8, p += 8) {
			memcpy(&m, p, 8);
			hash_word(&s, le64toh(m));
		}
		m = 0;
		if (len)
			memcpy(&m, p, len);
		hash_word(&s, le64toh(m));
		hash_word(&s, parts[i].len);
	}
	s.v2 ^= 0xff;
	rounds(&s, 4);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
