/* SPDX-License-Identifier: MIT */
/*
 * pst_check(): one function for each topic.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "api/guard.h"
#include "base/err.h"
#include "base/opts.h"
#include "file/io.h"
#include "gds/path/check.h"
#include "mem/mem.h"

#define TRIAL_NS (25 * NSEC_PER_SEC) /* and the other process is given time to end */

/* A fact is a check with another head. */
_Static_assert(sizeof(((struct pst_check *)0)->text) == sizeof(((struct gds_fact *)0)->text),
	       "no text of a check is cut");

#define CHECKS_MAX GDS_CHECKS_MAX

/* Fill @ret and return how many there are, at most CHECKS_MAX. */
typedef int (*topic_fn)(const struct pst_check_opts *o, struct pst_check *ret);

/* ---------------------------------------------------------------------- io */

static int check_io(const struct pst_check_opts *o, struct pst_check *ret)
{
	static const struct {
		const char *name;
		const struct io_backend *ops;
	} backends[] = { { "io_uring", &uring_backend }, { "threads", &threads_backend } };

	(void)o;
	for (unsigned i = 0; i < ARRAY_SIZE(backends); i++) {
		int r = backends[i].ops->check();

		ret[i] = (struct pst_check){ .sz = sizeof(ret[i]),
					     .state = r < 0 ? PST_CHECK_MISSING : PST_CHECK_OK,
					     .err = -MIN(r, 0) };
		(void)snprintf(ret[i].name, sizeof(ret[i].name), "%s", backends[i].name);
		(void)snprintf(ret[i].text, sizeof(ret[i].text), "%s",
			       r < 0 ? err_text() : "file operations can be done by it");
	}
	return ARRAY_SIZE(backends);
}

/* --------------------------------------------------------------------- gds */

/* NULL is no device. */
static int find_gpu(const char *name, struct pst_device *ret)
{
	const struct mem_ops *ops;
	unsigned idx;
	int r = mem_find(name, &ops, &idx);

	if (r < 0)
		return r;
	if (ops->kind != PST_KIND_CUDA)
		return err_set(EINVAL, "%s is no NVIDIA GPU, and cuFile knows no others", name);
	ops->device_info(idx, ret);
	return 0;
}

static bool may_open(const struct stat *st)
{
	return S_ISREG(st->st_mode) || S_ISBLK(st->st_mode) || S_ISDIR(st->st_mode);
}

static int refuse(const char *path)
{
	return err_set(ENXIO, "%s is neither a regular file, a block device nor a directory", path);
}

/* A FIFO or a device acts when it is opened, so stat() comes first. */
static int open_path(const char *path)
{
	_cleanup_(closep) int fd = -1;
	struct stat st;

	if (stat(path, &st) < 0)
		return err_set(errno, "%s cannot be looked at: %s", path, err_name(errno));
	if (!may_open(&st))
		return refuse(path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(errno, "%s cannot be opened for reading: %s", path, err_name(errno));
	/* Another file may have taken the name meanwhile. */
	return may_open(&st) ? TAKE_FD(fd) : refuse(path);
}

static int check_gds(const struct pst_check_opts *o, struct pst_check *ret)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	struct gds_fact facts[GDS_CHECKS_MAX];
	_cleanup_(closep) int fd = -1;
	int r;

	if (!o->path)
		return err_set(EINVAL, "no path is given");
	r = o->device ? find_gpu(o->device, &dev) : 0;
	if (r < 0)
		return r;
	fd = open_path(o->path);
	if (fd < 0)
		return fd;
	r = gds_check(fd, o->device ? &dev : NULL,
		      o->flags & PST_CHECK_TRIAL ? now_ns() + TRIAL_NS : 0, facts);
	for (int i = 0; i < r; i++) {
		ret[i] = (struct pst_check){ .sz = sizeof(ret[i]),
					     .state = (uint32_t)facts[i].state,
					     .err = facts[i].err };
		memcpy(ret[i].name, facts[i].name, sizeof(ret[i].name));
		memcpy(ret[i].text, facts[i].text, sizeof(ret[i].text));
	}
	return r;
}

/* ------------------------------------------------------------------ topics */

static const struct topic {
	const char *name;
	topic_fn fn;
	uint32_t flags;
} topics[] = {
	{ "io", check_io, 0 },
	{ "gds", check_gds, PST_CHECK_TRIAL },
};

static const struct topic *topic_find(const char *name)
{
	for (unsigned i = 0; name && i < ARRAY_SIZE(topics); i++)
		if (!strcmp(topics[i].name, name))
			return &topics[i];
	return NULL;
}

int pst_check(const char *topic, const struct pst_check_opts *opts, struct pst_check *ret,
	      unsigned max)
{
	const struct topic *t = topic_find(topic);
	struct pst_check found[CHECKS_MAX];
	struct pst_check_opts o;
	int r;

	GUARD();
	if (!topic)
		return err_set(EINVAL, "no topic is given");
	if (!t)
		return err_set(EOPNOTSUPP, "topic %s is unknown to this version; it has io and gds",
			       topic);
	r = opts_copy(&o, sizeof(o), opts);
	if (r == 0 && (o.flags & ~t->flags || o.reserved))
		r = err_set(EINVAL, "flags 0x%x do not go with topic %s", o.flags, topic);
	if (r == 0)
		r = opts_array_check(ret, max, "pst_check");
	if (r == 0)
		r = t->fn(&o, found);
	for (int i = 0; i < r && i < (int)MIN(max, CHECKS_MAX); i++)
		(void)opts_return(opts_array_at(ret, (unsigned)i), &found[i], sizeof(found[i]));
	return r;
}
