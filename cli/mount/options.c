/* SPDX-License-Identifier: MIT */
#include "cli/mount/options.h"

#include "tools/common/util.h"

/* Options that set a bool in struct daemon_opts. */
static const struct {
	const char *name;
	size_t to; /* offset of a bool in struct daemon_opts */
	bool value;
} bools[] = {
	{ "allow_other", offsetof(struct daemon_opts, allow_other), true },
	{ "ro", offsetof(struct daemon_opts, read_only), true },
	{ "rw", offsetof(struct daemon_opts, read_only), false },
	{ "noatime", offsetof(struct daemon_opts, no_atime), true },
	{ "atime", offsetof(struct daemon_opts, no_atime), false },
	{ "relatime", offsetof(struct daemon_opts, no_atime), false },
	{ "noexec", offsetof(struct daemon_opts, no_exec), true },
	{ "exec", offsetof(struct daemon_opts, no_exec), false },
};

/*
 * Options without effect: every mount of Penstock behaves this way, or mount(8) and systemd handle
 * them.
 */
static const char *const nothing[] = {
	"default_permissions",
	"nonempty",
	"nosuid",
	"nodev",
	"async",
	"diratime",
	"defaults",
	"auto",
	"noauto",
	"user",
	"users",
	"nouser",
	"owner",
	"noowner",
	"group",
	"nogroup",
	"nofail",
	"fail",
	"_netdev",
	"comment",
};

static const struct {
	const char *name, *why;
} refused[] = {
	{ "suid", "set-user-ID bits have no effect on a mount of Penstock; leave it out" },
	{ "dev", "devices have no effect on a mount of Penstock; leave it out" },
	{ "remount", "a mount that serves cannot be changed; 'penstock umount', then mount" },
	{ "sync", "mount the file system of the source with it" },
	{ "dirsync", "mount the file system of the source with it" },
	{ "nodiratime", "give noatime, or mount the file system of the source with it" },
	{ "strictatime", "mount the file system of the source with it" },
	{ "lazytime", "mount the file system of the source with it" },
};

static bool means_nothing(const char *name)
{
	if (!strncasecmp(name, "x-", 2))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(nothing); i++)
		if (!strcmp(name, nothing[i]))
			return true;
	return false;
}

/* Return 0 or an exit status; -ENOENT if the option is not in the table. */
static int take_bool(const char *name, struct daemon_opts *o)
{
	for (size_t i = 0; i < ARRAY_SIZE(bools); i++) {
		if (strcmp(name, bools[i].name) != 0)
			continue;
		if (optarg)
			return usage_error("-o %s takes no value", name);
		*(bool *)((char *)o + bools[i].to) = bools[i].value;
		return 0;
	}
	return -ENOENT;
}

static int take_long(const char *name, const struct option longs[], options_take_long take,
		     struct daemon_opts *o)
{
	for (; longs->name; longs++) {
		if (strcmp(name, longs->name) != 0)
			continue;
		if (longs->has_arg && !optarg)
			return usage_error("-o %s needs a value: %s=...", name, name);
		if (!longs->has_arg && optarg)
			return usage_error("-o %s takes no value", name);
		return take(longs->val, o);
	}
	return -ENOENT;
}

static int options_refuse(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		if (!strcmp(name, refused[i].name))
			return usage_error("-o %s: %s", name, refused[i].why);
	return usage_error("unknown option -o %s", name);
}

int options_take(char *list, bool sloppy, const struct option longs[], options_take_long take,
		 struct daemon_opts *o)
{
	const char *name;
	int r = 0;

	while (r == 0 && (name = strsep(&list, ","))) {
		optarg = strchr(name, '=');
		if (optarg)
			*optarg++ = '\0';
		/* "users" is an option of fstab, "users=N" is ours. */
		r = optarg ? take_long(name, longs, take, o) : -ENOENT;
		if (r == -ENOENT && (!*name || means_nothing(name)))
			r = 0;
		if (r == -ENOENT)
			r = take_bool(name, o);
		if (r == -ENOENT)
			r = take_long(name, longs, take, o);
		if (r == -ENOENT)
			r = sloppy ? 0 : options_refuse(name);
	}
	return r;
}
