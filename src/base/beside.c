/* SPDX-License-Identifier: MIT */
#include "base/beside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/trust.h"

int beside_path(const void *near, const char *file, const char *who, char ret[PATH_MAX])
{
	char path[PATH_MAX], *slash;
	Dl_info info;
	ssize_t n;

	/* A relative name may refer to another file now. */
	if (dladdr((void *)near, &info) && info.dli_fname && info.dli_fname[0] == '/') {
		(void)snprintf(path, sizeof(path), "%s", info.dli_fname);
	} else {
		/* The library is statically linked into the program. */
		n = readlink("/proc/self/exe", path, sizeof(path) - 1);
		path[MAX(n, 0)] = '\0';
	}
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash - path) + strlen(file) + 2 > sizeof(path))
		return err_set(ENOENT, "%s needs %s, and the folder of the library has no name",
			       who, file);
	(void)strcpy(slash + 1, file);
	if (access(path, F_OK) < 0)
		return err_set(ENOENT,
			       "%s needs %s, which is not there; install it beside the library",
			       who, path);
	return trust_path(path, ret);
}
