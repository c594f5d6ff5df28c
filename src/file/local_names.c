/* SPDX-License-Identifier: MIT */
/* Names of local files. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "file/names.h"

static int err_errno(const char *what, const char *name)
{
	int err = errno;

	return err_set(err, "cannot %s %s: %s", what, name, strerror(err));
}

static uint32_t kind_of(mode_t mode)
{
	if (S_ISREG(mode))
		return PST_NAME_FILE;
	return S_ISDIR(mode) ? PST_NAME_DIR : PST_NAME_OTHER;
}

static void local_names_set_info(struct pst_name_info *ret, const struct stat *st)
{
	ret->kind = kind_of(st->st_mode);
	ret->has = PST_NAME_HAS_SIZE | PST_NAME_HAS_MTIME;
	ret->size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
	ret->mtime_ns = st->st_mtim.tv_sec * (int64_t)NSEC_PER_SEC + st->st_mtim.tv_nsec;
}

static int local_stat(const char *name, struct pst_name_info *ret)
{
	struct stat st;

	if (stat(name, &st) < 0)
		return err_errno("look at", name);
	local_names_set_info(ret, &st);
	return 0;
}

/* Fill in the known facts about an entry.  Return false if the entry was removed. */
static bool local_names_look_at(int dir, const struct dirent *e, uint32_t flags,
				struct pst_name_info *ret)
{
	bool link = e->d_type == DT_LNK;
	struct stat st;

	*ret = (struct pst_name_info){ .sz = sizeof(*ret), .kind = kind_of(DTTOIF(e->d_type)) };
	if (!(flags & PST_NAME_FACTS) && e->d_type != DT_UNKNOWN)
		return true;
	if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno != ENOENT;
	local_names_set_info(ret, &st);
	if ((link || S_ISLNK(st.st_mode)) && fstatat(dir, e->d_name, &st, 0) == 0 &&
	    S_ISREG(st.st_mode))
		local_names_set_info(ret, &st);
	return true;
}

static int list_entries(DIR *d, const char *name, uint32_t flags, pst_name_fn fn, void *arg)
{
	struct pst_name_info info;
	struct dirent *e;
	int r = 0;

	for (;;) {
		errno = 0;
		e = readdir(d);
		if (!e)
			return errno ? err_errno("list", name) : 0;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (!local_names_look_at(dirfd(d), e, flags, &info))
			continue;
		r = fn(arg, e->d_name, &info);
		if (r)
			return r;
	}
}

static int local_list(const char *name, uint32_t flags, pst_name_fn fn, void *arg)
{
	DIR *d = opendir(name);
	int r;

	if (!d)
		return err_errno("list", name);
	r = list_entries(d, name, flags, fn, arg);
	(void)closedir(d);
	return r;
}

static int local_unlink(const char *name)
{
	return unlink(name) < 0 ? err_errno("remove", name) : 0;
}

static int local_rename(const char *name, const char *to)
{
	return rename(name, to) < 0 ? err_errno("rename", name) : 0;
}

static int local_truncate(const char *name, uint64_t size)
{
	return truncate(name, (off_t)size) < 0 ? err_errno("set the size of", name) : 0;
}

const struct names_ops local_names_ops = {
	.stat = local_stat,
	.list = local_list,
	.unlink = local_unlink,
	.rename = local_rename,
	.truncate = local_truncate,
};
