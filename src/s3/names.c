/* SPDX-License-Identifier: MIT */
/*
 * Calls on names of objects.  A directory of s3:// is a prefix of keys that ends in a slash, and
 * exists as long as one of its objects.
 */
#include <stdio.h>
#include <time.h>

#include "base/err.h"
#include "file/names.h"
#include "s3/http.h"
#include "s3/read.h"

#define PAGE "1000"
#define TOKEN_LEN 2048

struct listing {
	struct where *where;
	char *prefix; /* "", or the directory with a trailing slash */
	uint32_t flags;
	pst_name_fn fn;
	void *arg;
	int stop;             /* result of fn */
	bool found, any;      /* found: a key on this page begins with prefix; any: a key on any
			       * page so far */
	bool encoded;         /* keys of this page are percent-encoded */
	uint64_t deadline_ns; /* time limit for consecutive pages without a key */
};

/* Return the contents of the next element of that name, or NULL.  The element's end is overwritten
 * by a NUL until the next call. */
static char *next_element(char **at, const char *name)
{
	char open[32], shut[32], *from, *end;

	(void)snprintf(open, sizeof(open), "<%s>", name);
	(void)snprintf(shut, sizeof(shut), "</%s>", name);
	if (!**at)
		**at = '<'; /* restore what the last call overwrote */
	from = strstr(*at, open);
	end = from ? strstr(from, shut) : NULL;
	if (!end)
		return NULL;
	*end = '\0';
	*at = end;
	return from + strlen(open);
}

static int names_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undo the encoding of a key in place.  Return false if the key contains a NUL. As in a query, and
 * unlike in a path, a plus stands for a space. */
static bool decode(char *text)
{
	char *to = text;

	for (; *text; text++) {
		int high = *text == '%' ? names_hex_digit(text[1]) : -1;
		int low = high >= 0 ? names_hex_digit(text[2]) : -1;

		*to = (char)(low >= 0 ? high << 4 | low : *text == '+' ? ' ' : *text);
		if (!*to++)
			return false;
		text += low >= 0 ? 2 : 0;
	}
	*to = '\0';
	return true;
}

/* Parse a time such as 2026-01-02T03:04:05.000Z.  Return false if the text is malformed. */
static bool parse_time(const char *text, int64_t *ret_ns)
{
	struct tm tm = { 0 };
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);

	if (!end || (*end != 'Z' && *end != '.'))
		return false;
	*ret_ns = (int64_t)timegm(&tm) * (int64_t)NSEC_PER_SEC;
	return true;
}

/* Pass a key or a common prefix to the caller, by its name in the directory. */
static int names_give(struct listing *l, char *key, struct pst_name_info *info)
{
	size_t prefix = strlen(l->prefix), len;

	if ((l->encoded && !decode(key)) || strncmp(key, l->prefix, prefix) != 0)
		return -EPROTO;
	l->found = true;
	key += prefix;
	len = strlen(key);
	if (info->kind == PST_NAME_DIR && len)
		key[--len] = '\0';
	/* Skip the directory's own key, and keys with two slashes in a row: they have no name in a
	 * directory. */
	if (!len)
		return 0;
	l->stop = l->fn(l->arg, key, info);
	return l->stop;
}

static int add_page(struct listing *l, char *xml)
{
	char key[KEY_MAX * 3 + 1], size[24], when[40], encoding[8], *at = xml, *e;
	int r = 0;

	/* Servers may ignore encoding-type. */
	l->encoded = xml_find(xml, "EncodingType", encoding, sizeof(encoding)) &&
		     strcmp(encoding, "url") == 0;
	while (!(l->flags & PST_NAME_TREE) && r == 0 && (e = next_element(&at, "CommonPrefixes"))) {
		struct pst_name_info info = { .sz = sizeof(info), .kind = PST_NAME_DIR };

		r = xml_find(e, "Prefix", key, sizeof(key)) ? names_give(l, key, &info) : -EPROTO;
	}
	for (at = xml; r == 0 && (e = next_element(&at, "Contents"));) {
		struct pst_name_info info = {
			.sz = sizeof(info),
			.kind = PST_NAME_FILE,
			.has = PST_NAME_HAS_SIZE,
		};

		if (!xml_find(e, "Key", key, sizeof(key)) ||
		    !xml_find(e, "Size", size, sizeof(size)) || !*size ||
		    strspn(size, "0123456789") != strlen(size))
			return -EPROTO;
		info.size = strtoull(size, NULL, 10);
		if (xml_find(e, "LastModified", when, sizeof(when)) &&
		    parse_time(when, &info.mtime_ns))
			info.has |= PST_NAME_HAS_MTIME;
		r = names_give(l, key, &info);
	}
	return r;
}

/* Read one page of at most max keys.  Return 1 with token if there are more; 0; -errno with a
 * sentence; or fn's result, with l->stop. */
static int names_read_page(struct listing *l, const char *max, char token[TOKEN_LEN])
{
	struct pair q[6] = { { "list-type", "2" },
			     { "max-keys", max },
			     { "encoding-type", "url" },
			     { "prefix", l->prefix } };
	struct call c = { .method = "GET", .where = l->where, .deadline_ns = l->deadline_ns };
	char more[8] = "", next[TOKEN_LEN] = "";
	size_t nr = 4;
	int r;

	if (!(l->flags & PST_NAME_TREE))
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
	call_free_text(&c);
	if (l->stop)
		return l->stop;
	if (r == -EPROTO)
		return err_set(EPROTO, "%.200s: the server's answer is no listing",
			       l->where->shown);
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
	bool found = true;
	int r;

	do {
		/* Pages without a key may follow one another, but only for a limited time. */
		if (found)
			l->deadline_ns = now_ns() + OPEN_NS;
		l->found = false;
		r = names_read_page(l, PAGE, token);
		found = l->found;
		l->any |= found;
	} while (r > 0 && !l->stop);
	return r;
}

