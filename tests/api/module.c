/* SPDX-License-Identifier: MIT */
/*
 * A module for test-module.c: sample://PATH is the local file PATH. Other defines build modules
 * that the library must refuse.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "file/module.h"

#ifndef SCHEME
#define SCHEME "sample"
#endif

static const struct file_module_host *host;

struct sample {
	struct file file; /* must be the first member */
	struct pst_file *beneath;
};

static const struct file_ops sample_ops;

static int sample_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	struct sample *s = calloc(1, sizeof(*s));
	int r;

	(void)mode;
	if (!s)
		return err_set(ENOMEM, "out of memory for %s", name);
	r = host->open(strchr(name, '/') + 2, flags, NULL, &s->beneath);
	if (r < 0) {
		free(s);
		return err_set(r, "the sample says: %s", err_text());
	}
	s->file.ops = &sample_ops;
	s->file.flags = flags;
	memcpy(s->file.name, SCHEME, sizeof(SCHEME));
	*ret = &s->file;
	return 0;
}

static void sample_free(struct file *f)
{
	struct sample *s = container_of(f, struct sample, file);

	host->close(s->beneath);
	free(s);
}

static int sample_size(const struct file *f, uint64_t *ret)
{
	const struct sample *s = container_of(f, const struct sample, file);
	struct pst_file_info info = { .sz = sizeof(info) };
	int r = host->info(s->beneath, &info);

	*ret = info.size;
	return r;
}

static int sample_lower(struct file *f, uint32_t op, struct pst_file **ret)
{
	(void)op;
	*ret = container_of(f, struct sample, file)->beneath;
	return 0;
}

static void sample_lower_put(struct file *f, uint32_t op, struct pst_file *beneath)
{
	(void)f;
	(void)op;
	(void)beneath;
}

static const struct file_ops sample_ops = {
	.scheme = SCHEME,
	.lower = sample_lower,
	.lower_put = sample_lower_put,
	.open = sample_open,
	.free = sample_free,
	.size = sample_size,
};

static int sample_init(const struct file_module_host *h, const char *scheme,
		       const struct file_ops **ret)
{
	(void)scheme;
	host = h;
	file_module_use(h);
	if (getenv("PST_TEST_MODULE_FAILS"))
		return err_set(EIO, "the sample does not begin: %s", "as it was told");
	log_info("the sample begins with %u tables", 1u);
	*ret = &sample_ops;
	return 0;
}

#if defined(OTHER_TABLES) || defined(OTHER_VERSION)
/* A constructor spoils this table when the module is loaded. */
extern struct file_module pst_file_module;
__attribute__((visibility("default"))) struct file_module pst_file_module = { FILE_MODULE_OF(
	sample_init) };

__attribute__((constructor)) static void spoil(void)
{
#ifdef OTHER_TABLES
	pst_file_module.op_size++;
#else
	memcpy(pst_file_module.version, "0.0.1", sizeof("0.0.1"));
#endif
}
#elif defined(NO_TABLE)
extern const void *const unused;
const void *const unused = sample_init;
#else
FILE_MODULE(sample_init);
#endif
