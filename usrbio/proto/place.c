/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/place.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

/* FNV-1a of 64 bits: two mount points of one machine do not meet, and if they did, the second
 * server would say so. */
void usrbio_place_name(const char *dir, char ret[USRBIO_PLACE_NAME])
{
	uint64_t n = UINT64_C(0xcbf29ce484222325);

	for (; *dir; dir++)
		n = (n ^ (unsigned char)*dir) * UINT64_C(0x100000001b3);
	(void)snprintf(ret, USRBIO_PLACE_NAME, "%016" PRIx64 USRBIO_PLACE_SUFFIX, n);
}
