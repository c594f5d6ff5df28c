/* SPDX-License-Identifier: MIT */
#include "tools/common/pattern.h"

#include <string.h>

static inline uint64_t pattern_word_at(uint64_t seed, uint64_t idx)
{
	uint64_t x = (idx + seed) * UINT64_C(0x9e3779b97f4a7c15);

	return x ^ (x >> 32) ^ seed;
}

void pattern_fill(void *buf, uint64_t seed, uint64_t off, size_t len)
{
	uint8_t *p = buf;

	while (len) {
		uint64_t w = pattern_word_at(seed, off / 8);
		size_t skip = off % 8, n = 8 - skip;

		if (skip == 0 && len >= 8) {
			size_t words = len / 8;

			for (size_t i = 0; i < words; i++) {
				w = pattern_word_at(seed, off / 8 + i);
				memcpy(p + 8 * i, &w, 8);
			}
			n = 8 * words;
		} else {
			n = n < len ? n : len;
			memcpy(p, (const uint8_t *)&w + skip, n);
		}
		p += n;
		off += n;
		len -= n;
	}
}

size_t pattern_differs(const void *buf, uint64_t seed, uint64_t off, size_t len)
{
	const uint8_t *p = buf;
	uint8_t want[4096];

	for (size_t done = 0; done < len;) {
		size_t n = len - done < sizeof(want) ? len - done : sizeof(want);

		pattern_fill(want, seed, off + done, n);
		if (memcmp(p + done, want, n) != 0) {
			for (size_t i = 0; i < n; i++)
				if (p[done + i] != want[i])
					return done + i;
		}
		done += n;
	}
	return len;
}
