/* SPDX-License-Identifier: MIT */
#ifndef CLI_CRC32C_H
#define CLI_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * CRC-32C of a buffer, 0 to begin.  The command has its own, so that checks of what
 * the library reports rest on something else than the library.
 */
uint32_t crc32c_add(uint32_t crc, const void *buf, size_t len);

#endif
