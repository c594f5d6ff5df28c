/* SPDX-License-Identifier: MIT */
/*
 * Exchanges of plain http:// without libcurl's buffer: recv(2) puts the body into the memory of the
 * request.
 *
 * libcurl connects: it looks up the name and tries the addresses.  The connected socket is
 * duplicated, and libcurl's own is closed.  If an answer is not simple, the request is sent again
 * through libcurl, and so are all later requests for ranges of that file: a redirect, an answer
 * without a length or with a Transfer-Encoding, headers of more than HEAD_MAX bytes, headers with a
 * line that ends with LF alone.
 *
 * All functions run on the thread pst-http.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/uaccess.h"
#include "s3/http.h"

#define HEAD_MAX KIB(16)
#define WAKE_BYTES KIB(256) /* largest SO_RCVLOWAT, so that recv(2) gets many bytes at once */
#define TURN_BYTES MIB(2)   /* bytes received from a connection before others get a turn */
#define TURN_READS 16u      /* calls of recv(2) before others get a turn */

/* A connection. */
struct plain {
	struct plain *next;
	struct call *call; /* NULL: idle */
	CURL *easy;        /* NULL: connected */
	int fd;            /* -1: not connected yet */
	char *origin;
	char *request;
	size_t len, sent; /* len: bytes of the request's text; sent: bytes already sent */
	bool used;        /* the connection has given an answer */
	bool in_body, last;
	bool dead;               /* to be freed by plain_sweep() */
	uint64_t left;           /* bytes of the body that are still to come */
	uint64_t seen_ns;        /* now_ns() when the last byte arrived */
	size_t head_len;         /* bytes in head */
	int low;                 /* SO_RCVLOWAT */
	char head[HEAD_MAX + 1]; /* the last byte of head stays 0 */
};

static struct plain *lines; /* the newest connection comes first */

/* ------------------------------------------------------------- connections */

static void plain_free(struct plain *p, CURLM *multi)
{
	if (p->easy) {
		(void)curl_multi_remove_handle(multi, p->easy);
		curl_easy_cleanup(p->easy);
	}
	if (p->fd >= 0)
		(void)close(p->fd);
	free(p->origin);
	free(p->request);
	free(p);
}

/* Close a connection.  The connection's memory stays until plain_sweep(). */
static void plain_close(struct plain *p)
{
	p->dead = true;
	p->call = NULL;
	if (p->fd >= 0)
		(void)close(p->fd);
	p->fd = -1;
}

static void plain_sweep(CURLM *multi)
{
	for (struct plain **at = &lines; *at;) {
		struct plain *p = *at;

		if (!p->dead) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		plain_free(p, multi);
	}
}

void plain_end(CURLM *multi)
{
	for (struct plain *p = lines; p; p = p->next)
		plain_close(p);
	plain_sweep(multi);
}

