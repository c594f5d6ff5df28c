/* SPDX-License-Identifier: MIT */
/* Make requests: URL, headers, signature and body. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/err.h"
#include "s3/http.h"

static size_t on_body(char *to, size_t size, size_t nr, void *arg)
{
	struct call *c = arg;
	size_t len = MIN((size_t)(c->body_len - c->sent), size * nr);

	if (len)
		memcpy(to, (const char *)c->body + c->sent, len);
	c->sent += len;
	return len;
}

/* Rewind the body: libcurl resends the request if the server has closed a kept connection. */
static int on_seek(void *arg, curl_off_t offset, int origin)
{
	struct call *c = arg;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > c->body_len)
		return CURL_SEEKFUNC_FAIL;
	c->sent = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

static bool add_header(struct call *c, const char *name, const char *value)
{
	struct curl_slist *more;
	char *line = NULL;

	if (asprintf(&line, "%s: %s", name, value) < 0)
		return false;
	more = curl_slist_append(c->headers, line);
	free(line);
	if (more)
		c->headers = more;
	return more;
}

static bool add_signature(struct call *c, const char *host, const char *payload)
{
	struct where *w = c->where;
	char date[SIGN_DATE_LEN], *value;
	struct pair h[6] = { { "host", host },
			     { "x-amz-content-sha256", payload },
			     { "x-amz-date", date } };
	size_t nr = 3;
	struct to_sign s = {
		.method = c->method,
		.path = w->path,
		.query = c->query ? c->query : "",
		.headers = h,
		.payload = payload,
		.date = date,
		.region = w->region,
		.service = "s3",
	};
	bool ok = true;

	if (w->keys.token)
		h[nr++] = (struct pair){ "x-amz-security-token", w->keys.token };
	if (c->mark)
		h[nr++] = (struct pair){ MARK_HEADER, c->mark };
	if (c->meta)
		h[nr++] = (struct pair){ OBJECT_META_HEADER, c->meta };
	s.nr_headers = nr;
	if (!sign_date(w->skew_s, date)) {
		c->err = -ERANGE;
		(void)snprintf(c->why, sizeof(c->why),
			       "the clock of this machine gives no date for a signature; set it");
		return false;
	}
	c->keys_nr = w->keys_nr;
	value = sign(&w->keys, &s);
	for (size_t i = 0; ok && i < s.nr_headers; i++)
		ok = add_header(c, h[i].name, h[i].value);
	ok = ok && value && add_header(c, "Authorization", value);
	free(value);
	return ok;
}

static bool add_headers(struct call *c)
{
	const char *host = strstr(c->where->origin, "://") + 3;
	char range[64], hash[SHA_HEX_LEN];
	const char *payload = UNSIGNED_PAYLOAD;
	bool ok = true;

	if (c->len) {
		(void)snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, c->off + c->got,
			       c->off + c->len - 1);
		ok = add_header(c, "Range", range);
	}
	if (c->if_match)
		ok = ok && add_header(c, "If-Match", c->if_match);
	if (c->if_none)
		ok = ok && add_header(c, "If-None-Match", "*");
	/*
	 * Suppress libcurl's own headers: libcurl would wait for a 100 Continue, and send a
	 * Content-Type.
	 */
	ok = ok && add_header(c, "Expect", "") && add_header(c, "Content-Type", "");
	if (!c->where->s3)
		return ok;
	/* TLS protects the body; without TLS the signature must cover it. */
	if (c->body && strncmp(c->where->origin, "http://", 7) == 0) {
		sha256_hex(c->body, c->body_len, hash);
		payload = hash;
	}
	if (c->mark && !c->where->sign)
		ok = ok && add_header(c, MARK_HEADER, c->mark);
	if (c->meta && !c->where->sign)
		ok = ok && add_header(c, OBJECT_META_HEADER, c->meta);
	if (c->where->sign)
		ok = ok && add_signature(c, host, payload);
	return ok;
}

static bool make_url(struct call *c)
{
	struct where *w = c->where;
	const char *query = c->query ? c->query : w->query;

	free(c->url);
	c->url = NULL;
	c->moved = w->moved && !w->s3;
	if (c->moved)
		return (c->url = strdup(w->moved));
	if (asprintf(&c->url, "%s%s%s%s", w->origin, w->path, query && *query ? "?" : "",
		     query ? query : "") >= 0)
		return true;
	c->url = NULL;
	return false;
}

long request_left_ms(const struct call *c)
{
	uint64_t now = now_ns();

	if (c->deadline_ns == UINT64_MAX)
		return 0; /* 0 means no limit to libcurl; SILENCE_S still applies */
	if (c->deadline_ns <= now)
		return 1;
	return (long)MIN((c->deadline_ns - now) / NSEC_PER_MSEC + 1, (uint64_t)INT32_MAX);
}

static void set_options(struct call *c)
{
	CURL *e = c->easy;
	const char *bundle = env("AWS_CA_BUNDLE");

#define SET(option, value) (void)curl_easy_setopt(e, option, value)
	SET(CURLOPT_URL, c->url);
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_PATH_AS_IS, 1L);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_BUFFERSIZE, (long)CURL_BUFFER);
	SET(CURLOPT_UPLOAD_BUFFERSIZE, (long)CURL_BUFFER);
	SET(CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
	SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	SET(CURLOPT_TIMEOUT_MS, request_left_ms(c));
	SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
	SET(CURLOPT_LOW_SPEED_TIME, c->patient ? COMPLETE_SILENCE_S : SILENCE_S);
	SET(CURLOPT_HTTPHEADER, c->headers);
	SET(CURLOPT_HEADERFUNCTION, answer_header);
	SET(CURLOPT_HEADERDATA, c);
	SET(CURLOPT_WRITEFUNCTION, answer_data);
	SET(CURLOPT_WRITEDATA, c);
	SET(CURLOPT_PRIVATE, c);
	if (bundle)
		SET(CURLOPT_CAINFO, bundle);
	/* In a set-uid program, libcurl must not take a proxy from the caller's variables. */
	if (getauxval(AT_SECURE))
		SET(CURLOPT_PROXY, "");
	/* Use no proxy for loopback URLs: their plain text must stay on this machine. */
	if (is_loopback_url(c->url))
		SET(CURLOPT_NOPROXY, "*");
#if LIBCURL_VERSION_NUM >= 0x075700
	/* Do not join name lookup threads: a dead name server would block all exchanges. */
	SET(CURLOPT_QUICK_EXIT, 1L);
#endif
	if (c->body || strcmp(c->method, "PUT") == 0 || strcmp(c->method, "POST") == 0) {
		SET(CURLOPT_UPLOAD, 1L);
		SET(CURLOPT_READFUNCTION, on_body);
		SET(CURLOPT_READDATA, c);
		SET(CURLOPT_SEEKFUNCTION, on_seek);
		SET(CURLOPT_SEEKDATA, c);
		SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)c->body_len);
	}
	if (strcmp(c->method, "HEAD") == 0)
		SET(CURLOPT_NOBODY, 1L);
	else if (strcmp(c->method, "GET") != 0 && strcmp(c->method, "PUT") != 0)
		SET(CURLOPT_CUSTOMREQUEST, c->method);
#undef SET
}

bool request_head(struct call *c)
{
	return make_url(c) && add_headers(c);
}

bool request_make(struct call *c)
{
	if (!request_head(c))
		return false;
	set_options(c);
	return true;
}
