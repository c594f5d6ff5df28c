/* SPDX-License-Identifier: MIT */
/* Load the module that has the calls of base/objects.h, and make them. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include "base/beside.h"
#include "base/err.h"
#include "tier/object.h"

#define MODULE "libpenstock-s3.so"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct objects_table *objects; /* NULL: not loaded; under lock */

static void log_nothing(int level, const char *fmt, ...) _printf_(2, 3);

static void log_nothing(int level, const char *fmt, ...)
{
	(void)level;
	(void)fmt;
}

void objects_use(const struct objects_table *table)
{
	objects = table;
}

static int objects_load(const struct objects_table **ret)
{
	static const struct objects_host host = { err_set, err_text, log_nothing };
	/* The module lies beside the library, if the program has the library, or beside the module
	 * that contains this function. */
	const void *library = dlsym(RTLD_DEFAULT, "pst_file_open");
	const struct objects_table *t;
	char path[PATH_MAX];
	void *lib;
	int r = beside_path(library ? library : (const void *)&host, MODULE, "the class object",
			    path);

	if (r < 0)
		return r;
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib)
		return err_set(ELIBACC,
			       "the class object needs %s, which cannot be loaded: %s; "
			       "install the library that is missing",
			       path, dlerror());
	t = dlsym(lib, OBJECTS_SYMBOL);
	if (!t || t->version != OBJECTS_VERSION || t->sz != sizeof(*t))
		return err_set(ELIBBAD, "%s is of another version; install both from one release",
			       path);
	t->begin(&host);
	*ret = t;
	return 0;
}

static int objects_get(const struct objects_table **ret)
{
	int r = 0;

	(void)pthread_mutex_lock(&lock);
	if (!objects)
		r = objects_load(&objects);
	*ret = objects;
	(void)pthread_mutex_unlock(&lock);
	return r;
}

int object_head(const struct tier_root *root, const char *key, struct object_facts *ret)
{
	char url[OBJECT_URL_SIZE], why[OBJECT_WHY_SIZE] = "";
	const struct objects_table *t;
	int r = objects_get(&t);

	if (r < 0)
		return r;
	object_url(root, key, url);
	r = t->head(url, ret, why);
	return r < 0 ? err_set(r, "%s", why) : 0;
}

/* Keeps the sentence of a source that fails: the module would replace it. */
struct kept_source {
	const struct object_source *src;
	int err;
	char why[ERR_TEXT_MAX];
};

static int kept_read(void *arg, void *buf, size_t len, uint64_t off)
{
	struct kept_source *k = arg;
	int r = k->src->read(k->src->arg, buf, len, off);

	if (r < 0) {
		k->err = r;
		(void)snprintf(k->why, sizeof(k->why), "%s", err_text());
	}
	return r;
}

int object_put(const struct tier_root *root, const char *key, const struct object_source *src,
	       const char *meta)
{
	struct kept_source k = { .src = src };
	const struct object_source kept = { .size = src->size, .read = kept_read, .arg = &k };
	char url[OBJECT_URL_SIZE], why[OBJECT_WHY_SIZE] = "";
	const struct objects_table *t;
	int r = objects_get(&t);

	if (r < 0)
		return r;
	object_url(root, key, url);
	r = t->put(url, &kept, meta, why);
	if (k.err < 0)
		return err_set(k.err, "%s", k.why);
	return r < 0 ? err_set(r, "%s", why) : 0;
}

int object_get(const struct tier_root *root, const char *key, const struct object_facts *of,
	       void *buf, size_t len, uint64_t off)
{
	char url[OBJECT_URL_SIZE], why[OBJECT_WHY_SIZE] = "";
	const struct objects_table *t;
	int r = objects_get(&t);

	if (r < 0)
		return r;
	object_url(root, key, url);
	r = t->get(url, of, buf, len, off, why);
	return r < 0 ? err_set(r, "%s", why) : 0;
}

int object_remove(const struct tier_root *root, const char *key)
{
	char url[OBJECT_URL_SIZE], why[OBJECT_WHY_SIZE] = "";
	const struct objects_table *t;
	int r = objects_get(&t);

	if (r < 0)
		return r;
	object_url(root, key, url);
	r = t->remove(url, why);
	return r < 0 ? err_set(r, "%s", why) : 0;
}

int object_list(const struct tier_root *root, object_list_fn fn, void *arg)
{
	char why[OBJECT_WHY_SIZE] = "";
	const struct objects_table *t;
	int r = objects_get(&t);

	if (r < 0)
		return r;
	r = t->list(root->path, fn, arg, why);
	return r < 0 && *why ? err_set(r, "%s", why) : r;
}
