/* SPDX-License-Identifier: MIT */
/*
 * Write objects.  Bytes are copied into buffers of PART_LEN; a full buffer is sent as a part.  SYNC
 * sends the last one and makes the object visible: by one PUT if it fits into one part, else by
 * completing the multi-part upload.  After an error, nothing becomes visible.
 *
 * All functions run on the thread pst-http, except upload_new(), upload_close() and upload_size().
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "base/uaccess.h"
#include "s3/io.h"
#include "s3/upload.h"

#define COMPLETE_TRIES 3u /* attempts while status 200 comes with an error text */

struct upload *uploads;

static void pump(struct upload *u);

static void upload_end_all(struct io_fifo *ops, int err)
{
	struct io_op *op;

	while ((op = io_fifo_pop(ops)))
		op_end(op, err);
}

void upload_fail(struct upload *u, int err, const char *why)
{
	if (u->err == 0) {
		u->err = err;
		(void)snprintf(u->why, sizeof(u->why), "%s", why);
		log_warn("%s", why);
	}
	for (unsigned i = 0; i < PARTS_MAX; i++)
		if (u->parts[i].sending)
			call_cancel(&u->parts[i].call);
	upload_end_all(&u->writes, u->err);
	upload_end_all(&u->syncs, u->err);
}

void upload_call(struct upload *u, const char *method, const struct pair *q, size_t nr,
		 call_fn done)
{
	u->call = (struct call){
		.method = method,
		.where = u->file->where,
		.query = encode_query(q, nr),
		.deadline_ns = UINT64_MAX,
		.done = done,
		.arg = u,
	};
	u->call.broken = nr && !u->call.query;
	u->busy = true;
	call_start(&u->call);
}

int upload_call_end(struct upload *u)
{
	u->busy = false;
	free(u->call.query);
	u->call.query = NULL;
	return u->call.err;
}

/* ------------------------------------------------------------------- parts */

static int keep_etag(struct upload *u, unsigned nr, const char *etag)
{
	if (nr >= u->nr_etags) {
		unsigned want = MAX(nr + 1, u->nr_etags * 2);
		char **more = realloc(u->etags, want * sizeof(*more));

		if (!more)
			return err_set(ENOMEM, "out of memory");
		memset(more + u->nr_etags, 0, (want - u->nr_etags) * sizeof(*more));
		u->etags = more;
		u->nr_etags = want;
	}
	if (!*etag || strpbrk(etag, "<>&"))
		return err_set(EPROTO, "%.200s: the server gave part %u no ETag",
			       u->file->where->shown, nr + 1);
	u->etags[nr] = strdup(etag);
	return u->etags[nr] ? 0 : err_set(ENOMEM, "out of memory");
}

static bool upload_is_sent(const struct upload *u, unsigned nr)
{
	return nr < u->nr_etags && u->etags[nr];
}

static void upload_part_done(struct call *c)
{
	struct part *p = c->arg;
	struct upload *u = p->up;
	int r = c->err;

	p->sending = p->used = p->full = false;
	u->nr_sending--;
	free(c->query);
	c->query = NULL;
	call_free_text(c);
	if (r == 0) {
		r = keep_etag(u, p->nr, c->answer.etag);
		if (r < 0)
			(void)snprintf(c->why, sizeof(c->why), "%s", err_text());
	}
	if (r < 0 && u->err == 0)
		upload_fail(u, r, c->why);
	if (u->closing)
		upload_close_step(u);
	else if (u->err == 0)
		pump(u);
}

static void upload_created(struct call *c)
{
	struct upload *u = c->arg;
	char id[1024];
	int r = upload_call_end(u);

	if (r == 0 && (!c->text || !xml_find(c->text, "UploadId", id, sizeof(id)) || !*id)) {
		r = -EPROTO;
		(void)snprintf(c->why, sizeof(c->why), "%.200s: the server gave no UploadId",
			       c->where->shown);
	}
	call_free_text(c);
	if (r == 0) {
		u->id = strdup(id);
		r = u->id ? 0 : -ENOMEM;
	}
	if (r < 0)
		upload_fail(u, r, c->why);
	if (u->closing)
		upload_close_step(u);
	else if (u->err == 0)
		pump(u);
}

