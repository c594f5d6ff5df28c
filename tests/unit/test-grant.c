/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "mem/mem.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)

/* The wire format, written again from its description instead of included. */
struct wire {
	uint32_t magic;
	uint16_t version;
	uint16_t len;
	uint32_t kind;
	uint32_t rights;
	uint8_t uuid[16];
	uint64_t size;
	uint64_t off;
	uint64_t bytes;
	uint8_t ipc[64];
	uint32_t nr_fds;
	uint32_t crc;
} __attribute__((packed));

static struct wire good_wire(void)
{
	return (struct wire){
		.magic = 0x47545350,
		.version = 1,
		.len = sizeof(struct wire),
		.kind = PST_KIND_HOST,
		.rights = PST_RIGHT_READ,
		.size = 4096,
		.bytes = 4096,
		.nr_fds = 1,
	};
}

static void seal(struct wire *w)
{
	w->crc = crc32c(0, w, offsetof(struct wire, crc));
}

static void pair(int type, int s[2])
{
	T_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, s), 0);
}

static void close_pair(int s[2])
{
	(void)close(s[0]);
	(void)close(s[1]);
}

static struct pst_grant empty(void)
{
	return (struct pst_grant){ .sz = sizeof(struct pst_grant), .fd = -1 };
}

/* Send any bytes, with any number of descriptors. */
static void send_raw(int sock, const void *p, size_t len, const int *fds, unsigned nr_fds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(253 * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)p, .iov_len = len };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nr_fds) {
		struct cmsghdr *c;

		h.msg_control = control.buf;
		h.msg_controllen = CMSG_SPACE(nr_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nr_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nr_fds * sizeof(int));
	}
	T_EQ(sendmsg(sock, &h, MSG_NOSIGNAL), len);
}

static struct mem_alloc *shared(uint32_t kind, uint64_t len)
{
	struct mem_alloc *a = NULL;

	T_OK(mem_alloc(mem_provider(kind), 0, len, PST_MEM_SHARED, &a));
	return a;
}

/*
 * Run the other process: receive a grant, check that its range has the bytes of seed 1, and
 * write those of seed 2. The exit status says which step failed.
 */
static int peer(int sock, uint64_t off, uint64_t len)
{
	struct pst_grant g = empty();
	struct mem_alloc *a;
	uint8_t *buf = malloc(len);

	if (!buf || grant_recv(sock, &g, t_hang()) < 0)
		return 1;
	if (g.off != off || g.len != len || g.rights != RW || fcntl(g.fd, F_GETFD) != FD_CLOEXEC)
		return 2;
	if (mem_import(&g, &a) < 0)
		return 3;
	(void)close(g.fd);
	if (mem_copy_sync(a, MEM_FROM_DEVICE, off, buf, len) < 0 ||
	    t_differs(buf, 1, off, len) != len)
		return 4;
	t_fill(buf, 2, off, len);
	if (mem_copy_sync(a, MEM_TO_DEVICE, off, buf, len) < 0)
		return 5;
	mem_free(a);
	free(buf);
	return 0;
}

static void two_processes_share(uint32_t kind, int type)
{
	enum { SIZE = 300001, OFF = 4097, LEN = 100003 };
	struct mem_alloc *a = shared(kind, SIZE);
	static uint8_t buf[SIZE];
	struct pst_grant g;
	int s[2], status;
	pid_t pid;

	t_fill(buf, 1, 0, SIZE);
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, buf, SIZE));
	pair(type, s);
	pid = fork();
	if (!pid) {
		(void)close(s[0]);
		_exit(peer(s[1], OFF, LEN));
	}
	T_OK(mem_export(a, RW, &g));
	g.off = OFF;
	g.len = LEN;
	T_OK(grant_send(s[0], &g, t_hang()));
	(void)close(g.fd);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_CHECK(WIFEXITED(status));
	T_EQ(WEXITSTATUS(status), 0);
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, buf, SIZE));
	T_EQ(t_differs(buf, 1, 0, OFF), OFF);
	T_EQ(t_differs(buf + OFF, 2, OFF, LEN), LEN);
	T_EQ(t_differs(buf + OFF + LEN, 1, OFF + LEN, SIZE - OFF - LEN), SIZE - OFF - LEN);
	close_pair(s);
	mem_free(a);
}

static void two_processes_share_host_memory(void)
{
	two_processes_share(PST_KIND_HOST, SOCK_STREAM);
	two_processes_share(PST_KIND_HOST, SOCK_SEQPACKET);
}

static void two_processes_share_device_memory(void)
{
	two_processes_share(PST_KIND_SOFT, SOCK_STREAM);
	two_processes_share(PST_KIND_SOFT, SOCK_SEQPACKET);
}

