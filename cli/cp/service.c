/* SPDX-License-Identifier: MIT */
/*
 * Targets on a service.  An S3 object becomes visible only at its sync.  A file of a storage
 * service is written under a temporary name in the same directory, DST.penstock-RRRRRRRR, and
 * renamed when complete.  rados:// supports neither, so a file there is written in place, and
 * removed if the copy fails.
 */
#include <libgen.h>
#include <sys/random.h>

#include "cli/cp/cp.h"

static bool names_storage(const char *name)
{
	static const char *const schemes[] = { "pst://", "psts://", "pst+unix://" };

	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (strncmp(name, schemes[i], strlen(schemes[i])) == 0)
			return true;
	return false;
}

bool cp_names_service(const char *name)
{
	return names_object(name) || names_storage(name);
}

int cp_service_resolve(struct copy *c, const char *dst)
{
	_cleanup_(freep) char *src = strdup(c->src);
	struct pst_name_info info = { .sz = sizeof(info) };
	bool slash = dst[strlen(dst) - 1] == '/', dir = slash;

	if (!src)
		return fail(ENOMEM, "out of memory");
	/* Ignore a failure of stat: cp_service_open() gets the same error and reports it. */
	if (!slash && names_storage(dst) && pst_name_stat(dst, &info) == 0)
		dir = info.kind == PST_NAME_DIR;
	if (asprintf(&c->dst, "%s%s%s", dst, dir && !slash ? "/" : "", dir ? basename(src) : "") <
	    0)
		c->dst = NULL;
	return c->dst ? 0 : fail(ENOMEM, "out of memory");
}

int cp_service_open(struct copy *c)
{
	uint32_t flags = PST_FILE_WRITE | PST_FILE_CREATE;
	struct pst_file_opts o = { .sz = sizeof(o) };
	uint32_t random = 0;
	int r;

	if (!names_storage(c->dst)) {
		r = pst_file_open(c->dst, flags | PST_FILE_TRUNC, NULL, &c->out);
		c->half = r == 0 && strncmp(c->dst, "rados://", strlen("rados://")) == 0;
		return r < 0 ? fail_pst(r, c->dst) : 0;
	}
	if (getrandom(&random, sizeof(random), 0) < 0)
		random = (uint32_t)now_ns();
	if (asprintf(&c->part, "%s.penstock-%08x", c->dst, random) < 0) {
		c->part = NULL;
		return fail(ENOMEM, "out of memory");
	}
	o.mode = c->src_fd >= 0 ? c->src_stat.st_mode & 0777 : 0;
	r = pst_file_open(c->part, flags | PST_FILE_EXCL, &o, &c->out);
	if (r == 0)
		return 0;
	free(TAKE_PTR(c->part));
	return fail_pst(r, c->dst);
}

int cp_service_reopen(struct copy *c)
{
	const char *name = c->part ? c->part : c->dst;
	int r;

	c->out = pst_file_close(c->out);
	r = pst_file_open(name, PST_FILE_READ, NULL, &c->out);
	return r < 0 ? fail_pst(r, name) : 0;
}

int cp_service_publish(struct copy *c)
{
	int r = c->part ? pst_name_rename(c->part, c->dst) : 0;

	if (r < 0)
		return fail_pst(r, c->dst);
	free(TAKE_PTR(c->part));
	c->half = false;
	return 0;
}

void cp_service_give_up(struct copy *c)
{
	if (c->part || c->half)
		(void)pst_name_unlink(c->part ? c->part : c->dst);
	free(TAKE_PTR(c->part));
}
