/* SPDX-License-Identifier: MIT */
/* The provider: open, close, and the check of every answer. */
#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#include "base/err.h"
#include "file/module.h"
#include "s3/http.h"
#include "s3/read.h"

/* ----------------------------------------------------------------- answers */

bool range_parse(const char *text, struct range *ret)
{
	char *end;

	if (strncasecmp(text, "bytes ", 6) != 0)
		return false;
	text += 6;
	*ret = (struct range){ 0 };
	if (strncmp(text, "*/", 2) == 0) {
		ret->size = strtoull(text + 2, &end, 10);
		return end != text + 2 && !*end;
	}
	ret->first = strtoull(text, &end, 10);
	if (end == text || *end != '-')
		return false;
	text = end + 1;
	ret->last = strtoull(text, &end, 10);
	if (end == text || *end != '/' || ret->last < ret->first)
		return false;
	text = end + 1;
	ret->size = strtoull(text, &end, 10);
	return end != text && !*end && ret->last < ret->size;
}

/* Return true for a strong ETag, which If-Match needs. */
static bool is_strong(const char *etag)
{
	return *etag && strncmp(etag, "W/", 2) != 0;
}

/* Compare ETags without their quotes, which some servers omit at times. */
static bool same_etag(const char *a, const char *b)
{
	size_t x = strlen(a), y = strlen(b);

	if (x >= 2 && *a == '"')
		a++, x -= 2;
	if (y >= 2 && *b == '"')
		b++, y -= 2;
	return x == y && memcmp(a, b, x) == 0;
}

int err_object_replaced(const struct s3_file *f)
{
	return err_set(ESTALE, "%.200s: the object was replaced while it was in use; open it again",
		       f->where->shown);
}

int answer_check(const struct s3_file *f, const struct call *c)
{
	const struct answer *a = &c->answer;
	uint64_t from = c->off + c->got, last = c->off + c->len - 1;
	struct range r;

	if (f->etag && !same_etag(a->etag, f->etag))
		return err_object_replaced(f);
	if (!f->etag && f->modified && strcmp(a->modified, f->modified) != 0)
		return err_object_replaced(f);
	if (a->status == 200) {
		/* If the whole object was requested, the answer may have no Content-Range. */
		if (from == 0 && c->len == f->size && a->length == f->size)
			return 0;
		if (a->length != UINT64_MAX && a->length != f->size)
			return err_object_replaced(f);
		return err_set(EOPNOTSUPP,
			       "%.200s: the server does not give ranges; copy the whole file with "
			       "curl first",
			       f->where->shown);
	}
	if (a->status != 206 || !range_parse(a->range, &r) || r.first != from || r.last != last)
		return err_set(EPROTO,
			       "%.200s: the server gave another range than it was asked for",
			       f->where->shown);
	return r.size == f->size ? 0 : err_object_replaced(f);
}

/* -------------------------------------------------------------------- open */

/* Check only that the first answer is a range or a whole object; probe_facts() checks the rest. */
static int probe_check(struct call *c)
{
	struct range r;

	if (c->answer.status == 206 && range_parse(c->answer.range, &r) && r.first == 0 &&
	    r.last == 0)
		return 0;
	if (c->answer.status == 200 && c->answer.length <= 1)
		return 0;
	return err_set(
		c->answer.status == 200 ? EOPNOTSUPP : EPROTO,
		c->answer.status == 200
			? "%.200s: the server does not give ranges; copy the whole file with "
			  "curl first"
			: "%.200s: the server gave another range than it was asked for",
		c->where->shown);
}

/* Set the file's validator, by which a replaced object is detected. */
static int set_validator(struct s3_file *f, const struct answer *a, uint32_t flags)
{
	time_t now = curl_getdate(a->date, NULL), then = curl_getdate(a->modified, NULL);

	if (is_strong(a->etag)) {
		f->etag = strdup(a->etag);
		return f->etag ? 0 : err_set(ENOMEM, "out of memory");
	}
	if (then != -1 && now != -1 && now > then) {
		f->modified = strdup(a->modified);
		return f->modified ? 0 : err_set(ENOMEM, "out of memory");
	}
	if (flags & PST_FILE_STABLE)
		return 0;
	if (then != -1 && now != -1)
		return err_set(EAGAIN,
			       "%.200s was changed within this second, and its server gives "
			       "no ETag; try again",
			       f->where->shown);
	return err_set(EOPNOTSUPP,
		       "%.200s: the server gives neither a strong ETag nor a time of change, so a "
		       "change during a read would not be noticed; open it with PST_FILE_STABLE if "
		       "nobody changes it",
		       f->where->shown);
}

static int probe_facts(struct s3_file *f, const struct call *c, uint32_t flags)
{
	struct range r = { 0 };

	if (c->answer.status == 206 || c->answer.status == 416) {
		if (!range_parse(c->answer.range, &r) && c->answer.status == 206)
			return err_set(EPROTO, "%.200s: the server tells no size", f->where->shown);
		f->size = r.size;
	} else {
		f->size = c->answer.length;
	}
	/* Status 416 has no validator, and an empty object cannot be read torn. */
	return f->size ? set_validator(f, &c->answer, flags) : 0;
}

