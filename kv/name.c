/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "kv/name.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Return the number of base64url digits for len bytes. */
static size_t name_digits(size_t len)
{
	return (len * 8 + 5) / 6;
}

/* Append bytes as base64url.  Return the end of the text. */
static char *name_put(char *to, const void *bytes, size_t len)
{
	const uint8_t *from = bytes;
	unsigned nr_bits = 0;
	uint32_t bits = 0;

	for (size_t i = 0; i < len; i++) {
		bits = bits << 8 | from[i];
		for (nr_bits += 8; nr_bits >= 6; nr_bits -= 6)
			*to++ = digits[bits >> (nr_bits - 6) & 63];
	}
	if (nr_bits)
		*to++ = digits[bits << (6 - nr_bits) & 63];
	*to = '\0';
	return to;
}

/* Decode base64url of at most room bytes.  Return the number of bytes, or -ENOENT. */
static int64_t name_get(const char *from, size_t len, uint8_t *to, size_t room)
{
	size_t n = len * 6 / 8;
	unsigned nr_bits = 0;
	uint32_t bits = 0;

	if (n > room || name_digits(n) != len)
		return -ENOENT;
	for (size_t i = 0; i < len; i++) {
		const char *digit = memchr(digits, from[i], sizeof(digits) - 1);

		if (!digit)
			return -ENOENT;
		bits = bits << 6 | (uint32_t)(digit - digits);
		nr_bits += 6;
		if (nr_bits >= 8) {
			nr_bits -= 8;
			*to++ = (uint8_t)(bits >> nr_bits);
		}
	}
	return (int64_t)n;
}

/* Decode a field as a string, and advance *at past the slash after it.  Return -ENOENT if it is
 * not a string. */
static int name_get_text(const char **at, char to[PST_KV_TEXT_MAX + 1])
{
	const char *slash = strchr(*at, '/');
	int64_t n = slash ? name_get(*at, (size_t)(slash - *at), (uint8_t *)to, PST_KV_TEXT_MAX)
			  : -ENOENT;

	if (n < 0 || memchr(to, '\0', (size_t)n))
		return -ENOENT;
	to[n] = '\0';
	*at = slash + 1;
	return 0;
}

/* Parse the length of a block: a decimal number without leading zeros. */
static int name_get_len(const char *at, uint64_t *ret)
{
	uint64_t len = 0;

	if (*at < '1' || *at > '9')
		return -ENOENT;
	for (; *at >= '0' && *at <= '9' && len <= PST_KV_BLOCK_MAX; at++)
		len = 10 * len + (uint64_t)(*at - '0');
	if (*at || len > PST_KV_BLOCK_MAX)
		return -ENOENT;
	*ret = len;
	return 0;
}

int name_read(const char *name, struct block_name *ret)
{
	const char *at = name + sizeof(NAME_ROOT);
	size_t len;
	int64_t n;

	if (strncmp(name, NAME_ROOT "/", sizeof(NAME_ROOT)) != 0 ||
	    name_get_text(&at, ret->identity) < 0 || name_get_text(&at, ret->tenant) < 0 ||
	    name_get_text(&at, ret->salt) < 0 || !*ret->identity)
		return -ENOENT;
	len = strcspn(at, "/");
	n = name_get(at, len, ret->key, sizeof(ret->key));
	if (n <= 0)
		return -ENOENT;
	ret->key_len = (uint32_t)n;
	ret->len = 0;
	return at[len] ? name_get_len(at + len + 1, &ret->len) : 0;
}

char *name_of_space(const char *identity, const char *tenant, const char *salt)
{
	const char *words[] = { identity, tenant, salt };
	size_t room = sizeof(NAME_ROOT) + 1;
	char *to, *at;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		room += name_digits(strlen(words[i])) + 1;
	to = malloc(room);
	if (!to)
		return NULL;
	at = stpcpy(to, NAME_ROOT "/");
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		at = stpcpy(name_put(at, words[i], strlen(words[i])), "/");
	return to;
}

int name_of_block(char to[NAME_MAX_LEN + 1], const char *space, const void *key, uint64_t key_len,
		  uint64_t len)
{
	char *at;

	/* 12: a slash, the ten digits of PST_KV_BLOCK_MAX, and the final 0. */
	if (strlen(space) + name_digits(key_len) + 12 > NAME_MAX_LEN + 1)
		return -ENAMETOOLONG;
	at = name_put(stpcpy(to, space), key, key_len);
	if (len)
		(void)snprintf(at, 12, "/%" PRIu64, len);
	return 0;
}
