/* SPDX-License-Identifier: MIT */
/* Calls on names of a set's files. A directory exists while a file is beneath it. */
#include <stdio.h>
#include <time.h>

#include "base/err.h"
#include "file/names.h"
#include "tier/bring.h"
#include "tier/change.h"
#include "tier/lookup.h"
#include "tier/provider.h"
#include "tier/stamp.h"

#define NAP_MS 10
#define BUSY_MS 60000 /* milliseconds; the kernel breaks a lease after 45 s by default */

int provider_split(const char *name, bool may_be_root, char set[NAME_MAX + 1], char *ret_file)
{
	const char *at = name + sizeof(TIER_SCHEME "://") - 1, *slash = strchrnul(at, '/');
	size_t len = *slash ? strlen(slash + 1) : 0;

	while (may_be_root && len && slash[len] == '/')
		len--;
	if (slash == at || (size_t)(slash - at) > NAME_MAX || (!len && !may_be_root))
		return err_set(EINVAL, "%s is not " TIER_SCHEME "://SET/NAME", name);
	if (len >= TIER_NAME_SIZE)
		return err_set(ENAMETOOLONG, "the name is too long: %.64s...", name);
	memcpy(set, at, (size_t)(slash - at));
	set[slash - at] = '\0';
	(void)snprintf(ret_file, TIER_NAME_SIZE, "%.*s", (int)len, len ? slash + 1 : "");
	return len ? name_check(ret_file) : 0;
}

/* The set that one call has open, and the name given to the call. */
struct in_set {
	struct tier_set *set;
	char name[TIER_NAME_SIZE];
};

static int in_set_begin(const char *name, bool may_be_root, struct in_set *ret)
{
	char set[NAME_MAX + 1];
	int r = provider_split(name, may_be_root, set, ret->name);

	return r < 0 ? r : set_open(set, &ret->set);
}

static void in_set_end(struct in_set *in)
{
	(void)set_close(in->set);
}

static void tier_names_wait(void)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = NAP_MS * (long)NSEC_PER_MSEC }, NULL);
}

/* -------------------------------------------------------------------- stat */

static void provider_names_set_info(struct pst_name_info *ret, const struct stat *st)
{
	ret->kind = PST_NAME_FILE;
	ret->has = PST_NAME_HAS_SIZE | PST_NAME_HAS_MTIME;
	ret->size = (uint64_t)st->st_size;
	ret->mtime_ns = stamp_ns(&st->st_mtim);
}

