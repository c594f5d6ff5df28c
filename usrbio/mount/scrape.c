/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/scrape.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "net/http.h"
#include "usrbio/mount/listen.h"
#include "usrbio/mount/metrics.h"

#define CLIENTS 8u
#define ASK_NS (5 * NSEC_PER_SEC)   /* time within which a request must arrive */
#define TAKE_NS (10 * NSEC_PER_SEC) /* time within which the client must read the answer */
#define LEAVE_NS NSEC_PER_SEC       /* time within which the client must close the socket */
#define HEAD_LEN 256u
#define POLL_MS 1000

enum state { IS_FREE, ASKS, TAKES, LEAVES };

struct client {
	enum state state;
	int fd;
	uint64_t since, until;
	char in[HTTP_MAX];
	size_t have;
	char *out;
	size_t len, at;
};

struct scrape {
	struct fs *fs;
	struct listen at;
	int stop;
	pthread_t thread;
	struct client clients[CLIENTS];
};

static void hang_up(struct client *c)
{
	closep(&c->fd);
	free(c->out);
	*c = (struct client){ .fd = -1 };
}

/* ------------------------------------------------------------------ answers */

static void scrape_answer(struct scrape *s, struct client *c, int status, bool head_only)
{
	_cleanup_(freep) char *text = NULL;
	char head[HEAD_LEN];
	size_t len = 0, n;

	if (status == HTTP_OK && metrics_text(s->fs, &text, &len) < 0)
		status = HTTP_ERROR;
	n = (size_t)snprintf(head, sizeof(head),
			     "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
			     "%sConnection: close\r\n\r\n",
			     status, http_reason(status),
			     status == HTTP_OK ? METRICS_TYPE : "text/plain", len,
			     status == HTTP_METHOD ? "Allow: GET, HEAD\r\n" : "");
	if (head_only)
		len = 0;
	c->out = malloc(n + len);
	if (!c->out) {
		hang_up(c);
		return;
	}
	memcpy(c->out, head, n);
	if (len)
		memcpy(c->out + n, text, len);
	c->len = n + len;
	c->state = TAKES;
	c->until = now_ns() + TAKE_NS;
}

static void scrape_hear(struct scrape *s, struct client *c)
{
	ssize_t n = recv(c->fd, c->in + c->have, sizeof(c->in) - c->have, MSG_DONTWAIT);
	bool head = false;
	int status;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hang_up(c);
		return;
	}
	c->have += (size_t)n;
	status = http_parse(c->in, c->have, &head);
	if (status != HTTP_MORE)
		scrape_answer(s, c, status, head);
}

static void scrape_tell(struct client *c)
{
	ssize_t n = send(c->fd, c->out + c->at, c->len - c->at, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hang_up(c);
		return;
	}
	c->at += (size_t)n;
	if (c->at < c->len)
		return;
	/* Read the rest of the client's bytes: otherwise the client would get a reset instead of
	 * the answer. */
	(void)shutdown(c->fd, SHUT_WR);
	c->state = LEAVES;
	c->until = now_ns() + LEAVE_NS;
}

