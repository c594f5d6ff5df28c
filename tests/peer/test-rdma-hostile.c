/* SPDX-License-Identifier: MIT */
/*
 * The test is a hostile peer with a queue pair: it must reach only what it was given, and the
 * library's data then take the socket.  libibverbs is the stub, within one process.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "stub/ibverbs_stub.h"

#include "rig.h"

#include "net/verbs/blob.h"
#include "net/verbs/endpoint.h"
#include "peer/msg.h"

#define LEN 65536u
#define SEED 7
#define SHARE 5u
#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)
#define TCP PST_PATH_BIT(PST_PATH_TCP)
#define RDMA PST_PATH_BIT(PST_PATH_RDMA)

static __typeof__(stub_ibverbs_state) *stub_state;
static __typeof__(stub_ibverbs_die) *stub_die;

/* The test's side. */
static struct {
	struct nic *nic;
	struct nic_domain *domain;
	uint8_t *mem; /* LEN bytes */
	struct mem_reg *reg;
	struct endpoint *ep;
	int sock;
} own = { .sock = -1 };

/* The library's side. */
static struct pst_listener *listener;
static struct pst_peer *peer;
static struct pst_mem *mem;
static unsigned nr_started;

static void own_begin(void)
{
	void *lib = dlopen(getenv("PST_LIBIBVERBS"), RTLD_NOW);
	void *at = lib ? dlsym(lib, "stub_ibverbs_state") : NULL;
	void *die = lib ? dlsym(lib, "stub_ibverbs_die") : NULL;

	T_CHECK(at && die);
	memcpy(&stub_state, &at, sizeof(at));
	memcpy(&stub_die, &die, sizeof(die));
	T_OK(nic_open(NULL, NULL, &own.nic));
	T_OK(nic_domain_host_new(own.nic, &own.domain));
	own.mem = aligned_alloc(4096, LEN);
	T_CHECK(own.mem);
	T_OK(mr_reg_host(own.domain, own.mem, LEN, MEM_REG_REMOTE, &own.reg));
}

static void own_end(void)
{
	mr_dereg(own.domain, own.reg);
	T_OK(nic_domain_free(own.domain));
	nic_close(own.nic);
	free(own.mem);
}

static void nothing_is_left(void)
{
	struct stub_ibverbs_state st;

	stub_state(&st);
	if (*st.broken)
		T_FAIL("a rule of verbs was broken: %s", st.broken);
	T_EQ(st.qps, 0);
	T_EQ(st.cqs, 0);
	T_EQ(st.mrs, 1);
	T_EQ(st.pds, 1);
}

/* ------------------------------------------------------------------- socket */

