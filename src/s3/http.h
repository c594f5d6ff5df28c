/* SPDX-License-Identifier: MIT */
/*
 * HTTP exchanges on the thread pst-http.
 *
 * The thread runs from the first http_get() until HTTP_LINGER_S after the last http_put(), so that
 * the next file can reuse its connections.
 */
#ifndef PST_S3_HTTP_H
#define PST_S3_HTTP_H

#include <curl/curl.h>

#include "base/err.h"
#include "base/objects.h"
#include "s3/s3.h"

#define HTTP_LINGER_S 10

/* Headers of an answer; empty if missing. */
struct answer {
	long status;
	char etag[160], modified[64], range[96], date[64], region[64], id[80];
	char mark[MARK_LEN + 1];     /* value of the header that call.mark sets */
	char meta[OBJECT_META_SIZE]; /* value of the header that call.meta sets */
	char location[4096];
	uint64_t length; /* Content-Length in bytes; UINT64_MAX: unknown */
	unsigned retry_after_s;
};

struct call;

/* Called on the thread pst-http when the call has ended; may free the call, or start others. */
typedef void (*call_fn)(struct call *c);
/* Check an answer with status 200 or 206 before its bytes are stored.  Return 0, or -errno with the
 * cause in c->why. */
typedef int (*check_fn)(struct call *c);

/*
 * One exchange, including retries.  The caller fills in the first part, and keeps all of it
 * unchanged until done().
 */
struct call {
	const char *method;
	struct where *where;
	char *query;          /* from encode_query(), or NULL */
	bool broken;          /* out of memory while making the query: must not be sent */
	const char *if_match; /* ETag for If-Match, or NULL */
	bool if_none;         /* send If-None-Match: * */
	const char *mark;     /* metadata for the new object, to recognise it later; or NULL */
	const char *meta;     /* value of OBJECT_META_HEADER for the new object, or NULL */
	uint64_t off, len;    /* Range in bytes; len 0: none */
	void *to;             /* destination in the program, len bytes; NULL: keep text */
	const void *body;     /* body to send, in our memory */
	uint64_t body_len;
	bool patient; /* allow COMPLETE_SILENCE_S without a byte */
	bool plain;   /* a body of http:// may be received straight into @to (plain.c) */
	uint64_t deadline_ns;
	check_fn check;
	call_fn done;
	void *arg;

	/* Results, after all retries. */
	int err; /* 0, or -errno */
	char why[ERR_TEXT_MAX];
	struct answer answer;
	uint64_t got; /* bytes stored, beginning at off */
	char *text;   /* text of the answer, NUL-terminated, or NULL */
	size_t text_len;
	unsigned nr_sent; /* how often the request was sent */

	/* Used by the thread. */
	struct call *next;
	CURL *easy;         /* NULL for an exchange of plain.c */
	struct plain *line; /* the connection of an exchange of plain.c */
	struct curl_slist *headers;
	uint64_t sent; /* bytes of the body that were sent */
	uint64_t again_ns, got_before;
	unsigned tries, nr_moves, keys_nr; /* keys_nr: where.keys_nr of the keys that signed the
					    * call */
	bool looked, enough, told_clock, told_region, told_keys, canceled, running, moved;
	char *url;
};

/* Begin and end using the thread.  http_get() returns 0, or -errno with a sentence. */
int http_get(void);
void http_put(void);

/* Only on the thread pst-http. */
void call_start(struct call *c);
/* Cancel; done() is called with -ECANCELED before this returns. */
void call_cancel(struct call *c);
void call_free_text(struct call *c);

/* Start a call and wait for its end; return c->err.  Not on the thread pst-http. */
int call_wait(struct call *c);

/* Run fn(arg) on the thread pst-http; any thread may do this. */
struct http_job {
	struct http_job *next;
	void (*fn)(void *arg);
	void *arg;
};
void http_run(struct http_job *job);

/* Fetch keys from a service: one exchange on the caller's thread, without redirects or proxy.
 * Return 0, or -errno with a sentence that contains no secrets.  Free *ret. */
int http_fetch(const char *url, const char *method, const char *body, const char *header,
	       long timeout_ms, size_t max, char **ret);

/* Copy the text of the first element of that name, with references resolved.  Return false if there
 * is none or if it does not fit. */
bool xml_find(const char *text, const char *name, char *ret, size_t len);

/* Drop expired keys: the next creds_get() fetches new ones, unless that has happened already. */
void creds_expire(const struct keys *k);

/* ---------------------------------------------- parts of an exchange, on the thread pst-http */

#define MARK_HEADER "x-amz-meta-penstock-upload"

/* http.c: handle the end of an exchange, with libcurl's code.  http_resend() begins the exchange
 * again at once. */
void http_finished(struct call *c, CURLcode code);
void http_resend(struct call *c);

/* plain.c: exchanges of http:// whose bodies go from the socket into the memory of the request. */

/* Return true if plain_start() can make the call. */
bool plain_wants(const struct call *c);
/* Send the request of c->url and c->headers.  Return false if there is no memory.  http_finished()
 * or http_resend() is called later, never within this call. */
bool plain_start(struct call *c, CURLM *multi);
/* End an exchange, and close its connection. */
void plain_cancel(struct call *c);
/* Close all connections; none is in use. */
void plain_end(CURLM *multi);

/* Take back a handle: libcurl has connected it, or has failed to.  Return false if plain.c did not
 * make the handle. */
bool plain_connected(CURL *easy, CURLcode code, CURLM *multi);
/* Fill in what to wait for.  Return how many there are. */
unsigned plain_fds(struct curl_waitfd fds[CALLS_MAX], CURLM *multi);
/* Return when plain_take() is due if nothing happens; UINT64_MAX: never. */
uint64_t plain_due_ns(void);
/* Send and receive after a wait. */
void plain_take(const struct curl_waitfd *fds, unsigned nr);

/* Prepare URL, headers and signature of a call.  Return as request_make().  In request.c. */
bool request_head(struct call *c);
/* Return the milliseconds until the call's deadline, at least 1; 0: the call has none. */
long request_left_ms(const struct call *c);
/* request.c: write URL, headers and signature of a call, and set all options of its handle.  Return
 * false if there is no memory, or if c->err and c->why were set. */
bool request_make(struct call *c);

/* libcurl's callbacks for headers and bytes, in answer.c. */
size_t answer_header(char *line, size_t size, size_t nr, void *arg);
size_t answer_data(char *data, size_t size, size_t nr, void *arg);
/* Return true if the header line has that name. */
bool answer_is(const char *line, size_t len, const char *name);
/* Check the headers once, before any byte is used.  Return false with c->err. */
bool answer_look(struct call *c);
bool answer_is_good(long status);
/* Set c->err: the server sent too many bytes. */
void answer_too_long(struct call *c);

/* Set c->err and c->why from an answer; in why.c. */
void why_status(struct call *c);
/* Set c->err and c->why from a failure of libcurl.  Return true if a retry may help. */
bool why_curl(struct call *c, CURLcode code);
/* Return true if the answer's text has that S3 error code. */
bool why_code_is(const struct call *c, const char *code);

#endif
