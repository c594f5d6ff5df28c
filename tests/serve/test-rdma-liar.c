/* SPDX-License-Identifier: MIT */
/*
 * The client of the storage service by RDMA against a hostile server, which is a thread of the
 * test.  All lies must end in errors or by another path, touch only the request's memory, and leave
 * nothing behind.  libibverbs is the stub.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "rdma_hostile.h"

enum lie {
	LIE_NONE,
	JOIN_GARBAGE,
	JOIN_ERROR,
	JOIN_SHORT,
	JOIN_NOBODY, /* number of a queue pair that does not exist */
	JOIN_SILENCE,
	JOIN_AND_GO,
	WRONG_ID,
	TWICE,
	TOO_MUCH,
	WRONG_OP,
	SHORT_MESSAGE,
	BY_STREAM,
	BEFORE,  /* write begins before the request's memory */
	BEHIND,  /* write ends after the request's memory */
	LOADS,   /* read where only writing is allowed */
	LATE,    /* write again after the reply */
	STALE,   /* write with the key of an earlier request */
	SILENCE, /* no reply */
	LIES,
};

static struct {
	int listens;
	pthread_t thread;
	atomic_int lie;
	atomic_bool end;
	atomic_uint told, late; /* told: lies; late: attempts after a reply */
	struct wire_rdma_key old;
	pthread_mutex_t lock; /* only one connection at a time uses the device */
} liar = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct liar_conn {
	int fd;
	struct endpoint *ep;
	uint8_t *buf; /* LEN bytes of the file, then a reply */
	struct mem_reg *reg;
};

static bool tell(int fd, const struct wire_request *q, uint16_t op, uint32_t err, uint32_t count,
		 const void *payload, uint32_t len)
{
	struct wire_reply r = {
		.len = WIRE_HEAD + len, .op = op, .id = q->id, .boot = 1, .err = err, .count = count
	};
	uint8_t head[WIRE_HEAD];

	wire_put_reply(&r, head);
	return send_bytes(fd, head, WIRE_HEAD) && send_bytes(fd, payload, len);
}

static bool liar_joins(struct liar_conn *c, const struct wire_request *q, const uint8_t *theirs)
{
	enum lie lie = (enum lie)atomic_load(&liar.lie);
	struct endpoint_opts o = { .send_slots = 8, .recv_slots = 1, .deadline_ms = 1000 };
	uint8_t blob[ENDPOINT_BLOB];
	struct blob b;

	if (lie && lie <= JOIN_AND_GO)
		atomic_fetch_add(&liar.told, 1);
	if (lie == JOIN_SILENCE)
		return true;
	if (lie == JOIN_ERROR)
		return tell(c->fd, q, WIRE_RDMA, EIO, 0, NULL, 0);
	if (c->ep || endpoint_new(own.domain, &o, &c->ep) < 0 ||
	    endpoint_connect(c->ep, theirs, ENDPOINT_BLOB) < 0)
		return false;
	endpoint_blob(c->ep, blob);
	if (lie == JOIN_GARBAGE)
		memset(blob + 8, 0xff, 20);
	if (lie == JOIN_NOBODY && blob_get(blob, sizeof(blob), &b) == 0) {
		b.qpn = 0xabcdef;
		blob_put(&b, blob);
	}
	if (lie == JOIN_SHORT)
		return tell(c->fd, q, WIRE_RDMA, 0, 0, blob, 32);
	return tell(c->fd, q, WIRE_RDMA, 0, 0, blob, sizeof(blob)) && lie != JOIN_AND_GO;
}

static bool posts(struct liar_conn *c, enum endpoint_op op, uint64_t remote, uint32_t rkey,
		  uint64_t local, uint32_t len)
{
	struct endpoint_io io = {
		.op = op,
		.len = len,
		.local = c->reg->addr + local,
		.lkey = c->reg->lkey,
		.remote = remote,
		.rkey = rkey,
	};

	return endpoint_post(c->ep, &io, 1) == 1 && end_wait(c->ep).res >= 0;
}

