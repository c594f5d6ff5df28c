/* SPDX-License-Identifier: MIT */
#include "tools/common/sums.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define HEAD "penstock-crc32c 1 "
#define DIGITS_MAX 19u /* decimal digits of a number; 64 bits hold them */

/* ------------------------------------------------------------------ ranges */

static uint64_t nr_ranges(uint64_t len)
{
	return len / SUMS_RANGE_MAX + (len % SUMS_RANGE_MAX != 0);
}

/* Add the ranges of bytes off..off+len. */
static void sums_add(struct sums *s, uint64_t off, uint64_t len)
{
	for (uint64_t n; len; off += n, len -= n) {
		n = MIN(len, (uint64_t)SUMS_RANGE_MAX);
		s->v[s->nr++] = (struct sum){ .off = off, .len = (uint32_t)n };
	}
}

struct sums *sums_new(const struct safetensors *st)
{
	struct sums *s = calloc(1, sizeof(*s));
	uint64_t nr = nr_ranges(st->data_off);

	if (!s)
		return NULL;
	for (size_t i = 0; i < st->nr; i++)
		nr += nr_ranges(st->tensors[i].len);
	s->size = st->data_off + st->data_len;
	s->v = calloc(nr, sizeof(*s->v));
	if (!s->v)
		return sums_free(s);
	/* The tensors follow one another from the header to the end of the file. */
	sums_add(s, 0, st->data_off);
	for (size_t i = 0; i < st->nr; i++)
		sums_add(s, st->tensors[i].off, st->tensors[i].len);
	return s;
}

void sums_print(const struct sums *s, FILE *to)
{
	(void)fprintf(to, HEAD "%" PRIu64 "\n", s->size);
	for (size_t i = 0; i < s->nr; i++)
		(void)fprintf(to, "%08" PRIx32 " %" PRIu64 " %" PRIu32 "\n", s->v[i].crc,
			      s->v[i].off, s->v[i].len);
}

struct sums *sums_free(struct sums *s)
{
	if (s)
		free(s->v);
	free(s);
	return NULL;
}

/* ------------------------------------------------------------------- text */

/* Text that remains to be parsed. */
struct text {
	const char *at, *end;
};

static bool take_char(struct text *t, char c)
{
	if (t->at == t->end || *t->at != c)
		return false;
	t->at++;
	return true;
}

static bool take_digits(struct text *t, uint64_t *ret)
{
	unsigned nr = 0;

	*ret = 0;
	for (; t->at != t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
		if (++nr > DIGITS_MAX)
			return false;
		*ret = *ret * 10 + (uint64_t)(*t->at - '0');
	}
	return nr > 0;
}

static bool take_crc(struct text *t, uint32_t *ret)
{
	*ret = 0;
	for (unsigned i = 0; i < 8; i++, t->at++) {
		if (t->at == t->end)
			return false;
		if (*t->at >= '0' && *t->at <= '9')
			*ret = *ret << 4 | (uint32_t)(*t->at - '0');
		else if (*t->at >= 'a' && *t->at <= 'f')
			*ret = *ret << 4 | (uint32_t)(*t->at - 'a' + 10);
		else
			return false;
	}
	return true;
}

static bool take_head(struct text *t, uint64_t *ret_size)
{
	size_t len = strlen(HEAD);

	if ((size_t)(t->end - t->at) < len || memcmp(t->at, HEAD, len) != 0)
		return false;
	t->at += len;
	return take_digits(t, ret_size) && take_char(t, '\n');
}

/* Parse the line of the range that begins at off. */
static bool take_sum(struct text *t, uint64_t off, struct sum *ret)
{
	uint64_t len;

	if (!take_crc(t, &ret->crc) || !take_char(t, ' ') || !take_digits(t, &ret->off) ||
	    !take_char(t, ' ') || !take_digits(t, &len) || !take_char(t, '\n'))
		return false;
	if (ret->off != off || !len || len > SUMS_RANGE_MAX)
		return false;
	ret->len = (uint32_t)len;
	return true;
}

static size_t count_lines(struct text t)
{
	size_t nr = 0;

	for (; t.at != t.end; t.at++)
		nr += *t.at == '\n';
	return nr;
}

static _printf_(4, 5) int refuse(char *why, size_t len, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(why, len, fmt, ap);
	va_end(ap);
	return -err;
}

int sums_parse(const char *text, size_t len, uint64_t size, struct sums **ret, char *why,
	       size_t why_len)
{
	_cleanup_(sums_freep) struct sums *s = calloc(1, sizeof(*s));
	struct text t = { text, text + len };
	uint64_t at = 0;

	if (!s)
		return refuse(why, why_len, ENOMEM, "out of memory");
	if (!take_head(&t, &s->size))
		return refuse(why, why_len, EINVAL, "these are no checksums of a file");
	if (s->size != size)
		return refuse(why, why_len, EINVAL,
			      "the checksums are of a file of %" PRIu64
			      " bytes, and this one has %" PRIu64,
			      s->size, size);
	s->v = calloc(count_lines(t) + 1, sizeof(*s->v));
	if (!s->v)
		return refuse(why, why_len, ENOMEM, "out of memory");
	for (; t.at != t.end; at += s->v[s->nr++].len)
		if (at >= size || !take_sum(&t, at, &s->v[s->nr]))
			return refuse(why, why_len, EINVAL,
				      "line %zu is no checksum of what follows", s->nr + 2);
	if (at != size)
		return refuse(why, why_len, EINVAL,
			      "the checksums end after %" PRIu64 " of %" PRIu64 " bytes", at, size);
	*ret = TAKE_PTR(s);
	return 0;
}
