/* SPDX-License-Identifier: MIT */
/*
 * Endpoints: reads and writes between two processes, compared with a model; messages; ends of a
 * connection; and leaks after each failure.  Runs on the libibverbs stub or on a device.
 */
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "verbs_rig.h"

#include "base/crc32c.h"
#include "net/verbs/blob.h"

#define LEN 262144u
#define OPS 10000u
#define BATCH 16u
#define OP_MAX 8192u

/* -------------------------------------------------------------- two processes */

/* What the server sends to the client. */
struct offer {
	uint8_t blob[ENDPOINT_BLOB];
	uint64_t addr;
	uint32_t rkey, pid;
};

static void talk(int sock, const void *out, size_t out_len, void *in, size_t in_len)
{
	T_EQ(send(sock, out, out_len, 0), (ssize_t)out_len);
	T_EQ(recv(sock, in, in_len, MSG_WAITALL), (ssize_t)in_len);
}

/* Sleep until the endpoint has a completion, at most a minute. */
static void sleep_for(struct endpoint *ep, struct endpoint_done *ret)
{
	struct pollfd p = { .fd = endpoint_fd(ep), .events = POLLIN };
	int n;

	for (;;) {
		T_OK(endpoint_arm(ep));
		n = endpoint_poll(ep, ret, 1);
		T_CHECK(n >= 0);
		if (n == 1)
			return;
		T_EQ(poll(&p, 1, 60000), 1);
	}
}

/* Offer memory, wait for the client's last message, and send the checksum of the memory. */
static void serve(int sock)
{
	struct reg_user use = { 0 };
	struct endpoint_opts o = { .events = true };
	struct mem_reg *note;
	struct pst_mem *mem;
	struct endpoint *ep;
	struct offer own = { 0 };
	uint8_t peer[ENDPOINT_BLOB];
	struct endpoint_done d;
	uint32_t box[2] = { 0 };

	rig_open();
	T_OK(pst_mem_alloc("host", LEN, NULL, &mem));
	memset(mem_host(mem, 0), 0, LEN);
	T_OK(registration_get(mem->region, &rig.domain->reg, mem->off, LEN,
			      MEM_REG_REMOTE_READ | MEM_REG_REMOTE_WRITE, &use));
	T_OK(mr_reg_host(rig.domain, box, sizeof(box), 0, &note));
	T_OK(endpoint_new(rig.domain, &o, &ep));
	T_OK(endpoint_recv(ep, note->addr, note->lkey, 4, 1));
	endpoint_blob(ep, own.blob);
	own.addr = use.reg->addr;
	own.rkey = use.reg->rkey;
	own.pid = (uint32_t)getpid();
	talk(sock, &own, sizeof(own), peer, sizeof(peer));
	T_OK(endpoint_connect(ep, peer, sizeof(peer)));
	talk(sock, "ok", 2, peer, 2);

	sleep_for(ep, &d);
	T_EQ(d.op, ENDPOINT_RECV);
	T_EQ(d.res, 4);
	T_EQ(box[0], 0x1234);
	box[1] = crc32c(0, mem_host(mem, 0), LEN);
	T_EQ(endpoint_post(ep,
			   &(struct endpoint_io){ .op = ENDPOINT_SEND,
						  .len = 4,
						  .local = note->addr + 4,
						  .lkey = note->lkey,
						  .id = 2 },
			   1),
	     1);
	sleep_for(ep, &d);
	T_EQ(d.res, 4);
	T_EQ(recv(sock, peer, 1, 0), 0); /* the client has read the checksum, and has ended */
	endpoint_free(ep);
	mr_dereg(rig.domain, note);
	registration_put(&use);
	T_EQ(pst_mem_free(mem), 0);
	rig_close();
}

static pid_t start_server(int *ret_sock)
{
	int socks[2], how;
	pid_t pid;

	T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks), 0);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		how = setjmp(t_jump);
		(void)close(socks[0]);
		if (!how)
			serve(socks[1]);
		if (how)
			printf("# the server: %s\n", t_why);
		(void)fflush(stdout);
		_exit(how == T_JUMP_SKIP ? 77 : how ? 1 : 0);
	}
	(void)close(socks[1]);
	*ret_sock = socks[0];
	return pid;
}

static uint64_t rng;

static uint32_t pick(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)((rng >> 16) % below);
}

