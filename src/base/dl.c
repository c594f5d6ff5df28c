/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "base/dl.h"
#include "base/err.h"
#include "base/log.h"

static const char *dl_file_of(const struct dl_lib *lib)
{
	const char *env = lib->env ? secure_getenv(lib->env) : NULL;

	return env && *env ? env : lib->soname;
}

int dl_load(const struct dl_lib *lib, void *table, const struct dl_sym *syms, unsigned nr)
{
	const char *file = dl_file_of(lib);
	void *handle;

	handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle && lib->path && file == lib->soname)
		handle = dlopen(lib->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle) {
		const char *why = dlerror();

		return err_set(ENODEV, "no %s here: %s", lib->what, why ? why : file);
	}

	/* Look up all required functions before changing the table. */
	for (unsigned i = 0; i < nr; i++)
		if (syms[i].required && !dlsym(handle, syms[i].name)) {
			(void)dlclose(handle);
			return err_set(ENODEV, "no usable %s here: %s lacks %s; update it",
				       lib->what, file, syms[i].name);
		}
	for (unsigned i = 0; i < nr; i++) {
		void *fn = dlsym(handle, syms[i].name);

		if (!fn)
			log_debug("%s has no %s", file, syms[i].name);
		memcpy((char *)table + syms[i].off, &fn, sizeof(fn));
	}
	return 0;
}

static int first_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	if (size > offsetof(struct dl_phdr_info, dlpi_adds))
		*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

bool dl_present(const struct dl_lib *lib, _Atomic unsigned long long *absent)
{
	const char *file = dl_file_of(lib);
	unsigned long long adds = 0;
	void *handle;

	(void)dl_iterate_phdr(first_object, &adds);
	if (adds && atomic_load(absent) == adds)
		return false;
	handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle && lib->path && file == lib->soname)
		handle = dlopen(lib->path, RTLD_LAZY | RTLD_NOLOAD);
	if (handle)
		(void)dlclose(handle);
	else
		atomic_store(absent, adds);
	return handle;
}
