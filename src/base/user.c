/* SPDX-License-Identifier: MIT */
#include "base/user.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#include "base/base.h"

#define OVERFLOW_UID 65534 /* the kernel's default overflow uid */

/* Each line of /proc/self/uid_map is "FIRST OUTSIDE COUNT", user_namespaces(7). */
bool user_is_mapped(uid_t uid)
{
	FILE *f = fopen("/proc/self/uid_map", "re");
	uint32_t first, count;
	bool found = false;

	/* Without /proc, treat only the default overflow uid as unmapped. */
	if (!f)
		return uid != OVERFLOW_UID;
	while (!found && fscanf(f, "%" SCNu32 " %*u %" SCNu32, &first, &count) == 2)
		found = uid >= first && uid - first < count;
	(void)fclose(f);
	return found;
}

bool user_is_own(uid_t uid)
{
	return uid == geteuid() && user_is_mapped(uid);
}
