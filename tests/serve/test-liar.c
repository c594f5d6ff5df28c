/* SPDX-License-Identifier: MIT */
/*
 * The client against a server that breaks the protocol.  Requests must end in an error, and no
 * memory outside of the requests may be touched.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "rig.h"

#include "net/wire.h"

#define LEN RIG_MIB(2)
#define SEED 7
#define SOON_MS 300 /* deadline of requests that cannot succeed, ms */

/* Ways to break the protocol at a request on a file. */
enum lie {
	LIE_NONE,
	READ_IS_WRITTEN, /* answer a READ as a WRITE, without bytes */
	READ_IS_SYNCED,  /* answer a READ as a SYNC */
	WRITE_IS_READ,   /* answer a WRITE with bytes, for the memory being written */
	WRITE_IS_SYNCED, /* answer a WRITE as a SYNC */
	SYNC_IS_WRITTEN, /* answer a SYNC as a WRITE */
	EARLY_ERROR,     /* answer a WRITE with an error before taking its bytes */
	EARLY_SUCCESS,   /* answer a WRITE with success before taking its bytes */
	TWICE,           /* repeat an answer */
	NEVER_ASKED,     /* answer an id that no request has */
	TOO_MANY,        /* send more bytes than requested */
	BAD_HEADER,      /* send a wrong checksum of the header */
	HALF_HEADER,     /* end the connection within a header */
	HALF_PAYLOAD,    /* end the connection within a payload */
	LIES,
};

static struct {
	int listens, port;
	pthread_t thread;
	atomic_int lie;
	atomic_bool end;
	atomic_uint told; /* number of lies told */
	char data[LEN];
} liar;

/* ------------------------------------------------------------------- the server */

