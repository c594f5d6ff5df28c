/* SPDX-License-Identifier: MIT */
/*
 * The test is a peer that breaks the protocol.  It must reach nothing unshared and must be
 * disconnected, and other peers continue.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "rig.h"

#include "base/crc32c.h"
#include "base/le.h"
#include "peer/msg.h"

#define LEN 65536u
#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)

static struct pst_listener *listener;
static struct pst_peer *peer; /* the library's side */
static struct pst_mem *mem;
static int sock; /* the test's side */
static unsigned nr_started;

/* Make a new path for each listener, because a failed case leaves its socket behind. */
static const char *sock_path(void)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "sock-%u", nr_started);
	return rig_path(name);
}

/* ------------------------------------------------------------------- wire */

static void put_hello(uint8_t buf[PEER_HEAD + PEER_HELLO_LEN])
{
	struct peer_msg m = { .len = PEER_HEAD + PEER_HELLO_LEN, .type = PEER_HELLO };
	struct peer_hello h = { 1, 1, PEER_DATA_MAX, PST_MESSAGE_INLINE, 64, 64, 0 };

	peer_put_msg(&m, buf);
	peer_put_hello(&h, buf + PEER_HEAD);
}

static void send_all(const void *buf, size_t len)
{
	const char *at = buf;

	while (len) {
		ssize_t n = send(sock, at, len, MSG_NOSIGNAL);

		T_CHECK(n > 0);
		at += n;
		len -= (size_t)n;
	}
}

