/* SPDX-License-Identifier: MIT */
/*
 * s3+list://BUCKET/PREFIX as a file: a line for each object, SIZE TAB TIME TAB ETAG TAB KEY, with
 * the key in percent-encoding.  Common prefixes up to the next slash are lines with "-" in place of
 * size, time and ETag.  A name that ends in ?all lists all keys, and no prefixes.
 */
#include <ctype.h>
#include <stdio.h>

#include "base/err.h"
#include "s3/http.h"
#include "s3/read.h"

#define PAGE "1000"
#define TOKEN_LEN 2048
#define ALL "?all"

struct listing {
	struct where *where;
	char *prefix;
	bool all;
	uint64_t deadline_ns; /* of pages that bring nothing */
	FILE *to;
	char *text;
	size_t len;
};

/* The contents of the next element of that name, cut off at their end until the next call; NULL:
 * none. */
static char *next_element(char **at, const char *name)
{
	char open[32], shut[32], *from, *end;

	(void)snprintf(open, sizeof(open), "<%s>", name);
	(void)snprintf(shut, sizeof(shut), "</%s>", name);
	if (!**at)
		**at = '<'; /* that the last call cut off */
	from = strstr(*at, open);
	end = from ? strstr(from, shut) : NULL;
	if (!end)
		return NULL;
	*end = '\0';
	*at = end;
	return from + strlen(open);
}

/* Of what a server says only printable characters without blanks go into the text. */
static bool is_field(const char *s)
{
	for (; *s; s++)
		if (*s <= ' ' || *s == 127)
			return false;
	return true;
}

static int add_page(struct listing *l, char *xml)
{
	char key[KEY_MAX * 3 + 1], size[24], when[40], etag[160], *at = xml, *e;

	while (!l->all && (e = next_element(&at, "CommonPrefixes"))) {
		if (!xml_find(e, "Prefix", key, sizeof(key)) || !is_field(key))
			return -EPROTO;
		(void)fprintf(l->to, "-\t-\t-\t%s\n", key);
	}
	for (at = xml; (e = next_element(&at, "Contents"));) {
		if (!xml_find(e, "Key", key, sizeof(key)) ||
		    !xml_find(e, "Size", size, sizeof(size)) ||
		    strspn(size, "0123456789") != strlen(size) || !is_field(key))
			return -EPROTO;
		if (!xml_find(e, "LastModified", when, sizeof(when)) || !is_field(when))
			(void)strcpy(when, "-");
		if (!xml_find(e, "ETag", etag, sizeof(etag)) || !is_field(etag))
			(void)strcpy(etag, "-");
		(void)fprintf(l->to, "%s\t%s\t%s\t%s\n", size, when, etag, key);
	}
	return 0;
}

/* One page.  1: there are more, from token on; 0; -errno with a sentence. */
static int read_page(struct listing *l, char token[TOKEN_LEN])
{
	struct pair q[6] = { { "list-type", "2" },
			     { "max-keys", PAGE },
			     { "encoding-type", "url" },
			     { "prefix", l->prefix } };
	struct call c = { .method = "GET", .where = l->where, .deadline_ns = l->deadline_ns };
	size_t nr = 4;
	char more[8] = "", next[TOKEN_LEN] = "";
	int r;

	if (!l->all)
		q[nr++] = (struct pair){ "delimiter", "/" };
	if (*token)
		q[nr++] = (struct pair){ "continuation-token", token };
	c.query = encode_query(q, nr);
	r = c.query ? call_wait(&c) : err_set(ENOMEM, "out of memory");
	free(c.query);
	if (r == 0 &&
	    (!c.text || strlen(c.text) != c.text_len || !strstr(c.text, "<ListBucketResult")))
		r = -EPROTO;
	if (r == 0) {
		(void)xml_find(c.text, "IsTruncated", more, sizeof(more));
		(void)xml_find(c.text, "NextContinuationToken", next, sizeof(next));
		r = add_page(l, c.text);
	}
	if (r == -EPROTO)
		r = err_set(EPROTO, "%.200s: the server's answer is no listing", l->where->shown);
	call_free_text(&c);
	if (r < 0 || strcmp(more, "true") != 0)
		return r;
	if (!*next || strcmp(next, token) == 0)
		return err_set(EPROTO, "%.200s: the server says that there is more, and not where",
			       l->where->shown);
	(void)strcpy(token, next);
	return 1;
}

static int read_pages(struct listing *l)
{
	char token[TOKEN_LEN] = "";
	size_t len = 0;
	int r;

	do {
		/* Pages without a line may follow each other, but not for ever. */
		if (!*token || l->len > len)
			l->deadline_ns = now_ns() + OPEN_NS;
		len = l->len;
		r = read_page(l, token);
		if (r >= 0 && (fflush(l->to) != 0 || l->len > LIST_MAX))
			r = err_set(
				E2BIG,
				"%.200s: the listing is longer than %u MiB; give a longer prefix",
				l->where->shown, (unsigned)(LIST_MAX >> 20));
	} while (r > 0);
	return r;
}

/* The prefix as it was given: the path is encoded, and belongs to an object. */
static int split(struct s3_file *f, struct listing *l)
{
	struct where *w = f->where;
	const char *rest = w->shown + strlen("s3+list://"), *slash = strchr(rest, '/');
	size_t len;

	l->prefix = strdup(slash ? slash + 1 : "");
	if (!l->prefix)
		return err_set(ENOMEM, "out of memory");
	len = strlen(l->prefix);
	if (len >= strlen(ALL) && strcmp(l->prefix + len - strlen(ALL), ALL) == 0) {
		l->all = true;
		l->prefix[len - strlen(ALL)] = '\0';
	}
	/* The bucket's own path. */
	w->path[w->key_at - w->path_style] = '\0';
	return 0;
}

int list_read(struct s3_file *f)
{
	struct listing l = { .where = f->where };
	int r = split(f, &l);

	l.to = r == 0 ? open_memstream(&l.text, &l.len) : NULL;
	if (r == 0)
		r = l.to ? read_pages(&l) : err_set(ENOMEM, "out of memory");
	if (l.to)
		(void)fclose(l.to);
	free(l.prefix);
	f->list = l.text;
	f->size = l.len;
	return r < 0 ? r : 0;
}