static void upload_create(struct upload *u)
{
	static const struct pair q[] = { { "uploads", "" } };

	upload_call(u, "POST", q, ARRAY_SIZE(q), upload_created);
	u->call.mark = u->mark;
}

static void send_part(struct part *p, uint64_t len)
{
	struct upload *u = p->up;
	char number[16];
	struct pair q[] = { { "partNumber", number }, { "uploadId", u->id } };

	(void)snprintf(number, sizeof(number), "%u", p->nr + 1);
	p->call = (struct call){
		.method = "PUT",
		.where = u->file->where,
		.query = encode_query(q, ARRAY_SIZE(q)),
		.body = p->buf,
		.body_len = len,
		.deadline_ns = UINT64_MAX,
		.done = upload_part_done,
		.arg = p,
	};
	p->call.broken = !p->call.query;
	p->sending = true;
	u->nr_sending++;
	call_start(&p->call);
}

/* ------------------------------------------------------------------ writes */

/* Record written bytes.  Return false if the part has too many separate ranges. */
static bool add_span(struct part *p, uint64_t from, uint64_t to)
{
	unsigned i = 0, j;

	while (i < p->nr_spans && p->spans[i].to < from)
		i++;
	for (j = i; j < p->nr_spans && p->spans[j].from <= to; j++) {
		from = MIN(from, p->spans[j].from);
		to = MAX(to, p->spans[j].to);
	}
	if (i == j && p->nr_spans == SPANS_MAX)
		return false;
	memmove(&p->spans[i + 1], &p->spans[j], (p->nr_spans - j) * sizeof(*p->spans));
	p->spans[i] = (struct span){ from, to };
	p->nr_spans = p->nr_spans - (j - i) + 1;
	return true;
}

static bool upload_holds(const struct part *p, uint64_t len)
{
	return p->nr_spans == 1 && p->spans[0].from == 0 && p->spans[0].to >= len;
}

/* Return the buffer of a part; -EAGAIN while all buffers are being sent. */
static int part_for(struct upload *u, unsigned nr, struct part **ret)
{
	struct part *free_part = NULL;

	if (upload_is_sent(u, nr))
		return err_set(EINVAL,
			       "%.200s: bytes of an object that were sent already cannot be "
			       "written again; write it from front to back",
			       u->file->where->shown);
	for (unsigned i = 0; i < PARTS_MAX; i++) {
		struct part *p = &u->parts[i];

		if (p->used && p->nr == nr) {
			*ret = p;
			return p->full ? -EAGAIN : 0;
		}
		if (!p->used)
			free_part = p;
	}
	if (!free_part && (u->nr_sending || u->busy))
		return -EAGAIN;
	if (!free_part)
		return err_set(
			ENOBUFS,
			"%.200s: writes lie in more than %u unfinished pieces of %u MiB; write "
			"the object from front to back",
			u->file->where->shown, PARTS_MAX, (unsigned)(PART_LEN >> 20));
	if (!free_part->buf)
		free_part->buf = malloc(PART_LEN);
	if (!free_part->buf)
		return err_set(ENOMEM, "out of memory");
	free_part->used = true;
	free_part->nr = nr;
	free_part->nr_spans = 0;
	*ret = free_part;
	return 0;
}

/* Copy into the available buffers.  Return 0 if all was copied; -EAGAIN to retry later; another
 * -errno. */
static int copy_write(struct upload *u, struct io_op *op)
{
	while (op->moved < op->len) {
		uint64_t off = op->off + op->moved, at = off % PART_LEN;
		uint64_t n = MIN(PART_LEN - at, op->len - op->moved);
		struct part *p = NULL;
		int r = part_for(u, (unsigned)(off / PART_LEN), &p);

		if (r == 0)
			r = uaccess_read(p->buf + at, (char *)op->buf + op->moved, n);
		if (r == 0 && !add_span(p, at, at + n))
			r = err_set(ENOBUFS,
				    "%.200s: writes leave more than %u gaps in %u MiB; write the "
				    "object from front to back",
				    u->file->where->shown, SPANS_MAX, (unsigned)(PART_LEN >> 20));
		if (r < 0)
			return r;
		p->full = upload_holds(p, PART_LEN);
		op->moved += n;
		if (off + n > u->size)
			u->size = off + n;
	}
	return 0;
}

