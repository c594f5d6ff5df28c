/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/place.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int usrbio_place_dir(uid_t uid, char *ret, size_t len)
{
	const char *env = uid == geteuid() ? secure_getenv("XDG_RUNTIME_DIR") : NULL;
	int n;

	if (uid == 0)
		n = snprintf(ret, len, "/run/penstock");
	else if (env && *env == '/')
		n = snprintf(ret, len, "%s/penstock", env);
	else
		n = snprintf(ret, len, "/run/user/%u/penstock", uid);
	return (size_t)n < len ? 0 : -ENAMETOOLONG;
}

/* Hash by FNV-1a, 64 bits: mount points of one machine do not collide in practice.  After a
 * collision the second server would fail with an error. */
void usrbio_place_name(const char *dir, char ret[USRBIO_PLACE_NAME])
{
	uint64_t n = UINT64_C(0xcbf29ce484222325);

	for (; *dir; dir++)
		n = (n ^ (unsigned char)*dir) * UINT64_C(0x100000001b3);
	(void)snprintf(ret, USRBIO_PLACE_NAME, "%016" PRIx64 USRBIO_PLACE_SUFFIX, n);
}

static int place_ipv4(const char *host, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
		return -EINVAL;
	if (ntohl(a.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET)
		return -EPERM;
	memcpy(ret, &a, sizeof(a));
	return sizeof(a);
}

static int place_ipv6(const char *host, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	if (inet_pton(AF_INET6, host, &a.sin6_addr) != 1)
		return -EINVAL;
	if (!IN6_IS_ADDR_LOOPBACK(&a.sin6_addr))
		return -EPERM;
	memcpy(ret, &a, sizeof(a));
	return sizeof(a);
}

int usrbio_place_tcp(const char *text, struct sockaddr_storage *ret)
{
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN + 2];
	unsigned long port;
	size_t len;

	if (strchr(text, '/') || !colon || !colon[1] || colon[1 + strspn(colon + 1, "0123456789")])
		return 0;
	len = (size_t)(colon - text);
	errno = 0;
	port = strtoul(colon + 1, NULL, 10);
	if (errno || port > UINT16_MAX || !len || len >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, len);
	host[len] = '\0';
	if (*host != '[')
		return place_ipv4(host, (uint16_t)port, ret);
	if (host[len - 1] != ']')
		return -EINVAL;
	host[len - 1] = '\0';
	return place_ipv6(host + 1, (uint16_t)port, ret);
}
