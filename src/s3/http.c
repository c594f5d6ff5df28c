/* SPDX-License-Identifier: MIT */
/* The thread pst-http: exchanges, retries and redirects. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <strings.h>
#include <sys/auxv.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/uaccess.h"
#include "s3/http.h"

#define BACKOFF_MS 100u
#define BACKOFF_MAX_MS 5000u
#define ERROR_TEXT_MAX KIB(64)
#define KEYS_WAIT_NS (10 * NSEC_PER_SEC) /* between tries to fetch new keys for a file */
#define SKEW_MAX_S (10 * 366 * 86400)    /* a clock that is further off tells nothing */

/* Under the lock. */
static struct {
	pthread_mutex_t lock;
	struct http_job *head, *tail;
	unsigned users;
	bool running;
	CURLM *multi;
} box = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The thread's own. */
static struct {
	CURLM *multi;
	CURL *idle[CALLS_MAX];
	unsigned nr_idle, nr_running;
	struct call *running;
	struct call *ready, **ready_end; /* to be sent when fewer than CALLS_MAX run */
	struct call *later;              /* to be sent again at again_ns */
	uint64_t due_ns;                 /* the earliest deadline of ready calls */
	bool stirred;                    /* ready calls or running ones have changed */
} self;

static void call_end(struct call *c);
static bool take_out(struct call **list, struct call *c);

/* --------------------------------------------------------------------- XML */

/* Append one character as UTF-8. */
static size_t put_utf8(char *to, unsigned long c)
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 63));
		to[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 63));
	to[2] = (char)(0x80 | (c >> 6 & 63));
	to[3] = (char)(0x80 | (c & 63));
	return 4;
}

/* The length of the reference at text, 0 for none; at most 4 bytes go to ret. */
static size_t reference(const char *text, char *ret, size_t *ret_len)
{
	static const struct {
		const char *name;
		char is;
	} names[] = { { "&amp;", '&' },
		      { "&lt;", '<' },
		      { "&gt;", '>' },
		      { "&quot;", '"' },
		      { "&apos;", '\'' } };
	unsigned long c;
	char *end;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t n = strlen(names[i].name);

		if (strncmp(text, names[i].name, n) == 0) {
			*ret = names[i].is;
			*ret_len = 1;
			return n;
		}
	}
	if (text[0] != '&' || text[1] != '#')
		return 0;
	c = text[2] == 'x' ? strtoul(text + 3, &end, 16) : strtoul(text + 2, &end, 10);
	if (*end != ';' || !c || c > 0x10ffff)
		return 0;
	*ret_len = put_utf8(ret, c);
	return (size_t)(end - text) + 1;
}

bool xml_find(const char *text, const char *name, char *ret, size_t len)
{
	char open[64], shut[64];
	const char *end;
	size_t n = 0;

	(void)snprintf(open, sizeof(open), "<%s>", name);
	(void)snprintf(shut, sizeof(shut), "</%s>", name);
	text = strstr(text, open);
	end = text ? strstr(text, shut) : NULL;
	if (!end)
		return false;
	for (text += strlen(open); text < end;) {
		char bytes[4] = { *text };
		size_t nr = 1, used = *text == '&' ? reference(text, bytes, &nr) : 1;

		if (!used || *text == '<' || n + nr >= len)
			return false;
		memcpy(ret + n, bytes, nr);
		n += nr;
		text += used;
	}
	ret[n] = '\0';
	return true;
}

/* ------------------------------------------------------------------ errors */

