/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/beside.h"
#include "base/err.h"
#include "file/module.h"

static const struct file_module_entry *entry_of(const char *scheme, size_t len)
{
	for (const struct file_module_entry *e = file_modules; e->scheme; e++)
		if (strlen(e->scheme) == len && memcmp(e->scheme, scheme, len) == 0)
			return e;
	return NULL;
}

static int module_check(const struct file_module_entry *e, const struct file_module *m)
{
	struct file_module is = { FILE_MODULE_OF(NULL) };

	if (memcmp(m->version, is.version, sizeof(is.version)) != 0)
		return err_set(ELIBBAD,
			       "%s is of version %.15s, and the library of version %s; install "
			       "both from one release",
			       e->file, m->version, is.version);
	if (m->host_size != is.host_size || m->ops_size != is.ops_size ||
	    m->backend_size != is.backend_size || m->op_size != is.op_size || !m->init)
		return err_set(ELIBBAD,
			       "%s was built with other tables than the library; install both from "
			       "one build",
			       e->file);
	return 0;
}

static int module_load(const struct file_module_entry *e)
{
	const struct file_ops *ops = NULL;
	const struct file_module *m;
	char path[PATH_MAX], who[32];
	void *lib;
	int r;

	(void)snprintf(who, sizeof(who), "%s://", e->scheme);
	r = beside_path(&file_modules, e->file, who, path);
	if (r < 0)
		return r;
	/* Never unload: files that use its tables may be open. */
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib)
		return err_set(ELIBACC,
			       "%s:// needs %s, which cannot be loaded: %s; "
			       "install the library that is missing",
			       e->scheme, path, dlerror());
	m = dlsym(lib, FILE_MODULE_SYMBOL);
	if (!m)
		return err_set(ELIBBAD, "%s is no module of this library: it has no symbol %s",
			       path, FILE_MODULE_SYMBOL);
	r = module_check(e, m);
	if (r == 0)
		r = m->init(&file_module_host, e->scheme, &ops);
	if (r < 0)
		return r;
	if (!ops || !ops->scheme || strcmp(ops->scheme, e->scheme) != 0)
		return err_set(ELIBBAD, "%s does not provide %s://", path, e->scheme);
	return file_provider_add(ops);
}

int file_module_load(const char *scheme, size_t len)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const struct file_module_entry *e = entry_of(scheme, len);
	int r;

	if (!e)
		return 0;
	(void)pthread_mutex_lock(&lock);
	/* Another thread may have loaded the module already. */
	r = file_provider_has(scheme, len) ? 0 : module_load(e);
	(void)pthread_mutex_unlock(&lock);
	return r < 0 ? r : 1;
}