/* Receive len bytes.  Return false if the other side has ended the connection. */
static bool get_all(void *buf, size_t len)
{
	char *at = buf;

	while (len) {
		struct pollfd p = { .fd = sock, .events = POLLIN };
		ssize_t n;

		T_EQ(poll(&p, 1, 60000), 1);
		n = recv(sock, at, len, 0);
		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

static int open_socket(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", sock_path());
	T_CHECK(fd >= 0);
	T_EQ(connect(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	return fd;
}

static void start(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_SHARED };
	uint8_t buf[PEER_HEAD + PEER_HELLO_LEN];
	char addr[300];

	nr_started++;
	(void)snprintf(addr, sizeof(addr), "unix:%s", sock_path());
	T_OK(pst_listener_open(addr, NULL, &listener));
	T_OK(pst_mem_alloc("host", LEN, &o, &mem));
	rig_mem_fill(mem, 0, LEN, 1, 0);
	sock = open_socket();
	put_hello(buf);
	send_all(buf, sizeof(buf));
	T_OK(pst_listener_accept(listener, t_hang(), &peer));
	T_CHECK(get_all(buf, sizeof(buf)));
}

static void end(void)
{
	(void)close(sock);
	peer = pst_peer_close(peer);
	listener = pst_listener_close(listener);
	mem = pst_mem_free(mem);
}

static void put(struct peer_msg m, const void *payload)
{
	uint8_t head[PEER_HEAD];

	if (!m.len)
		m.len = PEER_HEAD;
	peer_put_msg(&m, head);
	send_all(head, sizeof(head));
	if (m.len > PEER_HEAD)
		send_all(payload, m.len - PEER_HEAD);
}

static uint8_t payload[PEER_DATA_MAX];

/* Receive the next message, which must have that type. */
static struct peer_msg get(uint16_t type)
{
	uint8_t head[PEER_HEAD];
	struct peer_msg m;

	T_CHECK(get_all(head, sizeof(head)));
	T_EQ(peer_get_msg(head, &m), 0);
	T_EQ(m.type, type);
	T_CHECK(get_all(payload, peer_payload(&m)));
	return m;
}

/* Share memory and show the key.  Return the share's number. */
static uint64_t show_key(struct pst_share *s, uint32_t err)
{
	uint8_t key[PST_KEY_MAX];
	struct peer_key k;
	struct peer_msg m;
	int len = pst_share_pack(s, key, sizeof(key));

	T_CHECK(len > 0);
	T_EQ(peer_get_key(key, (size_t)len, &k), 0);
	put((struct peer_msg){ .len = PEER_HEAD + (uint32_t)len, .type = PEER_OPEN, .id = 7 }, key);
	m = get(PEER_OPENED);
	T_EQ(m.id, 7);
	T_EQ(m.err, err);
	return k.share;
}

static struct pst_share *share(uint64_t off, uint64_t len, uint32_t rights)
{
	struct pst_share *s;

	T_OK(pst_peer_share(peer, mem, off, len, rights, 0, &s));
	return s;
}

static uint32_t try_get(uint64_t id, uint64_t off, uint32_t count)
{
	struct peer_msg m;

	put((struct peer_msg){ .type = PEER_GET, .id = 9, .share = id, .off = off, .count = count },
	    NULL);
	m = get(PEER_DATA);
	T_EQ(m.count, m.err ? 0 : count);
	return m.err;
}

static uint32_t try_put(uint64_t id, uint64_t off, uint32_t count)
{
	static const uint8_t zero[PEER_DATA_MAX];

	put((struct peer_msg){ .len = PEER_HEAD + count,
			       .type = PEER_PUT,
			       .id = 9,
			       .share = id,
			       .off = off,
			       .count = count },
	    zero);
	return get(PEER_DONE).err;
}

/* Check that the library ended the connection because of a protocol violation. */
static void is_disconnected(void)
{
	struct pst_peer_info info = { .sz = sizeof(info) };
	char c;

	while (get_all(&c, 1))
		;
	while (info.err == 0)
		T_OK(pst_peer_info(peer, &info));
	T_EQ(info.err, EPROTO);
}

/* ------------------------------------------------------------------- cases */

static void bounds(void)
{
	struct pst_share *s;
	uint64_t id;

	start();
	s = share(1000, 3000, RW);
	id = show_key(s, 0);
	T_EQ(try_get(id, 0, 3000), 0);
	T_EQ(t_differs((char *)payload, 1, 1000, 3000), 3000);
	T_EQ(try_get(id, 0, 3001), ERANGE);
	T_EQ(try_get(id, 2999, 2), ERANGE);
	T_EQ(try_get(id, 3000, 1), ERANGE);
	T_EQ(try_get(id, INT64_MAX - PEER_DATA_MAX, 1), ERANGE);
	T_EQ(try_put(id, 0, 3001), ERANGE);
	T_EQ(try_put(id, 2999, 2), ERANGE);
	T_EQ(rig_mem_differs(mem, 0, LEN, 1, 0), LEN);
	T_EQ(try_put(id, 0, 3000), 0);
	T_EQ(rig_mem_differs(mem, 4000, LEN - 4000, 1, 4000), LEN - 4000);
	T_OK(pst_share_close(s, t_hang()));
	end();
}

static void rights(void)
{
	struct pst_share *r, *w;
	uint64_t id;

	start();
	r = share(0, 4096, PST_RIGHT_READ);
	w = share(0, 4096, PST_RIGHT_WRITE);
	id = show_key(r, 0);
	T_EQ(try_put(id, 0, 1), EACCES);
	T_EQ(try_get(id, 0, 1), 0);
	id = show_key(w, 0);
	T_EQ(try_get(id, 0, 1), EACCES);
	T_EQ(rig_mem_differs(mem, 0, LEN, 1, 0), LEN);
	T_OK(pst_share_close(r, t_hang()));
	T_OK(pst_share_close(w, t_hang()));
	end();
}

/* The number of a closed share finds nothing, even when another share has its place. */
static void old_number(void)
{
	struct pst_share *s;
	uint64_t old, new;

	start();
	s = share(0, 4096, RW);
	old = show_key(s, 0);
	T_OK(pst_share_close(s, t_hang()));
	T_EQ(try_get(old, 0, 1), ESTALE);
	s = share(4096, 4096, RW);
	new = show_key(s, 0);
	T_EQ(new &UINT32_MAX, old & UINT32_MAX);
	T_EQ(try_get(old, 0, 1), ESTALE);
	T_EQ(try_put(old, 0, 1), ESTALE);
	T_EQ(try_get(new, 0, 1), 0);
	T_EQ(rig_mem_differs(mem, 0, LEN, 1, 0), LEN);
	T_OK(pst_share_close(s, t_hang()));
	end();
}

/* A number alone gives no rights, nor does a key with a forged nonce, length or rights. */
static void made_up_key(void)
{
	uint8_t key[PST_KEY_MAX], forged[PEER_KEY_LEN];
	struct pst_share *s;
	struct peer_key k;
	int len;

	start();
	s = share(0, 4096, PST_RIGHT_READ);
	len = pst_share_pack(s, key, sizeof(key));
	T_EQ(peer_get_key(key, (size_t)len, &k), 0);
	T_EQ(try_get(k.share, 0, 1), ESTALE);
	for (unsigned i = 0; i < 3; i++) {
		struct peer_key f = k;

		if (i == 0)
			f.nonce[15] ^= 1;
		else if (i == 1)
			f.len++;
		else
			f.rights = RW;
		peer_put_key(&f, forged);
		put((struct peer_msg){ .len = PEER_HEAD + PEER_KEY_LEN,
				       .type = PEER_OPEN,
				       .id = 1 },
		    forged);
		T_EQ(get(PEER_OPENED).err, ESTALE);
		T_EQ(try_get(k.share, 0, 1), ESTALE);
	}
	T_OK(pst_share_close(s, t_hang()));
	end();
}

/* A key is valid only on its own connection. */
static void key_of_another(void)
{
	struct pst_peer *first;
	struct pst_share *s;
	uint8_t buf[PEER_HEAD + PEER_HELLO_LEN];
	int old;

	start();
	first = peer;
	old = sock;
	s = share(0, 4096, RW);
	sock = open_socket();
	put_hello(buf);
	send_all(buf, sizeof(buf));
	T_OK(pst_listener_accept(listener, t_hang(), &peer));
	T_CHECK(get_all(buf, sizeof(buf)));
	(void)show_key(s, ESTALE);
	(void)close(sock);
	(void)pst_peer_close(peer);
	peer = first;
	sock = old;
	T_EQ(show_key(s, 0) >> 32, 1);
	T_OK(pst_share_close(s, t_hang()));
	end();
}

/* More requests or messages than agreed, and replies to nothing. */
static void floods(void)
{
	static const uint8_t body[64];

	start();
	for (unsigned i = 0; i < 65; i++)
		put((struct peer_msg){ .len = PEER_HEAD + 64, .type = PEER_MESSAGE, .id = i + 1 },
		    body);
	is_disconnected();
	/* Messages before the violation are received. */
	for (unsigned i = 0; i < 64; i++)
		T_EQ(pst_peer_recv(peer, mem, 0, LEN, 0), 64);
	T_EQ(pst_peer_recv(peer, mem, 0, LEN, 0), -EPIPE);
	end();
}

/* Gets whose replies are not read: the library stops at a limit. */
static void replies_not_read(void)
{
	struct pst_share *s;
	uint8_t head[PEER_HEAD];
	uint64_t id;
	unsigned nr = 0;
	bool more = true;

	start();
	s = share(0, LEN, PST_RIGHT_READ);
	id = show_key(s, 0);
	T_EQ(fcntl(sock, F_SETFL, O_NONBLOCK), 0);
	while (more) {
		struct peer_msg m = {
			.len = PEER_HEAD, .type = PEER_GET, .id = nr, .share = id, .count = LEN
		};
		struct pollfd p = { .fd = sock, .events = POLLOUT };
		ssize_t n;

		peer_put_msg(&m, head);
		n = send(sock, head, sizeof(head), MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			T_CHECK(poll(&p, 1, 60000) >= 0);
		more = n >= 0 || errno == EAGAIN;
		nr += n > 0;
		T_CHECK(nr < 20000);
	}
	T_EQ(fcntl(sock, F_SETFL, 0), 0);
	T_CHECK(nr > 64);
	is_disconnected();
	T_OK(pst_share_close(s, t_hang()));
	end();
}

/* Each of these messages ends the connection. */
static void broken_messages(void)
{
	static const struct peer_msg wrong[] = {
		{ .type = PEER_HELLO, .len = PEER_HEAD + PEER_HELLO_LEN }, /* a second hello */
		{ .type = PEER_DATA, .id = 0, .err = EIO },                /* reply to no request */
		{ .type = PEER_DONE, .id = 5 },
		{ .type = PEER_OPENED, .id = 1ull << 32, .err = EIO },
		{ .type = PEER_OPENED, .id = 1, .len = PEER_HEAD + PEER_GRANT_LEN },
		{ .type = PEER_TAKEN, .id = 1 }, /* receipt for no message */
		{ .type = PEER_TYPE_MAX + 1 },
		{ .type = PEER_GET, .count = 0 },
		{ .type = PEER_GET, .count = PEER_DATA_MAX + 1 },
		{ .type = PEER_GET, .count = 1, .off = UINT64_MAX },
		{ .type = PEER_PUT, .count = 2, .len = PEER_HEAD + 1 },
		{ .type = PEER_MESSAGE, .id = 1, .len = PEER_HEAD + PST_MESSAGE_INLINE + 1 },
		{ .type = PEER_OFFER, .id = 1, .off = 9, .len = PEER_HEAD + PEER_KEY_LEN },
		{ .type = PEER_REVOKE, .share = 1, .id = 1 },
		{ .type = PEER_CLOSE, .share = 1, .len = PEER_HEAD - 1 },
		{ .type = PEER_CLOSE, .share = 1, .len = UINT32_MAX },
	};

	for (unsigned i = 0; i < RIG_NR(wrong); i++) {
		uint8_t head[PEER_HEAD];
		struct peer_msg m = wrong[i];

		start();
		m.len = m.len ? m.len : PEER_HEAD;
		peer_put_msg(&m, head);
		send_all(head, sizeof(head));
		memset(payload, 0, sizeof(payload));
		if (m.len > PEER_HEAD && m.len < PEER_HEAD + PEER_DATA_MAX)
			(void)send(sock, payload, m.len - PEER_HEAD, MSG_NOSIGNAL);
		is_disconnected();
		end();
	}
	/* Send a message with a wrong checksum. */
	start();
	memset(payload, 0, PEER_HEAD);
	send_all(payload, PEER_HEAD);
	is_disconnected();
	end();
}

/* Unrequested descriptors are closed. */
static void unwanted_descriptors(void)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * 16)];
	} control = { 0 };
	struct iovec iov = { payload, 1 };
	struct msghdr h = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&h);
	int fds[16];

	start();
	for (unsigned i = 0; i < 16; i++)
		fds[i] = sock;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	T_EQ(sendmsg(sock, &h, MSG_NOSIGNAL), 1);
	is_disconnected();
	end();
}