/* Only characters that codes and numbers of requests have. */
static void keep_plain(char *text)
{
	char *to = text;

	for (const char *c = text; *c; c++)
		if ((*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') ||
		    (*c >= 'a' && *c <= 'z') || *c == '-' || *c == '_')
			*to++ = *c;
	*to = '\0';
}

static bool http_code_of(const struct call *c, char *ret, size_t len)
{
	if (!c->text || !xml_find(c->text, "Code", ret, len)) {
		ret[0] = '\0';
		return false;
	}
	keep_plain(ret);
	return *ret;
}

static bool code_is(const struct call *c, const char *code)
{
	char is[64];

	return http_code_of(c, is, sizeof(is)) && strcmp(is, code) == 0;
}

struct meaning {
	long status;      /* 0: any */
	const char *code; /* NULL: any */
	int err;
	const char *says;
};

static const struct meaning meanings[] = {
	{ 0, "SignatureDoesNotMatch", EACCES,
	  "the server does not accept the signature; check the secret key, and the region" },
	{ 0, "InvalidAccessKeyId", EACCES,
	  "the server does not know the key id; check AWS_ACCESS_KEY_ID or the profile" },
	{ 0, "RequestTimeTooSkewed", EACCES,
	  "the clock of this machine and the server's differ by more than 15 minutes; set the "
	  "clock" },
	{ 0, "ExpiredToken", EACCES, "the keys have expired; fetch new ones" },
	{ 0, "NoSuchBucket", ENOENT, "there is no such bucket; check its name and the endpoint" },
	{ 0, "NoSuchKey", ENOENT, "the bucket has no object of that key" },
	{ 0, "NoSuchUpload", EIO,
	  "the server no longer knows the upload; the object may or may not be there, list it" },
	{ 0, "EntityTooLarge", EFBIG, "the object is larger than the server takes" },
	{ 0, "AuthorizationHeaderMalformed", EACCES,
	  "the server wants another region; set AWS_REGION" },
	{ 401, NULL, EACCES, "the server wants keys that this request does not have" },
	{ 403, NULL, EACCES,
	  "access is denied; the keys, or the URL, have no right to this object, or it is not "
	  "there and they may not list the bucket" },
	{ 404, NULL, ENOENT, "there is nothing of that name" },
	{ 409, NULL, EBUSY, "another writer is at the object; try again" },
	{ 412, NULL, ESTALE, "the object was replaced while it was in use; open it again" },
	{ 413, NULL, EFBIG, "the object is larger than the server takes" },
	{ 416, NULL, ERANGE, "the object ends before the range" },
	{ 429, NULL, EBUSY, "the server wants fewer requests; try again later" },
	{ 503, NULL, EBUSY, "the server is too busy; try again later" },
	{ 500, NULL, EIO, "the server failed; try again, or ask who runs it" },
	{ 0, NULL, EPROTO, "the server gave an answer that this request cannot have" },
};

static void set_status_error(struct call *c)
{
	const struct meaning *m = meanings;
	char code[64];
	long status = c->answer.status;

	(void)http_code_of(c, code, sizeof(code));
	for (; m < &meanings[ARRAY_SIZE(meanings) - 1]; m++) {
		bool family = m->status == 500 && status > 500;

		if (m->code ? strcmp(m->code, code) == 0 : m->status == status || family)
			break;
	}
	keep_plain(c->answer.id);
	c->err = -m->err;
	if (status == 412 && c->if_none)
		c->err = -EEXIST;
	(void)snprintf(c->why, sizeof(c->why), "%.200s: %s (HTTP %ld%s%s%s%s)", c->where->shown,
		       c->err == -EEXIST ? "there is an object of that key already" : m->says,
		       status, *code ? " " : "", code, *c->answer.id ? ", request " : "",
		       c->answer.id);
}

static const struct {
	CURLcode code;
	int err;
	bool again;
	const char *says;
} failures[] = {
	{ CURLE_COULDNT_RESOLVE_HOST, EHOSTUNREACH, true,
	  "the name of the host cannot be resolved; check it, and DNS" },
	{ CURLE_COULDNT_RESOLVE_PROXY, EHOSTUNREACH, true,
	  "the name of the proxy cannot be resolved; check https_proxy" },
	{ CURLE_COULDNT_CONNECT, ECONNREFUSED, true,
	  "nothing accepts connections there; check the endpoint and its port" },
	{ CURLE_OPERATION_TIMEDOUT, ETIMEDOUT, true, "the server is silent" },
	{ CURLE_PARTIAL_FILE, EIO, true, "the server cut the connection" },
	{ CURLE_GOT_NOTHING, EIO, true, "the server closed the connection without an answer" },
	{ CURLE_RECV_ERROR, EIO, true, "the connection broke" },
	{ CURLE_SEND_ERROR, EIO, true, "the connection broke" },
	{ CURLE_SEND_FAIL_REWIND, EIO, true, "the connection broke" },
	{ CURLE_SSL_CONNECT_ERROR, EPROTO, true, "TLS cannot be set up with the server" },
	{ CURLE_PEER_FAILED_VERIFICATION, EPROTO, false,
	  "the server's certificate is not trusted; AWS_CA_BUNDLE names more authorities" },
	{ CURLE_SSL_CACERT_BADFILE, EINVAL, false, "AWS_CA_BUNDLE cannot be read" },
	{ CURLE_OUT_OF_MEMORY, ENOMEM, false, "out of memory" },
	{ CURLE_OK, EPROTO, false, "the server does not speak HTTP as it should" },
};

/* True: worth another try. */
static bool set_curl_error(struct call *c, CURLcode code)
{
	size_t i = 0;

	while (failures[i].code != code && failures[i].code != CURLE_OK)
		i++;
	c->err = -failures[i].err;
	(void)snprintf(c->why, sizeof(c->why), "%.200s: %s (%s)", c->where->shown, failures[i].says,
		       curl_easy_strerror(code));
	return failures[i].again;
}

/* ----------------------------------------------------------------- answers */

static bool header_is(const char *line, size_t len, const char *name, char *ret, size_t room)
{
	size_t n = strlen(name), from;

	if (len <= n || line[n] != ':' || strncasecmp(line, name, n) != 0)
		return false;
	for (from = n + 1; from < len && (line[from] == ' ' || line[from] == '\t');)
		from++;
	while (len > from && (unsigned char)line[len - 1] <= ' ')
		len--;
	if (len - from >= room)
		ret[0] = '\0'; /* as if it were not there: a part of it says something else */
	else
		(void)snprintf(ret, room, "%.*s", (int)(len - from), line + from);
	return true;
}

static size_t on_header(char *line, size_t size, size_t nr, void *arg)
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
		 header_is(line, len, "Location", a->location, sizeof(a->location)))
		;
	else if (header_is(line, len, "Content-Length", number, sizeof(number)) && *number)
		a->length = strtoull(number, NULL, 10);
	else if (header_is(line, len, "Retry-After", number, sizeof(number)))
		a->retry_after_s = (unsigned)MIN(strtoul(number, NULL, 10), 60ul);
	return len;
}

