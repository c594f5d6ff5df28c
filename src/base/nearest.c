/* SPDX-License-Identifier: MIT */
#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define NAME_MAX_LEN 31u /* bytes of a name; longer words never match */

/* Return the least number of letters to insert, remove, replace or swap with a neighbour that turns
 * a into b. */
static unsigned distance(const char *a, size_t len_a, const char *b, size_t len_b)
{
	unsigned rows[3][NAME_MAX_LEN + 1];
	unsigned *before = rows[0], *last = rows[1], *now = rows[2], *old;

	for (unsigned j = 0; j <= len_b; j++)
		last[j] = j;
	for (unsigned i = 1; i <= len_a; i++) {
		now[0] = i;
		for (unsigned j = 1; j <= len_b; j++) {
			unsigned n = last[j - 1] + (a[i - 1] != b[j - 1]);

			n = MIN(n, last[j] + 1);
			n = MIN(n, now[j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				n = MIN(n, before[j - 2] + 1);
			now[j] = n;
		}
		old = before;
		before = last;
		last = now;
		now = old;
	}
	return last[len_b];
}

const char *nearest(const char *word, size_t len, const char *const *names, size_t stride,
		    size_t nr)
{
	const char *at = (const char *)names, *best = NULL;
	unsigned least = 0;

	for (size_t i = 0; i < nr && len <= NAME_MAX_LEN; i++, at += stride) {
		const char *name = *(const char *const *)(const void *)at;
		size_t name_len = name ? strlen(name) : 0;
		unsigned d;

		if (!name_len || name_len > NAME_MAX_LEN)
			continue;
		d = distance(word, len, name, name_len);
		if (3 * d <= MAX(len, name_len) && (!best || d < least)) {
			best = name;
			least = d;
		}
	}
	return best;
}

/* ----------------------------------------------------------------- devices */

/* Kinds of devices, and common names for them.  The last two names are too short to compare with
 * mistyped words. */
static const struct {
	const char *word, *kind;
} words[] = {
	{ "host", "host" },    { "soft", "soft" },   { "cuda", "cuda" }, { "gaudi", "gaudi" },
	{ "habana", "gaudi" }, { "nvidia", "cuda" }, { "cpu", "host" },  { "gpu", "cuda" },
};
#define NR_LONG_WORDS (ARRAY_SIZE(words) - 2)

static char nearest_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 32) : c;
}

bool nearest_device(const char *text, char ret[NEAREST_DEVICE_MAX])
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	size_t len = strspn(text, letters);
	const char *idx = text + len + (text[len] && strchr(":-_", text[len])), *kind = NULL;
	bool is_nr = strlen(idx) <= 6 && !idx[strspn(idx, "0123456789")];
	char word[NAME_MAX_LEN + 1];

	ret[0] = '\0';
	if (!len || len > NAME_MAX_LEN || (!is_nr && text[len] != ':'))
		return false;
	for (size_t i = 0; i < len; i++)
		word[i] = nearest_lower(text[i]);
	word[len] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(word, words[i].word))
			kind = words[i].kind;
	/* Other words are names of devices only with a colon and a number: "sort1" may be a
	 * file. */
	if (!kind) {
		const char *near;

		if (text[len] != ':' || !*idx || !is_nr)
			return false;
		near = nearest(word, len, &words[0].word, sizeof(words[0]), NR_LONG_WORDS);
		for (size_t i = 0; near && i < ARRAY_SIZE(words); i++)
			if (near == words[i].word)
				kind = words[i].kind;
	}
	if (!kind)
		return true;
	if (!strcmp(kind, "host"))
		(void)snprintf(ret, NEAREST_DEVICE_MAX, "host");
	else
		(void)snprintf(ret, NEAREST_DEVICE_MAX, "%s:%.6s", kind, is_nr && *idx ? idx : "0");
	return true;
}