static bool send_bytes(int fd, const void *buf, size_t len)
{
	for (const char *at = buf; len;) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

static bool recv_bytes(int fd, void *buf, size_t len)
{
	return !len || recv(fd, buf, len, MSG_WAITALL) == (ssize_t)len;
}

static bool reply(int fd, const struct wire_request *q, uint16_t op, uint32_t err, uint32_t count,
		  const void *payload, uint32_t len)
{
	struct wire_reply r = {
		.len = WIRE_HEAD + len, .op = op, .id = q->id, .boot = 1, .err = err, .count = count
	};
	uint8_t head[WIRE_HEAD];

	wire_put_reply(&r, head);
	return send_bytes(fd, head, WIRE_HEAD) && send_bytes(fd, payload, len);
}

static bool greet(int fd, const struct wire_request *q)
{
	struct wire_welcome w = { .version = WIRE_VERSION,
				  .data_max = WIRE_DATA_MAX,
				  .requests_max = 64,
				  .files_max = 64 };
	uint8_t payload[WIRE_HELLO_LEN];

	wire_put_welcome(&w, payload);
	return reply(fd, q, WIRE_HELLO, 0, 0, payload, sizeof(payload));
}

static bool tell_attr(int fd, const struct wire_request *q)
{
	struct wire_attr a = {
		.size = LEN, .dev = 1, .ino = 2, .mode = 0644, .kind = WIRE_KIND_FILE
	};
	uint8_t payload[WIRE_ATTR_LEN];

	wire_put_attr(&a, payload);
	return reply(fd, q, q->op, 0, 1, payload, sizeof(payload));
}

/* Answer as the protocol requires. */
static bool honest(int fd, const struct wire_request *q)
{
	if (q->op != WIRE_READ)
		return reply(fd, q, q->op, 0, q->count, NULL, 0);
	return q->off + q->count <= LEN &&
	       reply(fd, q, WIRE_READ, 0, q->count, liar.data + q->off, q->count);
}

/* Break the protocol.  Return true if the connection may continue. */
static bool lies(int fd, const struct wire_request *q, enum lie lie)
{
	static const char bytes[WIRE_DATA_MAX]; /* zeros, which no pattern has */
	struct wire_request other = *q;
	uint8_t head[WIRE_HEAD] = { 0 };

	atomic_fetch_add(&liar.told, 1);
	switch (lie) {
	case READ_IS_WRITTEN:
	case SYNC_IS_WRITTEN:
		return reply(fd, q, WIRE_WRITE, 0, q->count ? q->count : 1, NULL, 0);
	case READ_IS_SYNCED:
	case WRITE_IS_SYNCED:
		return reply(fd, q, WIRE_SYNC, 0, q->count, NULL, 0);
	case WRITE_IS_READ:
		return reply(fd, q, WIRE_READ, 0, q->count, bytes, q->count);
	case EARLY_ERROR:
		return reply(fd, q, WIRE_WRITE, ENOSPC, 0, NULL, 0);
	case EARLY_SUCCESS:
		return reply(fd, q, WIRE_WRITE, 0, q->count, NULL, 0);
	case TWICE:
		return honest(fd, q) && honest(fd, q);
	case NEVER_ASKED:
		other.id ^= 0x5a5a;
		return honest(fd, &other);
	case TOO_MANY:
		return reply(fd, q, WIRE_READ, 0, WIRE_DATA_MAX, bytes, WIRE_DATA_MAX);
	case BAD_HEADER:
		return send_bytes(fd, head, sizeof(head));
	case HALF_HEADER:
		(void)send_bytes(fd, head, 7);
		return false;
	case HALF_PAYLOAD:
		wire_put_reply(&(struct wire_reply){ .len = WIRE_HEAD + q->count,
						     .op = WIRE_READ,
						     .id = q->id,
						     .boot = 1,
						     .count = q->count },
			       head);
		(void)send_bytes(fd, head, WIRE_HEAD);
		(void)send_bytes(fd, liar.data, 100);
		return false;
	default:
		return honest(fd, q);
	}
}

static bool is_about_files(const struct wire_request *q)
{
	return q->op == WIRE_READ || q->op == WIRE_WRITE || q->op == WIRE_SYNC;
}

/* Handle one message of the client.  Return false if the connection ends. */
static bool serve_one(int fd)
{
	static _Thread_local char payload[WIRE_DATA_MAX];
	struct wire_request q;
	uint8_t head[WIRE_HEAD];
	enum lie lie;
	bool early;

	if (!recv_bytes(fd, head, WIRE_HEAD) || wire_get_request(head, &q) < 0)
		return false;
	lie = (enum lie)atomic_load(&liar.lie);
	early = lie == EARLY_ERROR || lie == EARLY_SUCCESS;
	if (early && q.op == WIRE_WRITE && !lies(fd, &q, lie))
		return false;
	/* With buffers this small, most of the payload is not sent yet. */
	if (early && q.op == WIRE_WRITE)
		(void)usleep(20000);
	if (!recv_bytes(fd, payload, wire_payload(q.len)))
		return false;
	if (early && q.op == WIRE_WRITE)
		return true;
	if (q.op == WIRE_HELLO)
		return greet(fd, &q);
	if (q.op == WIRE_OPEN || q.op == WIRE_STAT)
		return tell_attr(fd, &q);
	return lie && is_about_files(&q) ? lies(fd, &q, lie) : honest(fd, &q);
}

static void *serve_client(void *arg)
{
	int fd = (int)(intptr_t)arg;

	while (serve_one(fd))
		;
	(void)close(fd);
	return NULL;
}

static void *serve(void *arg)
{
	(void)arg;
	for (;;) {
		int fd = accept4(liar.listens, NULL, NULL, SOCK_CLOEXEC);
		pthread_t one;

		if (atomic_load(&liar.end) || fd < 0)
			return NULL;
		/* The client uses one connection at a time. */
		if (pthread_create(&one, NULL, serve_client, (void *)(intptr_t)fd) == 0)
			(void)pthread_detach(one);
		else
			(void)close(fd);
	}
}

static void liar_start(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(in);
	int small = 4096;

	t_fill(liar.data, SEED, 0, LEN);
	liar.listens = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	T_CHECK(liar.listens >= 0);
	(void)setsockopt(liar.listens, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	T_CHECK(bind(liar.listens, (struct sockaddr *)&in, sizeof(in)) == 0);
	T_CHECK(getsockname(liar.listens, (struct sockaddr *)&in, &len) == 0);
	T_CHECK(listen(liar.listens, 64) == 0);
	liar.port = ntohs(in.sin_port);
	T_EQ(pthread_create(&liar.thread, NULL, serve, NULL), 0);
}

static void liar_end(void)
{
	atomic_store(&liar.end, true);
	(void)shutdown(liar.listens, SHUT_RDWR);
	T_EQ(pthread_join(liar.thread, NULL), 0);
	(void)close(liar.listens);
}

static void liar_tells(enum lie lie)
{
	atomic_store(&liar.told, 0);
	atomic_store(&liar.lie, (int)lie);
}

static struct pst_file *open_there(uint32_t flags)
{
	char name[100];

	(void)snprintf(name, sizeof(name), "pst://127.0.0.1:%d/file", liar.port);
	return rig_open(name, flags);
}

/* ----------------------------------------------------------------------- cases */

static int64_t result_in(unsigned ms, uint32_t op, struct pst_file *f, struct pst_mem *m)
{
	struct pst_io io = rig_io(op, f, m, 0, 0, RIG_MIB(1) / 2);

	if (op == PST_OP_SYNC)
		io = (struct pst_io){ .op = op, .file = f };
	io.deadline_ns = t_in_ms(ms);
	return rig_do(rig_q, &io).res;
}

/* Execute a request, again if its deadline passed before the server lied, as on a busy machine. */
static int64_t result_of(uint32_t op, struct pst_file *f, struct pst_mem *m)
{
	int64_t res;

	for (unsigned ms = SOON_MS; ms < RIG_WAIT_MS; ms *= 2) {
		res = result_in(ms, op, f, m);
		if (atomic_load(&liar.told) > 0)
			return res;
		T_EQ(res, -ETIMEDOUT);
		T_OK(pst_file_drain(f, t_in_ms(RIG_WAIT_MS)));
	}
	T_FAIL("no lie was told");
}

static void believed_never(const enum lie *which, unsigned nr, uint32_t op)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);

	for (unsigned i = 0; i < nr; i++) {
		struct pst_file *f;

		liar_tells(LIE_NONE);
		f = open_there(RIG_RW);
		rig_mem_fill(m, 0, LEN, SEED + 1, 0);
		liar_tells(which[i]);
		/* The kernel may have accepted all bytes of a write that is answered too early. */
		if (result_of(op, f, m) >= 0 && which[i] != EARLY_SUCCESS)
			T_FAIL("lie %d is believed", which[i]);
		/* The source of a write, and memory outside of a read, are unchanged. */
		if (op != PST_OP_READ)
			T_EQ(rig_mem_differs(m, 0, LEN, SEED + 1, 0), LEN);
		T_EQ(rig_mem_differs(m, RIG_MIB(1), RIG_MIB(1), SEED + 1, RIG_MIB(1)), RIG_MIB(1));
		/* The same queue works with an honest server. */
		liar_tells(LIE_NONE);
		T_OK(pst_file_drain(f, t_in_ms(RIG_WAIT_MS)));
		T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
		if (rig_mem_differs(m, 0, LEN, SEED, 0) != LEN)
			T_FAIL("wrong bytes after lie %d", which[i]);
		pst_file_close(f);
	}
	pst_mem_free(m);
}

