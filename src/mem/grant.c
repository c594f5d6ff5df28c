/* SPDX-License-Identifier: MIT */
/*
 * Grants between two processes of one user, over an AF_UNIX socket.
 *
 * One message is one struct message, with a descriptor as ancillary data if the grant has one.
 * Both processes run on one machine, so numbers have its byte order.  Magic, version and checksum
 * distinguish a grant from other data in the socket, but do not protect against a hostile peer.  To
 * protect against such a peer, this file checks the peer's uid, and the providers check the
 * descriptor at import.
 *
 * After a failure the socket cannot be used any more: a stream may have stopped in the middle of a
 * message.
 */
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/opts.h"
#include "base/user.h"
#include "mem/mem.h"

#define MAGIC 0x47545350u /* "PSTG" in memory on little-endian machines */
#define VERSION 1

struct message {
	uint32_t magic;
	uint16_t version;
	uint16_t len; /* bytes of the message, with len and crc */
	uint32_t kind;
	uint32_t rights;
	uint8_t uuid[16];
	uint64_t size;
	uint64_t off;
	uint64_t bytes; /* pst_grant.len */
	uint8_t ipc[64];
	uint32_t nr_fds; /* 0 or 1 */
	uint32_t crc;    /* CRC-32C of all members before it */
} __attribute__((packed));

_Static_assert(sizeof(struct message) == GRANT_LEN, "the wire format");

#define RIGHTS_ALL (PST_RIGHT_READ | PST_RIGHT_WRITE)

/* Size of the first version of struct pst_grant (0.2.0), and a bound for later versions, bytes. */
#define GRANT_SZ_MIN (offsetof(struct pst_grant, ipc) + 64)
#define GRANT_SZ_MAX 4096

#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04 /* Since Linux 6.5: a descriptor sent because of SO_PASSPIDFD */
#endif

static void wipe(struct message *m)
{
	explicit_bzero(m, sizeof(*m));
}

int grant_check(const struct pst_grant *g)
{
	static const uint8_t zero[64];
	const struct mem_ops *ops = mem_kind(g->kind);

	if (!ops || !(ops->caps & MEM_CAP_EXPORT))
		return err_set(EINVAL, "the grant is for memory of unknown kind %" PRIu32, g->kind);
	if (!g->rights || g->rights & ~RIGHTS_ALL)
		return err_set(EINVAL, "the grant gives no or unknown rights, %#" PRIx32,
			       g->rights);
	if (!g->len || g->size > INT64_MAX || g->off > g->size || g->len > g->size - g->off)
		return err_set(EINVAL,
			       "the grant's range (%" PRIu64 " bytes at %" PRIu64 ") is empty or "
			       "not inside its allocation of %" PRIu64,
			       g->len, g->off, g->size);
	if (g->reserved)
		return err_set(EINVAL, "the grant's reserved field is not 0");
	if (ops->caps & MEM_CAP_FD) {
		if (g->fd < 0)
			return err_set(EINVAL, "the grant has no descriptor");
		if (memcmp(g->ipc, zero, sizeof(zero)) != 0)
			return err_set(EINVAL,
				       "the grant has a vendor's handle, which this kind of "
				       "memory does not use");
	}
	return 0;
}

int grant_copy(struct pst_grant *ret, const struct pst_grant *grant)
{
	int r;

	if (!grant)
		return err_set(EINVAL, "no grant is given");
	if (!grant_has_room(grant))
		return err_set(EINVAL, "the grant's sz is %zu, which no version of the library has",
			       grant->sz);
	r = opts_copy(ret, sizeof(*ret), grant);
	if (r == 0)
		r = grant_check(ret);
	if (r < 0)
		grant_wipe(ret);
	return r;
}

void grant_wipe(struct pst_grant *grant)
{
	explicit_bzero(grant, sizeof(*grant));
}

bool grant_has_room(const struct pst_grant *grant)
{
	return grant->sz >= GRANT_SZ_MIN && grant->sz <= GRANT_SZ_MAX;
}

/*
 * Check that the socket is a connected AF_UNIX socket to a process of the same user.  The kernel
 * guarantees the uid, which is that of the process that created the peer's end.
 */