/* While a peer keeps a grant, the share stays in use; it is free after the peer's REVOKED. */
static void revoked_grant(void)
{
	struct pst_share *s;
	uint64_t id;

	start();
	T_OK(pst_peer_share(peer, mem, 0, 4096, RW, PST_SHARE_GRANT, &s));
	id = show_key(s, 0);
	T_EQ(pst_share_close(s, t_in_ms(20)), -EBUSY);
	T_EQ(get(PEER_REVOKE).share, id);
	T_EQ(try_get(id, 0, 1), ESTALE);
	/* A REVOKED for another share does not count. */
	put((struct peer_msg){ .type = PEER_REVOKED, .share = id ^ 1 }, NULL);
	T_EQ(try_get(id, 0, 1), ESTALE);
	T_EQ(pst_share_close(s, t_in_ms(20)), -EBUSY);
	put((struct peer_msg){ .type = PEER_REVOKED, .share = id }, NULL);
	T_OK(pst_share_close(s, t_hang()));
	/* The end of the peer's connection ends the grant. */
	T_OK(pst_peer_share(peer, mem, 0, 4096, RW, PST_SHARE_GRANT, &s));
	(void)show_key(s, 0);
	T_EQ(pst_share_close(s, t_in_ms(1)), -EBUSY);
	(void)shutdown(sock, SHUT_RDWR);
	T_OK(pst_share_close(s, t_hang()));
	end();
}

