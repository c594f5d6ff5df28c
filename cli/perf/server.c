/* SPDX-License-Identifier: MIT */
/* The server of penstock perf: one thread per client, which serves its requests. */
#include "cli/perf/perf.h"

#include <endian.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tools/common/pattern.h"

#define CLIENTS_MAX 64u
#define CHUNK MIB(1)
#define LOOK_NS (NSEC_PER_SEC / 5) /* ns; longest time until a signal is noticed */
#define END_NS (2 * NSEC_PER_SEC)  /* ns that clients have to end after a signal */

struct client {
	struct pst_peer *peer;
	const char *device;
	struct pst_mem *mem;
	uint64_t len; /* bytes of mem */
	struct pst_share *share;
};

static atomic_uint nr_clients;
static atomic_ullong nr_bytes; /* bytes of all clients' memory */

/* Fill the memory with the pattern, or check it against the pattern. */
static int server_pattern(struct client *c, bool check, uint64_t seed, uint64_t len, bool *ret_same)
{
	_cleanup_(freep) char *buf = malloc(CHUNK);
	int r = buf ? 0 : -ENOMEM;

	*ret_same = true;
	for (uint64_t at = 0; at < len && r == 0; at += CHUNK) {
		uint64_t n = MIN(CHUNK, len - at);

		if (!check) {
			pattern_fill(buf, seed, at, n);
			r = pst_mem_copy_in(c->mem, at, buf, n);
			continue;
		}
		r = pst_mem_copy_out(c->mem, at, buf, n);
		if (r == 0 && pattern_differs(buf, seed, at, n) < n)
			*ret_same = false;
	}
	return r;
}

static int close_share(struct client *c)
{
	int r = c->share ? pst_share_close(c->share, perf_deadline()) : 0;

	if (r == 0)
		c->share = NULL;
	return r;
}

static void free_memory(struct client *c)
{
	c->mem = pst_mem_free(c->mem);
	atomic_fetch_sub(&nr_bytes, c->len);
	c->len = 0;
}

/* Allocate memory for depth pieces of the requested size. */
static int server_prepare(struct client *c, const struct perf_ask *q)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_SHARED };
	uint64_t len;
	int r;

	if (!q->size || !q->depth || q->depth > PERF_DEPTH_MAX || !q->iters ||
	    q->iters > PERF_ITERS_MAX || q->size > PERF_BYTES_MAX / q->depth)
		return fail(EINVAL, "the server has at most %" PRIu64 " bytes for its clients",
			    PERF_BYTES_MAX);
	r = close_share(c);
	if (r < 0)
		return fail_pst(r, "share");
	free_memory(c);
	len = q->size * q->depth;
	if (atomic_fetch_add(&nr_bytes, len) > PERF_BYTES_MAX - len) {
		atomic_fetch_sub(&nr_bytes, len);
		return fail(ENOMEM, "the server has at most %" PRIu64 " bytes for its clients",
			    PERF_BYTES_MAX);
	}
	r = pst_mem_alloc(c->device, len, &o, &c->mem);
	if (r < 0) {
		atomic_fetch_sub(&nr_bytes, len);
		return fail_pst(r, c->device);
	}
	c->len = len;
	return 0;
}

static int server_share(struct client *c, const struct perf_ask *q, struct perf_answer *a)
{
	bool same;
	int r = server_prepare(c, q);

	if (r == 0)
		r = server_pattern(c, false, PERF_SEED, c->len, &same);
	if (r == 0)
		r = pst_peer_share(c->peer, c->mem, 0, c->len,
				   q->op == PERF_PUT ? PST_RIGHT_WRITE : PST_RIGHT_READ,
				   q->grant ? PST_SHARE_GRANT : 0, &c->share);
	if (r == 0)
		r = pst_share_pack(c->share, a->key, sizeof(a->key));
	if (r < 0)
		return fail_pst(r, "the server's memory");
	a->key_len = htole64((uint64_t)r);
	return 0;
}

static int server_answer(struct client *c, struct perf_answer *a, int err)
{
	a->magic = htole64(PERF_MAGIC);
	a->err = (int64_t)htole64((uint64_t)(err < 0 ? -err : 0));
	if (err < 0)
		(void)snprintf(a->text, sizeof(a->text), "%s", fail_text());
	return pst_peer_send(c->peer, NULL, (uintptr_t)a, sizeof(*a), 0, perf_deadline());
}

static int server_receive(struct client *c, const struct perf_ask *q)
{
	uint64_t until = perf_deadline();
	int64_t n;

	do
		n = pst_peer_next(c->peer, now_ns() + LOOK_NS);
	while (n == -ETIMEDOUT && now_ns() < until && !stop_signal);
	if (n >= 0)
		n = pst_peer_recv(c->peer, c->mem, 0, c->len, until);
	if (n < 0)
		return (int)n;
	return (uint64_t)n == q->size ? 0 : -EBADMSG;
}

