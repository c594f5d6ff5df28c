/* SPDX-License-Identifier: MIT */
/* The names of foreign_key.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "foreign_key.h"

void key_new_uuid(uint8_t id[16])
{
	if (getrandom(id, 16, 0) != 16)
		abort();
	id[6] = (uint8_t)((id[6] & 0x0f) | 0x40);
	id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
}

void key_uuid_text(const uint8_t id[16], char text[KEY_UUID_LEN + 1])
{
	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*text++ = '-';
		text += sprintf(text, "%02x", id[i]);
	}
}

static int nibble(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Parse a UUID.  Return the text after it, or NULL. */
static const char *parse_uuid(const char *s, uint8_t id[16])
{
	for (int i = 0; i < 16; i++) {
		int hi, lo;

		if ((i == 4 || i == 6 || i == 8 || i == 10) && *s++ != '-')
			return NULL;
		hi = nibble(s[0]);
		lo = hi < 0 ? -1 : nibble(s[1]);
		if (lo < 0)
			return NULL;
		id[i] = (uint8_t)(hi << 4 | lo);
		s += 2;
	}
	return s;
}

static bool parse_number(const char *s, int base, long long min, long long max, long long *ret)
{
	char *end;
	long long n;

	/* strtoll() would accept blanks and a plus sign: refuse them. */
	if (nibble(*s == '-' ? s[1] : *s) < 0)
		return false;
	errno = 0;
	n = strtoll(s, &end, base);
	if (errno || *end || n < min || n > max)
		return false;
	*ret = n;
	return true;
}

static bool parse_prio(const char *s, enum prio *ret)
{
	if (strcmp(s, "h") == 0)
		*ret = PRIO_HIGH;
	else if (strcmp(s, "n") == 0 || !*s)
		*ret = PRIO_NORMAL;
	else if (strcmp(s, "l") == 0)
		*ret = PRIO_LOW;
	else
		return false;
	return true;
}

static bool parse_attr(const char *attr, struct key *k)
{
	long long n = 0;
	bool ok;

	switch (attr[0]) {
	case 'b':
		ok = parse_number(attr + 1, 10, 1, LLONG_MAX, &n);
		k->block_size = (uint64_t)n;
		return ok;
	case 'r':
	case 'w':
		ok = !k->is_ring && parse_number(attr + 1, 10, -INT_MAX, INT_MAX, &n);
		k->is_ring = true;
		k->for_read = attr[0] == 'r';
		k->depth = (int)n;
		return ok;
	case 'p':
		return k->is_ring && parse_prio(attr + 1, &k->prio);
	case 't':
		ok = k->is_ring && parse_number(attr + 1, 10, 0, INT_MAX, &n);
		k->timeout_ms = (int)n;
		return ok;
	case 'f':
		ok = k->is_ring && parse_number(attr + 1, 2, 0, LLONG_MAX, &n);
		k->flags = (uint64_t)n;
		return ok;
	default:
		return false;
	}
}

int key_parse(const char *name, struct key *ret_key)
{
	struct key k = { .prio = PRIO_NORMAL };
	char copy[256], *attr, *next;
	const char *rest = parse_uuid(name, k.id);

	if (!rest || (*rest && *rest != '.') || strlen(rest) >= sizeof(copy))
		return -EINVAL;
	(void)strcpy(copy, rest);
	for (attr = *copy ? copy + 1 : NULL; attr; attr = next) {
		next = strchr(attr, '.');
		if (next)
			*next++ = '\0';
		if (!parse_attr(attr, &k))
			return -EINVAL;
	}
	*ret_key = k;
	return 0;
}
