/* SPDX-License-Identifier: MIT */
/* Parse HTTP requests (RFC 9112), refusing everything ambiguous. */
#include "net/http.h"

#include <string.h>

#define TARGET "/metrics"

/* A part of the request's bytes. */
struct span {
	const char *s;
	size_t len;
};

static bool is(struct span a, const char *text)
{
	return a.len == strlen(text) && !memcmp(a.s, text, a.len);
}

/* Cut off the bytes before a character; return false if the character is missing. */
static bool cut_span(struct span *from, char at, struct span *ret)
{
	const char *end = memchr(from->s, at, from->len);

	if (!end)
		return false;
	*ret = (struct span){ from->s, (size_t)(end - from->s) };
	from->len -= ret->len + 1;
	from->s = end + 1;
	return true;
}

/* Cut off a line, which ends in CR LF or in LF alone. */
static bool next_line(struct span *from, struct span *ret)
{
	if (!cut_span(from, '\n', ret))
		return false;
	if (ret->len && ret->s[ret->len - 1] == '\r')
		ret->len--;
	return true;
}

static bool is_token(struct span a)
{
	for (size_t i = 0; i < a.len; i++)
		if (a.s[i] <= ' ' || a.s[i] >= 127 || strchr("\"(),/:;<=>?@[\\]{}", a.s[i]))
			return false;
	return a.len;
}

/* Return true if the text has no control characters; tabs are allowed. */
static bool is_text(struct span a)
{
	for (size_t i = 0; i < a.len; i++)
		if (((unsigned char)a.s[i] < ' ' && a.s[i] != '\t') || a.s[i] == 127)
			return false;
	return true;
}

static bool is_name(struct span a, const char *name)
{
	return a.len == strlen(name) && !strncasecmp(a.s, name, a.len);
}

/* Return true for a field that announces a body; "Content-Length: 0" announces none. */
static bool has_body(struct span name, struct span value)
{
	while (value.len && (value.s[0] == ' ' || value.s[0] == '\t')) {
		value.s++;
		value.len--;
	}
	while (value.len && (value.s[value.len - 1] == ' ' || value.s[value.len - 1] == '\t'))
		value.len--;
	return is_name(name, "transfer-encoding") ||
	       (is_name(name, "content-length") && !is(value, "0"));
}

static int check_fields(struct span rest)
{
	struct span line, name;

	while (next_line(&rest, &line) && line.len)
		if (!is_text(line) || !cut_span(&line, ':', &name) || !is_token(name) ||
		    has_body(name, line))
			return HTTP_BAD;
	return HTTP_OK;
}

static int check_first(struct span line, bool *ret_head)
{
	struct span method, target, path;

	if (!is_text(line) || !cut_span(&line, ' ', &method) || !cut_span(&line, ' ', &target) ||
	    !is_token(method) || !target.len)
		return HTTP_BAD;
	if (line.len < 5 || memcmp(line.s, "HTTP/", 5) != 0)
		return HTTP_BAD;
	if (!is(line, "HTTP/1.1") && !is(line, "HTTP/1.0"))
		return HTTP_VERSION;
	*ret_head = is(method, "HEAD");
	if (!is(method, "GET") && !*ret_head)
		return HTTP_METHOD;
	if (!cut_span(&target, '?', &path))
		path = target;
	return is(path, TARGET) ? HTTP_OK : HTTP_NOT_FOUND;
}

/* Return true if the empty line that ends the fields has arrived. */
static bool is_whole(struct span all)
{
	struct span line;

	while (next_line(&all, &line))
		if (!line.len)
			return true;
	return false;
}

int http_parse(const char *buf, size_t len, bool *ret_head)
{
	struct span rest = { buf, len }, line = { "", 0 };
	int status, fields;

	*ret_head = false;
	if (!is_whole(rest))
		return len < HTTP_MAX ? HTTP_MORE : HTTP_LARGE;
	(void)next_line(&rest, &line);
	status = check_first(line, ret_head);
	fields = check_fields(rest);
	return fields == HTTP_OK ? status : fields;
}

const char *http_reason(int status)
{
	switch (status) {
	case HTTP_OK:
		return "OK";
	case HTTP_BAD:
		return "Bad Request";
	case HTTP_NOT_FOUND:
		return "Not Found";
	case HTTP_METHOD:
		return "Method Not Allowed";
	case HTTP_TIMEOUT:
		return "Request Timeout";
	case HTTP_LARGE:
		return "Request Header Fields Too Large";
	case HTTP_VERSION:
		return "HTTP Version Not Supported";
	default:
		return "Internal Server Error";
	}
}
