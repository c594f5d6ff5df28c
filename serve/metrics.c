/* SPDX-License-Identifier: MIT */
/*
 * Metrics of the server by HTTP (GET /metrics).  A client may send anything or nothing, and may not
 * read the answer.  So each connection gets only a few bytes and a few seconds, and the loop never
 * waits for a connection.
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "serve/server.h"

#define SCRAPE_NS (5 * NSEC_PER_SEC)
#define TYPE "text/plain; version=0.0.4; charset=utf-8"

static const char *const op_names[] = {
	[WIRE_HELLO] = "hello",         [WIRE_OPEN] = "open",
	[WIRE_CLOSE] = "close",         [WIRE_READ] = "read",
	[WIRE_WRITE] = "write",         [WIRE_SYNC] = "sync",
	[WIRE_STAT] = "stat",           [WIRE_LIST] = "list",
	[WIRE_TRUNCATE] = "truncate",   [WIRE_UNLINK] = "unlink",
	[WIRE_RENAME] = "rename",       [WIRE_RDMA] = "rdma",
	[WIRE_READ_RDMA] = "read_rdma", [WIRE_WRITE_RDMA] = "write_rdma",
};

static void metrics_family(FILE *f, const char *name, const char *type, const char *help)
{
	(void)fprintf(f, "# HELP penstock_serve_%s %s\n# TYPE penstock_serve_%s %s\n", name, help,
		      name, type);
}

static void metrics_one(FILE *f, const char *name, const char *type, uint64_t value,
			const char *help)
{
	metrics_family(f, name, type, help);
	(void)fprintf(f, "penstock_serve_%s %" PRIu64 "\n", name, value);
}

static void each_op(FILE *f, const char *name, const uint64_t value[], const char *help)
{
	metrics_family(f, name, "counter", help);
	for (unsigned i = WIRE_HELLO; i <= WIRE_OP_MAX; i++)
		(void)fprintf(f, "penstock_serve_%s{op=\"%s\"} %" PRIu64 "\n", name, op_names[i],
			      value[i]);
}

static void metrics_put_all(FILE *f, struct server *s)
{
	const struct counts *n = &s->counts;

	metrics_family(f, "info", "gauge", "The version that serves.");
	(void)fprintf(f, "penstock_serve_info{version=\"%s\"} 1\n", NET_TLS_VERSION);
	metrics_one(f, "uptime_seconds", "gauge", (now_ns() - s->start_ns) / NSEC_PER_SEC,
		    "Time since the start.");
	metrics_one(f, "connections", "gauge", s->nr_conns, "Connections of clients.");
	metrics_one(f, "connections_total", "counter", n->accepted,
		    "Connections that were accepted.");
	metrics_one(f, "connections_refused_total", "counter", n->refused,
		    "Connections beyond --clients.");
	metrics_one(f, "connections_dropped_total", "counter", n->dropped,
		    "Connections that the server ended; the log says why.");
	metrics_one(f, "handshakes_failed_total", "counter", n->handshakes_failed,
		    "TLS handshakes that ended without a connection.");
	each_op(f, "requests_total", n->op, "Requests that were answered.");
	each_op(f, "errors_total", n->error, "Requests that were answered with an error.");
	metrics_family(f, "bytes_total", "counter", "Bytes of files in answers and in writes.");
	(void)fprintf(f,
		      "penstock_serve_bytes_total{direction=\"read\"} %" PRIu64 "\n"
		      "penstock_serve_bytes_total{direction=\"write\"} %" PRIu64 "\n",
		      n->bytes_read, n->bytes_written);
	metrics_one(f, "slowed_total", "counter", n->slowed,
		    "Times that a connection had to wait because of --rate.");
	metrics_one(f, "shared_bytes", "gauge", s->shared,
		    "Memory for payloads that is in use, of --memory.");
	metrics_one(f, "lost_writes_total", "counter", atomic_load(&s->nr_boots),
		    "Files whose written bytes the kernel could not write back.");
	metrics_one(f, "rdma_connections", "gauge", s->nr_rdma,
		    "Connections that have a queue pair.");
	metrics_one(f, "rdma_refused_total", "counter", n->rdma_refused,
		    "Connections that got no queue pair.");
	metrics_one(f, "rdma_failed_total", "counter", n->rdma_failed,
		    "Connections that ended because their queue pair failed.");
	metrics_family(f, "rdma_operations_total", "counter",
		       "Operations that the RDMA device was given.");
	(void)fprintf(f,
		      "penstock_serve_rdma_operations_total{op=\"write\"} %" PRIu64 "\n"
		      "penstock_serve_rdma_operations_total{op=\"read\"} %" PRIu64 "\n"
		      "penstock_serve_rdma_operations_total{op=\"send\"} %" PRIu64 "\n",
		      n->rdma_writes, n->rdma_reads, n->rdma_sends);
	metrics_one(f, "scrapes_total", "counter", n->scrapes,
		    "Connections that asked for numbers.");
}

char *serve_metrics_text(struct server *s, size_t *ret_len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, ret_len);
	bool bad;

	if (!f)
		return NULL;
	metrics_put_all(f, s);
	if (s->o.store)
		s->o.store->metrics(s->o.store->arg, f);
	bad = ferror(f);
	if (fclose(f) == 0 && !bad)
		return text;
	free(text);
	return NULL;
}

/* ------------------------------------------------------------------ scrapes */

