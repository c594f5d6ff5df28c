/* SPDX-License-Identifier: MIT */
/* Addresses of the storage service: HOST:PORT, [IPV6]:PORT, unix:PATH. */
#ifndef PST_NET_ADDR_H
#define PST_NET_ADDR_H

#include <sys/socket.h>

#include "base/base.h"

struct net_addr {
	socklen_t len;
	struct sockaddr_storage sa;
};

/**
 * net_addr_find() - look an address up
 * @text:   HOST:PORT, [IPV6]:PORT or unix:PATH
 * @listen: true to listen there: an empty HOST then means every address
 * @ret:    the first address of the host
 *
 * May block while a name server is asked.
 *
 * Return: 0; -EINVAL for malformed text; -ENAMETOOLONG for a path; -EHOSTUNREACH if the host has no
 * address; each with a sentence.
 */
int net_addr_find(const char *text, bool listen, struct net_addr *ret);

#define NET_ADDR_TEXT_MAX 160u

/* Write the address as text: 10.0.0.1:7900, [::1]:7900, unix:/run/sock. */
void net_addr_text(const struct net_addr *a, char *buf, size_t size);

/* Return true if bytes sent to the address stay on this machine. */
bool net_addr_is_local(const struct net_addr *a);

static inline bool net_addr_is(const struct net_addr *a, const struct net_addr *b)
{
	return a->len == b->len && !memcmp(&a->sa, &b->sa, a->len);
}

/* Create a socket of that family, non-blocking and with the service's options; -errno. */
int net_socket(const struct net_addr *a);
/* Set the options of net_socket() on a socket from accept4(2). */
void net_socket_tune(int fd, int family);

#endif
