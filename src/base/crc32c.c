/* SPDX-License-Identifier: MIT */
/*
 * CRC-32C by the CPU's instruction or by tables, and combining two CRCs by arithmetic.
 *
 * A CRC is a polynomial over GF(2) modulo P of degree 32.  Bit 31 of a word is the coefficient of
 * x^0 and bit 0 that of x^31, as in the reflected form of RFC 3720.  Appending n zero bytes to a
 * message multiplies its CRC by x^(8n) mod P. crc32c_combine() uses this.  Three blocks of a
 * message can also be computed at once: the instruction takes three cycles but one can start in
 * each, so a single chain runs at a third of the speed.
 *
 * With VPCLMULQDQ, 256 bytes of a message are kept as 16 polynomials of degree 127.  Each step
 * multiplies all of them by x^(8 * 256) and adds the next 256 bytes.  This is called folding, as in
 * Intel's "Fast CRC computation for generic polynomials using PCLMULQDQ".
 */
#include <endian.h>
#include <pthread.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/crc32c.h"

#define POLY 0x82f63b78u /* 0x1edc6f41 reflected; the coefficient of x^32 is implied */
#define ONE 0x80000000u  /* x^0 */

#define LONG_LEN 2048u /* bytes of each of the three blocks, a multiple of 8 */
#define SHORT_LEN 256u

/* A table for multiplying a CRC by a fixed power of x, one byte at a time. */
struct shift {
	uint32_t t[4][256];
};

static uint32_t table[8][256]; /* [k][b]: CRC of byte b followed by k zero bytes */
static uint32_t power[64];     /* [k]: x^(8 * 2^k) */
static struct shift shift_long, shift_short;
static uint32_t (*by_cpu)(uint32_t crc, const unsigned char *p, size_t len);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t times_x(uint32_t a)
{
	return (a >> 1) ^ (a & 1 ? POLY : 0);
}

static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t p = 0;

	for (; a; a <<= 1) {
		if (a & ONE)
			p ^= b;
		b = times_x(b);
	}
	return p;
}

/* Return x^(8 * n). */
static uint32_t power_of(uint64_t n)
{
	uint32_t p = ONE;

	for (unsigned k = 0; n; k++, n >>= 1)
		if (n & 1)
			p = multiply(power[k], p);
	return p;
}

static void shift_init(struct shift *s, uint64_t len)
{
	uint32_t by = power_of(len);

	for (unsigned i = 0; i < 4; i++)
		for (uint32_t b = 0; b < 256; b++)
			s->t[i][b] = multiply(b << (8 * i), by);
}

static inline uint32_t shift(const struct shift *s, uint32_t crc)
{
	return s->t[0][crc & 255] ^ s->t[1][crc >> 8 & 255] ^ s->t[2][crc >> 16 & 255] ^
	       s->t[3][crc >> 24];
}

static inline uint64_t load64(const unsigned char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

#if defined(__x86_64__)
#define HAVE_INSTRUCTION 1
#define TARGET __attribute__((target("sse4.2")))

TARGET static inline uint32_t step8(uint32_t crc, uint64_t v)
{
	return (uint32_t)__builtin_ia32_crc32di(crc, v);
}

TARGET static inline uint32_t step1(uint32_t crc, unsigned char v)
{
	return __builtin_ia32_crc32qi(crc, v);
}

static bool have_instruction(void)
{
	return __builtin_cpu_supports("sse4.2");
}

#define HAVE_FOLDING 1
#define FOLDING __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

static bool have_folding(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
	       __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
}
#elif defined(__aarch64__) && __BYTE_ORDER == __LITTLE_ENDIAN
#define HAVE_INSTRUCTION 1
#define TARGET

/* Inline assembly, because the two compilers have different names for the builtins. */
static inline uint32_t step8(uint32_t crc, uint64_t v)
{
	__asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(v));
	return crc;
}

static inline uint32_t step1(uint32_t crc, unsigned char v)
{
	__asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(v));
	return crc;
}

static bool have_instruction(void)
{
	return getauxval(AT_HWCAP) & HWCAP_CRC32;
}
#endif

#ifdef HAVE_INSTRUCTION
/* Process three adjacent blocks of n bytes at once. */
TARGET static inline uint32_t three(uint32_t a, const unsigned char *p, size_t n,
				    const struct shift *s)
{
	uint32_t b = 0, c = 0;

	for (size_t i = 0; i < n; i += 8) {
		a = step8(a, load64(p + i));
		b = step8(b, load64(p + n + i));
		c = step8(c, load64(p + 2 * n + i));
	}
	return shift(s, shift(s, a) ^ b) ^ c;
}