/* Return true if the server keeps the connection open, and has sent nothing. */
static bool plain_is_alive(const struct plain *p)
{
	char byte;

	return recv(p->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	       (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* Find an idle connection to an origin.  If there is none but there are too many connections, close
 * the oldest idle one. */
static struct plain *plain_find(const char *origin)
{
	struct plain *oldest = NULL;
	unsigned nr = 0;

	for (struct plain *p = lines; p; p = p->next) {
		if (p->dead)
			continue;
		nr++;
		if (p->call)
			continue;
		if (strcmp(p->origin, origin) == 0) {
			if (plain_is_alive(p))
				return p;
			plain_close(p);
		} else if (!oldest || p->seen_ns < oldest->seen_ns) {
			oldest = p;
		}
	}
	if (nr >= CALLS_MAX && oldest)
		plain_close(oldest);
	return NULL;
}

static struct plain *plain_new(struct call *c, CURLM *multi)
{
	struct plain *p = calloc(1, sizeof(*p));
	long left;

	if (!p)
		return NULL;
	p->fd = -1;
	p->low = 1;
	p->origin = strdup(c->where->origin);
	p->easy = curl_easy_init();
	if (!p->origin || !p->easy) {
		plain_free(p, multi);
		return NULL;
	}
	left = request_left_ms(c);
	(void)curl_easy_setopt(p->easy, CURLOPT_URL, p->origin);
	(void)curl_easy_setopt(p->easy, CURLOPT_PROTOCOLS_STR, "http");
	(void)curl_easy_setopt(p->easy, CURLOPT_CONNECT_ONLY, 1L);
	(void)curl_easy_setopt(p->easy, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(p->easy, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(p->easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
	(void)curl_easy_setopt(p->easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	(void)curl_easy_setopt(p->easy, CURLOPT_TIMEOUT_MS, left);
#if LIBCURL_VERSION_NUM >= 0x075700
	(void)curl_easy_setopt(p->easy, CURLOPT_QUICK_EXIT, 1L);
#endif
	(void)curl_multi_add_handle(multi, p->easy);
	p->next = lines;
	lines = p;
	return p;
}

/* ---------------------------------------------------------------- requests */

/* Return true if libcurl may use a proxy, which these variables name: a proxy needs requests of
 * another form. */
static bool plain_has_proxy(const struct where *w)
{
	return !is_loopback_url(w->origin) &&
	       (secure_getenv("http_proxy") || secure_getenv("all_proxy") ||
		secure_getenv("ALL_PROXY"));
}

bool plain_wants(const struct call *c)
{
	const struct where *w = c->where;

	return c->plain && c->to && !c->body && strcmp(c->method, "GET") == 0 && !w->moved &&
	       !w->unplain && strncmp(w->origin, "http://", 7) == 0 && !plain_has_proxy(w);
}

/* Make the text of a request from its URL and headers. */
static char *plain_text(const struct call *c, size_t *ret_len)
{
	const char *host = c->where->origin + strlen("http://");
	bool named = false;
	char *text = NULL;
	FILE *f = open_memstream(&text, ret_len);

	if (!f)
		return NULL;
	(void)fprintf(f, "GET %s HTTP/1.1\r\n", c->url + strlen(c->where->origin));
	for (const struct curl_slist *h = c->headers; h; h = h->next) {
		size_t len = strlen(h->data);

		/* Skip headers without a value, which tell libcurl to send none of this name. */
		if (len >= 2 && strcmp(h->data + len - 2, ": ") == 0)
			continue;
		named |= strncasecmp(h->data, "host:", 5) == 0;
		(void)fprintf(f, "%s\r\n", h->data);
	}
	if (!named)
		(void)fprintf(f, "Host: %s\r\n", host);
	(void)fprintf(f, "\r\n");
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}

static void plain_write(struct plain *p)
{
	ssize_t n = send(p->fd, p->request + p->sent, p->len - p->sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n > 0)
		p->sent += (size_t)n; /* errors come back from recv(2) */
}

bool plain_start(struct call *c, CURLM *multi)
{
	struct plain *p = plain_find(c->where->origin);
	size_t len;
	char *text = plain_text(c, &len);

	if (text && !p)
		p = plain_new(c, multi);
	if (!text || !p) {
		free(text);
		return false;
	}
	free(p->request);
	p->request = text;
	p->len = len;
	p->sent = 0;
	p->head_len = 0;
	p->in_body = p->last = false;
	p->seen_ns = now_ns();
	p->call = c;
	c->line = p;
	if (p->fd >= 0)
		plain_write(p);
	return true;
}

void plain_cancel(struct call *c)
{
	plain_close(c->line);
	c->line = NULL;
}

/* Release a connection whose exchange has ended well: it may serve another one. */
static void plain_release(struct plain *p)
{
	p->call->line = NULL;
	p->call = NULL;
	p->used = true;
	if (p->last)
		plain_close(p);
}

static void plain_fail(struct plain *p, CURLcode code)
{
	struct call *c = p->call;
	/* A server may close a connection that was idle. */
	bool idle = p->used && !p->in_body && !p->head_len;

	plain_cancel(c);
	if (idle && (code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR))
		http_resend(c);
	else
		http_finished(c, code);
}

/* ----------------------------------------------------------------- answers */

/* Set how many bytes must arrive before a wait ends. */
static void plain_set_low(struct plain *p, uint64_t bytes)
{
	int low = (int)MIN(MAX(bytes, 1u), WAKE_BYTES);

	if (low == p->low)
		return;
	if (setsockopt(p->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)) == 0)
		p->low = low;
}

/* Send this request, and all later ones for the file, through libcurl. */
static void plain_refuse(struct plain *p)
{
	struct call *c = p->call;

	plain_cancel(c);
	c->where->unplain = true;
	http_resend(c);
}

/* Parse the length of a body: only digits are accepted. */
static bool plain_length(const char *line, size_t len, uint64_t *ret)
{
	const char *at = memchr(line, ':', len) + 1, *end = line + len;
	uint64_t n = 0;

	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	while (end > at && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		end--;
	if (at == end || end - at > 18)
		return false;
	for (; at < end; at++) {
		if (*at < '0' || *at > '9')
			return false;
		n = n * 10 + (uint64_t)(*at - '0');
	}
	if (*ret != UINT64_MAX && *ret != n)
		return false;
	*ret = n;
	return true;
}

/* Return true if a value contains the word. */
static bool plain_says(const char *line, size_t len, const char *word)
{
	size_t n = strlen(word);

	for (size_t i = 0; i + n <= len; i++)
		if (strncasecmp(line + i, word, n) == 0)
			return true;
	return false;
}

/* Parse the first line: HTTP/1.0 or HTTP/1.1, a blank, three digits.  Return the status, or 0. */
static long plain_status(const char *line, size_t len)
{
	static const char form[] = "HTTP/1.x ";
	size_t at = strlen(form);
	long status = 0;

	if (len < at + 4 || memcmp(line, form, at - 2) != 0 || line[at - 1] != ' ' ||
	    (line[at - 2] != '0' && line[at - 2] != '1') ||
	    (line[at + 3] != ' ' && line[at + 3] != '\r'))
		return 0;
	for (size_t i = at; i < at + 3; i++) {
		if (line[i] < '0' || line[i] > '9')
			return 0;
		status = status * 10 + (line[i] - '0');
	}
	return status;
}

/* Parse headers of len bytes, which end with an empty line.  Return false if the request must be
 * sent again through libcurl. */
static bool plain_parse(struct plain *p, size_t len)
{
	struct call *c = p->call;
	char *line = p->head, *end = p->head + len;
	long status = plain_status(line, len);

	/* A status 1xx of HTTP/1.0 comes here, too. */
	if (status < 200)
		return false;
	p->last = line[7] == '0';
	p->left = UINT64_MAX;
	while (line < end) {
		char *next = memchr(line, '\n', (size_t)(end - line));
		size_t n = (size_t)(next - line);

		if (answer_is(line, n, "Transfer-Encoding") ||
		    (answer_is(line, n, "Content-Length") && !plain_length(line, n, &p->left)))
			return false;
		if (answer_is(line, n, "Connection") && plain_says(line, n, "close"))
			p->last = true;
		(void)answer_header(line, 1, n + 1, c);
		line = next + 1;
	}
	c->answer.status = status;
	return p->left != UINT64_MAX && (status < 300 || status > 399) && status != 204;
}

/* Store bytes that came with the headers, or are an error's text.  Return false if the call has
 * ended. */
static bool plain_store(struct plain *p, char *data, size_t len)
{
	p->left -= len;
	if (answer_data(data, 1, len, p->call) == len)
		return true;
	plain_fail(p, CURLE_WRITE_ERROR);
	return false;
}

/* Handle complete headers. Return false if nothing more is to be received for now. */
static bool plain_begin_body(struct plain *p, size_t len)
{
	struct call *c = p->call;
	size_t more = p->head_len - len;

	/* libcurl takes no NUL in a header. */
	if (memchr(p->head, '\0', len) || !plain_parse(p, len)) {
		plain_refuse(p);
		return false;
	}
	p->in_body = true;
	p->seen_ns = now_ns();
	if (!answer_look(c)) {
		plain_fail(p, CURLE_WRITE_ERROR);
		return false;
	}
	if (answer_is_good(c->answer.status) && p->left > c->len - c->got) {
		answer_too_long(c);
		plain_fail(p, CURLE_WRITE_ERROR);
		return false;
	}
	if (!answer_is_good(c->answer.status) && p->left > ERROR_TEXT_MAX) {
		p->left = ERROR_TEXT_MAX; /* receive no more of an error's text: the rest tells
					   * nothing */
		p->last = true;
	}
	if (more > p->left) /* bytes that belong to no answer */
		p->last = true;
	more = MIN(more, p->left);
	return !more || plain_store(p, p->head + len, more);
}

/*
 * Find the end of the headers in p->head, of which the first from bytes were searched before.
 * Return false if the request must be sent again through libcurl: the text does not begin as an
 * answer of HTTP/1, or has a line that ends with LF alone.  libcurl takes such an LF for the end of
 * a line, so the body may begin before the first CR LF CR LF.  ret_len: bytes of the headers; 0:
 * the end has not come.
 */
static bool plain_find_end(const struct plain *p, size_t from, size_t *ret_len)
{
	static const char begin[] = "HTTP/1.";
	const char *text = p->head, *lf;

	*ret_len = 0;
	if (memcmp(text, begin, MIN(p->head_len, strlen(begin))) != 0)
		return false;
	for (size_t at = from; (lf = memchr(text + at, '\n', p->head_len - at));) {
		at = (size_t)(lf - text) + 1;
		if (at < 2 || text[at - 2] != '\r')
			return false;
		if (at >= 4 && memcmp(text + at - 4, "\r\n", 2) == 0) {
			*ret_len = at;
			return true;
		}
	}
	return true;
}

/* Receive headers.  Return false if nothing more is to be received for now. */
static bool plain_read_head(struct plain *p)
{
	ssize_t n = recv(p->fd, p->head + p->head_len, HEAD_MAX - p->head_len, MSG_DONTWAIT);
	size_t from = p->head_len, len;

	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return false;
	if (n <= 0) {
		plain_fail(p, n < 0 || p->head_len ? CURLE_RECV_ERROR : CURLE_GOT_NOTHING);
		return false;
	}
	/* Leave seen_ns unchanged: all headers together get SILENCE_S seconds, as in libcurl. */
	p->head_len += (size_t)n;
	while (plain_find_end(p, from, &len)) {
		if (!len && p->head_len < HEAD_MAX)
			return true;
		if (!len)
			break;
		if (plain_status(p->head, len) / 100 != 1 || p->head[7] == '0')
			return plain_begin_body(p, len);
		/* Skip a preliminary answer such as 100 Continue. */
		p->head_len -= len;
		memmove(p->head, p->head + len, p->head_len);
		from = 0;
	}
	plain_refuse(p);
	return false;
}

/* Receive a piece of the body. Return false if nothing more is to be received for now. */
static bool plain_read_body(struct plain *p)
{
	struct call *c = p->call;
	bool good = answer_is_good(c->answer.status);
	size_t want = (size_t)MIN(p->left, good ? TURN_BYTES : HEAD_MAX);
	ssize_t n = recv(p->fd, good ? (char *)c->to + c->got : p->head, want, MSG_DONTWAIT);

	if (n < 0 && errno == EFAULT && good) {
		/* Let plain_store() fail with the sentence for memory that is gone. */
		n = recv(p->fd, p->head, 1, MSG_DONTWAIT);
		good = false;
	}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return false;
	if (n <= 0) {
		plain_fail(p, n < 0 ? CURLE_RECV_ERROR : CURLE_PARTIAL_FILE);
		return false;
	}
	p->seen_ns = now_ns();
	if (!good)
		return plain_store(p, p->head, (size_t)n);
	p->left -= (uint64_t)n;
	c->got += (uint64_t)n;
	return (size_t)n == want; /* less: the socket is empty */
}

/* Send and receive as much as possible without waiting. */
static void plain_step(struct plain *p)
{
	struct call *c = p->call;
	uint64_t turn = c->got;
	unsigned reads = 0;
	bool more = true;

	if (p->sent < p->len)
		plain_write(p);
	while (more && !(p->in_body && !p->left) && c->got - turn < TURN_BYTES &&
	       reads++ < TURN_READS)
		more = p->in_body ? plain_read_body(p) : plain_read_head(p);
	if (p->dead || p->call != c)
		return;
	if (p->in_body && !p->left) {
		plain_set_low(p, 1);
		plain_release(p);
		http_finished(c, CURLE_OK);
	} else {
		plain_set_low(p, p->in_body ? p->left : 1);
	}
}

/* ---------------------------------------------------------- the thread's loop */

bool plain_connected(CURL *easy, CURLcode code, CURLM *multi)
{
	struct plain *p = lines;
	curl_socket_t fd = -1;

	while (p && p->easy != easy)
		p = p->next;
	if (!p)
		return false;
	if (code == CURLE_OK && (curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK ||
				 fd < 0 || (p->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0))
		code = CURLE_COULDNT_CONNECT;
	(void)curl_multi_remove_handle(multi, easy);
	curl_easy_cleanup(easy);
	p->easy = NULL;
	if (!p->call)
		plain_close(p);
	else if (code != CURLE_OK)
		plain_fail(p, code);
	else
		plain_write(p);
	p->seen_ns = now_ns();
	return true;
}

unsigned plain_fds(struct curl_waitfd fds[CALLS_MAX], CURLM *multi)
{
	unsigned nr = 0;

	plain_sweep(multi);
	for (struct plain *p = lines; p && nr < CALLS_MAX; p = p->next)
		if (p->fd >= 0)
			fds[nr++] = (struct curl_waitfd){
				.fd = p->fd,
				.events = CURL_WAIT_POLLIN |
					  (p->call && p->sent < p->len ? CURL_WAIT_POLLOUT : 0),
			};
	return nr;
}

static uint64_t plain_until(const struct plain *p)
{
	return MIN(p->call->deadline_ns, p->seen_ns + SILENCE_S * NSEC_PER_SEC);
}

uint64_t plain_due_ns(void)
{
	uint64_t at = UINT64_MAX;

	for (const struct plain *p = lines; p; p = p->next)
		if (p->call && p->fd >= 0)
			at = MIN(at, plain_until(p));
	return at;
}

void plain_take(const struct curl_waitfd *fds, unsigned nr)
{
	uint64_t now = now_ns();

	/* This loop frees no connection, and new ones are added at the head, so p->next stays
	 * valid. */
	for (struct plain *p = lines; p; p = p->next) {
		unsigned i = 0;
		bool late;

		if (p->dead || p->fd < 0)
			continue;
		while (i < nr && fds[i].fd != p->fd)
			i++;
		if (!p->call) {
			if (i < nr && fds[i].revents)
				plain_close(p); /* the server closed the connection, or sent
						 * bytes that nobody requested */
			continue;
		}
		late = now >= plain_until(p);
		if (late || (i < nr && fds[i].revents))
			plain_step(p);
		if (late && !p->dead && p->call && now >= plain_until(p))
			plain_fail(p, CURLE_OPERATION_TIMEDOUT);
	}
}