static void everything_arrives(void)
{
	struct mem_alloc *a = shared(PST_KIND_SOFT, 1000);
	struct pst_grant g, h = empty();
	int s[2];

	pair(SOCK_STREAM, s);
	T_OK(mem_export(a, PST_RIGHT_READ, &g));
	g.off = 10;
	g.len = 20;
	T_OK(grant_send(s[0], &g, 0));
	T_OK(grant_send(s[0], &g, 0)); /* a second one stays separate */
	for (int i = 0; i < 2; i++) {
		T_OK(grant_recv(s[1], &h, 0));
		T_CHECK(h.fd >= 0 && h.fd != g.fd);
		(void)close(h.fd);
		h.fd = g.fd;
		T_CHECK(!memcmp(&g, &h, sizeof(g)));
	}
	T_EQ(grant_recv(s[1], &h, 0), -ETIMEDOUT);
	(void)close(g.fd);
	close_pair(s);
	mem_free(a);
}

/* Messages of a sender who knows the format. */
static void hostile(int type)
{
	struct mem_alloc *a = shared(PST_KIND_HOST, 4096);
	struct pst_grant g, h = empty();
	struct wire w;
	int s[2], fds[250];

	T_OK(mem_export(a, PST_RIGHT_READ, &g));
	for (int i = 0; i < 250; i++)
		fds[i] = g.fd;
#define REFUSED(p, len, nr)                              \
	do {                                             \
		unsigned _fds = t_count_fds();           \
		pair(type, s);                           \
		send_raw(s[0], p, len, fds, nr);         \
		T_EQ(grant_recv(s[1], &h, 0), -EBADMSG); \
		T_EQ(h.fd, -1);                          \
		close_pair(s);                           \
		T_EQ(t_count_fds(), _fds);               \
	} while (0)
#define WRONG(...)                         \
	do {                               \
		w = good_wire();           \
		__VA_ARGS__;               \
		seal(&w);                  \
		REFUSED(&w, sizeof(w), 1); \
	} while (0)

	w = good_wire();
	seal(&w);
	pair(type, s);
	send_raw(s[0], &w, sizeof(w), fds, 1);
	T_OK(grant_recv(s[1], &h, 0)); /* this message is valid; each one below has one fault */
	(void)close(h.fd);
	h = empty();
	close_pair(s);

	REFUSED(&w, 1, 1);
	REFUSED(&w, sizeof(w) - 1, 1);
	REFUSED("hello", 5, 0);
	REFUSED(&w, sizeof(w), 0);
	REFUSED(&w, sizeof(w), 2);
	REFUSED(&w, sizeof(w), 100);
	REFUSED(&w, sizeof(w), 250); /* more descriptors than the control buffer holds */
	for (size_t bit = 0; bit < 8 * sizeof(w); bit += 5) {
		struct wire bad = w;

		((uint8_t *)&bad)[bit / 8] ^= (uint8_t)(1u << (bit & 7));
		REFUSED(&bad, sizeof(bad), 1);
	}
	WRONG(w.magic ^= 1);
	WRONG(w.version = 0);
	WRONG(w.version = 2);
	WRONG(w.len = 127);
	WRONG(w.kind = 0);
	WRONG(w.kind = 6);
	WRONG(w.rights = 0);
	WRONG(w.rights = 0x80000001);
	WRONG(w.bytes = 0);
	WRONG(w.bytes = 4097);
	WRONG(w.off = 1);
	WRONG(w.off = UINT64_MAX);
	WRONG(w.off = UINT64_MAX - 4094);
	WRONG(w.size = UINT64_MAX);
	WRONG(w.ipc[0] = 1);
	WRONG(w.nr_fds = 0);
	WRONG(w.nr_fds = 2);
	(void)close(g.fd);
	mem_free(a);
}

static void hostile_messages_on_a_stream(void)
{
	hostile(SOCK_STREAM);
}

static void hostile_messages_in_packets(void)
{
	struct wire w[2] = { good_wire(), good_wire() };
	struct pst_grant h = empty();
	int s[2], fd = 0;

	hostile(SOCK_SEQPACKET);
	/* A packet that begins like a grant and is longer. */
	seal(&w[0]);
	pair(SOCK_SEQPACKET, s);
	send_raw(s[0], w, sizeof(w), &fd, 1);
	T_EQ(grant_recv(s[1], &h, 0), -EBADMSG);
	close_pair(s);
}