/* A close by the library, or after a violation, does not prove that the peer unmapped the
 * memory. */
static void grant_after_close(void)
{
	struct pst_share *s;

	start();
	T_OK(pst_peer_share(peer, mem, 0, 4096, RW, PST_SHARE_GRANT, &s));
	(void)show_key(s, 0);
	peer = pst_peer_close(peer);
	T_EQ(pst_share_close(s, t_in_ms(1)), -EBUSY);
	T_EQ(close(sock), 0);
	T_OK(pst_share_close(s, t_hang()));
	sock = -1;
	end();

	start();
	T_OK(pst_peer_share(peer, mem, 0, 4096, RW, PST_SHARE_GRANT, &s));
	(void)show_key(s, 0);
	memset(payload, 0, PEER_HEAD);
	send_all(payload, PEER_HEAD);
	is_disconnected();
	T_EQ(pst_share_close(s, t_in_ms(1)), -EBUSY);
	T_EQ(close(sock), 0);
	T_OK(pst_share_close(s, t_hang()));
	sock = -1;
	end();
}

/* Memory that cannot be exported has no grant, so its share closes without an answer. */
static void grant_not_given(void)
{
	static char bytes[4096];
	struct pst_mem *m;
	struct pst_share *s;

	start();
	T_OK(pst_mem_wrap((uintptr_t)bytes, sizeof(bytes), NULL, &m));
	T_OK(pst_peer_share(peer, m, 0, sizeof(bytes), RW, PST_SHARE_GRANT, &s));
	(void)show_key(s, 0);
	T_OK(pst_share_close(s, 0));
	end();
	(void)pst_mem_free(m);
}

