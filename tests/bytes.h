/* SPDX-License-Identifier: MIT */
/* Test data: bytes that differ in every page and line and follow from a seed and an offset. */
#ifndef PST_TESTS_BYTES_H
#define PST_TESTS_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The thread sanitizer would check each word of these loops separately, which takes ten times as
 * long as the loop.  Report the whole range at once instead; the detected races are the same.
 */
#if defined(__SANITIZE_THREAD__)
#define T_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define T_TSAN 1
#endif
#endif
#ifdef T_TSAN
void __tsan_read_range(void *at, long len);
void __tsan_write_range(void *at, long len);
#define T_READS(at, len) __tsan_read_range((void *)(uintptr_t)(at), (long)(len))
#define T_WRITES(at, len) __tsan_write_range(at, (long)(len))
#define T_AT_ONCE __attribute__((no_sanitize("thread")))
#else
#define T_TSAN 0
#define T_READS(at, len) ((void)0)
#define T_WRITES(at, len) ((void)0)
#define T_AT_ONCE
#endif

/* Return the eight bytes at off, a multiple of eight. */
T_AT_ONCE static inline uint64_t t_word(uint64_t seed, uint64_t off)
{
	uint64_t x = (off >> 3) * 0x9e3779b97f4a7c15u + seed;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 32;
	return x;
}

T_AT_ONCE static inline uint8_t t_byte(uint64_t seed, uint64_t off)
{
	return (uint8_t)(t_word(seed, off) >> ((off & 7) * 8));
}

T_AT_ONCE static inline void t_fill(void *buf, uint64_t seed, uint64_t off, size_t len)
{
	uint8_t *p = buf;

	T_WRITES(buf, len);
	for (; len && (off & 7); off++, len--)
		*p++ = t_byte(seed, off);
	for (; len >= 8; off += 8, len -= 8, p += 8) {
		uint64_t x = t_word(seed, off);

		memcpy(p, &x, 8);
	}
	for (; len; off++, len--)
		*p++ = t_byte(seed, off);
}

/* Return the index of the first byte that differs from t_fill(), or len. */
T_AT_ONCE static inline size_t t_differs(const void *buf, uint64_t seed, uint64_t off, size_t len)
{
	const uint8_t *p = buf;
	size_t at = 0;
	uint64_t x;

	T_READS(buf, len);
	for (; at < len && ((off + at) & 7); at++)
		if (p[at] != t_byte(seed, off + at))
			return at;
	for (; len - at >= 8; at += 8) {
		memcpy(&x, p + at, 8);
		if (x != t_word(seed, off + at))
			break;
	}
	for (; at < len; at++)
		if (p[at] != t_byte(seed, off + at))
			return at;
	return len;
}

#endif