void scrape_close(struct server *s, struct scrape *sc)
{
	(void)s;
	closep(&sc->fd);
	free(sc->out);
	*sc = (struct scrape){ .fd = -1 };
}

void scrape_accept(struct server *s)
{
	int fd = accept4(s->metrics_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct scrape *sc = &s->scrapes[0];
	struct epoll_event ev = { .events = EPOLLIN };

	if (fd < 0) {
		server_accept_failed(s);
		return;
	}
	/* Use a free slot, or drop the oldest connection. */
	for (unsigned i = 0; i < SCRAPES; i++)
		if (s->scrapes[i].until_ns < sc->until_ns)
			sc = &s->scrapes[i];
	if (sc->fd >= 0)
		scrape_close(s, sc);
	s->counts.scrapes++;
	ev.data.ptr = sc;
	sc->fd = fd;
	sc->until_ns = about_now_ns() + SCRAPE_NS;
	if (epoll_ctl(s->epfd, EPOLL_CTL_ADD, fd, &ev) < 0)
		scrape_close(s, sc);
}

static void metrics_answer(struct server *s, struct scrape *sc, int status, bool head_only)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT, .data.ptr = sc };
	char head[256], *text = NULL;
	size_t len = 0, n;

	if (status == HTTP_OK) {
		text = serve_metrics_text(s, &len);
		status = text ? HTTP_OK : HTTP_ERROR;
	}
	n = (size_t)snprintf(head, sizeof(head),
			     "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
			     "%sConnection: close\r\n\r\n",
			     status, http_reason(status), status == HTTP_OK ? TYPE : "text/plain",
			     len, status == HTTP_METHOD ? "Allow: GET, HEAD\r\n" : "");
	if (head_only)
		len = 0;
	sc->out = malloc(n + len);
	if (sc->out) {
		memcpy(sc->out, head, n);
		if (len)
			memcpy(sc->out + n, text, len);
		sc->len = n + len;
		(void)epoll_ctl(s->epfd, EPOLL_CTL_MOD, sc->fd, &ev);
	}
	free(text);
}

/* Receive the request.  Return false if the socket must be closed. */
static bool take_request(struct server *s, struct scrape *sc)
{
	ssize_t n = recv(sc->fd, sc->in + sc->have, sizeof(sc->in) - sc->have, MSG_DONTWAIT);
	bool head = false;
	int status;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	sc->have += (size_t)n;
	status = http_parse(sc->in, sc->have, &head);
	if (status == HTTP_MORE)
		return true;
	metrics_answer(s, sc, status, head);
	return sc->out;
}

/* Send the answer, and then wait until the client closes. */
static bool send_answer(struct server *s, struct scrape *sc)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = sc };
	ssize_t got;

	while (sc->at < sc->len) {
		ssize_t n = send(sc->fd, sc->out + sc->at, sc->len - sc->at,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		sc->at += (size_t)n;
		if (sc->at == sc->len) {
			(void)shutdown(sc->fd, SHUT_WR);
			(void)epoll_ctl(s->epfd, EPOLL_CTL_MOD, sc->fd, &ev);
		}
	}
	/* Keep reading: unread bytes would reset the connection before the answer arrives. */
	got = recv(sc->fd, sc->in, sizeof(sc->in), MSG_DONTWAIT);
	return got > 0 || (got < 0 && errno == EAGAIN);
}

void scrape_turn(struct server *s, struct scrape *sc)
{
	bool stays = sc->fd >= 0;

	if (stays && !sc->out)
		stays = take_request(s, sc);
	if (stays && sc->out)
		stays = send_answer(s, sc);
	if (sc->fd >= 0 && (!stays || about_now_ns() > sc->until_ns))
		scrape_close(s, sc);
}
