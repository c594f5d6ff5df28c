/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/conf.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

enum conf { TIMEOUT, NEVER, NO, YES, READONLY };

static const struct {
	const char *name;
	enum conf what;
} all[] = {
	{ "usr.attr_timeout", TIMEOUT },   { "usr.entry_timeout", TIMEOUT },
	{ "usr.negative_timeout", NEVER }, { "usr.symlink_timeout", TIMEOUT },
	{ "usr.enable_read_cache", YES },  { "usr.readonly", READONLY },
	{ "usr.dryrun_bench_mode", NO },
};

const char *conf_name(uint64_t index)
{
	return index < ARRAY_SIZE(all) ? all[index].name : NULL;
}

int conf_find(const char *name, uint64_t *ret_index)
{
	for (uint64_t i = 0; i < ARRAY_SIZE(all); i++)
		if (!strcmp(name, all[i].name)) {
			*ret_index = i;
			return 0;
		}
	return -ENOENT;
}

static bool is_readonly(const struct fs *fs)
{
	struct statvfs st;

	return fstatvfs(fs->nodes.root.fd, &st) == 0 && (st.f_flag & ST_RDONLY);
}

void conf_value(const struct fs *fs, uint64_t index, char ret[CONF_VALUE_MAX])
{
	switch (all[index].what) {
	case TIMEOUT:
		(void)snprintf(ret, CONF_VALUE_MAX, "%g", fs->timeout);
		return;
	case NEVER:
		(void)strcpy(ret, "0");
		return;
	case READONLY:
		(void)strcpy(ret, is_readonly(fs) ? "true" : "false");
		return;
	case YES:
	case NO:
		(void)strcpy(ret, all[index].what == YES ? "true" : "false");
	}
}

int conf_set(const struct fs *fs, const char *name, const char *value)
{
	char now[CONF_VALUE_MAX];
	uint64_t index;
	int err = conf_find(name, &index);

	if (err < 0)
		return err;
	conf_value(fs, index, now);
	return strcmp(now, value) != 0 ? -EOPNOTSUPP : 0;
}
