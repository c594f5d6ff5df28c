/* SPDX-License-Identifier: MIT */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/un.h>

#include "base/err.h"
#include "net/addr.h"

static int find_unix(const char *path, struct net_addr *ret)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&ret->sa;
	size_t len = strlen(path);

	if (!len)
		return err_set(EINVAL, "unix: names no socket; give unix:PATH");
	if (len >= sizeof(un->sun_path))
		return err_set(ENAMETOOLONG,
			       "the path of the socket %s is too long; take one of at most %zu "
			       "bytes",
			       path, sizeof(un->sun_path) - 1);
	*ret = (struct net_addr){ .len = sizeof(*un) };
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, len);
	return 0;
}

int net_addr_find(const char *text, bool listen, struct net_addr *ret)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	const char *colon = strrchr(text, ':'), *host = text;
	char name[256];
	size_t len;
	int r;

	if (!strncmp(text, "unix:", 5))
		return find_unix(text + 5, ret);
	len = colon ? (size_t)(colon - text) : 0;
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		host++;
		len -= 2;
	} else if (memchr(text, ':', len)) {
		return err_set(EINVAL, "%s is no address: an IPv6 address has [brackets]", text);
	}
	if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    strlen(colon + 1) > 5 || atoi(colon + 1) > 65535 || len >= sizeof(name) ||
	    (!len && !listen))
		return err_set(EINVAL, "%s is no address; give HOST:PORT or unix:PATH", text);
	memcpy(name, host, len);
	name[len] = '\0';
	hints.ai_flags = AI_NUMERICSERV | (listen ? AI_PASSIVE : 0);
	r = getaddrinfo(len ? name : NULL, colon + 1, &hints, &list);
	if (r != 0)
		return err_set(EHOSTUNREACH, "no address is known for the host %s: %s", name,
			       gai_strerror(r));
	*ret = (struct net_addr){ .len = list->ai_addrlen };
	memcpy(&ret->sa, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return 0;
}

bool net_addr_is_local(const struct net_addr *a)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&a->sa;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a->sa;

	switch (a->sa.ss_family) {
	case AF_UNIX:
		return true;
	case AF_INET:
		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	case AF_INET6:
		return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
		       (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) && in6->sin6_addr.s6_addr[12] == 127);
	default:
		return false;
	}
}

void net_socket_tune(int fd, int family)
{
	int on = 1, idle = 30, every = 10, times = 3;

	if (family == AF_UNIX)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	/* Detect a peer whose machine vanished: such a peer closes nothing. */
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
}

int net_socket(const struct net_addr *a)
{
	int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	net_socket_tune(fd, a->sa.ss_family);
	return fd;
}

void net_addr_text(const struct net_addr *a, char *buf, size_t size)
{
	char host[64] = "?", port[16] = "?";

	if (a->sa.ss_family == AF_UNIX) {
		(void)snprintf(buf, size, "unix:%s",
			       ((const struct sockaddr_un *)&a->sa)->sun_path);
		return;
	}
	(void)getnameinfo((const struct sockaddr *)&a->sa, a->len, host, sizeof(host), port,
			  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	(void)snprintf(buf, size, a->sa.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}
