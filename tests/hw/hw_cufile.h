/* SPDX-License-Identifier: MIT */
/* Shared by the cases of gpu-cufile: direct calls of libcufile, files and memory. */
#ifndef PST_HW_CUFILE_H
#define PST_HW_CUFILE_H

#include <getopt.h>
#include <sys/sysmacros.h>

#include "again.h"
#include "gds/cufile/cufile_types.h"
#include "hw.h"

#define LEN RIG_MIB(12)
#define SEED 31
#define GDS PST_PATH_BIT(PST_PATH_GDS)
#define CASE_S 150 /* s; a case that takes longer is killed */

static const char *device = "cuda:0";

/* The functions of libcufile, for direct calls. */
static struct {
#define SYM(type, name, args) type(*name) args;
#define OPT SYM
#include "gds/cufile/cufile_syms.h"
} cf;

/* ------------------------------------------------------------------- begin */

static inline bool udev_is(const char *what)
{
	const char *env = getenv("GPU_CUFILE_UDEV");

	return env && !strcmp(env, what);
}

/* Load libcufile and set PST_LIBCUFILE for the probe process. */
static inline void *find_cufile(void)
{
	static const char *const places[] = {
		"libcufile.so.0",
		"/usr/local/cuda/lib64/libcufile.so.0",
		"/usr/local/cuda/targets/x86_64-linux/lib/libcufile.so.0",
	};
	const char *env = getenv("PST_LIBCUFILE");
	void *lib = env && *env ? dlopen(env, RTLD_NOW) : NULL;

	if (env && *env)
		return lib;
	for (unsigned i = 0; !lib && i < RIG_NR(places); i++) {
		lib = dlopen(places[i], RTLD_NOW);
		if (lib)
			(void)setenv("PST_LIBCUFILE", places[i], 1);
	}
	return lib;
}

static inline void load_cufile(void)
{
	void *lib = find_cufile();

	if (!lib)
		T_SKIP("libcufile.so.0; PST_LIBCUFILE names one: %.200s", dlerror());
#define SYM(type, name, args) symbol(lib, &cf.name, #name);
#define OPT SYM
#include "gds/cufile/cufile_syms.h"
	T_CHECK(cf.cuFileGetVersion && cf.cuFileDriverOpen && cf.cuFileHandleRegister);
}

/* Begin a case in a new empty directory, to check later that no file was left in it. */
static inline void open_library(void)
{
	struct pst_device d = { .sz = sizeof(d) };

	(void)alarm(CASE_S);
	if (pst_device_find(device, &d) < 0)
		T_SKIP("%s", pst_error_text());
	rig_needs_memlock();
	T_EQ(mkdir(rig_path("here"), 0700), 0);
	T_EQ(chdir(rig_path("here")), 0);
	rig_make(rig_path("data"), SEED, LEN);
}

static inline void leaves_no_file(void)
{
	struct dirent *e;
	DIR *d = opendir(".");

	T_CHECK(d);
	while ((e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			T_FAIL("%s is left in the current directory", e->d_name);
	(void)closedir(d);
}

#endif
