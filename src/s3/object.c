/* SPDX-License-Identifier: MIT */
/*
 * Whole objects for src/tier (base/objects.h), by requests on the caller's thread.
 *
 * One request is in flight for each call.  An upload has one buffer of PART_LEN, so its parts are
 * read from the source once, and sent again from the buffer if a request fails.
 */
#include <stdio.h>

#include "base/err.h"
#include "file/module.h"
#include "file/names.h"
#include "s3/http.h"
#include "s3/read.h"

/* Copy the sentence of a failed call to its caller, whose err_text() may be another library's. */
static int object_fail(int err, char why[OBJECT_WHY_SIZE])
{
	if (err < 0)
		(void)snprintf(why, OBJECT_WHY_SIZE, "%s", err_text());
	return err;
}

static int object_begin(const char *name, struct where **ret)
{
	int r = http_get();

	if (r < 0)
		return r;
	r = where_new(name, ret);
	if (r == 0 && where_is_bucket(name)) {
		where_free(*ret);
		r = err_set(EISDIR, "%.200s is a bucket, and no object", name);
	}
	if (r < 0)
		http_put();
	return r;
}

static void object_end(struct where *w)
{
	where_free(w);
	http_put();
}

/* -------------------------------------------------------------------- head */

static int head_facts(struct where *w, struct object_facts *ret)
{
	struct call c = {
		.method = "HEAD",
		.where = w,
		.deadline_ns = now_ns() + OPEN_NS,
	};
	int r = call_wait(&c);

	call_free_text(&c);
	if (r < 0)
		return r;
	if (c.answer.length == UINT64_MAX || !*c.answer.etag || c.answer.etag[0] == 'W')
		return err_set(EPROTO,
			       "%.200s: the server gives no size or no strong ETag, so a replaced "
			       "object would not be noticed; use another server",
			       w->shown);
	ret->size = c.answer.length;
	(void)snprintf(ret->etag, sizeof(ret->etag), "%s", c.answer.etag);
	(void)snprintf(ret->meta, sizeof(ret->meta), "%s", c.answer.meta);
	return 0;
}

static int whole_head(const char *name, struct object_facts *ret, char why[OBJECT_WHY_SIZE])
{
	struct where *w;
	int r = object_begin(name, &w);

	if (r < 0)
		return object_fail(r, why);
	r = head_facts(w, ret);
	(void)object_fail(r, why);
	object_end(w);
	return r;
}

/* --------------------------------------------------------------------- put */

struct putting {
	struct where *where;
	const struct object_source *src;
	const char *meta;
	char *buf;
	char *id; /* of a multi-part upload */
	char **etags;
	unsigned nr; /* parts that were sent */
};

/* Make a request with the query pairs q.  The caller frees c->text. */
static int put_call(const struct putting *p, struct call *c, const struct pair *q, size_t nr)
{
	int r;

	c->where = p->where;
	c->deadline_ns = UINT64_MAX;
	c->query = nr ? encode_query(q, nr) : NULL;
	if (nr && !c->query)
		return err_set(ENOMEM, "out of memory");
	r = call_wait(c);
	free(c->query);
	c->query = NULL;
	return r;
}

static int put_one(struct putting *p)
{
	struct call c = {
		.method = "PUT",
		.body = p->src->size ? p->buf : "",
		.body_len = p->src->size,
		.meta = p->meta,
	};
	int r = p->src->size ? p->src->read(p->src->arg, p->buf, p->src->size, 0) : 0;

	if (r == 0)
		r = put_call(p, &c, NULL, 0);
	call_free_text(&c);
	return r;
}

static int put_create(struct putting *p)
{
	static const struct pair q[] = { { "uploads", "" } };
	struct call c = { .method = "POST", .meta = p->meta };
	char id[1024] = "";
	int r = put_call(p, &c, q, ARRAY_SIZE(q));

	if (r == 0 && (!c.text || !xml_find(c.text, "UploadId", id, sizeof(id)) || !*id))
		r = err_set(EPROTO, "%.200s: the server gave no UploadId", p->where->shown);
	call_free_text(&c);
	if (r < 0)
		return r;
	p->id = strdup(id);
	return p->id ? 0 : err_set(ENOMEM, "out of memory");
}

