/* SPDX-License-Identifier: MIT */
/*
 * Run a program with our replacements of vendors' libraries.
 *
 * They are in a folder relative to the loaded libpenstock.  The loader searches LD_LIBRARY_PATH
 * before its own paths, and Python searches PYTHONPATH for modules.  Nothing else in the
 * environment changes.
 */
#include <dlfcn.h>
#include <limits.h>
#include <sys/stat.h>

#include "cli/commands.h"
#include "tools/common/util.h"

const char run_usage[] =
	"Usage: penstock run [--] COMMAND [ARGUMENT...]\n"
	"\n"
	"Runs COMMAND with the libraries of Penstock that have the names of others on\n"
	"the loader's path: libgdrapi.so, for programs that use gdrcopy, and\n"
	"libhf3fs_api_shared.so, for programs that use 3FS's usrbio.  Python finds the\n"
	"modules hf3fs_py_usrbio and hf3fs_fuse.  Run:ai's model streamer reads through\n"
	"Penstock when STREAMER_LIBRARY=libpenstock_streamer.so is set.  The status is\n"
	"that of COMMAND, 127 when it is not found and 126 when it cannot be run.\n";

/*
 * Folders relative to libpenstock's: one for all libraries, when installed or in a bundle, or one
 * for each library in a build.
 */
static const char *const together[] = { "penstock/compat" };
static const char *const apart[] = { "../compat/gdrapi", "../usrbio/library",
				     "../compat/streamer" };
/* Folder of the Python modules, relative to libpenstock's folder; a build has none. */
static const char *const python[] = { "penstock/compat/python" };

/* Return the folder that libpenstock.so was loaded from. */
static int library_dir(char ret[PATH_MAX])
{
	void *fn = dlsym(RTLD_DEFAULT, "pst_version");
	Dl_info info;

	if (!fn || !dladdr(fn, &info) || !realpath(info.dli_fname, ret))
		return fail(ENOENT, "libpenstock.so is not found where it was loaded from");
	*strrchr(ret, '/') = '\0';
	return 0;
}

/* Join the folders that exist with colons, as the loader expects. */
static int find_dirs(const char *lib, const char *const places[], size_t nr, char **ret)
{
	char path[2 * PATH_MAX], dir[PATH_MAX];
	struct stat st;
	int r = 0;

	for (size_t i = 0; i < nr && r == 0; i++) {
		char *had = *ret;

		(void)snprintf(path, sizeof(path), "%s/%s", lib, places[i]);
		if (!realpath(path, dir) || stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		/* Skip a folder with a colon in its name, which the loader would split. */
		if (strchr(dir, ':'))
			return fail(EINVAL, "the loader cannot look into %s, for the colon in it",
				    dir);
		if (asprintf(ret, "%s%s%s", had ? had : "", had ? ":" : "", dir) < 0) {
			*ret = NULL;
			r = fail(ENOMEM, "out of memory");
		}
		free(had);
	}
	return r;
}

static int compat_dirs(const char *lib, char **ret)
{
	int r = find_dirs(lib, together, ARRAY_SIZE(together), ret);

	if (r == 0 && !*ret)
		r = find_dirs(lib, apart, ARRAY_SIZE(apart), ret);
	if (r == 0 && !*ret)
		r = fail(ENOENT, "there is no folder %s/%s; install Penstock as a whole", lib,
			 together[0]);
	return r;
}

/* Prepend folders to a variable's value. */
static int search_first(const char *name, const char *dirs)
{
	const char *old = getenv(name);
	_cleanup_(freep) char *path = NULL;

	if (asprintf(&path, "%s%s%s", dirs, old && *old ? ":" : "", old ? old : "") < 0 ||
	    setenv(name, path, 1) < 0)
		return fail(ENOMEM, "out of memory");
	return 0;
}

static int set_paths(void)
{
	_cleanup_(freep) char *dirs = NULL, *modules = NULL;
	char lib[PATH_MAX];
	int r = library_dir(lib);

	if (r == 0)
		r = compat_dirs(lib, &dirs);
	if (r == 0)
		r = find_dirs(lib, python, ARRAY_SIZE(python), &modules);
	if (r == 0)
		r = search_first("LD_LIBRARY_PATH", dirs);
	if (r == 0 && modules)
		r = search_first("PYTHONPATH", modules);
	return r;
}

int cmd_run(int argc, char *argv[])
{
	int at = argc > 1 && !strcmp(argv[1], "--") ? 2 : 1;
	int r;

	if (at == 1 && argc > 1 && argv[1][0] == '-')
		return usage_error("unknown option %s", argv[1]);
	if (at >= argc)
		return usage_error("give the command to run");
	r = set_paths();
	if (r < 0)
		return exit_status(r);
	/* Undo what main() set: ignored signals would stay ignored in the new program. */
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGXFSZ, SIG_DFL);
	(void)execvp(argv[at], argv + at);
	r = errno;
	say("%s: %s", argv[at], strerror(r));
	return r == ENOENT ? 127 : 126;
}
