/* SPDX-License-Identifier: MIT */
#ifndef PST_CRC32C_H
#define PST_CRC32C_H

#include "base/base.h"

/*
 * CRC-32C (Castagnoli, RFC 3720 appendix B.4), by the CPU's instruction where it has one.
 * @crc: 0 to begin, else the result so far
 */
uint32_t crc32c(uint32_t crc, const void *buf, size_t len);

/* The CRC of A followed by B, from crc(A), crc(B) and the length of B. */
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

/* The table version, for tests. */
uint32_t crc32c_table(uint32_t crc, const void *buf, size_t len);

#endif
