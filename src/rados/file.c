/* SPDX-License-Identifier: MIT */
/* The provider: open, close, size. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/module.h"
#include "rados/lib.h"
#include "rados/rados.h"

static int rados_create(struct rados_file *f, struct facts *ret)
{
	static const char *const names[] = { "striper.layout.object_size",
					     "striper.layout.stripe_unit",
					     "striper.layout.stripe_count", "striper.size" };
	const uint64_t values[] = { LAYOUT_OBJECT, LAYOUT_OBJECT, 1, 0 };
	char first[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1], text[24];
	struct ask a;
	int r = rados_ask_begin(&a, f->io, true);

	if (r < 0)
		return r;
	*ret = (struct facts){ .layout = { LAYOUT_OBJECT, LAYOUT_OBJECT, 1 }, .size_text = "0" };
	layout_name(&ret->layout, f->object, 0, first);
	lib.rados_write_op_create(a.write, LIB_EXCLUSIVE, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		(void)snprintf(text, sizeof(text), "%" PRIu64, values[i]);
		lib.rados_write_op_setxattr(a.write, names[i], text, strlen(text));
	}
	r = rados_ask_run(&a, first);
	return r < 0 ? lib_err(r, f->shown) : 0;
}

/* Find or create the file. */
static int open_object(struct rados_file *f, uint32_t flags, struct facts *ret)
{
	int r = rados_ask_facts(f->io, f->object, f->shown, ret);

	if (r == -ENOENT && (flags & PST_FILE_CREATE)) {
		r = rados_create(f, ret);
		if (r != -EEXIST || (flags & PST_FILE_EXCL))
			return r;
		/* Another program created it in between. */
		r = rados_ask_facts(f->io, f->object, f->shown, ret);
	}
	if (r < 0)
		return r;
	if (flags & PST_FILE_EXCL)
		return lib_err(-EEXIST, f->shown);
	if (!(flags & PST_FILE_WRITE))
		return 0;
	/* Change the version, so that readers with the file open notice the writer. */
	r = flags & PST_FILE_TRUNC ? rados_ask_truncate(f->io, f->object, f->shown, ret, 0)
				   : rados_ask_touch(f->io, f->object, f->shown, ret);
	if (r == 0)
		r = rados_ask_facts(f->io, f->object, f->shown, ret);
	return r;
}

static void rados_file_free(struct file *file)
{
	struct rados_file *f = rados_file_of(file);

	head_done(f);
	seen_done(&f->seen);
	lib_pool_put(f->io);
	free(f->shown);
	free(f);
}

static int rados_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	struct rados_file *f = calloc(1, sizeof(*f));
	struct facts facts = { 0 };
	const char *object;
	char pool[256];
	int r = name_split(name, pool, &object);

	(void)mode;
	if (r == 0 && !*object)
		r = err_set(EISDIR, "%.200s is a pool; name an object, or list it by penstock ls",
			    name);
	if (r == 0 && (!f || !(f->shown = strdup(name))))
		r = err_set(ENOMEM, "out of memory");
	if (r == 0)
		r = lib_pool_get(pool, &f->io);
	if (r < 0) {
		if (f)
			free(f->shown);
		free(f);
		return r;
	}
	f->file = (struct file){
		.ops = &rados_file_ops,
		.flags = flags & ~(PST_FILE_CREATE | PST_FILE_EXCL | PST_FILE_TRUNC),
		.caps = FILE_STALE,
	};
	(void)snprintf(f->file.name, sizeof(f->file.name), "rados");
	f->object = f->shown + (object - name);
	r = open_object(f, flags, &facts);
	f->layout = facts.layout;
	f->version = facts.version;
	f->guard = !(flags & (PST_FILE_WRITE | PST_FILE_STABLE));
	atomic_store(&f->size, facts.size);
	head_init(f, &facts);
	if (r == 0 && f->guard && f->layout.unit &&
	    seen_init(&f->seen, layout_objects(&f->layout, facts.size)) < 0)
		r = err_set(ENOMEM, "out of memory");
	if (r < 0) {
		rados_file_free(&f->file);
		return r;
	}
	*ret = &f->file;
	return 0;
}

static int rados_size(const struct file *file, uint64_t *ret)
{
	*ret = atomic_load(&rados_file_of(file)->size);
	return 0;
}

const struct file_ops rados_file_ops = {
	.scheme = "rados",
	.backend = &rados_backend,
	.hop = PST_PATH_TCP,
	.open = rados_open,
	.free = rados_file_free,
	.size = rados_size,
	.names = &rados_names_ops,
};

static int rados_file_begin(const struct file_module_host *h, const char *scheme,
			    const struct file_ops **ret)
{
	(void)scheme;
	file_module_use(h);
	*ret = &rados_file_ops;
	return 0;
}

FILE_MODULE(rados_file_begin);
