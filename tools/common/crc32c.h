/* SPDX-License-Identifier: MIT */
#ifndef CLI_CRC32C_H
#define CLI_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * Extend a CRC-32C by a buffer; begin with 0.  The command has its own implementation, so that
 * checks of the library do not rest on the library.
 */
uint32_t crc32c_add(uint32_t crc, const void *buf, size_t len);

#endif