/* Return the facts of a file from its current root; -ENOENT for anything but a regular file. */
static int file_facts(struct tier_set *set, const char *name, struct pst_name_info *ret)
{
	struct tier_file f;
	int fd = lookup_open(set, name, O_PATH, &f), r = 0;
	struct stat st;

	if (fd == -EREMOTE) {
		/* The catalogue has the facts of an object. */
		ret->kind = PST_NAME_FILE;
		ret->has = PST_NAME_HAS_SIZE | PST_NAME_HAS_MTIME;
		ret->size = f.stamp.size;
		ret->mtime_ns = f.stamp.mtime_ns;
		return 0;
	}
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		r = err_set(errno, "cannot look at %s: %s", name, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		r = -ENOENT;
	else
		provider_names_set_info(ret, &st);
	(void)close(fd);
	return r;
}

static int provider_names_one(const struct tier_file *file, void *arg)
{
	(void)file;
	(void)arg;
	return 1;
}

/* Return 0 if the name is a directory of the set, else -ENOENT. */
static int dir_check(const struct in_set *in)
{
	int r = *in->name ? catalog_each_below(in->set->catalog, in->name, provider_names_one, NULL)
			  : 1;

	if (r)
		return MIN(r, 0);
	return err_set(ENOENT, "there is no file or directory %s in the set %s", in->name,
		       in->set->name);
}

static int tier_stat(const char *name, struct pst_name_info *ret)
{
	struct in_set in;
	int r = in_set_begin(name, true, &in);

	if (r < 0)
		return r;
	r = *in.name ? file_facts(in.set, in.name, ret) : -ENOENT;
	if (r == -ENOENT) {
		r = dir_check(&in);
		ret->kind = PST_NAME_DIR;
	}
	in_set_end(&in);
	return r;
}

/* -------------------------------------------------------------------- list */

struct listing {
	struct in_set in;
	uint32_t flags;
	pst_name_fn fn;
	void *arg;
	size_t len;               /* bytes of the prefix that all names share */
	char dir[TIER_NAME_SIZE]; /* the last directory passed to the caller */
	bool any;
};

static int list_file(const struct tier_file *file, void *arg)
{
	struct listing *l = arg;
	const char *name = file->name + l->len, *slash = strchr(name, '/');
	struct pst_name_info info = { .sz = sizeof(info), .kind = PST_NAME_FILE };
	int r;

	l->any = true;
	if (slash && !(l->flags & PST_NAME_TREE)) {
		size_t len = (size_t)(slash - name);

		if (strncmp(l->dir, name, len) == 0 && !l->dir[len])
			return 0;
		(void)snprintf(l->dir, sizeof(l->dir), "%.*s", (int)len, name);
		info.kind = PST_NAME_DIR;
		return l->fn(l->arg, l->dir, &info);
	}
	if (l->flags & PST_NAME_FACTS) {
		r = file_facts(l->in.set, file->name, &info);
		if (r < 0)
			return r == -ENOENT ? 0 : r;
	}
	return l->fn(l->arg, name, &info);
}

static int tier_list(const char *name, uint32_t flags, pst_name_fn fn, void *arg)
{
	struct listing l = { .flags = flags, .fn = fn, .arg = arg };
	struct pst_name_info info;
	int r = in_set_begin(name, true, &l.in);

	if (r < 0)
		return r;
	if (*l.in.name) {
		l.len = strlen(l.in.name) + 1;
		r = catalog_each_below(l.in.set->catalog, l.in.name, list_file, &l);
		if (r == 0 && !l.any)
			r = file_facts(l.in.set, l.in.name, &info) == 0
				    ? err_set(ENOTDIR, "%s is a file", name)
				    : dir_check(&l.in);
	} else {
		r = catalog_each(l.in.set->catalog, list_file, &l);
	}
	in_set_end(&l.in);
	return r;
}

/* ------------------------------------------------------------------- change */

/* Return true for temporary errors: the mover is renaming the file, or has a lease on it. */
static bool provider_names_is_busy(int r)
{
	return r == -EWOULDBLOCK;
}

static int err_change(const struct in_set *in, const char *what, int err)
{
	if (provider_names_is_busy(err))
		return err_set(EBUSY, "%s of the set %s is being moved; try again", in->name,
			       in->set->name);
	/* The sentence of lookup_open() names the cure. */
	if (err == -EREMOTE)
		return err;
	return err_set(err, "cannot %s %s of the set %s: %s", what, in->name, in->set->name,
		       strerror(-err));
}

static int tier_unlink(const char *name)
{
	struct tier_file f;
	struct in_set in;
	int r = in_set_begin(name, false, &in);

	if (r < 0)
		return r;
	r = change_unlink(in.set, in.name, &f);
	for (unsigned i = 0; provider_names_is_busy(r) && i < BUSY_MS / NAP_MS; i++) {
		tier_names_wait();
		r = change_unlink(in.set, in.name, &f);
	}
	if (r == -EEXIST || (r == -ENOENT && dir_check(&in) == 0))
		r = -EISDIR;
	if (r < 0)
		r = err_change(&in, "remove", r);
	in_set_end(&in);
	return r;
}

static int tier_rename(const char *name, const char *to)
{
	char set[NAME_MAX + 1], to_name[TIER_NAME_SIZE];
	struct tier_file f, old;
	struct in_set in;
	int r = provider_split(to, false, set, to_name);

	if (r == 0)
		r = in_set_begin(name, false, &in);
	if (r < 0)
		return r;
	r = strcmp(set, in.set->name) == 0 ? change_rename(in.set, in.name, to_name, 0, &f, &old)
					   : -EXDEV;
	for (unsigned i = 0; provider_names_is_busy(r) && i < BUSY_MS / NAP_MS; i++) {
		tier_names_wait();
		r = change_rename(in.set, in.name, to_name, 0, &f, &old);
	}
	if (r < 0)
		r = err_change(&in, "rename", r);
	in_set_end(&in);
	return r;
}

static int tier_truncate(const char *name, uint64_t size)
{
	struct tier_file f;
	struct in_set in;
	int r = in_set_begin(name, false, &in), fd;

	if (r < 0)
		return r;
	fd = lookup_open(in.set, in.name, O_WRONLY, &f);
	if (fd == -EREMOTE) {
		fd = bring_up_locked(in.set->name, in.name);
		if (fd == 0)
			fd = lookup_open(in.set, in.name, O_WRONLY, &f);
	}
	for (unsigned i = 0; provider_names_is_busy(fd) && i < BUSY_MS / NAP_MS; i++) {
		tier_names_wait();
		fd = lookup_open(in.set, in.name, O_WRONLY, &f);
	}
	r = fd < 0 ? fd : ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	if (fd >= 0)
		(void)close(fd);
	if (r < 0)
		r = err_change(&in, "set the size of", r);
	in_set_end(&in);
	return r;
}

const struct names_ops tier_names_ops = {
	.stat = tier_stat,
	.list = tier_list,
	.lists_trees = true,
	.unlink = tier_unlink,
	.rename = tier_rename,
	.truncate = tier_truncate,
};
