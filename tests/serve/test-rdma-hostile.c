/* SPDX-License-Identifier: MIT */
/*
 * The storage service by RDMA against hostile peers: the test's clients against the server, and the
 * test's server against the client.  All attacks must end in errors, touch only memory that a key
 * allows, and leave nothing behind.  PENSTOCK is the path of the command; libibverbs is the stub.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "stub/ibverbs_stub.h"

#include "rig.h"
#include "service.h"

#include "net/verbs/blob.h"
#include "net/verbs/endpoint.h"
#include "net/wire.h"

#define SEED 7
#define LEN 65536u
#define DEVICE "stub0"
#define TCP PST_PATH_BIT(PST_PATH_TCP)
#define RDMA PST_PATH_BIT(PST_PATH_RDMA)

static __typeof__(stub_ibverbs_state) *stub_state;
static __typeof__(stub_ibverbs_port) *stub_port;

/* The test's device and memory. */
static struct {
	struct nic *nic;
	struct nic_domain *domain;
	uint8_t *mem; /* 3 * LEN bytes; the middle part has a key */
	struct mem_reg *reg, *read_only, *local;
} own;

static void own_begin(void)
{
	void *lib = dlopen(getenv("PST_LIBIBVERBS"), RTLD_NOW);
	void *at = lib ? dlsym(lib, "stub_ibverbs_state") : NULL;

	T_CHECK(at);
	memcpy(&stub_state, &at, sizeof(at));
	at = dlsym(lib, "stub_ibverbs_port");
	T_CHECK(at);
	memcpy(&stub_port, &at, sizeof(at));
	T_OK(nic_open(DEVICE, &own.nic));
	T_OK(nic_domain_host_new(own.nic, &own.domain));
	own.mem = aligned_alloc(4096, 3 * LEN);
	T_CHECK(own.mem);
	T_OK(mr_reg_host(own.domain, own.mem + LEN, LEN, MEM_REG_REMOTE, &own.reg));
	T_OK(mr_reg_host(own.domain, own.mem + LEN, LEN, MEM_REG_REMOTE_READ, &own.read_only));
	T_OK(mr_reg_host(own.domain, own.mem, 3 * LEN, 0, &own.local));
}

static void own_end(void)
{
	mr_dereg(own.domain, own.reg);
	mr_dereg(own.domain, own.read_only);
	mr_dereg(own.domain, own.local);
	T_OK(nic_domain_free(own.domain));
	nic_close(own.nic);
	free(own.mem);
}

/* Check that nothing is left; connections that other threads are closing need a moment. */
static void nothing_is_left(void)
{
	struct stub_ibverbs_state st;
	uint64_t end = t_hang();

	do
		stub_state(&st);
	while ((st.qps || st.cqs || st.mrs > 3 || st.pds > 1) && t_now() < end &&
	       usleep(1000) == 0);
	if (*st.broken)
		T_FAIL("a rule of verbs was broken: %s", st.broken);
	T_EQ(st.qps, 0);
	T_EQ(st.cqs, 0);
	T_EQ(st.mrs, 3);
	T_EQ(st.pds, 1);
}

static struct endpoint *end_new(unsigned recv_slots)
{
	struct endpoint_opts o = {
		.send_slots = 8, .recv_slots = recv_slots, .deadline_ms = 1000, .events = true
	};
	struct endpoint *ep;

	T_OK(endpoint_new(own.domain, &o, &ep));
	return ep;
}

/* Wait for the next completion. */
static struct endpoint_done end_wait(struct endpoint *ep)
{
	struct endpoint_done d = { 0 };
	uint64_t end = t_hang();

	while (endpoint_poll(ep, &d, 1) == 0 && t_now() < end)
		(void)usleep(100);
	return d;
}