struct client {
	struct offer far;
	struct mem_reg *local;
	uint8_t *buf, *model;
	struct endpoint *ep;
};

/* Make random reads and writes to be posted together, each with its own place in buf. */
static unsigned make_batch(struct client *c, struct endpoint_io io[BATCH], uint8_t *want[BATCH],
			   unsigned left)
{
	unsigned nr = MIN(1 + pick(BATCH), left);

	for (unsigned i = 0; i < nr; i++) {
		uint32_t len = pick(4) ? 1 + pick(512) : 1 + pick(OP_MAX),
			 off = pick(LEN - len + 1);
		uint8_t *at = c->buf + (size_t)i * OP_MAX;

		io[i] = (struct endpoint_io){
			.op = pick(2) ? ENDPOINT_WRITE : ENDPOINT_READ,
			.len = len,
			.local = c->local->addr + (uint64_t)i * OP_MAX,
			.lkey = c->local->lkey,
			.remote = c->far.addr + off,
			.rkey = c->far.rkey,
			.id = i,
		};
		if (io[i].op == ENDPOINT_WRITE) {
			for (uint32_t k = 0; k < len; k++)
				at[k] = (uint8_t)pick(256);
			memcpy(c->model + off, at, len);
			continue;
		}
		memset(at, 0xee, len);
		want[i] = malloc(len);
		T_CHECK(want[i]);
		memcpy(want[i], c->model + off, len);
	}
	return nr;
}

static void run_batch(struct client *c, unsigned left, unsigned *ret_nr)
{
	struct endpoint_io io[BATCH];
	struct endpoint_done d[BATCH];
	uint8_t *want[BATCH] = { NULL };
	unsigned nr = make_batch(c, io, want, left);

	T_EQ(endpoint_post(c->ep, io, nr), (int)nr);
	rig_wait(c->ep, d, nr);
	for (unsigned i = 0; i < nr; i++) {
		T_EQ(d[i].id, i);
		T_EQ(d[i].op, io[i].op);
		T_EQ(d[i].res, io[i].len);
		if (want[i])
			T_EQ(memcmp(want[i], c->buf + (size_t)i * OP_MAX, io[i].len), 0);
		free(want[i]);
	}
	*ret_nr = nr;
}

/* Tell the server that all is done.  Compare the checksum of its memory with the model. */
static void compare(struct client *c)
{
	struct endpoint_done d[2];
	uint32_t *box = (uint32_t *)(void *)c->buf;

	T_OK(endpoint_recv(c->ep, c->local->addr + 4, c->local->lkey, 4, 8));
	box[0] = 0x1234;
	box[1] = 0;
	T_EQ(endpoint_post(c->ep,
			   &(struct endpoint_io){ .op = ENDPOINT_SEND,
						  .len = 4,
						  .local = c->local->addr,
						  .lkey = c->local->lkey,
						  .id = 9 },
			   1),
	     1);
	rig_wait(c->ep, d, 2);
	T_CHECK(d[0].res == 4 && d[1].res == 4);
	T_EQ(box[1], crc32c(0, c->model, LEN));
}