static int check_socket(int sock)
{
	struct sockaddr_un addr;
	socklen_t len = sizeof(int);
	struct ucred peer;
	int domain, type;

	if (getsockopt(sock, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
		return err_set(EPROTOTYPE, "grants need a socket: %m");
	len = sizeof(type);
	if (domain != AF_UNIX || getsockopt(sock, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ||
	    (type != SOCK_STREAM && type != SOCK_SEQPACKET))
		return err_set(EPROTOTYPE, "grants need an AF_UNIX socket of type SOCK_STREAM or "
					   "SOCK_SEQPACKET");
	len = sizeof(addr);
	if (getpeername(sock, (struct sockaddr *)&addr, &len) < 0)
		return err_set(EPROTOTYPE, "the socket is not connected: %m");
	len = sizeof(peer);
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || len != sizeof(peer))
		return err_set(EPROTOTYPE, "the socket does not say who its peer is: %m");
	if (peer.uid != geteuid())
		return err_set(EACCES,
			       "the peer runs under uid %u, this process under %u; grants stay "
			       "with one user",
			       peer.uid, geteuid());
	if (!user_is_own(peer.uid))
		return err_set(EACCES,
			       "uid %u stands for every user who has no number in this user "
			       "namespace; map this process' user (uid_map), or run it as one "
			       "that is mapped",
			       peer.uid);
	return 0;
}

/* Sleep until the socket is ready.  Return 0 or -ETIMEDOUT. */
static int wait_ready(int sock, short events, uint64_t deadline_ns)
{
	struct pollfd p = { .fd = sock, .events = events };
	struct timespec ts;

	for (;;) {
		uint64_t now = now_ns(), left;

		if (now >= deadline_ns)
			return err_set(ETIMEDOUT,
				       "the peer did not %s the grant before the deadline",
				       events == POLLIN ? "send" : "take");
		left = deadline_ns - now;
		ts.tv_sec = (time_t)MIN(left / NSEC_PER_SEC, UINT64_C(86400));
		ts.tv_nsec = (long)(left % NSEC_PER_SEC);
		errno = 0;
		if (ppoll(&p, 1, &ts, NULL) > 0)
			return 0;
		if (errno && errno != EINTR)
			return err_set(errno, "cannot wait for the peer: %m");
	}
}

static void put_message(const struct pst_grant *g, struct message *m)
{
	*m = (struct message){
		.magic = MAGIC,
		.version = VERSION,
		.len = sizeof(*m),
		.kind = g->kind,
		.rights = g->rights,
		.size = g->size,
		.off = g->off,
		.bytes = g->len,
		.nr_fds = g->fd >= 0,
	};
	memcpy(m->uuid, g->uuid, sizeof(m->uuid));
	memcpy(m->ipc, g->ipc, sizeof(m->ipc));
	m->crc = crc32c(0, m, offsetof(struct message, crc));
}

int grant_put(const struct pst_grant *grant, uint8_t to[GRANT_LEN])
{
	_cleanup_(wipe) struct message m;
	struct pst_grant g;
	int r = grant_copy(&g, grant);

	memset(&m, 0, sizeof(m));
	if (r < 0)
		return r;
	put_message(&g, &m);
	memcpy(to, &m, sizeof(m));
	grant_wipe(&g);
	return 0;
}

int grant_send(int sock, const struct pst_grant *grant, uint64_t deadline_ns)
{
	_cleanup_(wipe) struct message m;
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = &m, .iov_len = sizeof(m) };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct pst_grant g;
	ssize_t n;
	int e, r;

	memset(&m, 0, sizeof(m));
	r = grant_copy(&g, grant);
	if (r < 0)
		return r;
	put_message(&g, &m);
	if (m.nr_fds) {
		struct cmsghdr *c;

		h.msg_control = control.buf;
		h.msg_controllen = sizeof(control.buf);
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &g.fd, sizeof(int));
	}
	explicit_bzero(&g, sizeof(g));
	r = check_socket(sock);
	if (r < 0)
		return r;

	for (;;) {
		n = sendmsg(sock, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n == (ssize_t)sizeof(m))
			return 0;
		if (n >= 0) /* the kernel accepts so few bytes all at once or not at all */
			return err_set(EIO, "the socket took a part of the grant; close it");
		e = errno;
		if (e == EINTR)
			continue;
		if (e == EPIPE || e == ECONNRESET || e == ENOTCONN)
			return err_set(EPIPE, "the peer has closed the socket");
		if (e == EBADF)
			return err_set(EBADF, "the grant's descriptor is not open");
		if (e != EAGAIN)
			return err_set(e, "the grant cannot be sent: %s", err_name(e));
		r = wait_ready(sock, POLLOUT, deadline_ns);
		if (r < 0)
			return r;
	}
}

/*
 * Read the control messages.  Store the first descriptor in *ret_fd, and close all others: this
 * process has them already, wanted or not.
 *
 * Return: the number of descriptors that the peer sent.
 */
static unsigned take_fds(struct msghdr *h, int *ret_fd)
{
	unsigned nr = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level != SOL_SOCKET ||
		    (c->cmsg_type != SCM_RIGHTS && c->cmsg_type != SCM_PIDFD))
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (c->cmsg_type == SCM_RIGHTS && nr++ == 0)
				*ret_fd = fd;
			else
				closep(&fd);
		}
	}
	return nr;
}

