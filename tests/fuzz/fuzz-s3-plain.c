/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as the answers of a server of plain http, through plain.c, with answer.c, over a
 * pair of sockets.  The result must not depend on how the bytes are cut into segments, no byte may
 * be stored outside the range that was asked for, and what is stored must follow the headers.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "s3/http.h"

#define BODY_MAX 4096u
#define ANSWER_MAX KIB(40)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* An assertion that release builds keep, too. */
static void must(int ok)
{
	if (!ok)
		abort();
}

enum end { PENDING, FINISHED, RESENT };

static struct {
	int ours; /* what plain.c takes for its socket until it has a duplicate */
	int peer;
	enum end end;
	CURLcode code;
} state;

/* ------------------------------------------------- what plain.c calls */

void http_finished(struct call *c, CURLcode code)
{
	must(state.end == PENDING && !c->line);
	state.end = FINISHED;
	state.code = code;
}

void http_resend(struct call *c)
{
	must(state.end == PENDING && !c->line);
	state.end = RESENT;
}

long request_left_ms(const struct call *c)
{
	(void)c;
	return 0;
}

bool is_loopback_url(const char *url)
{
	(void)url;
	return true;
}

CURL *curl_easy_init(void)
{
	return malloc(1);
}

void curl_easy_cleanup(CURL *easy)
{
	free(easy);
}

CURLcode(curl_easy_setopt)(CURL *easy, CURLoption option, ...)
{
	(void)easy;
	(void)option;
	return CURLE_OK;
}

CURLcode(curl_easy_getinfo)(CURL *easy, CURLINFO info, ...)
{
	va_list args;

	(void)easy;
	must(info == CURLINFO_ACTIVESOCKET);
	va_start(args, info);
	*va_arg(args, curl_socket_t *) = state.ours;
	va_end(args);
	return CURLE_OK;
}

CURLMcode curl_multi_add_handle(CURLM *multi, CURL *easy)
{
	*(CURL **)multi = easy;
	return CURLM_OK;
}

CURLMcode curl_multi_remove_handle(CURLM *multi, CURL *easy)
{
	must(*(CURL **)multi == easy);
	return CURLM_OK;
}

/* ------------------------------------------------------------ an exchange */

static int fuzz_check(struct call *c)
{
	must(c->got == 0 && c->easy == NULL);
	return c->answer.status == 206 || c->answer.status == 200 ? 0 : -EPROTO;
}

/* Let plain.c receive all bytes of the socket. */
static void fuzz_take(CURLM *multi)
{
	struct curl_waitfd fds[CALLS_MAX];

	/* plain_take() reads a connection's headers or error text at least 16 times. */
	for (unsigned turn = 0; turn < 3 && state.end == PENDING; turn++) {
		unsigned nr = plain_fds(fds, multi);

		for (unsigned i = 0; i < nr; i++)
			fds[i].revents = CURL_WAIT_POLLIN;
		plain_take(fds, nr);
	}
}

static void fuzz_begin(struct call *c, struct where *w, CURL **easy)
{
	static char url[] = "http://h/k";

	*c = (struct call){
		.method = "GET",
		.where = w,
		.len = BODY_MAX,
		/* An exact allocation, so that a sanitizer sees writes past its end. */
		.to = calloc(1, BODY_MAX),
		.plain = true,
		.deadline_ns = UINT64_MAX,
		.check = fuzz_check,
		.url = url,
		.answer = { .length = UINT64_MAX },
	};
	must(c->to != NULL && plain_wants(c));
	state.end = PENDING;
	*easy = NULL;
	must(plain_start(c, easy));
}

/* Connect, unless plain.c uses the connection that it has. */
static void fuzz_connect(CURL **easy)
{
	int fds[2];

	if (!*easy)
		return;
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	if (state.peer >= 0)
		(void)close(state.peer);
	state.ours = fds[0];
	state.peer = fds[1];
	must(plain_connected(*easy, CURLE_OK, easy));
	(void)close(fds[0]);
}

static void fuzz_send(const void *data, size_t len, size_t cut, CURL **easy)
{
	for (size_t at = 0; at < len && state.end == PENDING; at += cut) {
		size_t n = MIN(cut, len - at);

		must(send(state.peer, (const char *)data + at, n, MSG_NOSIGNAL) == (ssize_t)n);
		fuzz_take(easy);
	}
}

static void fuzz_free(struct call *c)
{
	free(c->text);
	free(c->to);
}

/* Receive data as the first answer, in segments of cut bytes. */
static void fuzz_run(const uint8_t *data, size_t len, size_t cut, struct call *c)
{
	static const char good[] = "HTTP/1.1 206 ok\r\nContent-Length: 4096\r\n\r\n";
	char origin[] = "http://h";
	struct where w = { .origin = origin };
	struct call next;
	CURL *easy;

	state.peer = -1;
	fuzz_begin(c, &w, &easy);
	fuzz_connect(&easy);
	fuzz_send(data, len, cut, &easy);
	if (state.end == PENDING) {
		(void)shutdown(state.peer, SHUT_WR);
		fuzz_take(&easy);
	}
	must(state.end != PENDING);
	c->sent = (uint64_t)state.end;
	c->body_len = state.end == FINISHED ? (uint64_t)state.code : 0;
	if (state.end == FINISHED && state.code == CURLE_OK) {
		char body[BODY_MAX];

		/* No byte that follows an answer belongs to the next one. */
		memset(body, 'g', sizeof(body));
		fuzz_begin(&next, &w, &easy);
		fuzz_connect(&easy);
		fuzz_send(good, strlen(good), SIZE_MAX, &easy);
		fuzz_send(body, sizeof(body), SIZE_MAX, &easy);
		must(state.end == FINISHED && state.code == CURLE_OK && next.got == BODY_MAX);
		must(memcmp(next.to, body, BODY_MAX) == 0);
		fuzz_free(&next);
	}
	plain_end(&easy);
	(void)close(state.peer);
}

/* Return where libcurl lets the body begin: after the first headers that are not of a status 1xx.
 * Their end is an empty line, and a line ends with LF or CR LF. */
static size_t fuzz_body(const uint8_t *data, size_t len)
{
	bool interim = false, first = true;

	for (size_t at = 0, line = 0; at < len; at++) {
		size_t n = at - line;

		if (data[at] != '\n')
			continue;
		if (n == 0 || (n == 1 && data[line] == '\r')) {
			if (!interim)
				return at + 1;
			interim = false;
			first = true;
		} else if (first) {
			interim = n >= 10 && memcmp(data + line, "HTTP/1.1 1", 10) == 0;
			first = false;
		}
		line = at + 1;
	}
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct call a, b;

	if (len < 2 || len > ANSWER_MAX)
		return 0;
	fuzz_run(data + 1, len - 1, len, &a);
	fuzz_run(data + 1, len - 1, MAX(data[0] % 64u + 1, len / 1024), &b);
	must(a.sent == b.sent && a.body_len == b.body_len && a.got == b.got && a.err == b.err);
	must(a.sent == RESENT || a.answer.status == b.answer.status);
	must(a.text_len == b.text_len);
	must(a.got <= BODY_MAX && memcmp(a.to, b.to, BODY_MAX) == 0);
	must(!a.text_len || memcmp(a.text, b.text, a.text_len) == 0);
	if (a.got) {
		must(answer_is_good(a.answer.status));
		must(memcmp(a.to, data + 1 + fuzz_body(data + 1, len - 1), a.got) == 0);
	}
	fuzz_free(&a);
	fuzz_free(&b);
	return 0;
}