/* -------------------------------------------------------- full of replies */

#define FLOOD 40u /* number of gets that are always pending */
#define FLOOD_MAX 400u

static struct {
	struct pst_mem *mem;
	struct pst_share *share;
	uint64_t id;
} flood;

static void flood_get(void)
{
	put(
		(struct peer_msg){
			.type = PEER_GET, .id = 99, .share = flood.id, .count = PEER_DATA_MAX },
		NULL);
}

static void flood_start(void)
{
	T_OK(pst_mem_alloc("host", PEER_DATA_MAX, NULL, &flood.mem));
	T_OK(pst_peer_share(peer, flood.mem, 0, PEER_DATA_MAX, PST_RIGHT_READ, 0, &flood.share));
	flood.id = show_key(flood.share, 0);
}

/* Take replies and send a new get for each, until a message of that type arrives. */
static struct peer_msg flood_until(uint16_t type)
{
	for (unsigned i = 0; i < FLOOD_MAX; i++) {
		uint8_t head[PEER_HEAD];
		struct peer_msg m;

		T_CHECK(get_all(head, sizeof(head)));
		T_EQ(peer_get_msg(head, &m), 0);
		T_CHECK(get_all(payload, peer_payload(&m)));
		if (m.type == type)
			return m;
		T_EQ(m.type, PEER_DATA);
		flood_get();
	}
	T_CHECK(!"the message never came");
	return (struct peer_msg){ 0 };
}

/* Take the remaining replies. */
static void flood_end(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		(void)get(PEER_DATA);
	T_OK(pst_share_close(flood.share, t_hang()));
	flood.mem = pst_mem_free(flood.mem);
}

/* A reply with a descriptor is sent even while gets of full length are always pending. */
static void grant_in_a_flood(void)
{
	uint8_t key[PST_KEY_MAX];
	struct pst_share *s;
	int len;

	start();
	flood_start();
	T_OK(pst_peer_share(peer, mem, 0, 4096, RW, PST_SHARE_GRANT, &s));
	len = pst_share_pack(s, key, sizeof(key));
	for (unsigned i = 0; i < FLOOD; i++)
		flood_get();
	put((struct peer_msg){ .len = PEER_HEAD + (uint32_t)len, .type = PEER_OPEN, .id = 7 }, key);
	T_EQ(flood_until(PEER_OPENED).len, PEER_HEAD + PEER_GRANT_LEN);
	flood_end(FLOOD);
	(void)shutdown(sock, SHUT_RDWR);
	T_OK(pst_share_close(s, t_hang()));
	end();
}

static void *open_made_up(void *arg)
{
	struct peer_key k = { .share = 5, .len = RIG_MIB(64), .rights = RW, .kind = PST_KIND_HOST };
	struct pst_file **ret = arg;
	uint8_t key[PEER_KEY_LEN];

	peer_put_key(&k, key);
	T_OK(pst_peer_open(peer, key, sizeof(key), RIG_RW, t_hang(), ret));
	return NULL;
}

/* Open the test's memory as a file of the library. */
static struct pst_file *open_ours(void)
{
	struct pst_file *f = NULL;
	pthread_t thread;
	struct peer_msg m;

	T_EQ(pthread_create(&thread, NULL, open_made_up, &f), 0);
	m = get(PEER_OPEN);
	put((struct peer_msg){ .type = PEER_OPENED, .id = m.id }, NULL);
	T_EQ(pthread_join(thread, NULL), 0);
	return f;
}

/* The library's own requests are sent even while the peer's gets are always pending. */
static void requests_in_a_flood(void)
{
	struct pst_queue *q = rig_queue(rig_best_backend(), 4);
	struct pst_file *f;
	struct pst_io io;
	struct peer_msg m;

	start();
	f = open_ours();
	flood_start();
	for (unsigned i = 0; i < FLOOD; i++)
		flood_get();
	io = rig_io(PST_OP_READ, f, mem, 0, 0, 48);
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	m = flood_until(PEER_GET);
	T_EQ(m.count, 48);
	put((struct peer_msg){ .len = PEER_HEAD + 48, .type = PEER_DATA, .id = m.id, .count = 48 },
	    payload);
	T_EQ(rig_reap1(q).res, 48);
	io = rig_io(PST_OP_WRITE, f, mem, 0, 0, LEN);
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	m = flood_until(PEER_PUT);
	put((struct peer_msg){ .type = PEER_DONE, .id = m.id }, NULL);
	T_EQ(rig_reap1(q).res, LEN);
	flood_end(FLOOD);
	(void)pst_file_close(f);
	pst_queue_free(q);
	end();
}

