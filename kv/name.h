/* SPDX-License-Identifier: MIT */
/* Names of blocks in the protocol: docs/PROTOCOL.md, "A store of blocks". */
#ifndef KV_NAME_H
#define KV_NAME_H

#include <penstock_kv.h>

#include "base/base.h"

#define NAME_ROOT "kv1"
#define NAME_MAX_LEN 4095u /* bytes; equals WIRE_NAME_MAX */

struct block_name {
	char identity[PST_KV_TEXT_MAX + 1];
	char tenant[PST_KV_TEXT_MAX + 1];
	char salt[PST_KV_TEXT_MAX + 1];
	uint8_t key[PST_KV_KEY_MAX];
	uint32_t key_len;
	uint64_t len; /* length of the block, bytes; 0: the name has no length */
};

/* Parse a name.  Return 0, or -ENOENT if no block can have the name. */
int name_read(const char *name, struct block_name *ret);

/* Return the part of a name before the key, with a slash at its end.  The caller frees it.  NULL
 * without memory. */
char *name_of_space(const char *identity, const char *tenant, const char *salt);

/* Write space, the result of name_of_space(), the key, and len unless it is 0.  Return 0 or
 * -ENAMETOOLONG. */
int name_of_block(char to[NAME_MAX_LEN + 1], const char *space, const void *key, uint64_t key_len,
		  uint64_t len);

#endif
