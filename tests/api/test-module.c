/* SPDX-License-Identifier: MIT */
/* Providers in modules, with the library linked into this program. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "rig.h"

#include "file/module.h"

#define LEN RIG_MIB(1)
#define SEED 4
#define THREADS 8

/* Replaces the library's own list of modules. */
const struct file_module_entry file_modules[] = {
	{ "sample", "module-sample.so" },   { "tables", "module-tables.so" },
	{ "version", "module-version.so" }, { "none", "module-none.so" },
	{ "other", "module-sample.so" },    { "text", "module-text.so" },
	{ "missing", "module-missing.so" }, { NULL, NULL },
};

static int open_it(const char *scheme, const char *path, struct pst_file **ret)
{
	char name[600];

	(void)snprintf(name, sizeof(name), "%s://%s", scheme, path);
	return pst_file_open(name, RIG_R, NULL, ret);
}

static void refused(const char *scheme, int err, const char *why)
{
	struct pst_file *f = NULL;

	T_EQ(open_it(scheme, rig_path("data"), &f), -err);
	if (!strstr(pst_error_text(), why))
		T_FAIL("%s: '%s' is not in '%s'", scheme, why, pst_error_text());
}

/* Must be the first case, while no module is loaded. */
static void init_that_fails_is_called_again(void)
{
	T_EQ(setenv("PST_TEST_MODULE_FAILS", "1", 1), 0);
	refused("sample", EIO, "the sample does not begin: as it was told");
	T_EQ(unsetenv("PST_TEST_MODULE_FAILS"), 0);
}

static atomic_int opened;

static void *opens(void *arg)
{
	struct pst_file *f = NULL;

	if (open_it("sample", arg, &f) == 0)
		atomic_fetch_add(&opened, 1);
	pst_file_close(f);
	return NULL;
}

static void threads_load_it_once(void)
{
	pthread_t t[THREADS];
	char path[512];

	rig_make(rig_path("data"), SEED, LEN);
	(void)snprintf(path, sizeof(path), "%s", rig_path("data"));
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_create(&t[i], NULL, opens, path), 0);
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(atomic_load(&opened), THREADS);
}

static void files_are_read(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f = NULL;

	rig_make(rig_path("data"), SEED, LEN);
	T_OK(open_it("sample", rig_path("data"), &f));
	T_EQ(rig_file_info(f).size, LEN);
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	pst_file_close(f);
	pst_mem_free(m);
	T_EQ(open_it("sample", rig_path("nothing"), &f), -ENOENT);
	T_CHECK(strstr(pst_error_text(), "the sample says: "));
}

static void bad_modules_are_refused(void)
{
	char dir[512], path[600], *slash;
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	FILE *file;

	T_CHECK(n > 0);
	dir[n] = '\0';
	slash = strrchr(dir, '/');
	*slash = '\0';
	refused("tables", ELIBBAD, "built with other tables");
	refused("version", ELIBBAD, "is of version 0.0.1, and the library of version ");
	refused("none", ELIBBAD, "has no symbol pst_file_module");
	refused("other", ELIBBAD, "does not provide other://");
	refused("missing", ENOENT, "module-missing.so, which is not there");
	refused("unlisted", EPROTONOSUPPORT, "nothing here opens unlisted://");
	(void)snprintf(path, sizeof(path), "%s/module-text.so", dir);
	file = fopen(path, "w");
	if (!file)
		T_SKIP("a folder of tests that may be written");
	(void)fputs("no library", file);
	T_EQ(fclose(file), 0);
	T_EQ(chmod(path, 0644), 0);
	refused("text", ELIBACC, "cannot be loaded");
	/* Refuse a module that any user may have written. */
	T_EQ(chmod(path, 0666), 0);
	refused("text", EPERM, "may be changed by others");
	(void)unlink(path);
}

int main(void)
{
	rig_init();
	RIG_RUN1(init_that_fails_is_called_again);
	RIG_RUN1(threads_load_it_once);
	RIG_RUN(files_are_read);
	RIG_RUN1(bad_modules_are_refused);
	return rig_done();
}
