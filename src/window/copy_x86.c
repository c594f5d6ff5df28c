/* SPDX-License-Identifier: MIT */
/*
 * Copy kernels of x86-64.
 *
 * The cost of loads from write-combining memory, measured with an H200, which is 1 us away from an
 * Intel CPU that has all of these instructions:
 *   - Plain loads wait for each other, so their number counts and not their width.  The last of
 *     them overlaps with later non-temporal loads, but not with earlier ones.
 *   - A non-temporal and a plain load of the same line are two round trips.
 *   - Up to 16 lines of non-temporal loads are one round trip, in any order of instructions.
 *
 * So unaligned ends are loaded first, by as few plain loads as possible.
 *
 * Each function names its instruction set, because the library is built for any x86-64.
 */
#include "window/copy.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#include "window/copy_ends.h"

#define LINE 64u
#define TARGET(isa) __attribute__((target(isa)))

/* ------------------------------------------------------------------- stores */

static void store_sse2(void *map, const void *src, size_t len)
{
	size_t n = unaligned(map, 16, len);
	const char *s = src;
	char *m = map;

	copy_strict_store(m, s, n);
	for (m += n, s += n, len -= n; len >= 16; m += 16, s += 16, len -= 16)
		_mm_stream_si128((__m128i *)m, _mm_loadu_si128((const __m128i_u *)s));
	copy_strict_store(m, s, len);
}

TARGET("avx2") static void store_avx2(void *map, const void *src, size_t len)
{
	size_t n = unaligned(map, LINE, len);
	const char *s = src;
	char *m = map;

	store_sse2(m, s, n);
	for (m += n, s += n, len -= n; len >= 32; m += 32, s += 32, len -= 32)
		_mm256_stream_si256((__m256i *)m, _mm256_loadu_si256((const __m256i_u *)s));
	store_sse2(m, s, len);
}

TARGET("avx512f") static void store_avx512(void *map, const void *src, size_t len)
{
	size_t n = unaligned(map, LINE, len);
	const char *s = src;
	char *m = map;

	store_sse2(m, s, n);
	for (m += n, s += n, len -= n; len >= LINE; m += LINE, s += LINE, len -= LINE)
		_mm512_stream_si512((__m512i *)m, _mm512_loadu_si512(s));
	store_sse2(m, s, len);
}

TARGET("movdir64b") static void store_movdir64b(void *map, const void *src, size_t len)
{
	size_t n = unaligned(map, LINE, len);
	const char *s = src;
	char *m = map;

	store_sse2(m, s, n);
	for (m += n, s += n, len -= n; len >= LINE; m += LINE, s += LINE, len -= LINE)
		_movdir64b(m, s);
	store_sse2(m, s, len);
}

/* -------------------------------------------------------------------- loads */

TARGET("sse4.1") static inline void stream16(char *d, const char *m)
{
	_mm_storeu_si128((__m128i_u *)d, _mm_stream_load_si128((__m128i *)m));
}

TARGET("sse4.1") static void load_sse41(void *dst, const void *map, size_t len)
{
	size_t off;

	len = load_ends(dst, map, len, &off);
	for (; len; off += 16, len -= 16)
		stream16((char *)dst + off, (const char *)map + off);
}

TARGET("avx2") static void load_avx2(void *dst, const void *map, size_t len)
{
	const char *m = map;
	char *d = dst;
	size_t off;

	len = load_ends(d, m, len, &off);
	if (len && (uintptr_t)(m + off) & 16) {
		stream16(d + off, m + off);
		off += 16;
		len -= 16;
	}
	for (; len >= 32; off += 32, len -= 32)
		_mm256_storeu_si256((__m256i_u *)(d + off),
				    _mm256_stream_load_si256((__m256i *)(m + off)));
	if (len)
		stream16(d + off, m + off);
}

/* Load a part of one line by one masked load, which accesses no other bytes. */
TARGET("avx512f,avx512bw") static inline void load_part(char *d, const char *m, size_t len)
{
	size_t off = (uintptr_t)m & (LINE - 1);
	__mmask64 mask = (UINT64_MAX >> (LINE - len)) << off;
	char line[LINE];

	_mm512_storeu_si512(line, _mm512_maskz_loadu_epi8(mask, m - off));
	memcpy(d, line + off, len);
}

TARGET("avx512f,avx512bw") static void load_avx512(void *dst, const void *map, size_t len)
{
	size_t lead = unaligned(map, LINE, len), trail = (len - lead) % LINE;
	const char *m = map;
	char *d = dst;

	if (lead)
		load_part(d, m, lead);
	if (trail)
		load_part(d + len - trail, m + len - trail, trail);
	for (size_t off = lead; off < len - trail; off += LINE)
		_mm512_storeu_si512(d + off, _mm512_stream_load_si512((__m512i *)(m + off)));
}

/* --------------------------------------------------------------- which there are */

/* These functions also check XGETBV: the CPU's registers are usable only if the system saves
 * them. */
static bool have_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}

static bool have_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

static bool have_sse41(void)
{
	return __builtin_cpu_supports("sse4.1");
}

/* MOVDIR64B has no registers that the system must save, and not every compiler's builtin knows
 * it. */
static bool have_movdir64b(void)
{
	unsigned a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & 1u << 28;
}

const struct copy_kernel copy_avx512 = {
	.name = "avx512",
	.needs = "AVX-512F and AVX-512BW",
	.supported = have_avx512,
	.streams = true,
	.store = store_avx512,
	.load = load_avx512,
};

const struct copy_kernel copy_avx2 = {
	.name = "avx2",
	.needs = "AVX2",
	.supported = have_avx2,
	.streams = true,
	.store = store_avx2,
	.load = load_avx2,
};

const struct copy_kernel copy_movdir64b = {
	.name = "movdir64b",
	.needs = "MOVDIR64B",
	.supported = have_movdir64b,
	.streams = true,
	.store = store_movdir64b,
};

const struct copy_kernel copy_sse41 = {
	.name = "sse4.1",
	.needs = "SSE4.1",
	.supported = have_sse41,
	.streams = true,
	.load = load_sse41,
};

/* No .load: SSE2 has no streaming loads, so memcpy() is as good. */
const struct copy_kernel copy_sse2 = {
	.name = "sse2",
	.streams = true,
	.store = store_sse2,
};
#endif
