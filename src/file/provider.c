/* SPDX-License-Identifier: MIT */
/* The table of providers, names, and defaults for members that a provider leaves NULL. */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/dio.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/scheme.h"
#include "file/file.h"
#include "file/io.h"
#include "file/module.h"

/* Entries are added under the lock and read without: entry i is valid once nr exceeds i. */
static struct {
	pthread_mutex_t lock;
	const struct file_ops *of[FILE_PROVIDERS_MAX];
	atomic_uint nr;
} providers = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ------------------------------------------------------------------- names */

static const struct file_ops *provider_find(const char *scheme, size_t len)
{
	unsigned nr = atomic_load(&providers.nr);

	for (unsigned i = 0; i < nr; i++) {
		const char *is = providers.of[i]->scheme;

		if (strlen(is) == len && memcmp(is, scheme, len) == 0)
			return providers.of[i];
	}
	return NULL;
}

static int err_scheme(const char *name, size_t len)
{
	unsigned nr = atomic_load(&providers.nr);
	int shown = scheme_shown_len(name);
	char known[FILE_PROVIDERS_MAX * (FILE_SCHEME_MAX + 5) + 1] = "";
	size_t at = 0;

	for (unsigned i = 0; i < nr; i++)
		at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s://", i ? ", " : "",
				       providers.of[i]->scheme);
	return err_set(EPROTONOSUPPORT,
		       "nothing here opens %.*s%s://; %s%s; a path that is called so is opened as "
		       "./%.*s%s",
		       (int)MIN(len, (size_t)FILE_SCHEME_MAX), name,
		       len > FILE_SCHEME_MAX ? "..." : "",
		       nr ? "besides paths this program knows " : "this program knows only paths",
		       known, MIN(64, shown), name, strlen(name) > 64 ? "..." : "");
}

/* Limit the alignment: core computes with it, and a slot must hold a block of the file. */
static int check_alignment(const struct file *f)
{
	if (!(f->caps & FILE_DIRECT) || dio_check(f->mem_align, f->off_align) == 0)
		return 0;
	return err_set(
		EINVAL,
		"%s: its provider says FILE_DIRECT with blocks of %u and %u bytes in memory; "
		"powers of two up to %u and %u can be served",
		f->name, f->off_align, f->mem_align, (unsigned)DIO_OFF_MAX, (unsigned)DIO_MEM_MAX);
}

int file_provider_find(const char *name, const struct file_ops **ret)
{
	size_t len = scheme_len(name);
	int r;

	*ret = provider_find(name, len);
	if (!*ret) {
		r = file_module_load(name, len);
		if (r < 0)
			return r;
		*ret = r ? provider_find(name, len) : NULL;
	}
	return *ret ? 0 : err_scheme(name, len);
}

int file_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	size_t len = scheme_len(name);
	const struct file_ops *ops;
	struct file *f;
	int r;

	if (!len)
		return local_file_ops.open(name, flags, mode, ret);
	r = file_provider_find(name, &ops);
	if (r < 0)
		return r;
	if (!name[len + 3])
		return err_set(EINVAL, "%s names no file: nothing follows the scheme", name);
	if (strlen(name) >= PATH_MAX)
		return err_set(ENAMETOOLONG, "the name is too long: %.*s...",
			       MIN(64, scheme_shown_len(name)), name);
	r = fault_hit(FAULT_FILE_OPEN);
	if (r)
		return err_set(r,
			       "%.*s: an injected fault made the open fail (PST_FAULT, file.open)",
			       scheme_shown_len(name), name);
	r = ops->open(name, flags, mode, &f);
	if (r < 0)
		return r;
	r = check_alignment(f);
	if (r < 0) {
		file_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

/* ------------------------------------------------------------------- table */

static bool is_complete(const struct file_ops *ops)
{
	const struct io_backend *b = ops->backend;

	return ops->open && ops->free && !ops->lower == !ops->lower_put &&
	       !(ops->lower && (b || ops->hop)) &&
	       (!b || (b->ctx_new && b->ctx_free && b->queue && b->flush && b->reap && b->cancel &&
		       b->arm));
}

int file_provider_add(const struct file_ops *ops)
{
	size_t len = ops->scheme ? strlen(ops->scheme) : 0;
	unsigned nr;
	int r = 0;

	if (!len || len > FILE_SCHEME_MAX || scheme_chars(ops->scheme) != len || !is_complete(ops))
		return err_set(EINVAL, "a provider of files without a scheme, or not complete");
	(void)pthread_mutex_lock(&providers.lock);
	nr = atomic_load(&providers.nr);
	if (provider_find(ops->scheme, len)) {
		r = err_set(EEXIST, "%s:// has a provider already", ops->scheme);
	} else if (nr == FILE_PROVIDERS_MAX) {
		r = err_set(ENOSPC, "there are %u providers of files already", nr);
	} else {
		providers.of[nr] = ops;
		atomic_store(&providers.nr, nr + 1);
	}
	(void)pthread_mutex_unlock(&providers.lock);
	return r;
}

bool file_provider_has(const char *scheme, size_t len)
{
	return provider_find(scheme, len);
}

/* ---------------------------------------------------------------- wrappers */

void file_free(struct file *f)
{
	if (f)
		f->ops->free(f);
}

static int provider_err_cannot(const struct file *f, const char *what)
{
	return err_set(EOPNOTSUPP, "%s: files of this kind %s", f->name, what);
}

int file_size(const struct file *f, uint64_t *ret_size)
{
	return f->ops->size ? f->ops->size(f, ret_size)
			    : provider_err_cannot(f, "do not tell their size");
}

int file_again(const struct file *f, struct file **ret)
{
	return f->ops->again ? f->ops->again(f, ret)
			     : provider_err_cannot(f, "cannot be opened a second time");
}

int64_t file_peek(const struct file *f, void *buf, uint64_t off, uint64_t len)
{
	return f->ops->peek ? f->ops->peek(f, buf, off, len) : -EOPNOTSUPP;
}

int file_stamp(const struct file *f, struct file_stamp *ret)
{
	return f->ops->stamp ? f->ops->stamp(f, ret) : -EOPNOTSUPP;
}

bool file_still(const struct file *f, const struct file_stamp *stamp)
{
	struct file_stamp now;

	return file_stamp(f, &now) == 0 && now.size == stamp->size &&
	       now.change[0] == stamp->change[0] && now.change[1] == stamp->change[1];
}

bool file_place(const struct file *f, char *buf, size_t size)
{
	if (f->ops->place)
		return f->ops->place(f, buf, size);
	(void)snprintf(buf, size, "%s", f->ops->scheme);
	return false;
}
