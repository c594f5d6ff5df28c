/* SPDX-License-Identifier: MIT */
/* The bytes of test data: different in every page and line, and told by seed and offset. */
#ifndef PST_TESTS_BYTES_H
#define PST_TESTS_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Eight of them, from an offset that is a multiple of eight on. */
static inline uint64_t t_word(uint64_t seed, uint64_t off)
{
	uint64_t x = (off >> 3) * 0x9e3779b97f4a7c15u + seed;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 32;
	return x;
}

static inline uint8_t t_byte(uint64_t seed, uint64_t off)
{
	return (uint8_t)(t_word(seed, off) >> ((off & 7) * 8));
}

static inline void t_fill(void *buf, uint64_t seed, uint64_t off, size_t len)
{
	uint8_t *p = buf;

	for (; len && (off & 7); off++, len--)
		*p++ = t_byte(seed, off);
	for (; len >= 8; off += 8, len -= 8, p += 8) {
		uint64_t x = t_word(seed, off);

		memcpy(p, &x, 8);
	}
	for (; len; off++, len--)
		*p++ = t_byte(seed, off);
}

/* The first byte that differs from t_fill(), or len. */
static inline size_t t_differs(const void *buf, uint64_t seed, uint64_t off, size_t len)
{
	uint8_t want[4096];

	for (size_t at = 0; at < len; at += sizeof(want)) {
		size_t n = len - at < sizeof(want) ? len - at : sizeof(want);

		t_fill(want, seed, off + at, n);
		if (memcmp(want, (const char *)buf + at, n) == 0)
			continue;
		for (size_t i = 0; i < n; i++)
			if (((const uint8_t *)buf)[at + i] != want[i])
				return at + i;
	}
	return len;
}

#endif