/* Send full parts; this needs the upload's id, so create the upload first. */
static void send_full(struct upload *u)
{
	bool any = false;

	for (unsigned i = 0; i < PARTS_MAX; i++) {
		struct part *p = &u->parts[i];

		if (!p->used || !p->full || p->sending)
			continue;
		any = true;
		if (u->id)
			send_part(p, PART_LEN);
	}
	if (any && !u->id && !u->busy)
		upload_create(u);
}

/* ----------------------------------------------------------------- publish */

/*
 * Decide whether a failed publish has succeeded in fact.  An earlier attempt whose answer was lost
 * may have created the object; the next attempt then finds an existing object, or no upload.  The
 * object's mark tells whether it is ours.
 */
static void upload_looked_at(struct call *c)
{
	struct upload *u = c->arg;
	int r = upload_call_end(u);

	call_free_text(c);
	if (r == 0 && strcmp(c->answer.mark, u->mark) == 0) {
		u->published = true;
		upload_end_all(&u->syncs, 0);
	} else {
		upload_fail(u, u->lost_err, u->lost_why);
	}
	if (u->closing)
		upload_close_step(u);
}

/* Look at the object after an error that may hide a success.  Return true if upload_looked_at()
 * follows. */
static bool upload_look_at(struct upload *u, int err, const struct call *c)
{
	if (u->closing ||
	    (err != -EEXIST && !(c->answer.status == 404 && strstr(c->why, "NoSuchUpload"))))
		return false;
	u->lost_err = err;
	(void)snprintf(u->lost_why, sizeof(u->lost_why), "%s", c->why);
	upload_call(u, "HEAD", NULL, 0, upload_looked_at);
	return true;
}

static void published(struct call *c)
{
	struct upload *u = c->arg;
	int r = upload_call_end(u);
	char code[64];

	/* A server that joins parts may send status 200 first, and find an error later. */
	if (r == 0 && u->body && (!c->text || !strstr(c->text, "<CompleteMultipartUploadResult"))) {
		if (!c->text || !xml_find(c->text, "Code", code, sizeof(code)))
			(void)strcpy(code, "no result");
		r = -EIO;
		(void)snprintf(
			c->why, sizeof(c->why),
			"%.200s: the server did not join the parts (%.40s); list the object, "
			"and write it again if it is not there",
			c->where->shown, code);
	}
	call_free_text(c);
	free(u->body);
	u->body = NULL;
	if (r == 0) {
		u->published = true;
		upload_end_all(&u->syncs, 0);
	} else if (r == -EIO && c->err == 0 && ++u->complete_tries < COMPLETE_TRIES) {
		if (!u->closing)
			pump(u);
	} else if (!upload_look_at(u, r, c)) {
		upload_fail(u, r, c->why);
	}
	if (u->closing)
		upload_close_step(u);
}

static void put_small(struct upload *u, uint64_t size)
{
	u->sealed = true;
	upload_call(u, "PUT", NULL, 0, published);
	u->call.body = size ? u->parts[0].buf : "";
	u->call.body_len = size;
	u->call.if_none = u->excl;
	/* The mark is needed only with If-None-Match, to recognise our own first attempt. */
	u->call.mark = u->excl ? u->mark : NULL;
	for (unsigned i = 0; size && i < PARTS_MAX; i++)
		if (u->parts[i].used)
			u->call.body = u->parts[i].buf;
}

static void upload_complete(struct upload *u, unsigned nr)
{
	struct pair q[] = { { "uploadId", u->id } };
	size_t len = 0;
	FILE *to = open_memstream(&u->body, &len);

	if (!to) {
		upload_fail(u, -ENOMEM, "out of memory");
		return;
	}
	(void)fputs("<CompleteMultipartUpload>", to);
	for (unsigned i = 0; i < nr; i++)
		(void)fprintf(to, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", i + 1,
			      u->etags[i]);
	(void)fputs("</CompleteMultipartUpload>", to);
	(void)fclose(to);
	u->sealed = true;
	upload_call(u, "POST", q, ARRAY_SIZE(q), published);
	u->call.body = u->body;
	u->call.body_len = len;
	u->call.if_none = u->excl;
	u->call.patient = true;
}

