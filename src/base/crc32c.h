/* SPDX-License-Identifier: MIT */
#ifndef PST_CRC32C_H
#define PST_CRC32C_H

#include "base/base.h"

/*
 * Compute CRC-32C (Castagnoli, RFC 3720 appendix B.4), by the CPU's instructions if it has them.
 * @crc is 0 for the first bytes, else the result of the bytes before.
 */
uint32_t crc32c(uint32_t crc, const void *buf, size_t len);

/* Return the CRC of A followed by B, from crc(A), crc(B) and the length of B. */
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

/* crc32c_factor() returns the factor by which appending len bytes multiplies a CRC;
 * crc32c_times() multiplies.  The two calls are the steps of crc32c_combine(), for many messages
 * of equal length. */
uint32_t crc32c_factor(uint64_t len);
uint32_t crc32c_times(uint32_t crc, uint32_t factor);

/*
 * A remainder is a CRC that begins with 0 and is not complemented at its end.  Zeros before a
 * message do not change its remainder.  crc32c_combine() also combines two remainders.
 *
 * crc32c_of_remainder() returns the CRC of a message; factor is crc32c_factor() of the message's
 * length.  crc32c_drop_zeros() returns the remainder of a message without its last nr bytes, which
 * must be zeros.
 */
uint32_t crc32c_of_remainder(uint32_t remainder, uint32_t factor);
uint32_t crc32c_drop_zeros(uint32_t remainder, unsigned nr);

/* For tests: the version for CPUs without carry-less multiplication of 64 bytes, and the version
 * for CPUs without a CRC instruction. */
uint32_t crc32c_instruction(uint32_t crc, const void *buf, size_t len);
uint32_t crc32c_table(uint32_t crc, const void *buf, size_t len);

#endif