/* Tell the client that messages may begin, then exchange them. */
static int server_messages(struct client *c, const struct perf_ask *q)
{
	uint32_t flags = q->grant ? PST_SHARE_GRANT : 0;
	int r = 0;

	for (uint64_t i = 0; i < q->iters && r == 0 && !stop_signal; i++) {
		if (q->op != PERF_RECV)
			r = server_receive(c, q);
		if (r == 0 && q->op != PERF_SEND)
			r = pst_peer_send(c->peer, c->mem, 0, q->size, flags, perf_deadline());
	}
	return r;
}

static int server_act(struct client *c, const struct perf_ask *q)
{
	struct perf_answer a = { 0 };
	bool same;
	int r;

	switch (q->op) {
	case PERF_PUT:
	case PERF_GET:
		return server_answer(c, &a, server_share(c, q, &a));
	case PERF_SEND:
	case PERF_RECV:
	case PERF_PINGPONG:
		r = server_prepare(c, q);
		if (r == 0)
			r = server_pattern(c, false, PERF_SEED, q->size, &same);
		if (server_answer(c, &a, r) < 0 || r < 0)
			return r;
		return server_messages(c, q);
	case PERF_CHECK:
		r = q->size <= c->len ? server_pattern(c, true, PERF_SEED + 1, q->size, &same)
				      : fail(EINVAL, "there are not so many bytes");
		if (r == 0 && !same)
			r = fail(EIO, "the bytes in the server's memory are wrong");
		return server_answer(c, &a, r);
	default:
		return server_answer(c, &a, fail(EINVAL, "the server does not know what is asked"));
	}
}

static void *serve_client(void *arg)
{
	struct client *c = arg;
	int r = 0;

	while (r >= 0 && !stop_signal) {
		struct perf_ask q;
		int64_t n = pst_peer_recv(c->peer, NULL, (uintptr_t)&q, sizeof(q),
					  now_ns() + LOOK_NS);

		if (n == -ETIMEDOUT)
			continue;
		if (n != sizeof(q) || le64toh(q.magic) != PERF_MAGIC)
			break;
		q.op = le64toh(q.op);
		q.size = le64toh(q.size);
		q.iters = le64toh(q.iters);
		q.depth = le64toh(q.depth);
		r = server_act(c, &q);
	}
	(void)pst_peer_close(c->peer);
	/* If a client does not release the memory, keep counting its bytes. */
	if (close_share(c) == 0)
		free_memory(c);
	free(c);
	atomic_fetch_sub(&nr_clients, 1);
	return NULL;
}

static void begin_client(struct pst_peer *peer, const char *device)
{
	struct client *c = calloc(1, sizeof(*c));
	pthread_t thread;

	if (c && atomic_load(&nr_clients) < CLIENTS_MAX) {
		*c = (struct client){ .peer = peer, .device = device };
		atomic_fetch_add(&nr_clients, 1);
		if (pthread_create(&thread, NULL, serve_client, c) == 0) {
			(void)pthread_detach(thread);
			return;
		}
		atomic_fetch_sub(&nr_clients, 1);
	}
	say("a client is refused: there are %u", atomic_load(&nr_clients));
	free(c);
	(void)pst_peer_close(peer);
}

int perf_serve(const char *addr, const struct pst_peer_opts *o, const char *device)
{
	struct pst_listener *l;
	char text[256];
	uint64_t until;
	int r;

	signals_catch();
	r = pst_listener_open(addr, o, &l);
	if (r < 0)
		return fail_pst(r, "listen");
	say("listening on %s", pst_listener_address(l, text, sizeof(text)));
	while (!stop_signal) {
		struct timespec ts = { .tv_nsec = 100000000 };
		struct pst_peer *peer;

		r = pst_listener_accept(l, now_ns() + LOOK_NS, &peer);
		if (r == 0)
			begin_client(peer, device);
		else if (r != -ETIMEDOUT)
			(void)nanosleep(&ts, NULL);
	}
	(void)pst_listener_close(l);
	until = now_ns() + END_NS;
	while (atomic_load(&nr_clients) && now_ns() < until) {
		struct timespec ts = { .tv_nsec = 1000000 };

		(void)nanosleep(&ts, NULL);
	}
	/* A stopped client may block its thread for ever, so do not wait. */
	if (atomic_load(&nr_clients)) {
		say("%u clients do not end, and are disconnected", atomic_load(&nr_clients));
		(void)fflush(NULL);
		_exit(0);
	}
	return 0;
}