int where_probe(struct where *w, struct call *c)
{
	char byte;

	*c = (struct call){
		.method = "GET",
		.where = w,
		.len = 1,
		.to = &byte,
		.deadline_ns = now_ns() + OPEN_NS,
		.check = probe_check,
	};
	return call_wait(c);
}

static int open_to_read(struct s3_file *f, uint32_t flags)
{
	struct call c;
	int r = where_probe(f->where, &c);

	if (r == 0 || (r == -ERANGE && c.answer.status == 416))
		r = probe_facts(f, &c, flags);
	call_free_text(&c);
	return r;
}

static int open_to_write(struct s3_file *f, uint32_t flags)
{
	bool excl = flags & PST_FILE_EXCL, there;
	struct call c;
	int r;

	if (!f->where->s3)
		return err_set(EOPNOTSUPP, "%.200s: only s3:// is written", f->where->shown);
	if (flags & PST_FILE_READ)
		return err_set(EOPNOTSUPP,
			       "%.200s: an object is read or written, not both; open it twice",
			       f->where->shown);
	/* Report wrong keys and a missing bucket now, before gigabytes are written. */
	r = where_probe(f->where, &c);
	there = r == 0 || c.answer.status == 416 || r == -EOPNOTSUPP;
	call_free_text(&c);
	if (there && excl)
		return err_set(EEXIST, "%.200s: there is an object of that key already",
			       f->where->shown);
	if (there && !(flags & PST_FILE_TRUNC))
		return err_set(EOPNOTSUPP,
			       "%.200s: an object is written as a whole; open it with "
			       "PST_FILE_TRUNC to replace it",
			       f->where->shown);
	if (!there && !(r == -ENOENT && !strstr(c.why, "bucket; check")) &&
	    !(r == -EACCES && strstr(c.why, "access is denied")))
		return r;
	if (!there && !(flags & PST_FILE_CREATE))
		return err_set(ENOENT, "%s", c.why);
	return upload_new(f, excl, &f->up);
}

static void s3_file_free(struct file *file)
{
	struct s3_file *f = s3_file_of(file);

	if (f->up)
		upload_close(f->up);
	where_free(f->where);
	free(f->etag);
	free(f->modified);
	free(f);
	http_put();
}

bool where_is_bucket(const char *name)
{
	const char *slash = strchr(name + strlen("s3://"), '/');

	return !slash || !slash[1];
}

static int s3_open_file(const struct file_ops *ops, const char *name, uint32_t flags,
			struct file **ret)
{
	struct s3_file *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return err_set(ENOMEM, "out of memory");
	f->file = (struct file){
		.ops = ops,
		.flags = flags & ~(PST_FILE_CREATE | PST_FILE_EXCL | PST_FILE_TRUNC),
		/* closing waits for the server */
		.caps = FILE_STALE | (flags & PST_FILE_WRITE ? FILE_MAY_HANG : 0),
	};
	(void)snprintf(f->file.name, sizeof(f->file.name), "%s", ops->scheme);
	r = http_get();
	if (r < 0) {
		free(f);
		return r;
	}
	r = where_new(name, &f->where);
	if (r == 0 && f->where->s3 && where_is_bucket(name))
		r = err_set(EISDIR, "%.200s is a bucket; name an object, or list it by penstock ls",
			    name);
	else if (r == 0)
		r = flags & PST_FILE_WRITE ? open_to_write(f, flags) : open_to_read(f, flags);
	if (r < 0) {
		s3_file_free(&f->file);
		return r;
	}
	*ret = &f->file;
	return 0;
}

static int s3_size(const struct file *file, uint64_t *ret)
{
	const struct s3_file *f = s3_file_of(file);

	*ret = f->up ? upload_size(f->up) : f->size;
	return 0;
}

#define OPS(NAME, SCHEME, NAMES)                                                                   \
	static int NAME##_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret) \
	{                                                                                          \
		(void)mode;                                                                        \
		return s3_open_file(&NAME##_ops, name, flags, ret);                                \
	}                                                                                          \
	const struct file_ops NAME##_ops = {                                                       \
		.scheme = SCHEME,                                                                  \
		.backend = &s3_backend,                                                            \
		.hop = PST_PATH_TCP,                                                               \
		.open = NAME##_open,                                                               \
		.free = s3_file_free,                                                              \
		.size = s3_size,                                                                   \
		.names = &(NAMES),                                                                 \
	}

OPS(s3_file, "s3", s3_names_ops);
OPS(https_file, "https", http_names_ops);
OPS(http_file, "http", http_names_ops);

static int s3_file_begin(const struct file_module_host *h, const char *scheme,
			 const struct file_ops **ret)
{
	static const struct file_ops *const all[] = { &s3_file_ops, &https_file_ops,
						      &http_file_ops };

	file_module_use(h);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (strcmp(all[i]->scheme, scheme) == 0)
			*ret = all[i];
	return 0;
}

FILE_MODULE(s3_file_begin);