/* Neither a small request nor an open waits for all of a large request. */
static void turns(void)
{
	struct pst_queue *q = rig_queue(rig_best_backend(), 4);
	struct pst_mem *big = rig_alloc("host", 80 * (uint64_t)PEER_DATA_MAX);
	struct pst_file *f, *g;
	uint64_t ids[63];
	bool small = false;
	struct pst_io io;

	start();
	f = open_ours();
	io = rig_io(PST_OP_READ, f, big, 0, 0, 80 * (uint64_t)PEER_DATA_MAX);
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	for (unsigned i = 0; i < RIG_NR(ids); i++)
		ids[i] = get(PEER_GET).id;
	g = open_ours();
	io = rig_io(PST_OP_READ, f, mem, 0, 0, 48);
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	for (unsigned i = 0; i < 3; i++) {
		put((struct peer_msg){ .len = PEER_HEAD + PEER_DATA_MAX,
				       .type = PEER_DATA,
				       .id = ids[i],
				       .count = PEER_DATA_MAX },
		    payload);
		small |= get(PEER_GET).count == 48;
	}
	T_CHECK(small);
	(void)shutdown(sock, SHUT_RDWR);
	T_EQ(rig_reap1(q).res, -EPIPE);
	T_EQ(rig_reap1(q).res, -EPIPE);
	(void)pst_file_close(f);
	(void)pst_file_close(g);
	pst_queue_free(q);
	end();
	(void)pst_mem_free(big);
}

/* Offer the test's memory, then send a short message. */
static void put_offer(uint32_t rights)
{
	struct peer_key k = { .share = 5, .len = LEN, .rights = rights, .kind = PST_KIND_HOST };
	static const uint8_t body[64];
	uint8_t key[PEER_KEY_LEN];

	peer_put_key(&k, key);
	put(
		(struct peer_msg){
			.len = PEER_HEAD + PEER_KEY_LEN, .type = PEER_OFFER, .id = 1, .off = LEN },
		key);
	if (rights & PST_RIGHT_READ)
		put((struct peer_msg){ .len = PEER_HEAD + 64, .type = PEER_MESSAGE, .id = 2 },
		    body);
}

static void *receive(void *arg)
{
	int64_t *ret = arg;

	*ret = pst_peer_recv(peer, mem, 0, LEN, t_hang());
	return NULL;
}

/* A message whose bytes the receiver may not read must not block later messages. */
static void bad_offers(void)
{
	start();
	put_offer(PST_RIGHT_WRITE);
	is_disconnected();
	end();
	for (unsigned i = 0; i < 2; i++) {
		pthread_t thread;
		struct peer_msg m;
		int64_t r = 1;

		start();
		put_offer(PST_RIGHT_READ);
		T_EQ(pthread_create(&thread, NULL, receive, &r), 0);
		m = get(PEER_OPEN);
		put((struct peer_msg){ .type = PEER_OPENED, .id = m.id, .err = i ? 0 : ENOMEM },
		    NULL);
		if (i) {
			m = get(PEER_GET);
			put((struct peer_msg){ .type = PEER_DATA, .id = m.id, .err = EFAULT },
			    NULL);
			(void)get(PEER_CLOSE);
		}
		m = get(PEER_TAKEN);
		T_EQ(m.id, 1);
		T_EQ(m.err, EIO);
		T_EQ(pthread_join(thread, NULL), 0);
		T_EQ(r, -EIO);
		T_EQ(pst_peer_recv(peer, mem, 0, LEN, t_hang()), 64);
		end();
	}
	/* The sender has gone. */
	start();
	put_offer(PST_RIGHT_READ);
	T_EQ(close(sock), 0);
	sock = -1;
	T_EQ(pst_peer_recv(peer, mem, 0, LEN, t_hang()), 64);
	T_EQ(pst_peer_recv(peer, mem, 0, LEN, t_hang()), -EPIPE);
	end();
}