/* Remove the key from the path: listings are requested from the bucket's own path. */
static int listing_begin(struct listing *l)
{
	struct where *w = l->where;
	const char *slash = strchr(w->shown + strlen("s3://"), '/'), *key = slash ? slash + 1 : "";
	size_t len = strlen(key);

	w->path[w->key_at - w->path_style] = '\0';
	return asprintf(&l->prefix, "%s%s", key, len && key[len - 1] != '/' ? "/" : "") < 0
		       ? err_set(ENOMEM, "out of memory")
		       : 0;
}

static int err_no_dir(const struct listing *l)
{
	return err_set(ENOENT, "%.200s: no key of the bucket begins so", l->where->shown);
}

static int names_begin(const char *name, struct where **ret)
{
	int r = http_get();

	if (r < 0)
		return r;
	r = where_new(name, ret);
	if (r < 0)
		http_put();
	return r;
}

static void names_end(struct where *w)
{
	where_free(w);
	http_put();
}

static int count_entry(void *arg, const char *name, const struct pst_name_info *info)
{
	(void)name;
	(void)info;
	(*(unsigned *)arg)++;
	return 0;
}

static int s3_list(const char *name, uint32_t flags, pst_name_fn fn, void *arg)
{
	struct listing l = { .flags = flags, .fn = fn, .arg = arg };
	int r = names_begin(name, &l.where);

	if (r < 0)
		return r;
	r = listing_begin(&l);
	if (r == 0)
		r = read_pages(&l);
	if (r == 0 && !l.any && *l.prefix)
		r = err_no_dir(&l);
	free(l.prefix);
	names_end(l.where);
	return r;
}

/* -------------------------------------------------------------------- stat */

static int object_stat(struct where *w, struct pst_name_info *ret)
{
	struct range range = { 0 };
	struct call c;
	time_t then;
	int r = where_probe(w, &c);

	if (r == -ERANGE && c.answer.status == 416)
		r = 0;
	call_free_text(&c);
	if (r < 0)
		return r;
	then = curl_getdate(c.answer.modified, NULL);
	ret->kind = PST_NAME_FILE;
	ret->has = PST_NAME_HAS_SIZE;
	ret->size = range_parse(c.answer.range, &range) ? range.size
		    : c.answer.status == 200            ? c.answer.length
							: 0;
	if (then != -1) {
		ret->has |= PST_NAME_HAS_MTIME;
		ret->mtime_ns = (int64_t)then * (int64_t)NSEC_PER_SEC;
	}
	return 0;
}

/* Return 0 if a key begins with the directory's prefix. */
static int dir_stat(struct where *w, struct pst_name_info *ret)
{
	unsigned nr = 0;
	struct listing l = {
		.where = w,
		.flags = PST_NAME_TREE,
		.fn = count_entry,
		.arg = &nr,
		.deadline_ns = now_ns() + OPEN_NS,
	};
	char token[TOKEN_LEN] = "";
	int r = listing_begin(&l);

	if (r == 0)
		r = names_read_page(&l, "1", token);
	if (r >= 0 && !l.found && *l.prefix)
		r = err_no_dir(&l);
	free(l.prefix);
	if (r < 0)
		return r;
	ret->kind = PST_NAME_DIR;
	return 0;
}

static int s3_stat(const char *name, struct pst_name_info *ret)
{
	const char *slash = strchr(name + strlen("s3://"), '/');
	bool object = slash && slash[1] && name[strlen(name) - 1] != '/';
	struct where *w;
	int r = names_begin(name, &w);

	if (r < 0)
		return r;
	r = object ? object_stat(w, ret) : -ENOENT;
	if (r == -ENOENT)
		r = dir_stat(w, ret);
	names_end(w);
	return r;
}

static int http_stat(const char *name, struct pst_name_info *ret)
{
	struct where *w;
	int r = names_begin(name, &w);

	if (r < 0)
		return r;
	r = object_stat(w, ret);
	names_end(w);
	return r;
}

/* ------------------------------------------------------------------- remove */

static int s3_unlink(const char *name)
{
	struct call c = { 0 };
	struct where *w;
	int r = names_begin(name, &w);

	if (r < 0)
		return r;
	if (where_is_bucket(name))
		r = err_set(EISDIR, "%.200s is a bucket, and no object", name);
	/* Check that the object exists: S3's DELETE of a missing one succeeds. */
	if (r == 0)
		r = where_probe(w, &c);
	if (r == -ERANGE && c.answer.status == 416)
		r = 0;
	call_free_text(&c);
	if (r == 0) {
		c = (struct call){
			.method = "DELETE",
			.where = w,
			.deadline_ns = now_ns() + OPEN_NS,
		};
		r = call_wait(&c);
		call_free_text(&c);
	}
	names_end(w);
	return r;
}

const struct names_ops s3_names_ops = {
	.stat = s3_stat,
	.list = s3_list,
	.lists_trees = true,
	.unlink = s3_unlink,
};

const struct names_ops http_names_ops = { .stat = http_stat };