static bool put(struct peer_msg m, const void *payload, uint32_t len)
{
	uint8_t head[PEER_HEAD];

	m.len = PEER_HEAD + len;
	peer_put_msg(&m, head);
	return send(own.sock, head, sizeof(head), MSG_NOSIGNAL) == (ssize_t)sizeof(head) &&
	       (!len || send(own.sock, payload, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static uint8_t payload[PEER_DATA_MAX];

/* Receive a message.  Return false if the library has ended the connection. */
static bool get(struct peer_msg *ret)
{
	uint8_t head[PEER_HEAD];

	if (recv(own.sock, head, sizeof(head), MSG_WAITALL) != (ssize_t)sizeof(head) ||
	    peer_get_msg(head, ret) < 0)
		return false;
	return !peer_payload(ret) || recv(own.sock, payload, peer_payload(ret), MSG_WAITALL) ==
					     (ssize_t)peer_payload(ret);
}

static void get_type(uint16_t type, struct peer_msg *ret)
{
	T_CHECK(get(ret));
	T_EQ(ret->type, type);
}

static void start(void)
{
	struct peer_hello h = { 1, 1, PEER_DATA_MAX, PST_MESSAGE_INLINE, 64, 64, PEER_KNOWS_RDMA };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	uint8_t hello[PEER_HELLO_LEN];
	char name[32], addr[600];
	struct peer_msg m;

	(void)snprintf(name, sizeof(name), "sock-%u", nr_started++);
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%.100s", rig_path(name));
	(void)snprintf(addr, sizeof(addr), "unix:%s", rig_path(name));
	T_OK(pst_listener_open(addr, NULL, &listener));
	mem = rig_alloc("host", 3 * LEN);
	rig_mem_fill(mem, 0, 3 * LEN, 1, 0);
	own.sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	T_CHECK(own.sock >= 0);
	T_EQ(connect(own.sock, (struct sockaddr *)&un, sizeof(un)), 0);
	peer_put_hello(&h, hello);
	T_CHECK(put((struct peer_msg){ .type = PEER_HELLO }, hello, sizeof(hello)));
	T_OK(pst_listener_accept(listener, t_hang(), &peer));
	get_type(PEER_HELLO, &m);
}

static void end(void)
{
	if (own.sock >= 0)
		(void)close(own.sock);
	own.sock = -1;
	peer = pst_peer_close(peer);
	listener = pst_listener_close(listener);
	mem = pst_mem_free(mem);
	endpoint_free(own.ep);
	own.ep = NULL;
	nothing_is_left();
}

static void make_end(uint8_t blob[ENDPOINT_BLOB])
{
	struct endpoint_opts o = { .send_slots = 8, .recv_slots = 1, .deadline_ms = 1000 };

	T_OK(endpoint_new(own.domain, &o, &own.ep));
	endpoint_blob(own.ep, blob);
}

/* ------------------------------------------- it asks, for the library's memory */

/* Open a share of the library, and learn its RDMA key. */
static struct peer_nic_key reach(uint64_t off, uint64_t len, uint32_t rights,
				 struct pst_share **ret)
{
	uint8_t key[PST_KEY_MAX], blob[ENDPOINT_BLOB];
	struct peer_nic_key n;
	struct peer_key k;
	struct peer_msg m;
	int r;

	T_OK(pst_peer_share(peer, mem, off, len, rights, 0, ret));
	r = pst_share_pack(*ret, key, sizeof(key));
	T_CHECK(r > 0);
	T_EQ(peer_get_key(key, (size_t)r, &k), 0);
	T_CHECK(put((struct peer_msg){ .type = PEER_OPEN, .id = 1 }, key, (uint32_t)r));
	get_type(PEER_OPENED, &m);
	T_EQ(m.err, 0);
	if (!own.ep) {
		make_end(blob);
		T_CHECK(put((struct peer_msg){ .type = PEER_RDMA }, blob, sizeof(blob)));
		get_type(PEER_RDMA, &m);
		T_EQ(m.err, 0);
		T_OK(endpoint_connect(own.ep, payload, ENDPOINT_BLOB));
	}
	T_CHECK(put((struct peer_msg){ .type = PEER_REACH, .id = 2, .share = k.share }, NULL, 0));
	get_type(PEER_REACHED, &m);
	T_EQ(m.err, 0);
	T_EQ(peer_get_nic_key(payload, peer_payload(&m), &n), 0);
	T_EQ(n.len, len);
	return n;
}

static int move(enum endpoint_op op, uint64_t addr, uint32_t rkey, uint32_t len)
{
	struct endpoint_io io = { .op = op,
				  .len = len,
				  .local = own.reg->addr,
				  .lkey = own.reg->lkey,
				  .remote = addr,
				  .rkey = rkey };
	struct endpoint_done d = { 0 };
	uint64_t until = t_hang();

	T_EQ(endpoint_post(own.ep, &io, 1), 1);
	while (endpoint_poll(own.ep, &d, 1) == 0 && t_now() < until)
		(void)usleep(100);
	return d.res;
}

/* Check that the last attempt was refused: nothing changed, and the socket works. */
static void was_refused(uint64_t share)
{
	struct peer_msg m;

	T_EQ(rig_mem_differs(mem, 0, 3 * LEN, 1, 0), 3 * LEN);
	T_CHECK(put((struct peer_msg){ .type = PEER_GET, .id = 9, .share = share, .count = 100 },
		    NULL, 0));
	do
		T_CHECK(get(&m));
	while (m.type == PEER_UNREACH || m.type == PEER_REVOKE);
	T_EQ(m.type, PEER_DATA);
	T_EQ(m.err, 0);
}

static struct {
	int64_t addr; /* relative to the share's first byte */
	uint32_t key, len, rights;
	enum endpoint_op op;
} attempt;

static void reaches_too_far(void)
{
	struct peer_nic_key n;
	struct pst_share *s;

	start();
	n = reach(LEN, LEN, attempt.rights, &s);
	/* Within the rights: the right bytes. */
	T_EQ(move(ENDPOINT_READ, n.addr, n.rkey, LEN), (int)LEN);
	T_EQ(t_differs((char *)own.mem, 1, LEN, LEN), LEN);
	T_CHECK(move(attempt.op, n.addr + (uint64_t)attempt.addr, n.rkey ^ attempt.key,
		     attempt.len) < 0);
	was_refused(n.share);
	T_OK(pst_share_close(s, t_hang()));
	end();
}

/* The key of a closed share, also after its memory was freed and allocated again. */
static void a_closed_share(void)
{
	struct peer_nic_key n, other;
	struct pst_share *s, *t;
	struct peer_msg m;

	start();
	n = reach(0, LEN, RW, &s);
	other = reach(2 * LEN, LEN, PST_RIGHT_READ, &t);
	T_CHECK(n.epoch != other.epoch && n.rkey != other.rkey);
	/* The test does not answer the request to stop; the key ends anyway. */
	(void)pst_share_close(s, t_in_ms(50));
	get_type(PEER_REVOKE, &m);
	T_CHECK(move(ENDPOINT_WRITE, n.addr, n.rkey, 64) < 0);
	was_refused(other.share);
	T_OK(pst_share_close(t, t_hang()));
	end();
}

/* ---------------------------------------------- it answers, about its own memory */

enum lie {
	LIE_NONE,
	END_GARBAGE,
	END_ERROR,
	END_NOBODY,
	END_OTHER_GID,
	END_AND_GO, /* end the connection in the middle */
	END_TWICE,
	KEY_GARBAGE,
	KEY_OF_ANOTHER,
	KEY_TOO_LONG,
	KEY_RIGHTS,
	KEY_WRONG,
	KEY_AND_GO,
	/* The library's device fails before the answer, which has a queue pair or an error. */
	DIES_THEN_END,
	DIES_THEN_ERROR,
	LIES,
};

static enum lie lie;
static atomic_uint told, unreached;

/* Let the library's device fail, and wait until the library has released it without an answer. */
static void device_dies(void)
{
	struct stub_ibverbs_state st;
	uint64_t until = t_hang();

	stub_die(true, true);
	do {
		(void)usleep(1000);
		stub_state(&st);
	} while (st.contexts > 1 && t_now() < until);
	if (st.contexts == 1 && !st.qps) /* only the test's own is left */
		atomic_fetch_add(&told, 1);
	stub_die(false, false);
}

static bool tell_end(const uint8_t *theirs)
{
	uint8_t blob[ENDPOINT_BLOB];
	struct blob b;

	if (lie > LIE_NONE && lie < KEY_GARBAGE)
		atomic_fetch_add(&told, 1);
	if (lie == END_AND_GO)
		return false;
	if (lie >= DIES_THEN_END)
		device_dies();
	if (lie == END_ERROR || lie == DIES_THEN_ERROR)
		return put((struct peer_msg){ .type = PEER_RDMA, .err = ENODEV }, NULL, 0);
	if (own.ep)
		return false;
	make_end(blob);
	if (endpoint_connect(own.ep, theirs, ENDPOINT_BLOB) < 0)
		return false;
	if (lie == END_GARBAGE)
		memset(blob + 8, 0xff, 20);
	if (blob_get(blob, sizeof(blob), &b) == 0 && (lie == END_NOBODY || lie == END_OTHER_GID)) {
		b.qpn = lie == END_NOBODY ? 0xabcdef : b.qpn;
		b.gid[15] ^= lie == END_OTHER_GID ? 0x55 : 0;
		blob_put(&b, blob);
	}
	if (lie == END_TWICE)
		(void)put((struct peer_msg){ .type = PEER_RDMA }, blob, sizeof(blob));
	return put((struct peer_msg){ .type = PEER_RDMA }, blob, sizeof(blob));
}

static bool tell_key(uint64_t id)
{
	struct peer_nic_key n = { .share = SHARE,
				  .addr = own.reg->addr,
				  .len = LEN,
				  .epoch = 1,
				  .rights = RW,
				  .rkey = own.reg->rkey };
	uint8_t out[PEER_NIC_KEY_LEN];

	if (lie >= KEY_GARBAGE)
		atomic_fetch_add(&told, 1);
	if (lie == KEY_AND_GO)
		return false;
	n.share += lie == KEY_OF_ANOTHER;
	n.len *= lie == KEY_TOO_LONG ? 2 : 1;
	n.rights = lie == KEY_RIGHTS ? PST_RIGHT_READ : n.rights;
	n.rkey ^= lie == KEY_WRONG ? 0x1000 : 0;
	peer_put_nic_key(&n, out);
	if (lie == KEY_GARBAGE)
		out[5] ^= 1;
	return put((struct peer_msg){ .type = PEER_REACHED, .id = id }, out, sizeof(out));
}

/* Answer a message.  Return true if the connection continues. */
static bool answer(const struct peer_msg *m)
{
	struct peer_msg r = { .id = m->id };

	switch (m->type) {
	case PEER_OPEN:
		r.type = PEER_OPENED;
		return put(r, NULL, 0);
	case PEER_RDMA:
		return tell_end(payload);
	case PEER_REACH:
		return tell_key(m->id);
	case PEER_GET:
		r.type = PEER_DATA;
		r.count = m->count;
		return m->off + m->count <= LEN && put(r, own.mem + m->off, m->count);
	case PEER_UNREACH:
		atomic_fetch_add(&unreached, 1);
		return true;
	default:
		return true;
	}
}

static void *answers(void *arg)
{
	struct peer_msg m;

	while (get(&m) && answer(&m))
		;
	(void)shutdown(own.sock, SHUT_RDWR);
	return arg;
}

static void lying_peer(void)
{
	struct peer_key k = { .share = SHARE, .len = LEN, .rights = RW, .kind = PST_KIND_HOST };
	uint8_t key[PEER_KEY_LEN];
	struct pst_file *f = NULL;
	pthread_t thread;
	struct pst_done d = { 0 };
	int64_t n;

	start();
	atomic_store(&told, 0);
	atomic_store(&unreached, 0);
	t_fill((char *)own.mem, SEED, 0, LEN);
	peer_put_key(&k, key);
	T_EQ(pthread_create(&thread, NULL, answers, NULL), 0);
	n = pst_peer_open(peer, key, sizeof(key), RIG_RW, t_hang(), &f);
	if (n == 0)
		n = pst_read(f, 0, mem, LEN, LEN, &d);
	/* A peer that has connected a queue pair is told that it is useless. */
	for (uint64_t until = t_hang();
	     lie == DIES_THEN_END && !atomic_load(&unreached) && t_now() < until;)
		(void)usleep(1000);
	(void)shutdown(own.sock, SHUT_RDWR);
	T_EQ(pthread_join(thread, NULL), 0);
	if (lie >= DIES_THEN_END)
		T_EQ(atomic_load(&unreached), lie == DIES_THEN_END);
	T_EQ(atomic_load(&told) > 0, lie != LIE_NONE);
	if (lie == END_AND_GO || lie == KEY_AND_GO || lie == END_TWICE) {
		T_CHECK(n < 0 || n == (int64_t)LEN);
	} else {
		T_EQ(n, LEN);
		T_CHECK(d.paths & (lie == LIE_NONE ? RDMA : TCP));
	}
	if (n == (int64_t)LEN)
		T_EQ(rig_mem_differs(mem, LEN, LEN, SEED, 0), LEN);
	T_EQ(rig_mem_differs(mem, 0, LEN, 1, 0), LEN);
	T_EQ(rig_mem_differs(mem, 2 * LEN, LEN, 1, 2 * LEN), LEN);
	(void)pst_file_close(f);
	end();
}

/* --------------------------------------------------------------------- main */

static void too_far(const char *name, enum endpoint_op op, int64_t addr, uint32_t len, uint32_t key,
		    uint32_t rights)
{
	attempt.op = op;
	attempt.addr = addr;
	attempt.len = len;
	attempt.key = key;
	attempt.rights = rights;
	rig_run1(name, reaches_too_far);
}

int main(void)
{
	static const char *const names[LIES] = {
		"an_honest_peer", "end_garbage", "end_error",   "end_nobody",     "end_other_gid",
		"end_and_go",     "end_twice",   "key_garbage", "key_of_another", "key_too_long",
		"key_rights",     "key_wrong",   "key_and_go",  "dies_then_end",  "dies_then_error",
	};

	rig_init();
	(void)signal(SIGPIPE, SIG_IGN);
	own_begin();
	too_far("writes_before", ENDPOINT_WRITE, -1, 64, 0, RW);
	too_far("writes_behind", ENDPOINT_WRITE, 1, LEN, 0, RW);
	too_far("reads_before", ENDPOINT_READ, -64, 64, 0, RW);
	too_far("reads_behind", ENDPOINT_READ, LEN, 1, 0, RW);
	too_far("wrong_key", ENDPOINT_WRITE, 0, 64, 0x1000, RW);
	too_far("writes_what_it_may_read", ENDPOINT_WRITE, 0, 64, 0, PST_RIGHT_READ);
	rig_run1("a_closed_share", a_closed_share);
	for (unsigned i = LIE_NONE; i < LIES; i++) {
		lie = (enum lie)i;
		rig_run1(names[i], lying_peer);
	}
	own_end();
	return rig_done();
}
