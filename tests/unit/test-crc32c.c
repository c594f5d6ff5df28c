/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "base/crc32c.h"

#include "t.h"

#define BUF_LEN 70000

static uint8_t buf[BUF_LEN + 64];

typedef uint32_t (*crc_fn)(uint32_t crc, const void *p, size_t len);

static const crc_fn fns[] = { crc32c, crc32c_instruction, crc32c_table };

#define NR_FNS (sizeof(fns) / sizeof(*fns))

/* Test vectors of RFC 3720, appendix B.4. */
static void vectors_of_rfc_3720(void)
{
	static const uint8_t scsi_read[48] = {
		0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
		0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	};
	uint8_t zeros[32] = { 0 }, ones[32], up[32], down[32];

	memset(ones, 0xff, sizeof(ones));
	for (unsigned i = 0; i < 32; i++) {
		up[i] = (uint8_t)i;
		down[i] = (uint8_t)(31 - i);
	}
	for (unsigned i = 0; i < NR_FNS; i++) {
		T_EQ(fns[i](0, zeros, 32), 0x8a9136aa);
		T_EQ(fns[i](0, ones, 32), 0x62a8ab43);
		T_EQ(fns[i](0, up, 32), 0x46dd794e);
		T_EQ(fns[i](0, down, 32), 0x113fdb5c);
		T_EQ(fns[i](0, scsi_read, 48), 0xd9963a56);
		T_EQ(fns[i](0, "123456789", 9), 0xe3069283);
		T_EQ(fns[i](0, "", 0), 0);
	}
}

/* The CRC by its definition, one bit at a time. */
static uint32_t bitwise(const uint8_t *p, size_t len)
{
	uint32_t crc = ~0u;

	for (size_t i = 0; i < len; i++) {
		crc ^= p[i];
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

static void every_length_and_alignment(void)
{
	/* Lengths around those at which an implementation switches to larger steps. */
	static const size_t lens[] = { 255,   256,   257,   511,   512,   767,   768,
				       769,   1535,  1536,  6143,  6144,  6145,  6912,
				       12288, 20001, 48127, 48128, 48129, 48384, 69999 };

	t_fill(buf, 1, 0, sizeof(buf));
	for (size_t at = 0; at < 9; at++) {
		for (size_t len = 0; len < 70; len++) {
			uint32_t want = bitwise(buf + at, len);

			for (unsigned f = 0; f < NR_FNS; f++)
				T_EQ(fns[f](0, buf + at, len), want);
		}
		for (unsigned i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
			uint32_t want = bitwise(buf + at, lens[i]);

			for (unsigned f = 0; f < NR_FNS; f++)
				T_EQ(fns[f](0, buf + at, lens[i]), want);
		}
	}
}

static void in_pieces(void)
{
	uint32_t whole = crc32c(0, buf, BUF_LEN), crc = 0;
	uint64_t x = 88172645463325252u;

	for (size_t at = 0, len; at < BUF_LEN; at += len) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		len = x % 9000;
		if (len > BUF_LEN - at)
			len = BUF_LEN - at;
		crc = crc32c(crc, buf + at, len);
		T_EQ(crc, crc32c_table(0, buf, at + len));
	}
	T_EQ(crc, whole);
}

static void combines(void)
{
	uint32_t whole = crc32c(0, buf, BUF_LEN);

	for (size_t at = 0; at <= BUF_LEN; at += at < 40 ? 1 : 7993) {
		uint32_t a = crc32c(0, buf, at), b = crc32c(0, buf + at, BUF_LEN - at);

		T_EQ(crc32c_combine(a, b, BUF_LEN - at), whole);
	}
	T_EQ(crc32c_combine(whole, 0, 0), whole);
	T_EQ(crc32c_combine(0, whole, BUF_LEN), whole);
}

/* Combine CRCs of lengths that no buffer has: n zero bytes twice equal 2n zero bytes. */
static void combines_lengths_beyond_memory(void)
{
	uint8_t zeros[64] = { 0 };
	uint32_t crc = crc32c(0, zeros, sizeof(zeros)); /* CRC of 2^6 bytes */
	uint32_t crc_a = crc32c(0, "a", 1), stepped = crc_a, direct;
	uint32_t of_len[64];

	for (unsigned k = 6; k < 63; k++) {
		of_len[k] = crc;
		crc = crc32c_combine(crc, crc, UINT64_C(1) << k);
	}
	/* "a" and 2^62 + 2^40 + 2^6 zeros, combined at once and step by step. */
	direct = crc32c_combine(crc32c_combine(of_len[62], of_len[40], UINT64_C(1) << 40),
				of_len[6], 64);
	direct = crc32c_combine(crc_a, direct, (UINT64_C(1) << 62) + (UINT64_C(1) << 40) + 64);
	stepped = crc32c_combine(stepped, of_len[6], 64);
	stepped = crc32c_combine(stepped, of_len[62], UINT64_C(1) << 62);
	stepped = crc32c_combine(stepped, of_len[40], UINT64_C(1) << 40);
	T_EQ(direct, stepped);
}

static void *one_thread(void *arg)
{
	*(uint32_t *)arg = crc32c(0, buf, BUF_LEN);
	return NULL;
}

static void first_use_by_many_threads(void)
{
	pthread_t t[4];
	uint32_t got[4];

	t_fill(buf, 1, 0, sizeof(buf));
	for (int i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, one_thread, &got[i]), 0);
	for (int i = 0; i < 4; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	for (int i = 0; i < 4; i++)
		T_EQ(got[i], bitwise(buf, BUF_LEN));
}

/* The message is padded with zeros, which remainders must ignore. */
static void remainders(void)
{
	static uint8_t padded[200 + 16];

	for (unsigned zeros = 0; zeros < 16; zeros++)
		for (unsigned len = 1; len <= 150; len += 7) {
			uint32_t remainder;

			memset(padded, 0, sizeof(padded));
			t_fill(padded + 33, 5, 0, len);
			/* Undo the initial value and the final inversion of the CRC. */
			remainder = ~crc32c_table(UINT32_MAX, padded, 33 + len + zeros);
			remainder = crc32c_drop_zeros(remainder, zeros);
			T_EQ(crc32c_of_remainder(remainder, crc32c_factor(len)),
			     bitwise(padded + 33, len));
		}
}

int main(void)
{
	/* run first: this case tests the creation of the tables */
	T_RUN(first_use_by_many_threads);
	T_RUN(vectors_of_rfc_3720);
	T_RUN(every_length_and_alignment);
	T_RUN(in_pieces);
	T_RUN(combines);
	T_RUN(combines_lengths_beyond_memory);
	T_RUN(remainders);
	return t_done();
}