/* Well-formed grants whose memory cannot be mapped safely. */
static void lying_grants_are_not_imported(void)
{
	struct pst_grant h = empty();
	struct mem_alloc *b = NULL;
	struct wire w = good_wire();
	int s[2], fd;

	seal(&w);
	pair(SOCK_STREAM, s);

	fd = memfd_create("unsealed", MFD_CLOEXEC);
	T_EQ(ftruncate(fd, 4096), 0);
	send_raw(s[0], &w, sizeof(w), &fd, 1);
	T_OK(grant_recv(s[1], &h, 0));
	T_EQ(mem_import(&h, &b), -EINVAL);
	(void)close(h.fd);
	(void)close(fd);

	fd = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	T_EQ(ftruncate(fd, 4095), 0);
	T_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	send_raw(s[0], &w, sizeof(w), &fd, 1);
	T_OK(grant_recv(s[1], &h, 0));
	T_EQ(mem_import(&h, &b), -EINVAL);
	(void)close(h.fd);
	(void)close(fd);

	send_raw(s[0], &w, sizeof(w), &s[0], 1);
	T_OK(grant_recv(s[1], &h, 0));
	T_EQ(mem_import(&h, &b), -EINVAL);
	(void)close(h.fd);
	close_pair(s);
	T_CHECK(!b);
}