static bool send_bytes(int fd, const void *buf, size_t len)
{
	return send(fd, buf, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static bool recv_bytes(int fd, void *buf, size_t len)
{
	return !len || recv(fd, buf, len, MSG_WAITALL) == (ssize_t)len;
}

static int unix_socket(const char *name, struct sockaddr_un *ret)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	T_CHECK(fd >= 0);
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	(void)snprintf(ret->sun_path, sizeof(ret->sun_path), "%.100s", rig_path(name));
	return fd;
}

/* ------------------------------------------------------------ hostile clients */

static pid_t server;

static void server_start(void)
{
	char listen[600], metrics[600], buf[1024];
	const char *args[] = { "penstock", "serve",     "--root", rig_path("."), "--listen", listen,
			       "--write",  "--metrics", metrics,  "--rdma",      NULL };

	(void)snprintf(listen, sizeof(listen), "unix:%s", rig_path("sock"));
	(void)snprintf(metrics, sizeof(metrics), "unix:%s", rig_path("metrics"));
	server = service_start(args, buf, sizeof(buf));
}

static void server_end(void)
{
	service_end(server, SIGTERM);
}

static int64_t number(const char *name)
{
	return service_number(rig_path("metrics"), name);
}

#define CONNECTIONS "penstock_serve_rdma_connections"
#define JOINS "penstock_serve_requests_total{op=\"rdma\"}"

/* A client of the test. */
struct caller {
	int fd;
	struct endpoint *ep;
	uint32_t handle;
	struct wire_reply rep;
	uint8_t payload[4096];
};

static void ask(struct caller *c, struct wire_request q, const void *payload, uint32_t len)
{
	uint8_t head[WIRE_HEAD];

	q.len = WIRE_HEAD + len;
	wire_put_request(&q, head);
	(void)send_bytes(c->fd, head, sizeof(head));
	if (len)
		(void)send_bytes(c->fd, payload, len);
}

/* Receive a reply.  Return false if the server has closed the connection. */
static bool hear(struct caller *c)
{
	uint8_t head[WIRE_HEAD];

	if (!recv_bytes(c->fd, head, sizeof(head)))
		return false;
	T_OK(wire_get_reply(head, &c->rep));
	T_CHECK(wire_payload(c->rep.len) <= sizeof(c->payload));
	return recv_bytes(c->fd, c->payload, wire_payload(c->rep.len));
}

static void caller_begin(struct caller *c, uint64_t features)
{
	struct wire_hello h = { .version = WIRE_VERSION,
				.oldest = WIRE_VERSION,
				.features = features };
	struct wire_welcome w;
	uint8_t payload[WIRE_HELLO_LEN];
	struct sockaddr_un un;

	*c = (struct caller){ .fd = unix_socket("sock", &un) };
	T_CHECK(connect(c->fd, (struct sockaddr *)&un, sizeof(un)) == 0);
	wire_put_hello(&h, payload);
	ask(c, (struct wire_request){ .op = WIRE_HELLO, .id = 1 }, payload, sizeof(payload));
	T_CHECK(hear(c));
	T_OK(wire_get_welcome(c->payload, wire_payload(c->rep.len), &w));
	T_EQ(w.features, features);
	ask(c, (struct wire_request){ .op = WIRE_OPEN, .id = 2, .how = WIRE_O_READ | WIRE_O_WRITE },
	    "data", 4);
	T_CHECK(hear(c));
	T_EQ(c->rep.err, 0);
	c->handle = c->rep.count;
}

static void caller_end(struct caller *c)
{
	endpoint_free(c->ep);
	(void)close(c->fd);
}

/* Ask for a queue pair with this blob.  Return false if there is no answer. */
static bool join_by(struct caller *c, const uint8_t blob[ENDPOINT_BLOB])
{
	ask(c, (struct wire_request){ .op = WIRE_RDMA, .id = 3 }, blob, ENDPOINT_BLOB);
	return hear(c);
}

static void join(struct caller *c, unsigned buffers)
{
	uint8_t blob[ENDPOINT_BLOB];

	c->ep = end_new(8);
	for (unsigned i = 0; i < buffers; i++)
		T_OK(endpoint_recv(c->ep, own.local->addr + i * 64, own.local->lkey, 64, i));
	endpoint_blob(c->ep, blob);
	T_CHECK(join_by(c, blob));
	T_EQ(c->rep.err, 0);
	T_OK(endpoint_connect(c->ep, c->payload, ENDPOINT_BLOB));
}

static void ask_by_rdma(struct caller *c, uint16_t op, uint64_t addr, uint32_t rkey, uint32_t count)
{
	struct wire_rdma_key k = { .addr = addr, .rkey = rkey };
	uint8_t payload[WIRE_RDMA_KEY_LEN];

	wire_put_rdma_key(&k, payload);
	ask(c, (struct wire_request){ .op = op, .id = 4, .handle = c->handle, .count = count },
	    payload, sizeof(payload));
}

/* Receive the next message on the queue pair. */
static void hear_message(struct caller *c)
{
	struct endpoint_done d = end_wait(c->ep);

	T_EQ(d.op, ENDPOINT_RECV);
	T_EQ(d.res, WIRE_HEAD);
	T_OK(wire_get_reply(own.mem + d.id * 64, &c->rep));
	T_EQ(c->rep.id, 4);
}

static void honest(struct caller *c)
{
	join(c, 1);
	ask_by_rdma(c, WIRE_READ_RDMA, own.reg->addr, own.reg->rkey, LEN);
	hear_message(c);
	T_EQ(c->rep.err, 0);
	T_EQ(c->rep.count, LEN);
	T_EQ(t_differs((char *)own.mem + LEN, SEED, 0, LEN), LEN);
}

static void is_dropped(struct caller *c)
{
	T_CHECK(!hear(c));
}

static void not_agreed(struct caller *c)
{
	uint8_t blob[ENDPOINT_BLOB] = { 0 };

	caller_end(c);
	caller_begin(c, 0);
	T_CHECK(!join_by(c, blob));
}

static void before_it_joined(struct caller *c)
{
	ask_by_rdma(c, WIRE_READ_RDMA, own.reg->addr, own.reg->rkey, 1);
	is_dropped(c);
}

static void joins_twice(struct caller *c)
{
	uint8_t blob[ENDPOINT_BLOB];

	join(c, 1);
	endpoint_blob(c->ep, blob);
	T_CHECK(!join_by(c, blob));
}

static void garbage_for_an_end(struct caller *c)
{
	uint8_t blob[ENDPOINT_BLOB];

	for (unsigned i = 0; i < sizeof(blob); i++)
		blob[i] = (uint8_t)rig_random();
	T_CHECK(join_by(c, blob));
	T_EQ(c->rep.err, EBADMSG);
	/* The connection's place is free at once. */
	T_EQ(number(CONNECTIONS), 0);
	/* The connection continues without RDMA. */
	ask(c, (struct wire_request){ .op = WIRE_STAT, .id = 5, .handle = c->handle }, NULL, 0);
	T_CHECK(hear(c));
	T_EQ(c->rep.err, 0);
}

static void end_that_is_none(struct caller *c, bool gid)
{
	uint8_t raw[ENDPOINT_BLOB];
	struct blob b;

	c->ep = end_new(8);
	endpoint_blob(c->ep, raw);
	T_OK(blob_get(raw, sizeof(raw), &b));
	if (gid)
		b.gid[15] ^= 0x55;
	else
		b.qpn = 0xabcdef;
	blob_put(&b, raw);
	T_CHECK(join_by(c, raw));
	if (c->rep.err) /* the server's device found the error */
		return;
	ask_by_rdma(c, WIRE_READ_RDMA, own.reg->addr, own.reg->rkey, LEN);
	is_dropped(c);
}

static void wrong_qpn(struct caller *c)
{
	end_that_is_none(c, false);
}

static void wrong_gid(struct caller *c)
{
	end_that_is_none(c, true);
}

/* Check that the server's device refuses the request: the client's connection ends, and no byte
 * outside has changed. */
static void refused(struct caller *c, uint16_t op, uint64_t addr, uint32_t rkey, uint32_t count)
{
	join(c, 8);
	memset(own.mem, 0x77, 3 * LEN);
	ask_by_rdma(c, op, addr, rkey, count);
	is_dropped(c);
	for (unsigned i = 0; i < 3 * LEN; i++)
		if (i < LEN || i >= 2 * LEN)
			T_EQ(own.mem[i], 0x77);
}

static void wrong_key(struct caller *c)
{
	refused(c, WIRE_READ_RDMA, own.reg->addr, own.reg->rkey ^ 0x1000, LEN);
}

static void key_zero(struct caller *c)
{
	refused(c, WIRE_WRITE_RDMA, own.reg->addr, 0, LEN);
}

static void key_that_is_too_short(struct caller *c)
{
	refused(c, WIRE_READ_RDMA, own.reg->addr + LEN / 2, own.reg->rkey, LEN);
}

static void pull_from_too_short(struct caller *c)
{
	refused(c, WIRE_WRITE_RDMA, own.reg->addr - 1, own.reg->rkey, LEN);
}

static void key_without_the_right(struct caller *c)
{
	refused(c, WIRE_READ_RDMA, own.reg->addr, own.read_only->rkey, LEN);
}

static void key_that_ended(struct caller *c)
{
	struct mem_reg *gone;
	uint32_t rkey;

	T_OK(mr_reg_host(own.domain, own.mem + LEN, LEN, MEM_REG_REMOTE, &gone));
	rkey = gone->rkey;
	mr_dereg(own.domain, gone);
	refused(c, WIRE_READ_RDMA, own.reg->addr, rkey, LEN);
}

static void end_of_the_address_space(struct caller *c)
{
	join(c, 8);
	ask_by_rdma(c, WIRE_READ_RDMA, UINT64_MAX - 100, own.reg->rkey, LEN);
	hear_message(c);
	T_EQ(c->rep.err, EINVAL);
}

/* The handle is reused for another file before the bytes arrive; the bytes belong to the first
 * file. */
static void another_file_meanwhile(struct caller *c)
{
	char *got = malloc(LEN);

	T_CHECK(got);
	rig_make(rig_path("other"), SEED + 1, LEN);
	join(c, 2);
	t_fill((char *)own.mem + LEN, SEED + 2, 0, LEN);
	stub_port(false);
	ask_by_rdma(c, WIRE_WRITE_RDMA, own.reg->addr, own.reg->rkey, LEN);
	ask(c, (struct wire_request){ .op = WIRE_CLOSE, .id = 5, .handle = c->handle }, NULL, 0);
	T_CHECK(hear(c));
	T_EQ(c->rep.err, 0);
	ask(c, (struct wire_request){ .op = WIRE_OPEN, .id = 6, .how = WIRE_O_READ | WIRE_O_WRITE },
	    "other", 5);
	T_CHECK(hear(c));
	T_EQ(c->rep.count, c->handle);
	stub_port(true);
	hear_message(c);
	T_EQ(c->rep.err, 0);
	T_EQ(c->rep.count, LEN);
	T_EQ(rig_slurp(rig_path("other"), 0, got, LEN), LEN);
	T_EQ(t_differs(got, SEED + 1, 0, LEN), LEN);
	T_EQ(rig_slurp(rig_path("data"), 0, got, LEN), LEN);
	T_EQ(t_differs(got, SEED + 2, 0, LEN), LEN);
	rig_make(rig_path("data"), SEED, LEN);
	/* A client that leaves in the middle leaves no file open. */
	stub_port(false);
	ask_by_rdma(c, WIRE_WRITE_RDMA, own.reg->addr, own.reg->rkey, LEN);
	ask(c, (struct wire_request){ .op = WIRE_STAT, .id = 5, .handle = c->handle }, NULL, 0);
	T_CHECK(hear(c));
	stub_port(true);
	free(got);
}

static void handle_that_is_none(struct caller *c)
{
	join(c, 1);
	c->handle = 999;
	memset(own.mem, 0x77, 3 * LEN);
	ask_by_rdma(c, WIRE_WRITE_RDMA, own.reg->addr, own.reg->rkey, LEN);
	hear_message(c);
	T_EQ(c->rep.err, EBADF);
}

/* More requests than slots, without a buffer for replies. */
static void no_buffers(struct caller *c)
{
	join(c, 0);
	for (unsigned i = 0; i < 40; i++)
		ask_by_rdma(c, WIRE_READ_RDMA, own.reg->addr, own.reg->rkey, LEN);
	is_dropped(c);
}

/* No key gives access to the server's memory. */
static void reaches_for_the_server(struct caller *c)
{
	for (uint32_t key = 1; key < 4; key++) {
		struct endpoint_io io = {
			.op = key % 2 ? ENDPOINT_WRITE : ENDPOINT_READ,
			.len = 64,
			.local = own.local->addr,
			.lkey = own.local->lkey,
			.remote = own.reg->addr,
			.rkey = own.reg->rkey + key,
		};

		join(c, 1);
		T_EQ(endpoint_post(c->ep, &io, 1), 1);
		T_CHECK(end_wait(c->ep).res < 0);
		caller_end(c);
		caller_begin(c, WIRE_FEATURE_RDMA);
	}
}

static void leaves_in_the_middle(struct caller *c)
{
	uint8_t blob[ENDPOINT_BLOB];

	for (unsigned i = 0; i < 30; i++) {
		c->ep = end_new(8);
		endpoint_blob(c->ep, blob);
		ask(c, (struct wire_request){ .op = WIRE_RDMA, .id = 3 }, blob, sizeof(blob));
		if (i % 3)
			(void)hear(c);
		if (i % 3 == 2 && endpoint_connect(c->ep, c->payload, ENDPOINT_BLOB) == 0)
			ask_by_rdma(c, WIRE_READ_RDMA, own.reg->addr, own.reg->rkey, LEN);
		caller_end(c);
		caller_begin(c, WIRE_FEATURE_RDMA);
	}
}

/* A client whose transfers all fail: each costs a queue pair, so for a while the server gives it no
 * other, and serves it over the socket. */
static void fails_again_and_again(struct caller *c)
{
	unsigned joined = 0, refused = 0;
	uint64_t begin = t_now(), joins = (uint64_t)number(JOINS);

	for (unsigned i = 0; i < 100; i++) {
		uint8_t blob[ENDPOINT_BLOB];

		c->ep = end_new(8);
		endpoint_blob(c->ep, blob);
		T_CHECK(join_by(c, blob));
		if (c->rep.err) {
			T_EQ(c->rep.err, EBUSY);
			refused++;
			ask(c, (struct wire_request){ .op = WIRE_STAT, .handle = c->handle }, NULL,
			    0);
			T_CHECK(hear(c));
			T_EQ(c->rep.err, 0);
		} else {
			joined++;
			T_OK(endpoint_connect(c->ep, c->payload, ENDPOINT_BLOB));
			ask_by_rdma(c, WIRE_READ_RDMA, own.reg->addr, own.reg->rkey ^ 0x1000, LEN);
			is_dropped(c);
		}
		caller_end(c);
		caller_begin(c, WIRE_FEATURE_RDMA);
		T_CHECK(number(CONNECTIONS) <= 2);
	}
	T_EQ(joined + refused, 100);
	/* At most 32 at once, then one per second. */
	T_CHECK(joined >= 32);
	T_CHECK(joined <= 32 + (t_now() - begin) / 1000000000u + 1);
	T_EQ((uint64_t)number(JOINS) - joins, 100);
	T_CHECK((uint64_t)number("penstock_serve_rdma_refused_total") >= refused);
}

/* Count the descriptors that the server's event loop waits for. */
static unsigned waits_for(void)
{
	unsigned nr = 0;
	char path[600], line[256];
	struct dirent *e;
	FILE *f;
	DIR *d;

	(void)snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)server);
	d = opendir(path);
	T_CHECK(d);
	while ((e = readdir(d))) {
		(void)snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.20s", (int)server, e->d_name);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			nr += !strncmp(line, "tfd:", 4);
		if (f)
			(void)fclose(f);
	}
	(void)closedir(d);
	return nr;
}