static void scrape_leave(struct client *c)
{
	ssize_t n = recv(c->fd, c->in, sizeof(c->in), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		hang_up(c);
}

/* ------------------------------------------------------------------ clients */

/* Return a free place, or that of the oldest client. */
static struct client *scrape_make_room(struct scrape *s)
{
	struct client *c = &s->clients[0];

	for (unsigned i = 0; i < CLIENTS; i++) {
		if (s->clients[i].state == IS_FREE)
			return &s->clients[i];
		if (s->clients[i].since < c->since)
			c = &s->clients[i];
	}
	count_add(&counts.turned_away, 1);
	hang_up(c);
	return c;
}

static void scrape_welcome(struct scrape *s)
{
	int fd = accept4(s->at.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *c;

	if (fd < 0) {
		/* Pause: without free descriptors the socket stays readable, and accept(2) fails
		 * again. */
		if (errno == EMFILE || errno == ENFILE)
			(void)usleep(POLL_MS * 10);
		return;
	}
	count_add(&counts.clients, 1);
	c = scrape_make_room(s);
	c->state = ASKS;
	c->fd = fd;
	c->since = now_ns();
	c->until = c->since + ASK_NS;
}

/* Drop clients whose time is over. */
static void expire(struct scrape *s)
{
	uint64_t now = now_ns();

	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &s->clients[i];

		if (c->state == IS_FREE || now < c->until)
			continue;
		if (c->state != LEAVES)
			count_add(&counts.cut_off, 1);
		if (c->state == ASKS)
			scrape_answer(s, c, HTTP_TIMEOUT, false);
		else
			hang_up(c);
	}
}

static void scrape_serve(struct scrape *s, struct client *c, short events)
{
	if (!events)
		return;
	switch (c->state) {
	case ASKS:
		scrape_hear(s, c);
		break;
	case TAKES:
		scrape_tell(c);
		break;
	case LEAVES:
		scrape_leave(c);
		break;
	case IS_FREE:
		break;
	}
}

/* Without clients there is no time limit, and nothing wakes the thread. */
static int poll_ms(const struct scrape *s)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (s->clients[i].state != IS_FREE)
			return POLL_MS;
	return -1;
}

static void *scrape_run(void *arg)
{
	struct pollfd p[CLIENTS + 2];
	struct scrape *s = arg;

	for (;;) {
		p[CLIENTS] = (struct pollfd){ .fd = s->at.fd, .events = POLLIN };
		p[CLIENTS + 1] = (struct pollfd){ .fd = s->stop, .events = POLLIN };
		for (unsigned i = 0; i < CLIENTS; i++)
			p[i] = (struct pollfd){
				.fd = s->clients[i].fd,
				.events = s->clients[i].state == TAKES ? POLLOUT : POLLIN,
			};
		if (poll(p, ARRAY_SIZE(p), poll_ms(s)) < 0)
			continue;
		if (p[CLIENTS + 1].revents)
			return NULL;
		for (unsigned i = 0; i < CLIENTS; i++)
			scrape_serve(s, &s->clients[i], p[i].revents);
		expire(s);
		if (p[CLIENTS].revents)
			scrape_welcome(s);
	}
}

/* --------------------------------------------------------------------- life */

/* Start the thread with all signals blocked: they are for libfuse's threads. */
static int scrape_start_thread(struct scrape *s)
{
	sigset_t all, was;
	int err;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &was);
	err = pthread_create(&s->thread, NULL, scrape_run, s);
	(void)pthread_sigmask(SIG_SETMASK, &was, NULL);
	return -err;
}

int scrape_start(struct fs *fs, const char *path, struct scrape **ret)
{
	struct scrape *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->fs = fs;
	for (unsigned i = 0; i < CLIENTS; i++)
		s->clients[i].fd = -1;
	s->stop = eventfd(0, EFD_CLOEXEC);
	err = s->stop < 0 ? -errno : listen_open(&s->at, path, fs->opts->dir);
	if (err < 0) {
		closep(&s->stop);
		free(s);
		return err;
	}
	err = scrape_start_thread(s);
	if (err < 0) {
		listen_close(&s->at);
		closep(&s->stop);
		free(s);
		return err;
	}
	*ret = s;
	return 0;
}

const char *scrape_path(const struct scrape *s)
{
	return s->at.path;
}

void scrape_stop(struct scrape *s)
{
	if (!s)
		return;
	(void)eventfd_write(s->stop, 1);
	(void)pthread_join(s->thread, NULL);
	for (unsigned i = 0; i < CLIENTS; i++)
		if (s->clients[i].state != IS_FREE)
			hang_up(&s->clients[i]);
	listen_close(&s->at);
	closep(&s->stop);
	free(s);
}