/* More connections at once than the listener keeps: those that sent a hello are not dropped. */
static void many_at_once(void)
{
	uint8_t buf[PEER_HEAD + PEER_HELLO_LEN];
	struct pst_peer *peers[120];
	int socks[RIG_NR(peers)];

	start();
	put_hello(buf);
	for (unsigned i = 0; i < RIG_NR(socks); i++) {
		socks[i] = open_socket();
		T_EQ(send(socks[i], buf, sizeof(buf), MSG_NOSIGNAL), sizeof(buf));
	}
	for (unsigned i = 0; i < RIG_NR(peers); i++)
		T_OK(pst_listener_accept(listener, t_hang(), &peers[i]));
	for (unsigned i = 0; i < RIG_NR(peers); i++)
		T_EQ(close(socks[i]), 0);
	for (unsigned i = 0; i < RIG_NR(peers); i++)
		(void)pst_peer_close(peers[i]);
	end();
}

/* Another process listens at the path, accepts no connection, and its queue is full. */
static void stuck_listener(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), clients[8];
	unsigned nr = 0;
	struct pst_listener *l;
	char addr[300];

	nr_started++;
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", sock_path());
	(void)snprintf(addr, sizeof(addr), "unix:%s", sock_path());
	T_EQ(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	T_EQ(listen(fd, 0), 0);
	do {
		T_CHECK(nr < RIG_NR(clients));
		clients[nr] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	} while (connect(clients[nr++], (struct sockaddr *)&un, sizeof(un)) == 0);
	T_EQ(errno, EAGAIN);
	T_EQ(pst_listener_open(addr, NULL, &l), -EADDRINUSE);
	while (nr)
		T_EQ(close(clients[--nr]), 0);
	T_EQ(close(fd), 0);
	/* No process listens there any more. */
	T_OK(pst_listener_open(addr, NULL, &l));
	(void)pst_listener_close(l);
}

/* Connections that send nothing, or junk, do not delay peers. */
static void silent_connections(void)
{
	uint8_t buf[PEER_HEAD + PEER_HELLO_LEN];
	struct pst_peer *p;
	int silent[160]; /* every second one sends junk */

	start();
	for (unsigned i = 0; i < RIG_NR(silent); i++) {
		silent[i] = open_socket();
		if (i % 2)
			(void)send(silent[i],
				   "GET / HTTP/1.1\r\nHost: here.example.net\r\n\r\n.......", 48,
				   MSG_NOSIGNAL);
		/* The listener drops old connections. */
		T_EQ(pst_listener_accept(listener, 0, &p), -ETIMEDOUT);
	}
	(void)close(sock);
	(void)pst_peer_close(peer);
	sock = open_socket();
	put_hello(buf);
	send_all(buf, sizeof(buf));
	T_OK(pst_listener_accept(listener, t_hang(), &peer));
	T_CHECK(get_all(buf, sizeof(buf)));
	for (unsigned i = 0; i < RIG_NR(silent); i++)
		(void)close(silent[i]);
	end();
}

static void *send_all_of_mem(void *arg)
{
	int *ret = arg;

	*ret = pst_peer_send(peer, mem, 0, LEN, 0, t_hang());
	return NULL;
}

/* Send a long message.  The receiver reads its bytes by a get and accepts it, refuses it, or closes
 * the connection. */
static void offers(void)
{
	static const int want[] = { 0, -ENOMEM, -EPIPE };

	for (unsigned i = 0; i < RIG_NR(want); i++) {
		pthread_t thread;
		struct peer_msg m;
		uint8_t key[PEER_KEY_LEN];
		struct peer_key k;
		int r = 1;

		start();
		T_EQ(pthread_create(&thread, NULL, send_all_of_mem, &r), 0);
		m = get(PEER_OFFER);
		T_EQ(m.off, LEN);
		memcpy(key, payload, sizeof(key));
		T_EQ(peer_get_key(key, sizeof(key), &k), 0);
		if (i == 0) {
			put((struct peer_msg){ .len = PEER_HEAD + PEER_KEY_LEN,
					       .type = PEER_OPEN,
					       .id = 3 },
			    key);
			T_EQ(get(PEER_OPENED).err, 0);
			T_EQ(try_put(k.share, 0, 1), EACCES);
			T_EQ(try_get(k.share, 0, LEN), 0);
			T_EQ(t_differs((char *)payload, 1, 0, LEN), LEN);
		}
		if (i < 2)
			put((struct peer_msg){ .type = PEER_TAKEN,
					       .id = m.id,
					       .err = i ? ENOMEM : 0 },
			    NULL);
		else
			(void)shutdown(sock, SHUT_RDWR);
		T_EQ(pthread_join(thread, NULL), 0);
		T_EQ(r, want[i]);
		/* The share that the call made for its memory has ended. */
		if (i < 2)
			T_EQ(try_get(k.share, 0, 1), ESTALE);
		end();
	}
}