static void no_lie_about_reads_is_believed(void)
{
	static const enum lie of[] = { READ_IS_WRITTEN, READ_IS_SYNCED, NEVER_ASKED, TOO_MANY,
				       BAD_HEADER,      HALF_HEADER,    HALF_PAYLOAD };

	believed_never(of, RIG_NR(of), PST_OP_READ);
}

static void no_lie_about_writes_is_believed(void)
{
	static const enum lie of[] = { WRITE_IS_READ, WRITE_IS_SYNCED, EARLY_ERROR, EARLY_SUCCESS,
				       NEVER_ASKED,   BAD_HEADER,      HALF_HEADER };

	believed_never(of, RIG_NR(of), PST_OP_WRITE);
}

static void no_lie_about_syncs_is_believed(void)
{
	static const enum lie of[] = { SYNC_IS_WRITTEN, NEVER_ASKED, BAD_HEADER, HALF_HEADER };

	believed_never(of, RIG_NR(of), PST_OP_SYNC);
}

/* The first answer counts; the second one ends the connection. */
static void answers_come_once(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;

	liar_tells(LIE_NONE);
	f = open_there(RIG_RW);
	liar_tells(TWICE);
	for (unsigned i = 0; i < 20; i++) {
		rig_mem_fill(m, 0, LEN, SEED + 1, 0);
		T_EQ(rig_read(f, m, 8192, 0, 4096).res, 4096);
		T_EQ(rig_mem_differs(m, 0, 4096, SEED, 8192), 4096);
		T_EQ(rig_mem_differs(m, 4096, 4096, SEED + 1, 4096), 4096);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

int main(void)
{
	rig_init();
	liar_start();
	RIG_RUN(no_lie_about_reads_is_believed);
	RIG_RUN(no_lie_about_writes_is_believed);
	RIG_RUN(no_lie_about_syncs_is_believed);
	RIG_RUN(answers_come_once);
	liar_end();
	return rig_done();
}
