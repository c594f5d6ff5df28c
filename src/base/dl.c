/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <string.h>

#include "base/dl.h"
#include "base/err.h"
#include "base/log.h"

int dl_load(const struct dl_lib *lib, void *table, const struct dl_sym *syms, unsigned nr)
{
	const char *env = lib->env ? secure_getenv(lib->env) : NULL;
	const char *file = env && *env ? env : lib->soname;
	void *handle;

	handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle) {
		const char *why = dlerror();

		return err_set(ENODEV, "no %s here: %s", lib->what, why ? why : file);
	}

	/* All of the required ones, before the first is written. */
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