TARGET static uint32_t by_instruction(uint32_t crc, const unsigned char *p, size_t len)
{
	for (; len && (uintptr_t)p & 7; len--)
		crc = step1(crc, *p++);
	for (; len >= 3 * LONG_LEN; len -= 3 * LONG_LEN, p += 3 * LONG_LEN)
		crc = three(crc, p, LONG_LEN, &shift_long);
	for (; len >= 3 * SHORT_LEN; len -= 3 * SHORT_LEN, p += 3 * SHORT_LEN)
		crc = three(crc, p, SHORT_LEN, &shift_short);
	for (; len >= 8; len -= 8, p += 8)
		crc = step8(crc, load64(p));
	for (; len; len--)
		crc = step1(crc, *p++);
	return crc;
}
#endif

#ifdef HAVE_FOLDING
#define FOLD_LEN 256u  /* bytes of the four vectors that are folded at once */
#define BESIDE_LEN 40u /* bytes of each of three chains of the crc32 instruction during a fold */
/* Folds per block: enough that joining the four parts takes a small part of the time. */
#define BLOCK_FOLDS 128u
#define BLOCK_LEN (BLOCK_FOLDS * (FOLD_LEN + 3 * BESIDE_LEN))

/* Factors that shift 16 bytes of a message by a fixed number of bytes: one factor for the first 8
 * bytes, one for the last 8. */
struct fold {
	uint64_t first, last;
};

static struct fold fold_256, fold_64, fold_16;
static struct shift shift_beside;

static void fold_init(struct fold *f, unsigned bytes)
{
	/* The product of two reflected 64-bit words has its lowest coefficient at bit 126 and not
	 * 127, so the factors are shifted by 1. */
	f->first = (uint64_t)power_of(bytes + 4) << 1;
	f->last = (uint64_t)power_of(bytes - 4) << 1;
}

FOLDING static inline __m128i fold_factors(const struct fold *f)
{
	return _mm_set_epi64x((long long)f->last, (long long)f->first);
}

FOLDING static inline __m512i fold_vector(__m512i a, __m512i k, __m512i next)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00),
					 _mm512_clmulepi64_epi128(a, k, 0x11), next, 0x96);
}

FOLDING static inline __m128i fold_lane(__m128i a, __m128i k, __m128i next)
{
	return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(a, k, 0x00),
						 _mm_clmulepi64_si128(a, k, 0x11)));
}

FOLDING static inline __m512i fold_load(const unsigned char *p, unsigned i)
{
	return _mm512_loadu_si512(p + 64 * (size_t)i);
}

