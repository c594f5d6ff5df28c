/* SPDX-License-Identifier: MIT */
#include <endian.h>

#include "base/crc32c.h"
#include "base/err.h"

#include "kv/block.h"

#define VERSION 1u

static const char magic[8] = "PSTKVB\r\n";

struct foot {
	uint64_t len; /* bytes of the block */
	uint64_t space, hash;
	uint64_t made_s;
	uint32_t crc; /* CRC-32C of the block's bytes */
	uint32_t key_len;
	uint32_t version;
	uint32_t reserved[9];
	char magic[8];
	uint32_t pad;
	uint32_t foot_crc; /* CRC-32C of the key and of all members before */
};

_Static_assert(sizeof(struct foot) == FOOT_LEN, "the format has no holes");

size_t block_tail(void *to, const struct block_id *id, uint64_t len, uint32_t crc)
{
	struct foot f = {
		.len = htole64(len),
		.space = htole64(id->space),
		.hash = htole64(id->hash),
		.made_s = htole64((uint64_t)time(NULL)),
		.crc = htole32(crc),
		.key_len = htole32(id->key_len),
		.version = htole32(VERSION),
	};
	unsigned char *p = to;

	memcpy(f.magic, magic, sizeof(magic));
	memcpy(p, id->key, id->key_len);
	memcpy(p + id->key_len, &f, sizeof(f));
	f.foot_crc = htole32(crc32c(0, to, id->key_len + offsetof(struct foot, foot_crc)));
	memcpy(p + id->key_len, &f, sizeof(f));
	return id->key_len + sizeof(f);
}

static int block_bad(const char *why)
{
	return err_set(EBADMSG, "the file of a block %s", why);
}

int block_check(const void *tail, size_t tail_len, uint64_t file_len, const struct block_id *id,
		uint64_t *ret_len, uint32_t *ret_crc, const void **ret_key, uint32_t *ret_key_len)
{
	const unsigned char *end = (const unsigned char *)tail + tail_len, *key;
	struct foot f;
	uint32_t key_len;

	if (tail_len < sizeof(f) || file_len < tail_len)
		return block_bad("is shorter than a foot");
	memcpy(&f, end - sizeof(f), sizeof(f));
	if (memcmp(f.magic, magic, sizeof(magic)) != 0)
		return block_bad("has no foot");
	if (le32toh(f.version) != VERSION)
		return block_bad("is of a version that this library does not know");
	key_len = le32toh(f.key_len);
	if (!key_len || key_len > KEY_MAX || key_len > tail_len - sizeof(f))
		return block_bad("has a key of an impossible length");
	key = end - sizeof(f) - key_len;
	if (crc32c(0, key, key_len + offsetof(struct foot, foot_crc)) != le32toh(f.foot_crc))
		return block_bad("has a foot that fails its check");
	if (le64toh(f.len) != file_len - sizeof(f) - key_len)
		return block_bad("has not the length that its foot says");
	if (id && (le64toh(f.space) != id->space || le64toh(f.hash) != id->hash))
		return block_bad("is of another space or hash");
	if (id && id->key && (key_len != id->key_len || memcmp(key, id->key, key_len) != 0))
		return block_bad("is of another key");
	*ret_len = le64toh(f.len);
	*ret_crc = le32toh(f.crc);
	if (ret_key) {
		*ret_key = key;
		*ret_key_len = key_len;
	}
	return 0;
}
