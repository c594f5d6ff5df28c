// SPDX-License-Identifier: MIT
/*
 * The public call on what a direct way needs.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "core/core.h"
#include "gds/path/check.h"
#include "api/guard.h"

#define TRIAL_NS (25 * NSEC_PER_SEC) /* and the other process is given time to end */

_Static_assert(sizeof(((struct pst_check *)0)->text) == sizeof(((struct gds_fact *)0)->text),
	       "no text of a check is cut");

/* NULL is no device. */
static int find_device(const char *name, struct pst_device *ret)
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

/* What could have side effects when it is opened is not waited for, and not used. */
static int open_path(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return err_set(errno, "%s cannot be opened for reading: %s", path, err_name(errno));
	if (fstat(fd, &st) < 0)
		return err_set(errno, "%s cannot be looked at: %s", path, err_name(errno));
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode) && !S_ISDIR(st.st_mode))
		return err_set(ENXIO,
			       "%s is neither a regular file, a block device nor a directory",
			       path);
	return TAKE_FD(fd);
}

static int check_args(const char *path, uint32_t flags, const struct pst_check *ret, unsigned max)
{
	if (!path)
		return err_set(EINVAL, "no path is given");
	if (flags & ~PST_CHECK_TRIAL)
		return err_set(EINVAL, "flags 0x%x are not known; give PST_CHECK_TRIAL or 0",
			       flags);
	for (unsigned i = 0; i < max; i++)
		if (ret[i].sz != sizeof(*ret))
			return err_set(EINVAL,
				       "sz of element %u is %zu, not sizeof(struct pst_check)", i,
				       ret[i].sz);
	return 0;
}

static void copy_out(const struct gds_fact *f, struct pst_check *ret)
{
	*ret = (struct pst_check){ .sz = sizeof(*ret), .state = (uint32_t)f->state, .err = f->err };
	memcpy(ret->name, f->name, sizeof(ret->name));
	memcpy(ret->text, f->text, sizeof(ret->text));
}

int pst_checks(const char *device, const char *path, uint32_t flags, struct pst_check *ret,
	       unsigned max)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	struct gds_fact facts[GDS_CHECKS_MAX];
	_cleanup_(closep) int fd = -1;
	int r;

	GUARD();
	r = check_args(path, flags, ret, max);
	if (r == 0 && device)
		r = find_device(device, &dev);
	if (r < 0)
		return r;
	fd = open_path(path);
	if (fd < 0)
		return fd;
	r = gds_check(fd, device ? &dev : NULL, flags & PST_CHECK_TRIAL ? now_ns() + TRIAL_NS : 0,
		      facts);
	for (int i = 0; i < r && i < (int)MIN(max, GDS_CHECKS_MAX); i++)
		copy_out(&facts[i], &ret[i]);
	return r;
}
