/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "base/log.h"
#include "base/uaccess.h"

#include "args.h"

#define CHUNK 4096u /* bytes; a page, or a fraction of one */

static int args_invalid(const char *what)
{
	log_error("%s", what);
	return RUNAI_INVALID;
}

static int no_memory(void)
{
	log_error("out of memory for a copy of arguments");
	return RUNAI_UNKNOWN;
}

/* Clear our temporary copy of a string, because it may contain credentials. */
static void wipe_chunk(char (*chunk)[CHUNK])
{
	explicit_bzero(*chunk, sizeof(*chunk));
}

int copy_array(const void *from, uint64_t nr, size_t size, void *ret)
{
	void *copy;

	if (!from && nr)
		return args_invalid("an array is NULL");
	copy = calloc(nr ? nr : 1, size);
	if (!copy)
		return no_memory();
	if (nr && uaccess_read(copy, from, nr * size) < 0) {
		free(copy);
		return args_invalid("an array cannot be read to its end: is a count too large?");
	}
	*(void **)ret = copy;
	return RUNAI_SUCCESS;
}

/* Return the bytes up to the end of the page, because the next page may be unmapped. */
static size_t in_page(const char *from)
{
	return CHUNK - (uintptr_t)from % CHUNK;
}

static int not_there(void)
{
	return args_invalid("a string is not there, or has no end");
}

int copy_string(const char *from, char **ret)
{
	_cleanup_(wipe_chunk) char chunk[CHUNK];
	const char *end = NULL;
	size_t len = 0;
	char *copy;

	if (!from)
		return args_invalid("a string is NULL");
	while (!end && len < STRING_MAX) {
		size_t n = in_page(from + len);

		if (uaccess_read_page(chunk, from + len, n) < 0)
			return not_there();
		end = memchr(chunk, '\0', n);
		len += end ? (size_t)(end - chunk) : n;
	}
	if (!end || len >= STRING_MAX)
		return args_invalid("a string is longer than 64 KiB");
	copy = malloc(len + 1);
	if (!copy)
		return no_memory();
	/* Common case: the string lies in one page. */
	if (len < in_page(from)) {
		memcpy(copy, chunk, len);
	} else if (uaccess_read(copy, from, len) < 0) {
		free(copy);
		return not_there();
	}
	copy[len] = '\0';
	*ret = copy;
	return RUNAI_SUCCESS;
}

int copy_strings(const char *const *from, uint64_t nr, struct strings *ret)
{
	_cleanup_(strings_done) struct strings s = { 0 };
	_cleanup_(freep) const char **places = NULL;
	int code = nr > STRINGS_MAX ? args_invalid("an array has more than 1 Mi strings")
				    : copy_array(from, nr, sizeof(*places), &places);

	if (code)
		return code;
	s.at = calloc(nr ? nr : 1, sizeof(*s.at));
	if (!s.at)
		return no_memory();
	while (s.nr < nr) {
		code = copy_string(places[s.nr], &s.at[s.nr]);
		if (code)
			return code;
		s.nr++;
	}
	*ret = s;
	s = (struct strings){ 0 };
	return RUNAI_SUCCESS;
}

void strings_done(struct strings *s)
{
	for (uint64_t i = 0; i < s->nr; i++) {
		if (s->at[i])
			explicit_bzero(s->at[i], strlen(s->at[i]));
		free(s->at[i]);
	}
	free(s->at);
	*s = (struct strings){ 0 };
}