/* A worker takes long to end a queue pair that failed: the event loop must not wait for its device
 * any more, because an event that nobody takes would wake the loop again and again. */
static void a_failed_end_wakes_nobody(struct caller *c)
{
	int fd = open(rig_path("hold"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	uint64_t end = t_hang();
	unsigned before;

	T_CHECK(fd >= 0);
	(void)close(fd);
	before = waits_for() - 1; /* without this connection */
	join(c, 0);
	T_EQ(waits_for(), before + 2);
	/* Without a buffer for the reply, the server waits for its device until it fails. */
	ask_by_rdma(c, WIRE_READ_RDMA, own.reg->addr, own.reg->rkey, LEN);
	endpoint_free(c->ep);
	c->ep = NULL;
	is_dropped(c);
	while (access(rig_path("hold.held"), F_OK) && t_now() < end)
		(void)usleep(1000);
	T_EQ(access(rig_path("hold.held"), F_OK), 0);
	T_EQ(waits_for(), before);
	T_EQ(unlink(rig_path("hold")), 0);
}

/* The server's device fails under many connections of one client, and works again: the client gets
 * queue pairs as before, because none of its own failed. */
static void the_device_fails(struct caller *c)
{
	struct caller many[40];
	uint64_t end = t_hang();

	for (unsigned i = 0; i < RIG_NR(many); i++) {
		caller_begin(&many[i], WIRE_FEATURE_RDMA);
		join(&many[i], 1);
	}
	T_EQ(close(creat(rig_path("death"), 0600)), 0);
	for (unsigned i = 0; i < RIG_NR(many); i++) {
		is_dropped(&many[i]);
		caller_end(&many[i]);
	}
	while (number(CONNECTIONS) && t_now() < end)
		(void)usleep(1000);
	join(c, 1);
}

/* Files of the test that the server has open. */
static unsigned open_files(void)
{
	char dir[64], name[400], to[400];
	unsigned nr = 0;
	struct dirent *e;
	DIR *d;

	(void)snprintf(dir, sizeof(dir), "/proc/%d/fd", (int)server);
	d = opendir(dir);
	T_CHECK(d);
	while ((e = readdir(d))) {
		ssize_t n;

		(void)snprintf(name, sizeof(name), "%s/%s", dir, e->d_name);
		n = readlink(name, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = '\0';
		nr += !strcmp(to, rig_path("data")) || !strcmp(to, rig_path("other"));
	}
	(void)closedir(d);
	return nr;
}

static void (*client)(struct caller *c);
static bool others_join = true;

static void hostile_client(void)
{
	uint64_t end = t_hang();
	struct caller c, other;

	caller_begin(&c, WIRE_FEATURE_RDMA);
	client(&c);
	/* Other clients are served, and nothing is left afterwards. */
	caller_begin(&other, WIRE_FEATURE_RDMA);
	if (others_join)
		honest(&other);
	caller_end(&other);
	caller_end(&c);
	while ((number(CONNECTIONS) || open_files()) && t_now() < end)
		(void)usleep(1000);
	T_EQ(open_files(), 0);
	T_EQ(number(CONNECTIONS), 0);
	T_EQ(number("penstock_serve_connections"), 0);
	nothing_is_left();
}

/* ------------------------------------------------------------- hostile server */

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

static void run_client(const char *name, void (*fn)(struct caller *c))
{
	client = fn;
	rig_run1(name, hostile_client);
}

#define CLIENT(fn) run_client(#fn, fn)

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

	rig_init();
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setenv("STUB_IBVERBS_FABRIC", rig_path("fabric"), 1);
	(void)setenv("PST_RDMA", DEVICE, 1);
	own_begin();
	rig_make(rig_path("data"), SEED, LEN);
	server_start();
	CLIENT(honest);
	CLIENT(not_agreed);
	CLIENT(before_it_joined);
	CLIENT(joins_twice);
	CLIENT(garbage_for_an_end);
	CLIENT(wrong_qpn);
	CLIENT(wrong_gid);
	CLIENT(wrong_key);
	CLIENT(key_zero);
	CLIENT(key_that_is_too_short);
	CLIENT(pull_from_too_short);
	CLIENT(key_without_the_right);
	CLIENT(key_that_ended);
	CLIENT(end_of_the_address_space);
	CLIENT(another_file_meanwhile);
	CLIENT(handle_that_is_none);
	CLIENT(no_buffers);
	CLIENT(reaches_for_the_server);
	CLIENT(leaves_in_the_middle);
	server_end();
	/* Use a new server each time, because a server remembers failures. */
	server_start();
	/* All connections of this user are one client. */
	others_join = false;
	CLIENT(fails_again_and_again);
	server_end();
	T_EQ(setenv("STUB_IBVERBS_HOLD", rig_path("hold"), 1), 0);
	server_start();
	T_EQ(unsetenv("STUB_IBVERBS_HOLD"), 0);
	CLIENT(a_failed_end_wakes_nobody);
	server_end();
	T_EQ(setenv("STUB_IBVERBS_DEATH", rig_path("death"), 1), 0);
	server_start();
	T_EQ(unsetenv("STUB_IBVERBS_DEATH"), 0);
	CLIENT(the_device_fails);
	server_end();
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