static void only_connected_unix_sockets(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct mem_alloc *a = shared(PST_KIND_HOST, 1);
	struct pst_grant g, h = empty();
	int s[2], fds[6];

	T_OK(mem_export(a, RW, &g));
	pair(SOCK_DGRAM, s);
	fds[0] = s[0];
	fds[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fds[2] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fds[3] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	in.sin_port = htons(9);
	(void)connect(fds[3], (struct sockaddr *)&in, sizeof(in));
	fds[4] = open("/dev/null", O_RDWR | O_CLOEXEC);
	fds[5] = -1;
	for (int i = 0; i < 6; i++) {
		T_EQ(grant_send(fds[i], &g, t_hang()), -EPROTOTYPE);
		T_EQ(grant_recv(fds[i], &h, t_hang()), -EPROTOTYPE);
	}
	for (int i = 1; i < 5; i++)
		(void)close(fds[i]);
	close_pair(s);
	(void)close(g.fd);
	mem_free(a);
}

static void bad_arguments(void)
{
	struct pst_grant g = empty(), h = empty();
	int s[2];

	pair(SOCK_STREAM, s);
	T_EQ(grant_send(s[0], NULL, 0), -EINVAL);
	T_EQ(grant_send(s[0], &g, 0), -EINVAL);
	g.sz = 0;
	T_EQ(grant_send(s[0], &g, 0), -EINVAL);
	h.sz = 8;
	T_EQ(grant_recv(s[1], &h, 0), -EINVAL);
	T_EQ(grant_recv(s[1], NULL, 0), -EINVAL);
	close_pair(s);
}

static void deadlines_hold(void)
{
	struct mem_alloc *a = shared(PST_KIND_HOST, 1);
	struct pst_grant g, h = empty();
	uint64_t start;
	int s[2], n = 0, r;

	pair(SOCK_STREAM, s);
	start = t_now();
	T_EQ(grant_recv(s[1], &h, 0), -ETIMEDOUT);
	T_EQ(grant_recv(s[1], &h, t_in_ms(30)), -ETIMEDOUT);
	T_CHECK(t_now() - start >= 30 * 1000000u);

	/* Nobody reads, so the socket gets full. */
	T_OK(mem_export(a, RW, &g));
	while ((r = grant_send(s[0], &g, t_in_ms(20))) == 0)
		T_CHECK(++n < 100000);
	T_EQ(r, -ETIMEDOUT);
	while ((r = grant_recv(s[1], &h, 0)) == 0) {
		(void)close(h.fd);
		n--;
	}
	T_EQ(r, -ETIMEDOUT);
	T_EQ(n, 0);
	(void)close(g.fd);
	close_pair(s);
	mem_free(a);
}

static void a_late_peer_is_waited_for(void)
{
	struct mem_alloc *a = shared(PST_KIND_HOST, 1);
	struct pst_grant g, h = empty();
	int s[2], status;
	pid_t pid;

	pair(SOCK_SEQPACKET, s);
	T_OK(mem_export(a, RW, &g));
	pid = fork();
	if (!pid) {
		(void)usleep(30000); /* let the receiver wait */
		_exit(-grant_send(s[0], &g, 0));
	}
	T_OK(grant_recv(s[1], &h, PST_NO_DEADLINE));
	(void)close(h.fd);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	(void)close(g.fd);
	close_pair(s);
	mem_free(a);
}

static void a_peer_that_is_gone(void)
{
	struct mem_alloc *a = shared(PST_KIND_HOST, 1);
	struct pst_grant g, h = empty();
	int s[2];

	T_OK(mem_export(a, RW, &g));
	for (int i = 0; i < 2; i++) {
		pair(i ? SOCK_SEQPACKET : SOCK_STREAM, s);
		(void)close(s[0]);
		T_EQ(grant_recv(s[1], &h, t_hang()), -EPIPE);
		T_EQ(grant_send(s[1], &g, t_hang()), -EPIPE); /* without a SIGPIPE */
		(void)close(s[1]);
	}
	(void)close(g.fd);
	mem_free(a);
}

/* The socket's owner may have enabled credentials for each message. */
static void credentials_beside_the_grant(void)
{
	struct mem_alloc *a = shared(PST_KIND_HOST, 1);
	struct pst_grant g, h = empty();
	int s[2], on = 1;

	pair(SOCK_STREAM, s);
	T_EQ(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
#ifdef SO_PASSPIDFD
	(void)setsockopt(s[1], SOL_SOCKET, SO_PASSPIDFD, &on, sizeof(on));
#else
	(void)setsockopt(s[1], SOL_SOCKET, 76, &on, sizeof(on)); /* SO_PASSPIDFD, of Linux 6.5 */
#endif
	T_OK(mem_export(a, RW, &g));
	T_OK(grant_send(s[0], &g, 0));
	T_OK(grant_recv(s[1], &h, 0));
	(void)close(h.fd);
	(void)close(g.fd);
	close_pair(s);
	mem_free(a);
}

static void without_descriptors(void)
{
	struct mem_alloc *a = shared(PST_KIND_HOST, 1);
	struct pst_grant g, h = empty();
	struct rlimit old, low;
	int s[2], r;

	pair(SOCK_STREAM, s);
	T_OK(mem_export(a, RW, &g));
	T_OK(grant_send(s[0], &g, 0));
	T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = 3;
	T_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
	r = grant_recv(s[1], &h, 0);
	T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
	T_EQ(r, -EMFILE);
	(void)close(g.fd);
	close_pair(s);
	mem_free(a);
}

/* The peer is another user: each side refuses.  Needs root. */
static void another_user_gets_nothing(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct mem_alloc *a;
	struct pst_grant g, h = empty();
	socklen_t len = sizeof(sa_family_t);
	int listener, sock, status;
	pid_t pid;

	if (geteuid() != 0)
		T_SKIP("root, to become another user");
	a = shared(PST_KIND_HOST, 1);
	T_OK(mem_export(a, RW, &g));
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	T_EQ(bind(listener, (struct sockaddr *)&addr, len), 0); /* the kernel picks a name */
	T_EQ(listen(listener, 1), 0);
	len = sizeof(addr);
	T_EQ(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	pid = fork();
	if (!pid) {
		int c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		char b;

		if (setresuid(65533, 65533, 65533) < 0 ||
		    connect(c, (struct sockaddr *)&addr, len) < 0)
			_exit(1);
		/* For that user, root is another user as well. */
		if (grant_recv(c, &h, t_hang()) != -EACCES)
			_exit(2);
		_exit(read(c, &b, 1) == 0 ? 0 : 3); /* no byte was sent */
	}
	sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	T_EQ(grant_send(sock, &g, t_hang()), -EACCES);
	T_EQ(grant_recv(sock, &h, t_hang()), -EACCES);
	(void)close(sock);
	T_EQ(waitpid(pid, &status, 0), pid);
	(void)close(listener);
	(void)close(g.fd);
	mem_free(a);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
		T_SKIP("the right to become another user");
	T_EQ(status, 0);
}

/* In a user namespace, all unmapped users share one uid: it must not count as the same user. */
static void the_overflow_uid_is_nobodys(void)
{
	struct pst_grant g, h = empty();
	struct mem_alloc *a;
	int s[2], status;
	pid_t pid;

	a = shared(PST_KIND_HOST, 1);
	T_OK(mem_export(a, RW, &g));
	pid = fork();
	if (!pid) {
		if (unshare(CLONE_NEWUSER) < 0)
			_exit(77);
		pair(SOCK_STREAM, s);
		if (grant_send(s[0], &g, t_hang()) != -EACCES || !strstr(err_text(), "uid_map"))
			_exit(1);
		_exit(grant_recv(s[1], &h, t_hang()) == -EACCES ? 0 : 2);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	(void)close(g.fd);
	mem_free(a);
	T_CHECK(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		T_SKIP("a user namespace");
	T_EQ(WEXITSTATUS(status), 0);
}

int main(void)
{
	T_RUN(two_processes_share_host_memory);
	T_RUN(two_processes_share_device_memory);
	T_RUN(everything_arrives);
	T_RUN(hostile_messages_on_a_stream);
	T_RUN(hostile_messages_in_packets);
	T_RUN(lying_grants_are_not_imported);
	T_RUN(only_connected_unix_sockets);
	T_RUN(bad_arguments);
	T_RUN(deadlines_hold);
	T_RUN(a_late_peer_is_waited_for);
	T_RUN(a_peer_that_is_gone);
	T_RUN(credentials_beside_the_grant);
	T_RUN(without_descriptors);
	T_RUN(another_user_gets_nothing);
	T_RUN(the_overflow_uid_is_nobodys);
	return t_done();
}