/* A peer that reads nothing blocks only its own thread. */
static void another_peer_goes_on(void)
{
	uint8_t buf[PEER_HEAD + PEER_HELLO_LEN];
	struct pst_share *s, *s2;
	struct pst_peer *first;
	uint64_t id;
	int old;

	start();
	s = share(0, LEN, PST_RIGHT_READ);
	id = show_key(s, 0);
	for (unsigned i = 0; i < 60; i++)
		put((struct peer_msg){ .type = PEER_GET, .id = i, .share = id, .count = LEN },
		    NULL);
	first = peer;
	old = sock;
	sock = open_socket();
	put_hello(buf);
	send_all(buf, sizeof(buf));
	T_OK(pst_listener_accept(listener, t_hang(), &peer));
	T_CHECK(get_all(buf, sizeof(buf)));
	s2 = share(0, LEN, RW);
	id = show_key(s2, 0);
	for (unsigned i = 0; i < 100; i++)
		T_EQ(try_get(id, 0, LEN), 0);
	T_OK(pst_share_close(s2, t_hang()));
	(void)close(sock);
	(void)pst_peer_close(peer);
	/* The share closes although replies are stuck. */
	T_OK(pst_share_close(s, t_hang()));
	peer = first;
	sock = old;
	end();
}

/* Invalid addresses, options and keys. */
static void arguments(void)
{
	struct pst_peer_opts o = { .sz = sizeof(o), .flags = 8 };
	struct pst_share *s;
	struct pst_peer *p;
	struct pst_listener *l;
	uint8_t key[8];

	T_EQ(pst_listener_open("here", NULL, &l), -EINVAL);
	T_EQ(pst_listener_open("127.0.0.1:0", &o, &l), -EINVAL);
	T_EQ(pst_listener_open("192.0.2.1:5000", NULL, &l), -EACCES);
	T_EQ(pst_peer_connect("192.0.2.1:5000", NULL, 0, &p), -EACCES);
	T_EQ(pst_peer_connect("unix:/nowhere/at/all", NULL, t_hang(), &p), -ENOENT);
	o = (struct pst_peer_opts){ .sz = sizeof(o), .keys = "/nowhere" };
	T_EQ(pst_listener_open("127.0.0.1:0", &o, &l), -ENOENT);
	T_EQ(pst_listener_open("unix:sock", &o, &l), -EINVAL);
	start();
	T_EQ(pst_peer_share(peer, mem, 0, 0, RW, 0, &s), -EINVAL);
	T_EQ(pst_peer_share(peer, mem, 0, 1, 4, 0, &s), -EINVAL);
	T_EQ(pst_peer_share(peer, mem, 0, 1, RW, 2, &s), -EINVAL);
	T_EQ(pst_peer_share(peer, mem, LEN, 1, RW, 0, &s), -ERANGE);
	T_EQ(pst_peer_share(peer, mem, UINT64_MAX, 2, RW, 0, &s), -ERANGE);
	T_OK(pst_peer_share(peer, mem, 0, LEN, RW, 0, &s));
	T_EQ(pst_share_pack(s, key, sizeof(key)), -ENOSPC);
	T_OK(pst_share_close(s, 0));
	T_EQ(pst_peer_send(peer, mem, 0, LEN + 1, 0, 0), -ERANGE);
	T_EQ(pst_peer_recv(peer, mem, 1, LEN, 0), -ERANGE);
	T_EQ(pst_peer_recv(peer, mem, 0, LEN, 0), -ETIMEDOUT);
	end();
}

int main(void)
{
	rig_init();
	RIG_RUN1(bounds);
	RIG_RUN1(rights);
	RIG_RUN1(old_number);
	RIG_RUN1(made_up_key);
	RIG_RUN1(key_of_another);
	RIG_RUN1(floods);
	RIG_RUN1(replies_not_read);
	RIG_RUN1(broken_messages);
	RIG_RUN1(unwanted_descriptors);
	RIG_RUN1(revoked_grant);
	RIG_RUN1(grant_after_close);
	RIG_RUN1(grant_not_given);
	RIG_RUN1(grant_in_a_flood);
	RIG_RUN1(requests_in_a_flood);
	RIG_RUN1(turns);
	RIG_RUN1(offers);
	RIG_RUN1(bad_offers);
	RIG_RUN1(many_at_once);
	RIG_RUN1(stuck_listener);
	RIG_RUN1(another_peer_goes_on);
	RIG_RUN1(silent_connections);
	RIG_RUN1(arguments);
	return rig_done();
}