/* Send the last part.  Return -EINVAL if an earlier part is incomplete, which is a hole. */
static int send_last(struct upload *u, uint64_t size)
{
	unsigned last = (unsigned)((size - 1) / PART_LEN);
	uint64_t tail = size - last * PART_LEN;

	for (unsigned i = 0; i < PARTS_MAX; i++) {
		struct part *p = &u->parts[i];

		if (!p->used || p->full)
			continue;
		if (p->nr != last || !upload_holds(p, tail))
			return -EINVAL;
		p->full = true;
		u->sealed = true;
		send_part(p, tail);
	}
	return 0;
}

/* Return true if a small object is complete in one buffer. */
static bool is_small(const struct upload *u, uint64_t size)
{
	unsigned nr = 0;

	if (u->id || size > PART_LEN)
		return false;
	for (unsigned i = 0; i < PARTS_MAX; i++)
		if (u->parts[i].used && upload_holds(&u->parts[i], size))
			nr++;
	return !size || nr == 1;
}

static void upload_publish(struct upload *u)
{
	uint64_t size = u->size;
	unsigned nr = (unsigned)((size + PART_LEN - 1) / PART_LEN);
	char why[ERR_TEXT_MAX];

	if (u->published) {
		upload_end_all(&u->syncs, 0);
		return;
	}
	if (u->busy)
		return;
	if (is_small(u, size)) {
		put_small(u, size);
		return;
	}
	if (!u->id && size > PART_LEN) {
		upload_create(u);
		return;
	}
	if (u->id && send_last(u, size) == 0) {
		unsigned i = 0;

		if (u->nr_sending)
			return;
		while (i < nr && upload_is_sent(u, i))
			i++;
		if (i == nr) {
			upload_complete(u, nr);
			return;
		}
	}
	(void)snprintf(why, sizeof(why),
		       "%.200s: not all bytes before the last one were written, and an object has "
		       "no holes",
		       u->file->where->shown);
	upload_fail(u, -EINVAL, why);
}

static void pump(struct upload *u)
{
	struct io_op *op;
	int r = 0;

	while (u->err == 0 && (op = u->writes.head)) {
		r = copy_write(u, op);
		if (r == -EAGAIN)
			break;
		(void)io_fifo_pop(&u->writes);
		op_end(op, r < 0 ? r : (int64_t)op->len);
		if (r < 0)
			upload_fail(u, r, err_text());
	}
	if (u->err < 0)
		return;
	send_full(u);
	if (!u->writes.head && u->syncs.head)
		upload_publish(u);
}

void upload_op(struct upload *u, struct io_op *op)
{
	if (u->err < 0) {
		op_end(op, u->err);
		return;
	}
	if (op->kind != IO_WRITE) {
		io_fifo_push(&u->syncs, op);
	} else if (u->published || u->sealed || u->syncs.head) {
		/* Even if the sync has timed out, its request may still read the buffers. */
		log_warn("%.200s: a sync of the object has begun, and it cannot be written any "
			 "more; open it again",
			 u->file->where->shown);
		op_end(op, -EINVAL);
		return;
	} else if (op->off > PART_LEN * PART_NR_MAX - op->len) {
		op_end(op, -EFBIG);
		return;
	} else {
		io_fifo_push(&u->writes, op);
	}
	pump(u);
}

static bool cancel_ops(struct io_fifo *ops)
{
	struct io_fifo keep = { 0 };
	struct io_op *op;
	bool any = false;

	while ((op = io_fifo_pop(ops))) {
		if (!io_op_canceled(op)) {
			io_fifo_push(&keep, op);
			continue;
		}
		op_end(op, -ECANCELED);
		any = true;
	}
	while ((op = io_fifo_pop(&keep)))
		io_fifo_push(ops, op);
	return any;
}

void uploads_cancel(void)
{
	for (struct upload *u = uploads; u; u = u->next) {
		/* The bytes of a canceled write are missing, so the upload fails. */
		if (cancel_ops(&u->writes))
			upload_fail(u, -ECANCELED, "a write to the object was canceled");
		(void)cancel_ops(&u->syncs);
	}
}
