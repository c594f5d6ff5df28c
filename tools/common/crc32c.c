/* SPDX-License-Identifier: MIT */
#include "tools/common/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLY 0x82f63b78u /* Castagnoli polynomial, bit-reversed */

static uint32_t tables[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? (c >> 1) ^ POLY : c >> 1;
		tables[0][i] = c;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int k = 1; k < 8; k++)
			tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 255];
}

/* Process eight bytes per step, with one table for each. */
static uint32_t crc32c_by_table(uint32_t crc, const uint8_t *p, size_t len)
{
	(void)pthread_once(&once, make_tables);
	for (; len >= 8; p += 8, len -= 8) {
		uint32_t lo, hi;

		memcpy(&lo, p, 4);
		memcpy(&hi, p + 4, 4);
		lo ^= crc;
		crc = tables[7][lo & 255] ^ tables[6][lo >> 8 & 255] ^ tables[5][lo >> 16 & 255] ^
		      tables[4][lo >> 24] ^ tables[3][hi & 255] ^ tables[2][hi >> 8 & 255] ^
		      tables[1][hi >> 16 & 255] ^ tables[0][hi >> 24];
	}
	while (len--)
		crc = (crc >> 8) ^ tables[0][(crc ^ *p++) & 255];
	return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *p,
								 size_t len)
{
	uint64_t c = crc;

	for (; len >= 8; p += 8, len -= 8) {
		uint64_t v;

		memcpy(&v, p, 8);
		c = __builtin_ia32_crc32di(c, v);
	}
	while (len--)
		c = __builtin_ia32_crc32qi((uint32_t)c, *p++);
	return (uint32_t)c;
}
#endif

uint32_t crc32c_add(uint32_t crc, const void *buf, size_t len)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2"))
		return ~by_instruction(~crc, buf, len);
#endif
	return ~crc32c_by_table(~crc, buf, len);
}
