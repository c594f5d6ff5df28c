/* SPDX-License-Identifier: MIT */
/* Names of files, and the names by which servers know clients. */
#include <limits.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/scheme.h"
#include "remote/remote.h"

#define UNIX "pst+unix://"

static const char *skip_slashes(const char *path)
{
	while (*path == '/')
		path++;
	return path;
}

const char *remote_name(const char *name, char *addr)
{
	const char *rest = name + scheme_len(name) + 3;
	bool local = !strncmp(name, UNIX, sizeof(UNIX) - 1);
	const char *end = local ? strstr(rest, ":/") : strchr(rest, '/');
	const char *path = end ? skip_slashes(end + local) : "";

	if (!end || end == rest || !*path) {
		(void)err_set(EINVAL,
			      local ? "%s is no name of a file; give "
				      "pst+unix://SOCKET:/PATH"
				    : "%s is no name of a file; give pst://HOST:PORT/PATH",
			      name);
		return NULL;
	}
	if (end - rest >= PATH_MAX - 6 || strlen(path) > WIRE_NAME_MAX) {
		(void)err_set(ENAMETOOLONG, "the name is too long: %.64s...", name);
		return NULL;
	}
	(void)snprintf(addr, PATH_MAX, "%s%.*s", local ? "unix:" : "", (int)(end - rest), rest);
	return path;
}

/* ------------------------------------------------------------------ clients */

static struct {
	pthread_once_t once;
	uint8_t client[16];
	_Atomic uint64_t channel;
} self = { .once = PTHREAD_ONCE_INIT };

static void name_self(void)
{
	/* Nobody else has the same: then a server would take the two for one. */
	if (getrandom(self.client, sizeof(self.client), 0) != sizeof(self.client)) {
		uint64_t now = now_ns();
		pid_t pid = getpid();

		memcpy(self.client, &now, sizeof(now));
		memcpy(self.client + 8, &pid, sizeof(pid));
	}
}

void remote_hello(struct wire_hello *ret, uint64_t channel, uint64_t epoch)
{
	(void)pthread_once(&self.once, name_self);
	*ret = (struct wire_hello){
		.version = WIRE_VERSION,
		.oldest = WIRE_VERSION,
		.channel = channel,
		.epoch = epoch,
	};
	memcpy(ret->client, self.client, sizeof(ret->client));
}

uint64_t remote_channel(void)
{
	return atomic_fetch_add(&self.channel, 1) + 1;
}
