/* SPDX-License-Identifier: MIT */
#ifndef PST_CRC32C_H
#define PST_CRC32C_H

#include "base/base.h"

/*
 * Compute CRC-32C (Castagnoli, RFC 3720 appendix B.4), by the CPU's instructions if it has any.
 * @crc is 0 to begin, else the result so far.
 */
uint32_t crc32c(uint32_t crc, const void *buf, size_t len);

/* Return the CRC of A followed by B, from crc(A), crc(B) and the length of B. */
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

/* Return the factor by which len more bytes multiply a CRC, and multiply: the two steps of
 * crc32c_combine(), for appending many messages of one length. */
uint32_t crc32c_factor(uint64_t len);
uint32_t crc32c_times(uint32_t crc, uint32_t factor);

/*
 * A remainder is a CRC that begins with 0 and is not complemented at its end.  Zeros in front of a
 * message change nothing of it, and two are combined by crc32c_combine() as CRCs are.
 *
 * crc32c_of_remainder() gives the CRC of a message, from the factor of its length.
 * crc32c_drop_zeros() gives the remainder of a message without the nr bytes at its end, which are
 * zeros.
 */
uint32_t crc32c_of_remainder(uint32_t remainder, uint32_t factor);
uint32_t crc32c_drop_zeros(uint32_t remainder, unsigned nr);

/* The version of CPUs without carry-less multiplication of 64 bytes, and that of CPUs without an
 * instruction, for tests. */
uint32_t crc32c_instruction(uint32_t crc, const void *buf, size_t len);
uint32_t crc32c_table(uint32_t crc, const void *buf, size_t len);

#endif
