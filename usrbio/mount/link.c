/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/link.h"

#include <string.h>
#include <sys/socket.h>

#include "base/base.h"

union control {
	struct cmsghdr align;
	char buf[CMSG_SPACE(sizeof(int))];
};

int link_send(int sock, const struct link_msg *msg, int fd)
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
	return n < 0 ? -errno : 0;
}

int link_recv(int sock, struct link_msg *ret_msg, int *ret_fd)
{
	struct iovec iov = { ret_msg, sizeof(*ret_msg) };
	union control control;
	struct msghdr h = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	struct cmsghdr *c;
	ssize_t n;

	*ret_fd = -1;
	do
		n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	c = CMSG_FIRSTHDR(&h);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	if (n == sizeof(*ret_msg) && !(h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return 1;
	closep(ret_fd);
	*ret_fd = -1;
	return -EPROTO;
}
