/* SPDX-License-Identifier: MIT */
/*
 * Where the library may lie when the loader does not find it.
 *
 * Python packages bring it without telling the loader: in a folder with the other libraries
 * of CUDA, or in one beside theirs.  A framework has usually loaded some of those by the time
 * we are asked, so we look near what is loaded.  CUDA's own folders come last, newest first.
 */
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "store/cufile_int.h"

#define FILE_NAME "/libcufile.so.0"

struct places {
	char (*v)[PATH_MAX];
	unsigned nr, max;
};

static void add(struct places *p, const char *dir, size_t dir_len, const char *more)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%.*s%s" FILE_NAME, (int)dir_len, dir, more);

	if (n < 0 || (size_t)n >= sizeof(path) || p->nr == p->max || access(path, R_OK) < 0)
		return;
	for (unsigned i = 0; i < p->nr; i++)
		if (!strcmp(p->v[i], path))
			return;
	memcpy(p->v[p->nr++], path, sizeof(path));
}

/* The loader's lock is held: nothing is loaded here. */
static int look_near(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = info->dlpi_name, *slash, *part;
	struct places *p = arg;

	(void)size;
	slash = name && name[0] == '/' ? strrchr(name, '/') : NULL;
	if (!slash)
		return 0;
	add(p, name, (size_t)(slash - name), "");
	/* .../nvidia/cuda_runtime/lib/libcudart.so.12 -> .../nvidia/cufile/lib */
	part = strstr(name, "/nvidia/");
	if (part)
		add(p, name, (size_t)(part - name), "/nvidia/cufile/lib");
	return 0;
}

/* 13.0 is newer than 9.2. */
static int by_version(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

static void look_below(struct places *p, const char *cuda, const char *pattern)
{
	char path[PATH_MAX];
	glob_t g;

	(void)snprintf(path, sizeof(path), "%s%s", cuda, pattern);
	if (glob(path, GLOB_NOSORT, NULL, &g) != 0)
		return;
	qsort(g.gl_pathv, g.gl_pathc, sizeof(*g.gl_pathv), by_version);
	for (size_t i = g.gl_pathc; i-- > 0;)
		add(p, g.gl_pathv[i], strlen(g.gl_pathv[i]), "");
	globfree(&g);
}

unsigned cufile_places(const char *cuda, char (*ret)[PATH_MAX], unsigned max)
{
	struct places p = { .v = ret, .max = max };

	(void)dl_iterate_phdr(look_near, &p);
	look_below(&p, cuda, "/cuda/targets/*/lib");
	look_below(&p, cuda, "/cuda/lib64");
	look_below(&p, cuda, "/cuda-*/targets/*/lib");
	return p.nr;
}