static bool is_good(long status)
{
	return status >= 200 && status <= 299;
}

/* Look at the headers once, before any byte is used. */
static bool http_look(struct call *c)
{
	if (c->looked)
		return c->err == 0;
	c->looked = true;
	(void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &c->answer.status);
	if (is_good(c->answer.status) && c->check) {
		c->err = c->check(c);
		if (c->err < 0 && !*c->why)
			(void)snprintf(c->why, sizeof(c->why), "%s", err_text());
	}
	return c->err == 0;
}

static bool keep_text(struct call *c, const char *data, size_t len)
{
	bool good = is_good(c->answer.status);
	size_t max = good ? TEXT_MAX : ERROR_TEXT_MAX;
	char *more;

	if (c->text_len + len > max) {
		if (!good)
			return true; /* enough to name the error */
		c->err = -E2BIG;
		(void)snprintf(c->why, sizeof(c->why),
			       "%.200s: the server's answer is longer than any should be",
			       c->where->shown);
		return false;
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
	return true;
}

static size_t on_data(char *data, size_t size, size_t nr, void *arg)
{
	struct call *c = arg;
	size_t len = size * nr;

	if (!http_look(c))
		return 0;
	if (!c->to || !is_good(c->answer.status))
		return keep_text(c, data, len) ? len : 0;
	if (len > c->len - c->got) {
		c->err = -EPROTO;
		(void)snprintf(c->why, sizeof(c->why),
			       "%.200s: the server sent more bytes than it was asked for",
			       c->where->shown);
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

static size_t on_body(char *to, size_t size, size_t nr, void *arg)
{
	struct call *c = arg;
	size_t len = MIN((size_t)(c->body_len - c->sent), size * nr);

	if (len)
		memcpy(to, (const char *)c->body + c->sent, len);
	c->sent += len;
	return len;
}

/* libcurl sends a request again where a connection that it kept was closed by the server. */
static int on_seek(void *arg, curl_off_t offset, int origin)
{
	struct call *c = arg;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > c->body_len)
		return CURL_SEEKFUNC_FAIL;
	c->sent = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

/* ---------------------------------------------------------------- requests */

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
	struct pair h[4] = { { "host", host },
			     { "x-amz-content-sha256", payload },
			     { "x-amz-date", date },
			     { "x-amz-security-token", w->keys.token } };
	struct to_sign s = {
		.method = c->method,
		.path = w->path,
		.query = c->query ? c->query : "",
		.headers = h,
		.nr_headers = w->keys.token ? 4 : 3,
		.payload = payload,
		.date = date,
		.region = w->region,
		.service = "s3",
	};
	bool ok = true;

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
	/* libcurl would wait for a 100 Continue, and name a type of its own. */
	ok = ok && add_header(c, "Expect", "") && add_header(c, "Content-Type", "");
	if (!c->where->s3)
		return ok;
	/* TLS guards the body; without it the signature has to. */
	if (c->body && strncmp(c->where->origin, "http://", 7) == 0) {
		sha256_hex(c->body, c->body_len, hash);
		payload = hash;
	}
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

static long left_ms(const struct call *c, uint64_t now)
{
	if (c->deadline_ns == UINT64_MAX)
		return 0; /* libcurl's word for ever: SILENCE_S still holds */
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
	SET(CURLOPT_TIMEOUT_MS, left_ms(c, now_ns()));
	SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
	SET(CURLOPT_LOW_SPEED_TIME, c->patient ? COMPLETE_SILENCE_S : SILENCE_S);
	SET(CURLOPT_HTTPHEADER, c->headers);
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, c);
	SET(CURLOPT_WRITEFUNCTION, on_data);
	SET(CURLOPT_WRITEDATA, c);
	SET(CURLOPT_PRIVATE, c);
	if (bundle)
		SET(CURLOPT_CAINFO, bundle);
	/* libcurl would look at variables that the caller of a set-uid program set. */
	if (getauxval(AT_SECURE))
		SET(CURLOPT_PROXY, "");
	/* What may go in clear text on this machine may not through a proxy on another one. */
	if (is_loopback_url(c->url))
		SET(CURLOPT_NOPROXY, "*");
#if LIBCURL_VERSION_NUM >= 0x075700
	/* Do not join the thread of a look-up: a dead name server would stop all exchanges. */
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
	if (strcmp(c->method, "GET") != 0 && strcmp(c->method, "PUT") != 0)
		SET(CURLOPT_CUSTOMREQUEST, c->method);
#undef SET
}

static void send_call(struct call *c)
{
	call_free_text(c);
	c->answer = (struct answer){ .length = UINT64_MAX };
	c->err = 0;
	c->why[0] = '\0';
	c->looked = false;
	c->sent = 0;
	c->got_before = c->got;
	c->nr_sent++;
	c->easy = self.nr_idle ? self.idle[--self.nr_idle] : curl_easy_init();
	/* Without its query a request would be one for the object itself. */
	if (!c->easy || c->broken || !make_url(c) || !add_headers(c)) {
		if (c->err == 0) {
			c->err = -ENOMEM;
			(void)snprintf(c->why, sizeof(c->why), "out of memory");
		}
		c->running = c->easy;
		self.nr_running += c->running;
		call_end(c);
		return;
	}
	set_options(c);
	c->running = true;
	self.nr_running++;
	c->next = self.running;
	self.running = c;
	(void)curl_multi_add_handle(self.multi, c->easy);
}

static void unsend(struct call *c)
{
	if (c->running) {
		(void)curl_multi_remove_handle(self.multi, c->easy);
		self.nr_running--;
		(void)take_out(&self.running, c);
		self.stirred = true;
		curl_easy_reset(c->easy);
		if (self.nr_idle < CALLS_MAX)
			self.idle[self.nr_idle++] = c->easy;
		else
			curl_easy_cleanup(c->easy);
	}
	c->running = false;
	c->easy = NULL;
	curl_slist_free_all(c->headers);
	c->headers = NULL;
	free(c->url);
	c->url = NULL;
}

static void push_ready(struct call *c)
{
	c->next = NULL;
	*self.ready_end = c;
	self.ready_end = &c->next;
	self.stirred = true;
}

void call_start(struct call *c)
{
	push_ready(c);
}

static void call_end(struct call *c)
{
	unsend(c);
	if (c->err < 0 && c->err != -ECANCELED)
		log_debug("%s", c->why);
	c->done(c);
}

static bool take_out(struct call **list, struct call *c)
{
	for (; *list; list = &(*list)->next)
		if (*list == c) {
			*list = c->next;
			return true;
		}
	return false;
}

void call_cancel(struct call *c)
{
	if (!c->running && take_out(&self.ready, c)) {
		self.ready_end = &self.ready;
		while (*self.ready_end)
			self.ready_end = &(*self.ready_end)->next;
	} else if (!c->running) {
		(void)take_out(&self.later, c);
	}
	c->err = -ECANCELED;
	(void)snprintf(c->why, sizeof(c->why), "%.200s: canceled", c->where->shown);
	call_end(c);
}

void call_free_text(struct call *c)
{
	free(c->text);
	c->text = NULL;
	c->text_len = 0;
}

/* ----------------------------------------------------------------- retries */

static uint64_t backoff_ns(const struct call *c)
{
	unsigned shift = MIN(c->tries, 10u), ms = MIN(BACKOFF_MS << shift, BACKOFF_MAX_MS);
	uint32_t random = 0;

	(void)!getrandom(&random, sizeof(random), 0);
	ms = 1 + random % ms;
	return MAX(ms * NSEC_PER_MSEC, c->answer.retry_after_s * NSEC_PER_SEC);
}

/* Send it again after a while.  False: no try or no time is left. */
static bool again(struct call *c)
{
	uint64_t now = now_ns();

	if (c->got - c->got_before >= PROGRESS_MIN)
		c->tries = 0;
	if (++c->tries >= TRIES_MAX)
		return false;
	c->again_ns = now + backoff_ns(c);
	if (c->deadline_ns != UINT64_MAX && c->again_ns >= c->deadline_ns)
		return false;
	unsend(c);
	c->next = self.later;
	self.later = c;
	return true;
}

static bool at_once(struct call *c)
{
	unsend(c);
	push_ready(c);
	return true;
}

/* Follow a redirect of an https:// name.  Requests with our signature are never redirected. */
static bool http_follow(struct call *c)
{
	const char *to = NULL;

	if (c->where->s3 || c->nr_moves++ == REDIRECTS_MAX) {
		c->err = c->where->s3 ? -EREMCHG : -ELOOP;
		(void)snprintf(c->why, sizeof(c->why),
			       c->where->s3 ? "%.200s: the server sends signed requests to another "
					      "place, where keys are not sent; check AWS_REGION "
					      "and the endpoint"
					    : "%.200s: there are too many redirects",
			       c->where->shown);
		return false;
	}
	(void)curl_easy_getinfo(c->easy, CURLINFO_REDIRECT_URL, &to);
	if (!to || (strncasecmp(to, "https://", 8) != 0 &&
		    (strncasecmp(to, "http://", 7) != 0 ||
		     strncasecmp(c->where->origin, "https://", 8) == 0 ||
		     check_plain(to, c->where->shown) < 0))) {
		c->err = -EPERM;
		(void)snprintf(c->why, sizeof(c->why),
			       "%.200s: the server redirects to what is not https://, which is not "
			       "followed",
			       c->where->shown);
		return false;
	}
	free(c->where->moved);
	c->where->moved = strdup(to);
	return at_once(c);
}

/* The server's clock, from the answer that refuses ours. */
static bool learn_clock(struct call *c)
{
	time_t there = curl_getdate(c->answer.date, NULL);
	int64_t skew_s = (int64_t)there - (int64_t)time(NULL);

	if (c->told_clock || there == -1 || skew_s > SKEW_MAX_S || skew_s < -SKEW_MAX_S)
		return false;
	c->told_clock = true;
	c->where->skew_s = skew_s;
	log_info("the clock of %.200s differs from this machine's by %" PRId64 " s",
		 c->where->shown, skew_s);
	return at_once(c);
}

static bool learn_keys(struct call *c)
{
	struct where *w = c->where;
	struct keys k;

	if (c->told_keys)
		return false;
	c->told_keys = true;
	if (c->keys_nr != w->keys_nr)
		return at_once(c); /* another call has fetched new ones meanwhile */
	if (now_ns() < w->keys_wait_ns)
		return false;
	creds_expire(&w->keys);
	/* Blocks the thread for some seconds at most, once for all calls of these keys. */
	if (creds_get(&k) < 0) {
		w->keys_wait_ns = now_ns() + KEYS_WAIT_NS;
		return false;
	}
	keys_wipe(&w->keys);
	w->keys = k;
	w->keys_nr++;
	return at_once(c);
}

/* True: the call goes on. */
static bool recover(struct call *c)
{
	long status = c->answer.status;

	if (c->where->sign && code_is(c, "RequestTimeTooSkewed") && learn_clock(c))
		return true;
	if (c->where->sign && code_is(c, "ExpiredToken") && learn_keys(c))
		return true;
	if (c->where->s3 && !c->told_region && where_set_region(c->where, c->answer.region) &&
	    (status == 301 || status == 307 || status == 400 || status == 403)) {
		c->told_region = true;
		return at_once(c);
	}
	if (c->moved && !c->nr_moves &&
	    (status == 401 || status == 403 || status == 404 || status == 410)) {
		/* The place may have expired; another call may have found a new one already. */
		c->nr_moves++;
		if (c->where->moved && strcmp(c->where->moved, c->url) == 0) {
			free(c->where->moved);
			c->where->moved = NULL;
		}
		return at_once(c);
	}
	if (status == 429 || status >= 500 || code_is(c, "RequestTimeout") ||
	    code_is(c, "ConditionalRequestConflict"))
		return again(c);
	return false;
}

static void finished(struct call *c, CURLcode code)
{
	if (c->err < 0) { /* of a callback of ours, which made libcurl stop */
		call_end(c);
		return;
	}
	if (code == CURLE_OK && !http_look(c)) {
		call_end(c);
		return;
	}
	if (code != CURLE_OK) {
		bool late = c->deadline_ns != UINT64_MAX && now_ns() >= c->deadline_ns;

		if (set_curl_error(c, code) && !late && again(c))
			return;
		call_end(c);
		return;
	}
	if (c->answer.status >= 300 && c->answer.status <= 308 && c->answer.status != 304 &&
	    !*c->answer.region) {
		if (!http_follow(c))
			call_end(c);
		return;
	}
	if (!is_good(c->answer.status)) {
		set_status_error(c);
		if (!recover(c))
			call_end(c);
		return;
	}
	if (c->to && c->got < c->len) { /* a body of the length that it said, and too short */
		(void)set_curl_error(c, CURLE_PARTIAL_FILE);
		if (again(c))
			return;
	}
	call_end(c);
}

/* ------------------------------------------------------------------ thread */

static void run_jobs(struct http_job *j)
{
	while (j) {
		struct http_job *next = j->next;

		j->fn(j->arg);
		j = next;
	}
}

static bool http_is_full(const struct where *w)
{
	unsigned nr = 0;

	for (const struct call *c = self.running; c; c = c->next)
		nr += strcmp(c->where->origin, w->origin) == 0;
	return nr >= ORIGIN_CALLS_MAX;
}

/* Take the first ready call that is late or may be sent.  NULL: none, and due_ns is set. */
static struct call *take_ready(uint64_t now)
{
	const struct where *full = NULL;

	self.due_ns = UINT64_MAX;
	for (struct call **at = &self.ready; *at; at = &(*at)->next) {
		struct call *c = *at;

		if (c->deadline_ns > now) {
			if (c->where != full && self.nr_running < CALLS_MAX &&
			    http_is_full(c->where))
				full = c->where;
			if (c->where == full || self.nr_running >= CALLS_MAX) {
				self.due_ns = MIN(self.due_ns, c->deadline_ns);
				continue;
			}
		}
		*at = c->next;
		if (self.ready_end == &c->next)
			self.ready_end = at;
		return c;
	}
	return NULL;
}

static void start_ready(void)
{
	uint64_t now = now_ns();
	struct call *c;

	if (!self.stirred && now < self.due_ns)
		return;
	while ((c = take_ready(now))) {
		if (c->deadline_ns > now) {
			send_call(c);
			continue;
		}
		c->err = -ETIMEDOUT;
		(void)snprintf(c->why, sizeof(c->why),
			       "%.200s: its time was over before the request could be sent; let "
			       "fewer requests run at a time, or give them more time",
			       c->where->shown);
		call_end(c);
	}
	self.stirred = false;
}

static void start_later(uint64_t now)
{
	struct call **at = &self.later;

	while (*at) {
		struct call *c = *at;

		if (c->again_ns > now) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		push_ready(c);
	}
}

static void http_take_finished(void)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(self.multi, &left))) {
		struct call *c = NULL;
		CURLcode code = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c);
		finished(c, code);
	}
}

