/* SPDX-License-Identifier: MIT */
/* The public calls on files by their names. */
#include "api/guard.h"
#include "api/providers.h"
#include "base/err.h"
#include "base/opts.h"
#include "file/names.h"

static int check_name(const char *name)
{
	if (!name)
		return err_set(EINVAL, "no name is given");
	providers_begin();
	return 0;
}

int pst_name_stat(const char *name, struct pst_name_info *ret)
{
	struct pst_name_info info;
	int r;

	GUARD();
	r = check_name(name);
	if (r == 0)
		r = names_stat(name, &info);
	return r < 0 ? r : opts_return(ret, &info, sizeof(info));
}

int pst_name_list(const char *name, uint32_t flags, pst_name_fn fn, void *arg)
{
	int r;

	GUARD();
	r = check_name(name);
	if (r == 0 && !fn)
		r = err_set(EINVAL, "no function for the entries is given");
	if (r == 0 && flags & ~(PST_NAME_FACTS | PST_NAME_TREE))
		r = err_set(EINVAL, "flags 0x%x are unknown", flags);
	return r < 0 ? r : names_list(name, flags, fn, arg);
}

int pst_name_unlink(const char *name)
{
	int r;

	GUARD();
	r = check_name(name);
	return r < 0 ? r : names_unlink(name);
}

int pst_name_rename(const char *name, const char *to)
{
	int r;

	GUARD();
	r = check_name(name);
	if (r == 0)
		r = check_name(to);
	return r < 0 ? r : names_rename(name, to);
}

int pst_name_truncate(const char *name, uint64_t size)
{
	int r;

	GUARD();
	r = check_name(name);
	return r < 0 ? r : names_truncate(name, size);
}
