/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "base/err.h"

#define NAME_MAX_LEN 128

static _Thread_local char name[NAME_MAX_LEN];

const char *err_name(int err)
{
	int saved = errno;
	bool known = err >= -4095 && err <= 4095; /* the range of errors that the kernel returns */
	int e = known && err < 0 ? -err : err;
	const char *n = known ? strerrorname_np(e) : NULL;
	const char *d = known ? strerrordesc_np(e) : NULL;

	if (n && d)
		(void)snprintf(name, sizeof(name), "%s (%s)", n, d);
	else
		(void)snprintf(name, sizeof(name), "error %d", e);
	errno = saved;
	return name;
}