static void random_one_sided_against_a_model(void)
{
	struct client c = { .buf = mmap(NULL, BATCH * OP_MAX, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			    .model = calloc(1, LEN) };
	struct endpoint_opts o = { 0 };
	struct endpoint_stats st;
	char names[1][NIC_NAME_MAX];
	uint8_t own[ENDPOINT_BLOB];
	int sock, status;
	pid_t server;

	/* Skip before the fork: otherwise the server would stay. */
	if (nic_list(names, 1) <= 0)
		T_SKIP("no RDMA device: %s", err_text());
	/* The server is forked before this process opens a device. */
	server = start_server(&sock);
	rig_open();
	rng = 0x5eed;
	T_CHECK(c.buf != MAP_FAILED && c.model);
	T_OK(mr_reg_host(rig.domain, c.buf, BATCH * OP_MAX, 0, &c.local));
	T_OK(endpoint_new(rig.domain, &o, &c.ep));
	endpoint_blob(c.ep, own);
	talk(sock, own, sizeof(own), &c.far, sizeof(c.far));
	T_OK(endpoint_connect(c.ep, c.far.blob, sizeof(c.far.blob)));
	talk(sock, "ok", 2, own, 2);
	for (unsigned done = 0, nr; done < OPS; done += nr)
		run_batch(&c, OPS - done, &nr);
	compare(&c);
	endpoint_stats(c.ep, &st);
	T_EQ(st.writes + st.reads, OPS);
	T_CHECK(st.signalled <= st.doorbells + OPS / 32);
	endpoint_free(c.ep);
	mr_dereg(rig.domain, c.local);
	rig_close();
	(void)close(sock);
	T_EQ(waitpid(server, &status, 0), server);
	T_EQ(WEXITSTATUS(status), 0);
	T_EQ(munmap(c.buf, BATCH * OP_MAX), 0);
	free(c.model);
}

/* ------------------------------------------------------ one process, two ends */

static struct {
	struct endpoint *a, *b;
	uint8_t *mem;
	struct mem_reg *reg; /* registration of 64 KiB that the peer may use */
} pair;

static void pair_open(const struct endpoint_opts *o)
{
	rig_open();
	pair.mem = aligned_alloc(4096, 65536);
	T_CHECK(pair.mem);
	memset(pair.mem, 1, 65536);
	T_OK(mr_reg_host(rig.domain, pair.mem, 65536, MEM_REG_REMOTE_READ | MEM_REG_REMOTE_WRITE,
			 &pair.reg));
	T_OK(endpoint_new(rig.domain, o, &pair.a));
	T_OK(endpoint_new(rig.domain, o, &pair.b));
}

static void pair_close(void)
{
	endpoint_free(pair.a);
	endpoint_free(pair.b);
	mr_dereg(rig.domain, pair.reg);
	free(pair.mem);
	rig_close();
}

/* Make a request: its local side is in the lower half of the memory, its remote side in the
 * upper half. */
static struct endpoint_io io_of(enum endpoint_op op, uint32_t len, uint64_t id)
{
	return (struct endpoint_io){
		.op = op,
		.len = len,
		.local = pair.reg->addr,
		.lkey = pair.reg->lkey,
		.remote = pair.reg->addr + 32768,
		.rkey = pair.reg->rkey,
		.id = id,
	};
}

static void a_wrong_key_ends_the_connection(void)
{
	struct endpoint_opts o = { 0 };
	struct endpoint_io io[4];
	struct endpoint_done d[4];

	pair_open(&o);
	rig_join(pair.a, pair.b);
	T_OK(endpoint_recv(pair.b, pair.reg->addr, pair.reg->lkey, 64, 77));
	T_OK(endpoint_recv(pair.b, pair.reg->addr, pair.reg->lkey, 64, 78));
	for (unsigned i = 0; i < 4; i++)
		io[i] = io_of(ENDPOINT_WRITE, 100, i);
	io[2].rkey ^= 0x55;
	T_EQ(endpoint_post(pair.a, io, 4), 4);
	rig_wait(pair.a, d, 4);
	T_EQ(d[0].res, 100);
	T_EQ(d[1].res, 100);
	T_EQ(d[2].res, -EACCES);
	T_EQ(d[2].status, VB_WC_REM_ACCESS_ERR);
	T_EQ(d[3].res, -ECANCELED);
	T_EQ(endpoint_post(pair.a, io, 1), -ENOTCONN);
	T_EQ(endpoint_recv(pair.a, pair.reg->addr, pair.reg->lkey, 64, 1), -ENOTCONN);
	/* The other end is in the error state, too, and returns its buffers. */
	rig_wait(pair.b, d, 2);
	T_EQ(d[0].id, 77);
	T_EQ(d[0].op, ENDPOINT_RECV);
	T_EQ(d[0].res, -EIO);
	T_EQ(d[0].status, VB_WC_WR_FLUSH_ERR);
	T_EQ(d[1].id, 78);
	T_EQ(d[1].res, -ECANCELED);
	pair_close();
}

static void a_range_too_far_is_refused(void)
{
	struct endpoint_opts o = { 0 };
	struct endpoint_io io;
	struct endpoint_done d;

	pair_open(&o);
	rig_join(pair.a, pair.b);
	memset(pair.mem + 32768, 7, 32768);
	io = io_of(ENDPOINT_WRITE, 4096, 0);
	io.remote = pair.reg->addr + 65536 - 4095;
	T_EQ(endpoint_post(pair.a, &io, 1), 1);
	rig_wait(pair.a, &d, 1);
	T_EQ(d.res, -EACCES);
	for (unsigned i = 32768; i < 65536; i++)
		T_EQ(pair.mem[i], 7);
	pair_close();
}

static void a_message_without_a_buffer_fails_in_time(void)
{
	struct endpoint_opts o = { .deadline_ms = 40 };
	struct endpoint_io io;
	struct endpoint_done d;

	pair_open(&o);
	rig_join(pair.a, pair.b);
	io = io_of(ENDPOINT_SEND, 100, 3);
	T_EQ(endpoint_post(pair.a, &io, 1), 1);
	rig_wait(pair.a, &d, 1);
	T_EQ(d.id, 3);
	T_EQ(d.res, -EAGAIN);
	pair_close();
}

static void a_peer_that_is_gone_is_given_up(void)
{
	struct endpoint_opts o = { .deadline_ms = 40 };
	struct endpoint_io io;
	struct endpoint_done d;

	pair_open(&o);
	rig_join(pair.a, pair.b);
	endpoint_free(pair.b);
	pair.b = NULL;
	io = io_of(ENDPOINT_READ, 100, 3);
	T_EQ(endpoint_post(pair.a, &io, 1), 1);
	rig_wait(pair.a, &d, 1);
	T_EQ(d.res, -ETIMEDOUT);
	pair_close();
}

static void slots_are_counted(void)
{
	struct endpoint_opts o = { .send_slots = 8, .recv_slots = 2 };
	struct endpoint_io io[20];
	struct endpoint_done d[20];

	pair_open(&o);
	T_EQ(endpoint_post(pair.a, io, 1), -ENOTCONN);
	rig_join(pair.a, pair.b);
	for (unsigned i = 0; i < 20; i++)
		io[i] = io_of(ENDPOINT_WRITE, 8, i);
	T_EQ(endpoint_room(pair.a), 8);
	T_EQ(endpoint_post(pair.a, io, 20), 8);
	T_EQ(endpoint_room(pair.a), 0);
	T_EQ(endpoint_post(pair.a, io + 8, 12), 0);
	rig_wait(pair.a, d, 3);
	T_EQ(endpoint_post(pair.a, io + 8, 12), 3);
	rig_wait(pair.a, d, 8);
	for (unsigned i = 0; i < 8; i++)
		T_EQ(d[i].id, 3 + i);
	for (unsigned i = 0; i < 2; i++)
		T_OK(endpoint_recv(pair.b, pair.reg->addr, pair.reg->lkey, 8, i));
	T_EQ(endpoint_recv(pair.b, pair.reg->addr, pair.reg->lkey, 8, 2), -EAGAIN);
	io[0].len = 0;
	T_EQ(endpoint_post(pair.a, io, 1), -EINVAL);
	pair_close();
}

static void stopping_completes_everything(void)
{
	struct endpoint_opts o = { .send_slots = 64 };
	struct endpoint_io io[64];
	struct endpoint_done d[64];
	unsigned moved = 0;

	pair_open(&o);
	rig_join(pair.a, pair.b);
	T_OK(endpoint_recv(pair.a, pair.reg->addr, pair.reg->lkey, 8, 99));
	for (unsigned i = 0; i < 64; i++)
		io[i] = io_of(ENDPOINT_WRITE, 16, i);
	T_EQ(endpoint_post(pair.a, io, 64), 64);
	endpoint_stop(pair.a);
	for (unsigned i = 0, sends = 0; i < 65; i++) {
		rig_wait(pair.a, d, 1);
		if (d[0].op == ENDPOINT_RECV) {
			T_EQ(d[0].id, 99);
			T_EQ(d[0].res, -ECANCELED);
			continue;
		}
		T_EQ(d[0].id, sends++);
		T_CHECK(d[0].res == 16 || d[0].res == -ECANCELED);
		moved += d[0].res == 16;
	}
	T_EQ(endpoint_poll(pair.a, d, 1), 0);
	T_CHECK(moved <= 64);
	pair_close();
}

/* The device refuses in the middle of a post, after requests without a completion of their own. */
static void a_refused_post_completes_what_was_taken(void)
{
	struct endpoint_opts o = { .send_slots = 64 };
	struct endpoint_io io[8];
	struct endpoint_done d[8];

	rig_needs_stub();
	pair_open(&o);
	rig_join(pair.a, pair.b);
	for (unsigned i = 0; i < 8; i++)
		io[i] = io_of(ENDPOINT_WRITE, 16, i);
	rig.fail("ibv_post_send:4:12");
	T_EQ(endpoint_post(pair.a, io, 8), 3);
	rig_wait(pair.a, d, 3);
	for (unsigned i = 0; i < 3; i++)
		T_CHECK(d[i].id == i && (d[i].res == 16 || d[i].res == -ECANCELED));
	T_EQ(endpoint_poll(pair.a, d, 1), 0);
	T_EQ(endpoint_post(pair.a, io, 8), -ENOTCONN);
	pair_close();
}

static void a_port_that_goes_down_is_noticed(void)
{
	struct endpoint_opts o = { .deadline_ms = 40 };
	struct endpoint_io io;
	struct endpoint_done d;
	struct nic *n;

	rig_needs_stub();
	pair_open(&o);
	rig_join(pair.a, pair.b);
	rig.port(false);
	T_EQ(nic_open(NULL, NULL, &n), -ENETDOWN);
	io = io_of(ENDPOINT_WRITE, 16, 0);
	T_EQ(endpoint_post(pair.a, &io, 1), 1);
	rig_wait(pair.a, &d, 1);
	T_EQ(d.res, -ETIMEDOUT);
	rig.port(true);
	pair_close();
}

/* Fail each call once: nothing leaks, and each failure has an error text. */
static void failures_leave_nothing(void)
{
	static const char *const calls[] = {
		"ibv_get_device_list",     "ibv_open_device",  "ibv_query_device",
		"ibv_query_port",          "ibv_alloc_pd",     "_ibv_query_gid_table",
		"ibv_create_comp_channel", "ibv_create_cq",    "ibv_create_qp",
		"ibv_modify_qp",           "ibv_reg_mr_iova2",
	};
	struct endpoint_opts o = { .events = true };
	char spec[64];
	unsigned failed = 0;

	rig_needs_stub();
	for (unsigned i = 0; i < ARRAY_SIZE(calls); i++)
		for (unsigned nth = 1; nth < 20; nth++) {
			struct endpoint *a = NULL, *b = NULL;
			struct nic_domain *d = NULL;
			struct mem_reg *m = NULL;
			struct nic *n = NULL;
			struct stub_ibverbs_state st;
			uint8_t blob[ENDPOINT_BLOB];
			static char bytes[4096];
			int r;

			(void)snprintf(spec, sizeof(spec), "%s:%u:12", calls[i], nth);
			rig.fail(spec);
			(void)err_set(1, "%s", "");
			r = nic_open(NULL, NULL, &n);
			if (r == 0)
				r = nic_domain_new(n, &d);
			if (r == 0)
				r = mr_reg_host(d, bytes, sizeof(bytes), 0, &m);
			if (r == 0)
				r = endpoint_new(d, &o, &a);
			if (r == 0)
				r = endpoint_new(d, &o, &b);
			if (r == 0) {
				endpoint_blob(b, blob);
				r = endpoint_connect(a, blob, sizeof(blob));
			}
			if (r < 0) {
				T_CHECK(*err_text());
				failed++;
			}
			endpoint_free(a);
			endpoint_free(b);
			if (d)
				mr_dereg(d, m);
			T_OK(nic_domain_free(d));
			nic_close(n);
			rig.state(&st);
			T_EQ(st.contexts + st.pds + st.mrs + st.cqs + st.channels + st.qps, 0);
			if (r == 0)
				break;
			T_CHECK(nth < 19);
		}
	rig.fail(NULL);
	T_CHECK(failed >= ARRAY_SIZE(calls));
}

/* ------------------------------------------------------------- pure functions */

static void times_keep_the_deadline(void)
{
	static const uint32_t rnr[] = {
		655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
		480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
		20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520
	};

	for (uint32_t ms = 30; ms < 5000000; ms += 1 + ms / 7) {
		struct endpoint_times t = endpoint_times(ms);
		double wait = 4.096 * (double)(UINT64_C(1) << t.timeout) / 1000;

		T_CHECK(t.retry_cnt == 6 && t.rnr_retry == 6);
		T_CHECK(wait * 4 * 7 <= ms);
		T_CHECK(t.timeout == 31 || wait * 2 * 4 * 7 > ms);
		T_CHECK(7.0 * rnr[t.min_rnr_timer] / 1000 <= ms);
	}
	T_EQ(endpoint_times(10000).timeout, 16);
}

/* Change each byte of a blob: it must be refused. */
static void damaged_blobs_are_refused(void)
{
	struct blob b = { .qpn = 17,
			  .psn = 5,
			  .mtu = 4,
			  .link = VB_LINK_ETHERNET,
			  .deadline_ms = 1000,
			  .gid = { [10] = 0xff, 0xff, 10, 9, 0, 1 },
			  .rd_atomic = 16,
			  .number = 99 };
	uint8_t good[BLOB_LEN], bad[BLOB_LEN];
	struct blob got;

	blob_put(&b, good);
	T_OK(blob_get(good, BLOB_LEN, &got));
	T_EQ(memcmp(&got.gid, &b.gid, 16), 0);
	T_CHECK(got.qpn == 17 && got.psn == 5 && got.number == 99 && got.rd_atomic == 16);
	for (unsigned i = 0; i < BLOB_LEN; i++) {
		memcpy(bad, good, BLOB_LEN);
		bad[i] ^= 0x20;
		T_CHECK(blob_get(bad, BLOB_LEN, &got) < 0);
		T_CHECK(blob_get(good, i, &got) < 0);
	}
	b.qpn = 1u << 24;
	blob_put(&b, bad);
	T_EQ(blob_get(bad, BLOB_LEN, &got), -EBADMSG);
	b.qpn = 17;
	b.link = VB_LINK_INFINIBAND; /* InfiniBand needs a LID */
	blob_put(&b, bad);
	T_EQ(blob_get(bad, BLOB_LEN, &got), -EBADMSG);
}

/* The best GID is chosen, wherever it is in the table, but never a link-local one. */
static void the_gid_is_found_by_its_kind(void)
{
	struct vb_gid_entry v[5] = {
		{ .index = 0,
		  .port = 1,
		  .type = VB_GID_ROCE_V1,
		  .gid.raw = { 0xfe, 0x80, [15] = 1 } },
		{ .index = 1,
		  .port = 1,
		  .type = VB_GID_ROCE_V2,
		  .gid.raw = { 0xfe, 0x80, [15] = 1 } },
		{ .index = 2,
		  .port = 1,
		  .type = VB_GID_ROCE_V1,
		  .gid.raw = { [10] = 0xff, 0xff, 10, 9, 0, 1 } },
		{ .index = 5, .port = 1, .type = VB_GID_ROCE_V2, .gid.raw = { 0x20, 1, [15] = 1 } },
		{ .index = 7,
		  .port = 1,
		  .type = VB_GID_ROCE_V2,
		  .gid.raw = { [10] = 0xff, 0xff, 10, 9, 0, 1 } },
	};
	const struct vb_gid_entry *e = nic_gid_choose(v, 5, 1, true);

	T_CHECK(e && e->index == 7);
	e = nic_gid_choose(v, 4, 1, true);
	T_CHECK(e && e->index == 5);
	e = nic_gid_choose(v, 3, 1, true);
	T_CHECK(e && e->index == 2);
	T_CHECK(!nic_gid_choose(v, 2, 1, true));
	T_CHECK(!nic_gid_choose(v, 5, 2, true));
	e = nic_gid_choose(v, 5, 1, false);
	T_CHECK(e && e->index == 0); /* on InfiniBand, the subnet's prefix is link-local */
}

int main(void)
{
	const char *dir = getenv("PST_TEST_DIR");
	char path[512];

	/* Both processes use the same fabric of the stub. */
	(void)snprintf(path, sizeof(path), "%s/fabric", dir ? dir : "/tmp");
	if (getenv("PST_LIBIBVERBS"))
		(void)setenv("STUB_IBVERBS_FABRIC", path, 1);
	T_RUN(random_one_sided_against_a_model);
	T_RUN(a_wrong_key_ends_the_connection);
	T_RUN(a_range_too_far_is_refused);
	T_RUN(a_message_without_a_buffer_fails_in_time);
	T_RUN(a_peer_that_is_gone_is_given_up);
	T_RUN(slots_are_counted);
	T_RUN(stopping_completes_everything);
	T_RUN(a_refused_post_completes_what_was_taken);
	T_RUN(a_port_that_goes_down_is_noticed);
	T_RUN(failures_leave_nothing);
	T_RUN(times_keep_the_deadline);
	T_RUN(damaged_blobs_are_refused);
	T_RUN(the_gid_is_found_by_its_kind);
	if (getenv("PST_LIBIBVERBS"))
		(void)unlink(path);
	return t_done();
}