static int http_wait_ms(uint64_t now)
{
	uint64_t at = now + HTTP_LINGER_S * NSEC_PER_SEC;

	for (const struct call *c = self.later; c; c = c->next)
		at = MIN(at, c->again_ns);
	/* Calls that may be sent were sent by start_ready(). */
	at = MIN(at, self.due_ns);
	return (int)((MAX(at, now) - now) / NSEC_PER_MSEC + 1);
}

static bool http_has_work(void)
{
	return self.ready || self.later || self.nr_running;
}

static void end_self(CURLM *multi)
{
	while (self.nr_idle)
		curl_easy_cleanup(self.idle[--self.nr_idle]);
	(void)curl_multi_cleanup(multi);
}

static void *s3_http_run(void *arg)
{
	uint64_t idle_ns = now_ns();
	int still;

	(void)arg;
	for (;;) {
		struct http_job *jobs;
		bool end;

		(void)pthread_mutex_lock(&box.lock);
		jobs = box.head;
		box.head = box.tail = NULL;
		if (jobs || box.users || http_has_work())
			idle_ns = now_ns();
		end = now_ns() - idle_ns >= HTTP_LINGER_S * NSEC_PER_SEC;
		if (end) {
			/* The lock is held, so that the next thread finds nothing of this one. */
			end_self(box.multi);
			box.multi = NULL;
			box.running = false;
		}
		(void)pthread_mutex_unlock(&box.lock);
		if (end)
			return NULL;
		run_jobs(jobs);
		start_later(now_ns());
		start_ready();
		(void)curl_multi_perform(self.multi, &still);
		http_take_finished();
		start_ready();
		(void)curl_multi_poll(self.multi, NULL, 0, http_wait_ms(now_ns()), NULL);
	}
}