/* Answer a read.  Return true if the connection continues. */
static bool liar_reads(struct liar_conn *c, const struct wire_request *q,
		       const struct wire_rdma_key *k)
{
	enum lie lie = (enum lie)atomic_load(&liar.lie);
	struct wire_reply r = {
		.len = WIRE_HEAD, .op = q->op, .id = q->id, .boot = 1, .count = q->count
	};
	bool good;

	if (lie > JOIN_AND_GO)
		atomic_fetch_add(&liar.told, 1);
	switch (lie) {
	case SILENCE:
		return true;
	case BEFORE:
		return posts(c, ENDPOINT_WRITE, k->addr - 1, k->rkey, 0, q->count);
	case BEHIND:
		return posts(c, ENDPOINT_WRITE, k->addr + 1, k->rkey, 0, q->count);
	case LOADS:
		return posts(c, ENDPOINT_READ, k->addr, k->rkey, 0, q->count);
	case STALE:
		return posts(c, ENDPOINT_WRITE, liar.old.addr, liar.old.rkey, 0, 64);
	default:
		break;
	}
	liar.old = *k;
	good = posts(c, ENDPOINT_WRITE, k->addr, k->rkey, q->off, q->count);
	r.id ^= lie == WRONG_ID ? 0x5a5a : 0;
	r.count += lie == TOO_MUCH;
	r.op = lie == WRONG_OP ? WIRE_WRITE_RDMA : r.op;
	wire_put_reply(&r, c->buf + LEN);
	if (lie == BY_STREAM)
		return good && send_bytes(c->fd, c->buf + LEN, WIRE_HEAD);
	good = good && posts(c, ENDPOINT_SEND, 0, 0, LEN, WIRE_HEAD - (lie == SHORT_MESSAGE));
	if (lie == TWICE)
		good = good && posts(c, ENDPOINT_SEND, 0, 0, LEN, WIRE_HEAD);
	if (lie == LATE) {
		/* Wait until the program has its completion, which ended the registration. */
		while (!atomic_load(&liar.late) && !atomic_load(&liar.end))
			(void)usleep(100);
		good = posts(c, ENDPOINT_WRITE, k->addr, k->rkey, 0, q->count);
		atomic_store(&liar.late, good ? 3 : 2);
	}
	return good;
}

static bool liar_serves(struct liar_conn *c)
{
	struct wire_attr a = {
		.size = LEN, .dev = 1, .ino = 2, .mode = 0644, .kind = WIRE_KIND_FILE
	};
	struct wire_welcome w = { .version = WIRE_VERSION,
				  .data_max = WIRE_DATA_MAX,
				  .features = WIRE_FEATURE_RDMA,
				  .requests_max = 64,
				  .files_max = 64 };
	uint8_t head[WIRE_HEAD], payload[4096], out[64];
	struct wire_rdma_key k;
	struct wire_request q;

	if (!recv_bytes(c->fd, head, sizeof(head)) || wire_get_request(head, &q) < 0 ||
	    wire_payload(q.len) > sizeof(payload) ||
	    !recv_bytes(c->fd, payload, wire_payload(q.len)))
		return false;
	switch (q.op) {
	case WIRE_HELLO:
		wire_put_welcome(&w, out);
		return tell(c->fd, &q, q.op, 0, 0, out, sizeof(out));
	case WIRE_OPEN:
	case WIRE_STAT:
		wire_put_attr(&a, out);
		return tell(c->fd, &q, q.op, 0, 1, out, sizeof(out));
	case WIRE_READ:
		return q.off + q.count <= LEN &&
		       tell(c->fd, &q, q.op, 0, q.count, c->buf + q.off, q.count);
	case WIRE_RDMA:
		return liar_joins(c, &q, payload);
	case WIRE_READ_RDMA:
		return wire_get_rdma_key(payload, sizeof(out) / 4, q.count, &k) == 0 &&
		       liar_reads(c, &q, &k);
	default:
		return tell(c->fd, &q, q.op, 0, q.count, NULL, 0);
	}
}

static void *liar_client(void *arg)
{
	struct liar_conn c = { .fd = (int)(intptr_t)arg, .buf = aligned_alloc(4096, 2 * LEN) };

	if (c.buf && mr_reg_host(own.domain, c.buf, 2 * LEN, 0, &c.reg) == 0) {
		t_fill((char *)c.buf, SEED, 0, LEN);
		while (liar_serves(&c))
			;
	}
	endpoint_free(c.ep);
	if (c.reg)
		mr_dereg(own.domain, c.reg);
	free(c.buf);
	(void)close(c.fd);
	return NULL;
}