/* Return true if this process cannot have another descriptor. */
static bool out_of_fds(int sock)
{
	_cleanup_(closep) int fd = dup(sock);

	return fd < 0 && (errno == EMFILE || errno == ENFILE);
}

static int check_message(const struct message *m, unsigned nr_fds)
{
	if (m->magic != MAGIC)
		return err_set(EBADMSG, "what came is no grant");
	if (m->version != VERSION || m->len != sizeof(*m))
		return err_set(EBADMSG,
			       "the grant has format %u, this library knows %d; update the "
			       "older end",
			       m->version, VERSION);
	if (m->crc != crc32c(0, m, offsetof(struct message, crc)))
		return err_set(EBADMSG, "the grant's checksum is wrong");
	if (nr_fds > 1 || m->nr_fds != nr_fds)
		return err_set(EBADMSG, "the grant speaks of %" PRIu32 " descriptors, %u came",
			       m->nr_fds, nr_fds);
	return 0;
}

static void take_message(const struct message *m, int fd, struct pst_grant *ret)
{
	*ret = (struct pst_grant){
		.sz = sizeof(*ret),
		.kind = m->kind,
		.rights = m->rights,
		.size = m->size,
		.off = m->off,
		.len = m->bytes,
		.fd = fd,
	};
	memcpy(ret->uuid, m->uuid, sizeof(ret->uuid));
	memcpy(ret->ipc, m->ipc, sizeof(ret->ipc));
}

bool grant_has_fd(const uint8_t from[GRANT_LEN])
{
	uint32_t nr;

	memcpy(&nr, from + offsetof(struct message, nr_fds), sizeof(nr));
	return nr;
}

int grant_get(const uint8_t from[GRANT_LEN], int fd, struct pst_grant *ret)
{
	_cleanup_(wipe) struct message m;
	int r;

	memcpy(&m, from, sizeof(m));
	r = check_message(&m, fd >= 0);
	if (r < 0)
		return r;
	take_message(&m, fd, ret);
	r = grant_check(ret);
	if (r == 0)
		return 0;
	grant_wipe(ret);
	return -EBADMSG;
}

int grant_recv(int sock, struct pst_grant *ret, uint64_t deadline_ns)
{
	_cleanup_(wipe) struct message m;
	_cleanup_(closep) int fd = -1;
	/* Room for more descriptors than are allowed, and for messages that the socket's owner may
	 * have requested (SO_PASSCRED, SO_PASSSEC), which come first. */
	union {
		struct cmsghdr align;
		char buf[1024];
	} control;
	struct iovec iov = { .iov_base = &m, .iov_len = sizeof(m) };
	struct msghdr h;
	struct pst_grant g = { .sz = sizeof(g) };
	unsigned nr_fds;
	ssize_t n;
	int e, r;

	memset(&m, 0, sizeof(m));
	if (!ret || !grant_has_room(ret))
		return err_set(EINVAL, "the sz of the grant to fill is not set");
	r = check_socket(sock);
	if (r < 0)
		return r;

	for (;;) {
		h = (struct msghdr){ .msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control.buf,
				     .msg_controllen = sizeof(control.buf) };
		n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (n >= 0)
			break;
		e = errno;
		if (e == EINTR)
			continue;
		if (e == ECONNRESET || e == ENOTCONN)
			return err_set(EPIPE, "the peer has closed the socket");
		if (e != EAGAIN)
			return err_set(e, "the grant cannot be received: %s", err_name(e));
		r = wait_ready(sock, POLLIN, deadline_ns);
		if (r < 0)
			return r;
	}

	nr_fds = take_fds(&h, &fd);
	if (h.msg_flags & MSG_CTRUNC) {
		if (!nr_fds && out_of_fds(sock))
			return err_set(EMFILE, "no free descriptor for the grant; raise "
					       "RLIMIT_NOFILE (ulimit -n)");
		return err_set(EBADMSG, "more came beside the grant than belongs to it");
	}
	if (!n && !nr_fds)
		return err_set(EPIPE, "the peer has closed the socket");
	if (n != (ssize_t)sizeof(m) || h.msg_flags & MSG_TRUNC)
		return err_set(EBADMSG, "what came is no grant");
	r = check_message(&m, nr_fds);
	if (r < 0)
		return r;

	take_message(&m, fd, &g);
	r = grant_check(&g);
	if (r < 0) {
		r = -EBADMSG;
	} else {
		r = opts_return(ret, &g, sizeof(g));
		if (r == 0)
			(void)TAKE_FD(fd);
	}
	explicit_bzero(&g, sizeof(g));
	return r;
}
