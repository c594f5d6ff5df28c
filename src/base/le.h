/* SPDX-License-Identifier: MIT */
/* Little-endian integers in messages, at unaligned addresses. */
#ifndef PST_LE_H
#define PST_LE_H

#include <endian.h>

#include "base/base.h"

static inline void put16(uint8_t *to, uint16_t v)
{
	v = htole16(v);
	memcpy(to, &v, sizeof(v));
}

static inline void put32(uint8_t *to, uint32_t v)
{
	v = htole32(v);
	memcpy(to, &v, sizeof(v));
}

static inline void put64(uint8_t *to, uint64_t v)
{
	v = htole64(v);
	memcpy(to, &v, sizeof(v));
}

static inline uint16_t get16(const uint8_t *from)
{
	uint16_t v;

	memcpy(&v, from, sizeof(v));
	return le16toh(v);
}

static inline uint32_t get32(const uint8_t *from)
{
	uint32_t v;

	memcpy(&v, from, sizeof(v));
	return le32toh(v);
}

static inline uint64_t get64(const uint8_t *from)
{
	uint64_t v;

	memcpy(&v, from, sizeof(v));
	return le64toh(v);
}

#endif