static void *liar_listens(void *arg)
{
	(void)arg;
	for (;;) {
		int fd = accept4(liar.listens, NULL, NULL, SOCK_CLOEXEC);
		pthread_t one;

		if (atomic_load(&liar.end) || fd < 0)
			return NULL;
		if (pthread_create(&one, NULL, liar_client, (void *)(intptr_t)fd) == 0)
			(void)pthread_detach(one);
		else
			(void)close(fd);
	}
}

static enum lie lie_now;

/* Memory around the request's is unchanged, and the bytes arrive by another path if possible. */
static void hostile_server(void)
{
	bool may_serve = lie_now == LIE_NONE || lie_now == TWICE || lie_now == LATE;
	struct pst_mem *m = rig_alloc("host", 3 * LEN);
	char url[800], name[32], *at = pst_mem_ptr(m);
	struct pst_file *f;
	struct pst_done d;
	struct pst_io io;

	/* Use a new name each time: the library remembers failures by name. */
	(void)snprintf(name, sizeof(name), "liar-%d", (int)lie_now);
	T_EQ(symlink("liar", rig_path(name)), 0);
	(void)snprintf(url, sizeof(url), "pst+unix://%s:/data", rig_path(name));
	atomic_store(&liar.lie, LIE_NONE);
	f = rig_open(url, RIG_R);
	if (lie_now == STALE) {
		T_EQ(rig_read(f, m, 0, LEN, LEN).res, LEN);
		T_CHECK(liar.old.rkey);
	}
	atomic_store(&liar.told, 0);
	atomic_store(&liar.late, 0);
	atomic_store(&liar.lie, (int)lie_now);
	memset(at, 0x77, 3 * LEN);
	io = rig_io(PST_OP_READ, f, m, 0, LEN, LEN);
	io.deadline_ns = lie_now == SILENCE ? t_in_ms(200) : 0;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, lie_now == SILENCE ? -ETIMEDOUT : (int64_t)LEN);
	T_EQ(atomic_load(&liar.told) > 0, lie_now != LIE_NONE);
	for (unsigned i = 0; i < LEN; i++)
		T_CHECK(at[i] == 0x77 && at[2 * LEN + i] == 0x77);
	if (d.res > 0)
		T_EQ(t_differs(at + LEN, SEED, 0, LEN), LEN);
	if (!may_serve && lie_now != SILENCE) {
		T_EQ(d.paths, TCP);
		T_EQ(d.why, PST_WHY_NO_RDMA);
	}
	if (may_serve)
		T_CHECK(d.paths & RDMA);
	if (lie_now == LATE) {
		memset(at, 0x78, 3 * LEN);
		atomic_store(&liar.late, 1);
		while (atomic_load(&liar.late) == 1)
			(void)usleep(100);
		T_EQ(atomic_load(&liar.late), 2);
		for (unsigned i = 0; i < 3 * LEN; i++)
			T_EQ(at[i], 0x78);
	}
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	rig_q = pst_queue_free(rig_q);
	nothing_is_left();
}

static void liar_begin(void)
{
	struct sockaddr_un un;

	liar.listens = unix_socket("liar", &un);
	T_CHECK(bind(liar.listens, (struct sockaddr *)&un, sizeof(un)) == 0);
	T_CHECK(listen(liar.listens, 64) == 0);
	T_EQ(pthread_create(&liar.thread, NULL, liar_listens, NULL), 0);
}

static void liar_end(void)
{
	atomic_store(&liar.end, true);
	(void)shutdown(liar.listens, SHUT_RDWR);
	T_EQ(pthread_join(liar.thread, NULL), 0);
	(void)close(liar.listens);
}

/* ----------------------------------------------------------------------- main */

int main(void)
{
	static const char *const names[LIES] = {
		"an_honest_server",
		"join_garbage",
		"join_error",
		"join_short",
		"join_nobody",
		"join_silence",
		"join_and_go",
		"wrong_id",
		"twice",
		"too_much",
		"wrong_op",
		"short_message",
		"by_stream",
		"before",
		"behind",
		"loads",
		"late",
		"stale",
		"silence",
	};

	own_rig();
	liar_begin();
	for (unsigned i = LIE_NONE; i < LIES; i++) {
		lie_now = (enum lie)i;
		rig_backend = rig_best_backend();
		rig_dev = "host";
		rig_last = rig_q;
		rig_q = NULL;
		rig_fn = hostile_server;
		t_run(names[i], rig_case);
	}
	liar_end();
	own_end();
	return rig_done();
}
