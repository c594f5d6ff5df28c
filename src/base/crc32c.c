/* SPDX-License-Identifier: MIT */
/*
 * CRC-32C by the CPU's instruction or by tables, and combining two CRCs by arithmetic.
 *
 * A CRC is a polynomial over GF(2) modulo P of degree 32.  Bit 31 of a word is the coefficient of
 * x^0 and bit 0 that of x^31, as in the reflected form of RFC 3720.  Appending n zero bytes to a
 * message multiplies its CRC by x^(8n) mod P.  That is all that crc32c_combine() needs.  It also
 * allows computing three blocks of a message at once: the instruction takes three cycles but one
 * can start in each, so a single chain runs at a third of the speed.
 */
#include <endian.h>
#include <pthread.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/crc32c.h"

#define POLY 0x82f63b78u /* 0x1edc6f41 reflected, x^32 not written */
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

/* x^(8 * n) */
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
#elif defined(__aarch64__) && __BYTE_ORDER == __LITTLE_ENDIAN
#define HAVE_INSTRUCTION 1
#define TARGET

/* Written as assembly, because the two compilers name their builtins differently. */
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
	/* The CRC of as many zeros is what the initial and final complement add. */
	return ~(remainder ^ crc32c_times(UINT32_MAX, factor));
}

uint32_t crc32c_drop_zeros(uint32_t remainder, unsigned nr)
{
	/* Each step divides by x, which has an inverse because the polynomial ends in 1. */
	for (unsigned bit = 0; bit < 8 * nr; bit++)
		remainder = remainder & ONE ? (remainder ^ POLY) << 1 | 1 : remainder << 1;
	return remainder;
}