static void init_curl(void)
{
	(void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* The lock is held. */
static int start_thread(void)
{
	pthread_t t;
	int r;

	box.multi = curl_multi_init();
	if (!box.multi)
		return err_set(ENOMEM, "libcurl cannot begin: out of memory");
	(void)curl_multi_setopt(box.multi, CURLMOPT_MAXCONNECTS, (long)CALLS_MAX);
	(void)curl_multi_setopt(box.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	self.multi = box.multi;
	self.ready = self.later = self.running = NULL;
	self.ready_end = &self.ready;
	self.due_ns = UINT64_MAX;
	self.stirred = false;
	self.nr_running = self.nr_idle = 0;
	r = thread_start(&t, s3_http_run, NULL);
	if (r < 0) {
		(void)curl_multi_cleanup(box.multi);
		box.multi = NULL;
		return r;
	}
	(void)pthread_setname_np(t, "pst-http");
	(void)pthread_detach(t);
	box.running = true;
	return 0;
}

int http_get(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int r = 0;

	(void)pthread_once(&once, init_curl);
	(void)pthread_mutex_lock(&box.lock);
	if (!box.running)
		r = start_thread();
	if (r == 0)
		box.users++;
	(void)pthread_mutex_unlock(&box.lock);
	return r;
}

void http_put(void)
{
	(void)pthread_mutex_lock(&box.lock);
	box.users--;
	(void)pthread_mutex_unlock(&box.lock);
}

void http_run(struct http_job *job)
{
	(void)pthread_mutex_lock(&box.lock);
	job->next = NULL;
	if (box.tail)
		box.tail->next = job;
	else
		box.head = job;
	box.tail = job;
	(void)curl_multi_wakeup(box.multi);
	(void)pthread_mutex_unlock(&box.lock);
}

/* ------------------------------------------------------------ waiting calls */

struct waiter {
	struct http_job job;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool end;
};

static void waiter_start(void *arg)
{
	call_start(arg);
}

static void waiter_done(struct call *c)
{
	struct waiter *w = c->arg;

	(void)pthread_mutex_lock(&w->lock);
	w->end = true;
	(void)pthread_cond_signal(&w->ended);
	(void)pthread_mutex_unlock(&w->lock);
}

int call_wait(struct call *c)
{
	struct waiter w = { .job = { .fn = waiter_start, .arg = c } };

	(void)pthread_mutex_init(&w.lock, NULL);
	(void)pthread_cond_init(&w.ended, NULL);
	c->done = waiter_done;
	c->arg = &w;
	http_run(&w.job);
	(void)pthread_mutex_lock(&w.lock);
	while (!w.end)
		(void)pthread_cond_wait(&w.ended, &w.lock);
	(void)pthread_mutex_unlock(&w.lock);
	(void)pthread_mutex_destroy(&w.lock);
	(void)pthread_cond_destroy(&w.ended);
	return c->err < 0 ? err_set(c->err, "%s", c->why) : 0;
}

/* -------------------------------------------------------- services for keys */

struct fetched {
	char *text;
	size_t len, max;
};

static size_t on_fetched(char *data, size_t size, size_t nr, void *arg)
{
	struct fetched *f = arg;
	size_t len = size * nr;
	char *more = f->len + len > f->max ? NULL : realloc(f->text, f->len + len + 1);

	if (!more)
		return 0;
	memcpy(more + f->len, data, len);
	f->text = more;
	f->len += len;
	more[f->len] = '\0';
	return len;
}

int http_fetch(const char *url, const char *method, const char *body, const char *header,
	       long timeout_ms, size_t max, char **ret)
{
	struct fetched f = { .text = calloc(1, 1), .max = max };
	CURL *e = curl_easy_init();
	struct curl_slist *headers = header ? curl_slist_append(NULL, header) : NULL;
	bool ok = e && f.text && (!header || headers);
	CURLcode code = CURLE_OUT_OF_MEMORY;
	long status = 0;

	if (ok) {
		(void)curl_easy_setopt(e, CURLOPT_URL, url);
		(void)curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
		(void)curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
		/* Tokens for this machine pass through no other one. */
		if (strncmp(url, "http://", 7) == 0 || getauxval(AT_SECURE))
			(void)curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
		(void)curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, timeout_ms);
		(void)curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers);
		(void)curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_fetched);
		(void)curl_easy_setopt(e, CURLOPT_WRITEDATA, &f);
		if (body)
			(void)curl_easy_setopt(e, CURLOPT_POSTFIELDS, body);
		(void)curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
		code = curl_easy_perform(e);
		(void)curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &status);
	}
	curl_slist_free_all(headers);
	curl_easy_cleanup(e);
	if (code == CURLE_OK && is_good(status)) {
		*ret = f.text;
		return 0;
	}
	free(f.text);
	if (code != CURLE_OK)
		return err_set(EIO, "%s", curl_easy_strerror(code));
	return err_set(EACCES, "it answers with HTTP %ld", status);
}
