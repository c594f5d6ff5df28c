/* SPDX-License-Identifier: MIT */
/* Receive answers: parse headers, and store the bytes. */
#include <stdio.h>
#include <strings.h>

#include "base/err.h"
#include "base/uaccess.h"
#include "s3/http.h"

bool answer_is(const char *line, size_t len, const char *name)
{
	size_t n = strlen(name);

	return len > n && line[n] == ':' && strncasecmp(line, name, n) == 0;
}

static bool header_is(const char *line, size_t len, const char *name, char *ret, size_t room)
{
	size_t n = strlen(name), from;

	if (!answer_is(line, len, name))
		return false;
	for (from = n + 1; from < len && (line[from] == ' ' || line[from] == '\t');)
		from++;
	while (len > from && (unsigned char)line[len - 1] <= ' ')
		len--;
	if (len - from >= room)
		ret[0] = '\0'; /* treat as missing: a truncated value is a wrong value */
	else
		(void)snprintf(ret, room, "%.*s", (int)(len - from), line + from);
	return true;
}

size_t answer_header(char *line, size_t size, size_t nr, void *arg)
{
	struct call *c = arg;
	struct answer *a = &c->answer;
	size_t len = size * nr;
	char number[32];

	if (len > 5 && strncmp(line, "HTTP/", 5) == 0)
		*a = (struct answer){ .length = UINT64_MAX };
	else if (header_is(line, len, "ETag", a->etag, sizeof(a->etag)) ||
		 header_is(line, len, "Last-Modified", a->modified, sizeof(a->modified)) ||
		 header_is(line, len, "Content-Range", a->range, sizeof(a->range)) ||
		 header_is(line, len, "Date", a->date, sizeof(a->date)) ||
		 header_is(line, len, "x-amz-bucket-region", a->region, sizeof(a->region)) ||
		 header_is(line, len, "x-amz-request-id", a->id, sizeof(a->id)) ||
		 header_is(line, len, MARK_HEADER, a->mark, sizeof(a->mark)) ||
		 header_is(line, len, OBJECT_META_HEADER, a->meta, sizeof(a->meta)) ||
		 header_is(line, len, "Location", a->location, sizeof(a->location)))
		;
	else if (header_is(line, len, "Content-Length", number, sizeof(number)) && *number)
		a->length = strtoull(number, NULL, 10);
	else if (header_is(line, len, "Retry-After", number, sizeof(number)))
		a->retry_after_s = (unsigned)MIN(strtoul(number, NULL, 10), 60ul);
	return len;
}

bool answer_is_good(long status)
{
	return status >= 200 && status <= 299;
}

/* Check the headers once, before any byte is used. */
bool answer_look(struct call *c)
{
	if (c->looked)
		return c->err == 0;
	c->looked = true;
	if (c->easy)
		(void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &c->answer.status);
	/* rclone's server answers a range with status 200 and this header, which no answer with a
	 * whole object has. */
	if (c->answer.status == 200 && c->len && *c->answer.range)
		c->answer.status = 206;
	if (answer_is_good(c->answer.status) && c->check) {
		c->err = c->check(c);
		if (c->err < 0 && !*c->why)
			(void)snprintf(c->why, sizeof(c->why), "%s", err_text());
	}
	return c->err == 0;
}

static bool keep_text(struct call *c, const char *data, size_t len)
{
	bool good = answer_is_good(c->answer.status);
	size_t max = good ? TEXT_MAX : ERROR_TEXT_MAX;
	char *more;

	if (c->text_len + len > max && good) {
		c->err = -E2BIG;
		(void)snprintf(c->why, sizeof(c->why),
			       "%.200s: the server's answer is longer than any should be",
			       c->where->shown);
		return false;
	}
	if (c->text_len + len > max) {
		c->enough = true; /* keep the beginning, which names the error, and end the
				   * exchange */
		len = max - c->text_len;
	}
	more = realloc(c->text, c->text_len + len + 1);
	if (!more) {
		c->err = -ENOMEM;
		(void)snprintf(c->why, sizeof(c->why), "out of memory");
		return false;
	}
	memcpy(more + c->text_len, data, len);
	c->text = more;
	c->text_len += len;
	more[c->text_len] = '\0';
	return !c->enough;
}

void answer_too_long(struct call *c)
{
	c->err = -EPROTO;
	(void)snprintf(c->why, sizeof(c->why),
		       "%.200s: the server sent more bytes than it was asked for", c->where->shown);
}

size_t answer_data(char *data, size_t size, size_t nr, void *arg)
{
	struct call *c = arg;
	size_t len = size * nr;

	if (!answer_look(c))
		return 0;
	if (!c->to || !answer_is_good(c->answer.status))
		return keep_text(c, data, len) ? len : 0;
	if (len > c->len - c->got) {
		answer_too_long(c);
		return 0;
	}
	c->err = uaccess_write((char *)c->to + c->got, data, len);
	if (c->err < 0) {
		(void)snprintf(c->why, sizeof(c->why), "%s", err_text());
		return 0;
	}
	c->got += len;
	return len;
}
