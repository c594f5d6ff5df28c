/* SPDX-License-Identifier: MIT */
/*
 * Find libcufile: first as the loader would, without loading it, then in places that the loader
 * does not search.
 *
 * Python packages install libcufile outside of the loader's path: in one folder with the other CUDA
 * libraries, or in a folder next to theirs.  A framework has usually loaded some of those libraries
 * already, so folders near loaded libraries are searched.  CUDA's own folders come last, newest
 * first.
 *
 * A library found this way is used only if nobody but root and the caller could have put it there
 * (base/trust.h), and never in a set-uid program.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/log.h"
#include "base/trust.h"
#include "gds/cufile/internal.h"

#define FILE_NAME "/" CUFILE_SONAME
#define CACHE_MAX MIB(16) /* bytes; the loader's cache usually has 100 KiB */

struct places {
	char (*v)[PATH_MAX];
	unsigned nr, max;
};

static void find_add(struct places *p, const char *dir, size_t dir_len, const char *more)
{
	char path[PATH_MAX], real[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%.*s%s" FILE_NAME, (int)dir_len, dir, more);

	if (n < 0 || (size_t)n >= sizeof(path) || p->nr == p->max || access(path, R_OK) < 0)
		return;
	if (trust_path(path, real) < 0) {
		log_info("not taking %s for cuFile: %s", path, err_text());
		return;
	}
	for (unsigned i = 0; i < p->nr; i++)
		if (!strcmp(p->v[i], real))
			return;
	memcpy(p->v[p->nr++], real, sizeof(real));
}

/* Search near one loaded library.  Runs under the loader's lock, so it must not load anything. */
static int look_near(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = info->dlpi_name, *slash, *part;
	struct places *p = arg;

	(void)size;
	slash = name && name[0] == '/' ? strrchr(name, '/') : NULL;
	if (!slash)
		return 0;
	find_add(p, name, (size_t)(slash - name), "");
	/* .../nvidia/cuda_runtime/lib/libcudart.so.12 -> .../nvidia/cufile/lib */
	part = strstr(name, "/nvidia/");
	if (part)
		find_add(p, name, (size_t)(part - name), "/nvidia/cufile/lib");
	return 0;
}

/* Sort by version: 13.0 is newer than 9.2. */
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
		find_add(p, g.gl_pathv[i], strlen(g.gl_pathv[i]), "");
	globfree(&g);
}

unsigned cufile_places(const char *cuda, char (*ret)[PATH_MAX], unsigned max)
{
	struct places p = { .v = ret, .max = max };

	if (getauxval(AT_SECURE))
		return 0;
	(void)dl_iterate_phdr(look_near, &p);
	look_below(&p, cuda, "/cuda/targets/*/lib");
	look_below(&p, cuda, "/cuda/lib64");
	look_below(&p, cuda, "/cuda-*/targets/*/lib");
	return p.nr;
}

/* -------------------------------------------------- what the loader would find */

static bool readable(char *ret, const char *dir, size_t dir_len, const char *name)
{
	int n = snprintf(ret, PATH_MAX, "%.*s%s", (int)dir_len, dir, name);

	return n > 0 && n < PATH_MAX && access(ret, R_OK) == 0;
}

/*
 * Accept only absolute paths: a relative one, from LD_LIBRARY_PATH, may have named another file
 * before a chdir().
 */
static bool readable_anywhere(char *ret, const char *dir, const char *name)
{
	return dir[0] == '/' && readable(ret, dir, strlen(dir), name);
}

static bool loaded(const char *name, char *ret)
{
	void *lib = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
	struct link_map *map;
	bool found = lib && dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 &&
		     readable_anywhere(ret, map->l_name, "");

	if (lib)
		(void)dlclose(lib);
	return found;
}

/* Search LD_LIBRARY_PATH, our own RUNPATH and the system's folders. */
static bool in_search_path(const char *name, char *ret)
{
	void *here = (void *)&in_search_path;
	struct link_map *us;
	Dl_serinfo size, *all;
	Dl_info info;
	bool found = false;

	if (!dladdr1(here, &info, (void **)&us, RTLD_DL_LINKMAP) ||
	    dlinfo(us, RTLD_DI_SERINFOSIZE, &size) < 0)
		return false;
	all = calloc(1, size.dls_size);
	if (!all)
		return false;
	all->dls_size = size.dls_size;
	all->dls_cnt = size.dls_cnt;
	if (dlinfo(us, RTLD_DI_SERINFO, all) == 0)
		for (unsigned i = 0; !found && i < all->dls_cnt; i++) {
			found = readable_anywhere(ret, all->dls_serpath[i].dls_name, name);
		}
	free(all);
	return found;
}

/* Read the whole file; return NULL on failure. */
static char *slurp(const char *path, size_t *ret_len)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	_cleanup_(freep) char *text = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size > CACHE_MAX)
		return NULL;
	text = malloc((size_t)st.st_size + 1);
	if (!text || read(fd, text, (size_t)st.st_size) != st.st_size)
		return NULL;
	*ret_len = (size_t)st.st_size;
	return TAKE_PTR(text);
}

/* Each format of the loader's cache holds the whole path as a string. */
bool cufile_cached(const char *cache, const char *name, char ret[PATH_MAX])
{
	size_t len = 0, name_len = strlen(name);
	_cleanup_(freep) char *text = slurp(cache, &len);
	char *at = text, *end = text + len, *from;

	while (at && (at = memmem(at, (size_t)(end - at), name, name_len + 1))) {
		from = at;
		while (from > text && from[-1])
			from--;
		if (*from == '/' && readable(ret, from, (size_t)(at - from), name))
			return true;
		at += name_len + 1;
	}
	return false;
}

/* ---------------------------------------------------------------- all of it */

/* Find what the loader would load for a path or a bare name. */
static bool by_loader(const char *name, char *ret)
{
	char file[PATH_MAX];

	if (strchr(name, '/'))
		return readable(ret, name, strlen(name), "");
	(void)snprintf(file, sizeof(file), "/%s", name);
	return loaded(name, ret) || in_search_path(file, ret) ||
	       cufile_cached("/etc/ld.so.cache", file, ret);
}

int cufile_find(char ret[PATH_MAX])
{
	const char *env = secure_getenv("PST_LIBCUFILE");
	bool named = env && *env;
	char(*places)[PATH_MAX];
	unsigned nr;

	if (by_loader(named ? env : CUFILE_SONAME, ret))
		return 0;
	if (named)
		return err_set(ENODEV,
			       "no cuFile here: %.200s, which PST_LIBCUFILE names, is not there or "
			       "may not be read; correct it, or unset it",
			       env);
	places = calloc(CUFILE_PLACES, sizeof(*places));
	if (!places)
		return err_set(ENOMEM, "out of memory");
	nr = cufile_places("/usr/local", places, CUFILE_PLACES);
	if (nr)
		memcpy(ret, places[0], sizeof(*places));
	free(places);
	return nr ? 0 : cufile_absent();
}

int cufile_absent(void)
{
	return err_set(ENODEV,
		       "no cuFile here: " CUFILE_SONAME " is not where the loader looks, not "
		       "beside a library of this process, and not in /usr/local/cuda*, as far as "
		       "only root and the caller may write there (PST_LOG=info says what was "
		       "passed over); install NVIDIA's libcufile, or name it by PST_LIBCUFILE");
}
