/* SPDX-License-Identifier: MIT */
/*
 * The file of a block: its bytes, then the key, then a foot of 96 bytes at the end of the file.
 * All numbers are little endian.  docs/KV.md has the table.
 */
#ifndef KV_BLOCK_H
#define KV_BLOCK_H

#include "base/base.h"

#define FOOT_LEN 96u
#define KEY_MAX 1024u /* bytes; equals PST_KV_KEY_MAX */
#define TAIL_MAX (KEY_MAX + FOOT_LEN)

/* Identifies the block that a file holds.  hash names the file; space names the directory of its
 * space. */
struct block_id {
	uint64_t space, hash;
	const void *key;
	uint32_t key_len;
};

/* Write key and foot to @to, which has room for TAIL_MAX bytes.  Return their length in bytes. */
size_t block_tail(void *to, const struct block_id *id, uint64_t len, uint32_t crc);

/*
 * Check key and foot of a file of file_len bytes.
 * @tail: the last tail_len bytes of the file
 * @id: the block that it must be, or NULL
 * @ret_key: set to the address of the key in tail; may be NULL
 *
 * Return: 0 with the length and the CRC-32C of the block's bytes, or -EBADMSG with a sentence.
 */
int block_check(const void *tail, size_t tail_len, uint64_t file_len, const struct block_id *id,
		uint64_t *ret_len, uint32_t *ret_crc, const void **ret_key, uint32_t *ret_key_len);

#endif