static int put_part(struct putting *p, uint64_t off)
{
	uint64_t len = MIN(PART_LEN, p->src->size - off);
	char number[16];
	struct pair q[] = { { "partNumber", number }, { "uploadId", p->id } };
	struct call c = { .method = "PUT", .body = p->buf, .body_len = len };
	int r = p->src->read(p->src->arg, p->buf, len, off);

	(void)snprintf(number, sizeof(number), "%u", p->nr + 1);
	if (r == 0)
		r = put_call(p, &c, q, ARRAY_SIZE(q));
	call_free_text(&c);
	if (r < 0)
		return r;
	if (!*c.answer.etag || strpbrk(c.answer.etag, "<>&"))
		return err_set(EPROTO, "%.200s: the server gave part %u no ETag", p->where->shown,
			       p->nr + 1);
	p->etags[p->nr] = strdup(c.answer.etag);
	return p->etags[p->nr++] ? 0 : err_set(ENOMEM, "out of memory");
}

static int put_complete(struct putting *p)
{
	struct pair q[] = { { "uploadId", p->id } };
	struct call c = { .method = "POST", .patient = true };
	_cleanup_(freep) char *body = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&body, &len);
	bool lost;
	int r;

	if (!to)
		return err_set(ENOMEM, "out of memory");
	(void)fputs("<CompleteMultipartUpload>", to);
	for (unsigned i = 0; i < p->nr; i++)
		(void)fprintf(to, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", i + 1,
			      p->etags[i]);
	(void)fputs("</CompleteMultipartUpload>", to);
	if (fclose(to) != 0)
		return err_set(ENOMEM, "out of memory");
	c.body = body;
	c.body_len = len;
	r = put_call(p, &c, q, ARRAY_SIZE(q));
	/* If an answer was lost, the upload has ended: the caller looks at the object. */
	lost = c.answer.status == 404;
	/* A server that joins parts may send status 200 first, and find an error later. */
	if (r == 0 && (!c.text || !strstr(c.text, "<CompleteMultipartUploadResult")))
		r = err_set(EIO, "%.200s: the server did not join the parts; try again",
			    p->where->shown);
	call_free_text(&c);
	return lost ? 0 : r;
}

static void put_abort(const struct putting *p)
{
	struct pair q[] = { { "uploadId", p->id } };
	struct call c = { .method = "DELETE", .where = p->where };
	struct err_kept kept;

	err_keep(&kept);
	c.query = encode_query(q, ARRAY_SIZE(q));
	c.deadline_ns = now_ns() + ABORT_NS;
	if (c.query)
		(void)call_wait(&c);
	free(c.query);
	call_free_text(&c);
	err_put_back(&kept);
}

static int put_parts(struct putting *p)
{
	uint64_t nr = (p->src->size + PART_LEN - 1) / PART_LEN;
	int r = 0;

	if (nr > PART_NR_MAX)
		return err_set(EFBIG, "%.200s: an object has %u parts of %u MiB at most",
			       p->where->shown, PART_NR_MAX, (unsigned)(PART_LEN >> 20));
	p->etags = calloc(nr, sizeof(*p->etags));
	if (!p->etags)
		return err_set(ENOMEM, "out of memory");
	r = put_create(p);
	for (uint64_t off = 0; r == 0 && off < p->src->size; off += PART_LEN)
		r = put_part(p, off);
	if (r == 0)
		r = put_complete(p);
	if (r < 0 && p->id)
		put_abort(p);
	return r;
}

