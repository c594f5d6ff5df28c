/* SPDX-License-Identifier: MIT */
#include "net/notify.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/base.h"

/* Never wait: any program may listen there, and may hang. */
int notify_service(const char *state)
{
	const char *env = secure_getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t len = env ? strlen(env) : 0;
	_cleanup_(closep) int fd = -1;

	if (!len)
		return 0;
	if ((*env != '/' && *env != '@') || len < 2 || len >= sizeof(a.sun_path))
		return -EINVAL;
	memcpy(a.sun_path, env, len);
	if (*env == '@')
		a.sun_path[0] = '\0'; /* the address is an abstract name */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	return sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
		      (const struct sockaddr *)&a,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0
		       ? -errno
		       : 0;
}
