/* SPDX-License-Identifier: MIT */
/*
 * The copy kernel of arm64: non-temporal pairs of NEON registers.
 *
 * A write-combining mapping is Normal Non-cacheable memory on arm64, which allows accesses of any
 * alignment.  Device memory does not, and needs the kernel "strict".
 */
#include "window/copy.h"

#if defined(__AARCH64EL__)
#include <arm_neon.h>

#include "window/copy_ends.h"

#define LINE 64u
#define PAIR 32u

struct pair {
	uint8x16_t a, b;
};

/* Tells the compiler which memory the instructions access. */
struct bytes {
	char c[PAIR];
};

static inline void stream_store(char *m, const char *s)
{
	uint8x16_t a = vld1q_u8((const uint8_t *)s), b = vld1q_u8((const uint8_t *)s + 16);

	__asm__ volatile("stnp %q1, %q2, %0" : "=Q"(*(struct bytes *)m) : "w"(a), "w"(b));
}

static inline struct pair stream_load(const char *m)
{
	struct pair p;

	__asm__ volatile("ldnp %q0, %q1, %2"
			 : "=w"(p.a), "=w"(p.b)
			 : "Q"(*(const struct bytes *)m));
	return p;
}

static inline void store_pair(char *d, struct pair p)
{
	vst1q_u8((uint8_t *)d, p.a);
	vst1q_u8((uint8_t *)d + 16, p.b);
}

static void store_neon(void *map, const void *src, size_t len)
{
	size_t n = unaligned(map, LINE, len);
	const char *s = src;
	char *m = map;

	copy_strict_store(m, s, n);
	for (m += n, s += n, len -= n; len >= PAIR; m += PAIR, s += PAIR, len -= PAIR)
		stream_store(m, s);
	copy_strict_store(m, s, len);
}

static void load_neon(void *dst, const void *map, size_t len)
{
	const char *m = map;
	char *d = dst;
	size_t off;

	len = load_ends(d, m, len, &off);
	for (; len >= PAIR; off += PAIR, len -= PAIR)
		store_pair(d + off, stream_load(m + off));
	if (len)
		*(any16 *)(d + off) = *(const volatile any16 *)(m + off);
}

const struct copy_kernel copy_neon = {
	.name = "neon",
	.streams = true,
	.store = store_neon,
	.load = load_neon,
};
#endif
