/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/link.h"

#include <string.h>
#include <sys/socket.h>

#include "base/base.h"

union control {
	struct cmsghdr align;
	char buf[CMSG_SPACE(sizeof(int))];
};

int mount_link_send(int sock, const struct link_msg *msg, int fd)
{
	struct link_msg copy = *msg;
	struct iovec iov = { &copy, sizeof(copy) };
	union control control = { 0 };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *c;

		h.msg_control = control.buf;
		h.msg_controllen = sizeof(control.buf);
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	do
		n = sendmsg(sock, &h, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	explicit_bzero(&copy.gdr, sizeof(copy.gdr));
	return n < 0 ? -errno : 0;
}

/* Return the descriptor of a message; if there are several, close all.  Because of alignment the
 * buffer for one descriptor has room for two. */
static int take_fd(struct msghdr *h)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(h);
	int fds[CMSG_SPACE(sizeof(int)) / sizeof(int)];
	size_t nr;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return -1;
	nr = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	nr = MIN(nr, ARRAY_SIZE(fds));
	memcpy(fds, CMSG_DATA(c), nr * sizeof(int));
	if (nr == 1)
		return fds[0];
	while (nr)
		(void)close(fds[--nr]);
	return -1;
}

int link_recv(int sock, struct link_msg *ret_msg, int *ret_fd)
{
	struct iovec iov = { ret_msg, sizeof(*ret_msg) };
	union control control;
	struct msghdr h = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		/* Without a control buffer the kernel closes received descriptors. */
		.msg_control = ret_fd ? control.buf : NULL,
		.msg_controllen = ret_fd ? sizeof(control.buf) : 0,
	};
	int fd = -1;
	ssize_t n;

	do
		n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	if (ret_fd)
		fd = take_fd(&h);
	if (n == sizeof(*ret_msg) && !(h.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		if (ret_fd)
			*ret_fd = fd;
		return 1;
	}
	closep(&fd);
	return -EPROTO;
}

static ssize_t mount_link_receive(int sock, void *buf, size_t size)
{
	ssize_t n;

	do
		n = recv(sock, buf, size, MSG_TRUNC);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int transmit(int sock, const void *buf, size_t size)
{
	ssize_t n;

	do
		n = send(sock, buf, size, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int link_tell(int sock, const struct link_range *ranges, unsigned nr)
{
	int err = transmit(sock, ranges, nr * sizeof(*ranges));
	ssize_t n;
	char c;

	if (err < 0)
		return err;
	n = mount_link_receive(sock, &c, 1);
	return n > 0 ? 0 : n < 0 ? (int)n : -EPIPE;
}

int link_listen(int sock, struct link_range ret[LINK_RANGES_MAX])
{
	const size_t most = LINK_RANGES_MAX * sizeof(*ret);
	ssize_t n = mount_link_receive(sock, ret, most);

	if (n <= 0)
		return (int)n;
	return (size_t)n > most || (size_t)n % sizeof(*ret) ? -EPROTO
							    : (int)((size_t)n / sizeof(*ret));
}

int link_answer(int sock)
{
	return transmit(sock, "", 1);
}
