/* SPDX-License-Identifier: MIT */
/*
 * The server of the storage service by RDMA against hostile clients, which are those of the test.
 * All attacks must end in errors, touch only memory that a key allows, and leave nothing behind.
 * PENSTOCK is the path of the command; libibverbs is the stub.
 */
#include <dirent.h>
#include <poll.h>
#include <sys/wait.h>

#include "rdma_hostile.h"

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

/* ----------------------------------------------------------------------- main */

static void run_client(const char *name, void (*fn)(struct caller *c))
{
	client = fn;
	rig_run1(name, hostile_client);
}

#define CLIENT(fn) run_client(#fn, fn)

int main(void)
{
	own_rig();
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
	own_end();
	return rig_done();
}