FOLDING static inline __m512i fold_first(uint32_t crc, const unsigned char *p)
{
	return _mm512_xor_si512(fold_load(p, 0),
				_mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
}

/* Return the remainder of four vectors. */
FOLDING static inline uint32_t fold_end(__m512i a, __m512i b, __m512i c, __m512i d)
{
	__m512i k = _mm512_broadcast_i32x4(fold_factors(&fold_64));
	__m128i k16 = fold_factors(&fold_16), x;

	d = fold_vector(fold_vector(fold_vector(a, k, b), k, c), k, d);
	x = fold_lane(_mm512_castsi512_si128(d), k16, _mm512_extracti32x4_epi32(d, 1));
	x = fold_lane(x, k16, _mm512_extracti32x4_epi32(d, 2));
	x = fold_lane(x, k16, _mm512_extracti32x4_epi32(d, 3));
	return step8(step8(0, (uint64_t)_mm_cvtsi128_si64(x)), (uint64_t)_mm_extract_epi64(x, 1));
}

/*
 * Process BLOCK_LEN bytes: fold the first part, and run the crc32 instruction over the other three
 * parts at the same time, because the two use different units of the CPU.
 */
FOLDING static uint32_t fold_block(uint32_t crc, const unsigned char *p)
{
	const __m512i k = _mm512_broadcast_i32x4(fold_factors(&fold_256));
	const size_t len = (size_t)BLOCK_FOLDS * BESIDE_LEN;
	const unsigned char *q = p + (size_t)BLOCK_FOLDS * FOLD_LEN;
	__m512i va = fold_first(crc, p), vb = fold_load(p, 1), vc = fold_load(p, 2),
		vd = fold_load(p, 3);
	uint32_t a = 0, b = 0, c = 0;

	for (unsigned i = 0; i < BLOCK_FOLDS; i++, q += BESIDE_LEN) {
		if (i) {
			p += FOLD_LEN;
			va = fold_vector(va, k, fold_load(p, 0));
			vb = fold_vector(vb, k, fold_load(p, 1));
			vc = fold_vector(vc, k, fold_load(p, 2));
			vd = fold_vector(vd, k, fold_load(p, 3));
		}
#pragma GCC unroll 8
		for (unsigned n = 0; n < BESIDE_LEN; n += 8) {
			a = step8(a, load64(q + n));
			b = step8(b, load64(q + len + n));
			c = step8(c, load64(q + 2 * len + n));
		}
	}
	crc = shift(&shift_beside, fold_end(va, vb, vc, vd)) ^ a;
	return shift(&shift_beside, shift(&shift_beside, crc) ^ b) ^ c;
}

FOLDING static uint32_t by_folding(uint32_t crc, const unsigned char *p, size_t len)
{
	/* Separate variables, because gcc 12 misaligns arrays of vectors under the address
	 * sanitizer. */
	__m512i a, b, c, d, k;

	for (; len >= BLOCK_LEN; p += BLOCK_LEN, len -= BLOCK_LEN)
		crc = fold_block(crc, p);
	if (len < FOLD_LEN)
		return by_instruction(crc, p, len);
	k = _mm512_broadcast_i32x4(fold_factors(&fold_256));
	a = fold_first(crc, p);
	b = fold_load(p, 1);
	c = fold_load(p, 2);
	d = fold_load(p, 3);
	for (p += FOLD_LEN, len -= FOLD_LEN; len >= FOLD_LEN; p += FOLD_LEN, len -= FOLD_LEN) {
		a = fold_vector(a, k, fold_load(p, 0));
		b = fold_vector(b, k, fold_load(p, 1));
		c = fold_vector(c, k, fold_load(p, 2));
		d = fold_vector(d, k, fold_load(p, 3));
	}
	return by_instruction(fold_end(a, b, c, d), p, len);
}
#endif

static uint32_t by_table(uint32_t crc, const unsigned char *p, size_t len)
{
	for (; len >= 8; len -= 8, p += 8) {
		uint64_t v = le64toh(load64(p)) ^ crc;

		crc = 0;
		for (unsigned i = 0; i < 8; i++)
			crc ^= table[7 - i][v >> (8 * i) & 255];
	}
	for (; len; len--)
		crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
	return crc;
}

static void crc32c_init(void)
{
	uint32_t p = ONE;

	for (uint32_t b = 0; b < 256; b++) {
		uint32_t crc = b;

		for (unsigned i = 0; i < 8; i++)
			crc = times_x(crc);
		table[0][b] = crc;
	}
	for (unsigned k = 1; k < 8; k++)
		for (uint32_t b = 0; b < 256; b++)
			table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];

	for (unsigned i = 0; i < 8; i++)
		p = times_x(p);
	for (unsigned k = 0; k < ARRAY_SIZE(power); k++, p = multiply(p, p))
		power[k] = p;

	by_cpu = by_table;
#ifdef HAVE_INSTRUCTION
	shift_init(&shift_long, LONG_LEN);
	shift_init(&shift_short, SHORT_LEN);
	if (have_instruction())
		by_cpu = by_instruction;
#endif
#ifdef HAVE_FOLDING
	fold_init(&fold_256, 256);
	fold_init(&fold_64, 64);
	fold_init(&fold_16, 16);
	shift_init(&shift_beside, (uint64_t)BLOCK_FOLDS * BESIDE_LEN);
	if (have_instruction() && have_folding())
		by_cpu = by_folding;
#endif
}

uint32_t crc32c(uint32_t crc, const void *buf, size_t len)
{
	(void)pthread_once(&once, crc32c_init);
	return ~by_cpu(~crc, buf, len);
}

uint32_t crc32c_table(uint32_t crc, const void *buf, size_t len)
{
	(void)pthread_once(&once, crc32c_init);
	return ~by_table(~crc, buf, len);
}

uint32_t crc32c_instruction(uint32_t crc, const void *buf, size_t len)
{
	(void)pthread_once(&once, crc32c_init);
#ifdef HAVE_INSTRUCTION
	if (have_instruction())
		return ~by_instruction(~crc, buf, len);
#endif
	return ~by_table(~crc, buf, len);
}

uint32_t crc32c_factor(uint64_t len)
{
	(void)pthread_once(&once, crc32c_init);
	return power_of(len);
}

uint32_t crc32c_times(uint32_t crc, uint32_t factor)
{
	return multiply(factor, crc);
}

uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
	return crc32c_times(crc_a, crc32c_factor(len_b)) ^ crc_b;
}

uint32_t crc32c_of_remainder(uint32_t remainder, uint32_t factor)
{
	/* The initial and final complement together add the CRC of a message of zeros with the same
	 * length. */
	return ~(remainder ^ crc32c_times(UINT32_MAX, factor));
}

uint32_t crc32c_drop_zeros(uint32_t remainder, unsigned nr)
{
	/* Each step divides by x, which has an inverse because the polynomial's constant term is
	 * 1. */
	for (unsigned bit = 0; bit < 8 * nr; bit++)
		remainder = remainder & ONE ? (remainder ^ POLY) << 1 | 1 : remainder << 1;
	return remainder;
}
