/* SPDX-License-Identifier: MIT */
/*
 * Keys shared by clients and server of the storage service, in the format of GnuTLS' psktool: lines
 * NAME:HEX.
 */
#ifndef PST_NET_KEYS_H
#define PST_NET_KEYS_H

#include "base/base.h"

#define NET_KEY_NAME_MAX 127u /* bytes; the limit of GnuTLS and OpenSSL */
#define NET_KEY_MIN 16u       /* bytes of a key; shorter ones can be guessed */
#define NET_KEY_MAX 64u
#define NET_KEYS_MAX 1024u /* maximum keys in a file */

struct net_key {
	char name[NET_KEY_NAME_MAX + 1];
	unsigned len;
	uint8_t key[NET_KEY_MAX];
};

struct net_keys {
	unsigned nr;
	struct net_key *keys;
};

/**
 * net_keys_read() - read a file of keys
 * @path: a regular file, readable only by owner and group, writable only by owner
 * @ret:  the keys, to be freed with net_keys_free()
 *
 * Return: 0; -EPERM if others may read or change the file; -EINVAL for a malformed line; or an
 * error of the kernel; each with a sentence.
 */
int net_keys_read(const char *path, struct net_keys *ret);
/* Clear and free the keys. */
void net_keys_free(struct net_keys *k);

/* Return the key of that name, or NULL.  name has len bytes and no NUL. */
static inline const struct net_key *net_keys_find(const struct net_keys *k, const char *name,
						  size_t len)
{
	for (unsigned i = 0; i < k->nr; i++)
		if (strlen(k->keys[i].name) == len && !memcmp(k->keys[i].name, name, len))
			return &k->keys[i];
	return NULL;
}

#endif
