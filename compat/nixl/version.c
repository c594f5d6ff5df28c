/* SPDX-License-Identifier: MIT */
/*
 * Is the NIXL that loads the plug-in one that it was built for?
 *
 * NIXL's plug-in interface is a C++ class: a method that is added or moved makes NIXL call another
 * method.  The number that NIXL compares, NIXL_PLUGIN_API_VERSION, does not change then.  A wheel's
 * version is in the name of a folder next to its libraries; a NIXL that was installed in another
 * way has no version that can be found, and is accepted.
 */
#include <dirent.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plug_int.h"

/* Pairs of versions whose interfaces were found to be the same, by tests/compat/nixl.sh. */
static const char *const same[][2] = {
	{ "1.4", "1.5" },
};

/* Copy the path of the NIXL library that is loaded. */
static int path_find(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *base = strrchr(info->dlpi_name, '/');

	(void)size;
	if (!base || strcmp(base, "/libnixl.so") != 0)
		return 0;
	snprintf(arg, PATH_MAX, "%s", info->dlpi_name);
	return 1;
}

/* Cut off the last part of a path.  Return it, or NULL. */
static char *path_split(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash)
		return NULL;
	*slash = 0;
	return slash + 1;
}

/*
 * Find the version in the name of the folder nixl_cu12-1.5.1.dist-info next to the library's folder
 * .nixl_cu12.mesonpy.libs.  Wheels for other versions of CUDA may be there, too.
 */
static bool version_find(char *path, char *ret, size_t len)
{
	const char *package = NULL;
	struct dirent *entry;
	bool found = false;
	size_t package_len;
	DIR *dir;

	if (path_split(path))
		package = path_split(path);
	if (package)
		package = strstr(package, "nixl");
	if (!package)
		return false;
	package_len = strcspn(package, ".");
	dir = opendir(path);
	if (!dir)
		return false;
	while (!found && (entry = readdir(dir))) {
		const char *name = entry->d_name;
		const char *version = name + package_len + 1;
		const char *end = strstr(name, ".dist-info");

		if (strncmp(name, package, package_len) != 0 || version[-1] != '-' || !end ||
		    end <= version)
			continue;
		snprintf(ret, len, "%.*s", (int)(end - version), version);
		found = true;
	}
	closedir(dir);
	return found;
}

/* Does a version such as 1.5.1 begin with major and minor number? */
static bool begins(const char *version, const char *minor)
{
	size_t len = strlen(minor);

	return !strncmp(version, minor, len) && (!version[len] || version[len] == '.');
}

bool plug_version_ok(void)
{
	char path[PATH_MAX] = "", version[64];
	const char *any = secure_getenv("PST_NIXL_ANY_VERSION");
	size_t i;

	dl_iterate_phdr(path_find, path);
	if (!path[0] || !version_find(path, version, sizeof(version)))
		return true;
	if (begins(version, PLUG_NIXL_VERSION))
		return true;
	for (i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (!strcmp(same[i][0], PLUG_NIXL_VERSION) && begins(version, same[i][1]))
			return true;
	if (any && !strcmp(any, "1"))
		return true;
	plug_log("this plug-in was built for NIXL %s, but %s is NIXL %s: build it with the source "
		 "of NIXL %s",
		 PLUG_NIXL_VERSION, path, version, version);
	return false;
}