static int whole_put(const char *name, const struct object_source *src, const char *meta,
		     char why[OBJECT_WHY_SIZE])
{
	struct putting p = { .src = src, .meta = meta };
	size_t room = (size_t)MIN(src->size, PART_LEN);
	int r = object_begin(name, &p.where);

	if (r < 0)
		return object_fail(r, why);
	p.buf = malloc(room + 1);
	if (!p.buf)
		r = err_set(ENOMEM, "out of memory");
	else
		r = src->size <= PART_LEN ? put_one(&p) : put_parts(&p);
	(void)object_fail(r, why);
	for (unsigned i = 0; i < p.nr; i++)
		free(p.etags[i]);
	free(p.etags);
	free(p.id);
	free(p.buf);
	object_end(p.where);
	return r;
}

/* --------------------------------------------------------------------- get */

struct getting {
	struct call call;
	struct s3_file file; /* facts for answer_check() */
};

static int get_check(struct call *c)
{
	const struct getting *g = container_of(c, struct getting, call);

	return answer_check(&g->file, c);
}

static int whole_get(const char *name, const struct object_facts *of, void *buf, size_t len,
		     uint64_t off, char why[OBJECT_WHY_SIZE])
{
	struct where *w;
	int r = object_begin(name, &w);
	size_t done = 0;

	if (r < 0)
		return object_fail(r, why);
	while (r == 0 && done < len) {
		struct getting g = {
			.file = { .where = w, .size = of->size, .etag = (char *)of->etag },
			.call = {
				.method = "GET",
				.where = w,
				.if_match = of->etag,
				.off = off + done,
				.len = MIN(RANGE_LEN, len - done),
				.to = (char *)buf + done,
				.deadline_ns = UINT64_MAX,
				.check = get_check,
			},
		};

		r = call_wait(&g.call);
		/* The range is inside the object, so a server that says otherwise ignores
		 * If-Match. */
		if (r == -ERANGE)
			r = err_object_replaced(&g.file);
		call_free_text(&g.call);
		done += g.call.len;
	}
	(void)object_fail(r, why);
	object_end(w);
	return r;
}

/* ------------------------------------------------------------ remove, list */

static int whole_remove(const char *name, char why[OBJECT_WHY_SIZE])
{
	struct call c = { .method = "DELETE", .deadline_ns = now_ns() + OPEN_NS };
	int r = object_begin(name, &c.where);

	if (r < 0)
		return object_fail(r, why);
	r = call_wait(&c);
	if (r == -ENOENT && why_code_is(&c, "NoSuchKey"))
		r = 0;
	call_free_text(&c);
	(void)object_fail(r, why);
	object_end(c.where);
	return r;
}

struct lister {
	object_list_fn fn;
	void *arg;
};

static int list_one(void *arg, const char *name, const struct pst_name_info *info)
{
	const struct lister *l = arg;

	return info->kind == PST_NAME_FILE ? l->fn(l->arg, name, info->size) : 0;
}

static int whole_list(const char *dir, object_list_fn fn, void *arg, char why[OBJECT_WHY_SIZE])
{
	struct lister l = { fn, arg };
	int r = s3_names_ops.list(dir, PST_NAME_TREE | PST_NAME_FACTS, list_one, &l);

	/* A prefix without a key. */
	if (r == -ENOENT && strstr(err_text(), "no key of the bucket"))
		return 0;
	return object_fail(r, why);
}

/* ------------------------------------------------------------------- table */

static void object_table_begin(const struct objects_host *h)
{
	static struct file_module_host own;

	if (file_module_is_used())
		return;
	own.err_set = h->err_set;
	own.err_text = h->err_text;
	own.log_line = h->log_line;
	file_module_use(&own);
}

__attribute__((visibility("default"))) extern const struct objects_table pst_objects;
const struct objects_table pst_objects = {
	.version = OBJECTS_VERSION,
	.sz = sizeof(struct objects_table),
	.begin = object_table_begin,
	.head = whole_head,
	.put = whole_put,
	.get = whole_get,
	.remove = whole_remove,
	.list = whole_list,
};
