/* SPDX-License-Identifier: MIT */
/* Calls about files by their names: arguments, ends of a list, and trees. */
#include <penstock.h>
#include <sys/stat.h>

#include "rig.h"

static void make_file(const char *path)
{
	FILE *f = fopen(path, "we");

	T_CHECK(f && fclose(f) == 0);
}

struct seen {
	unsigned nr, stop_at;
	int ret;
	char last[4096];
};

static int see(void *arg, const char *name, const struct pst_name_info *info)
{
	struct seen *s = arg;

	T_EQ(info->sz, sizeof(*info));
	(void)snprintf(s->last, sizeof(s->last), "%s", name);
	return ++s->nr == s->stop_at ? s->ret : 0;
}

static void bad_arguments(void)
{
	struct pst_name_info info = { .sz = 1 };
	struct seen s = { 0 };

	T_EQ(pst_name_stat(NULL, &info), -EINVAL);
	T_EQ(pst_name_stat(".", &info), -EINVAL);
	T_EQ(pst_name_list(NULL, 0, see, &s), -EINVAL);
	T_EQ(pst_name_list(".", 0, NULL, &s), -EINVAL);
	T_EQ(pst_name_list(".", 4, see, &s), -EINVAL);
	T_EQ(pst_name_unlink(NULL), -EINVAL);
	T_EQ(pst_name_unlink(""), -ENOENT);
	T_EQ(pst_name_rename(NULL, "x"), -EINVAL);
	T_EQ(pst_name_rename("x", NULL), -EINVAL);
	T_EQ(pst_name_truncate(NULL, 0), -EINVAL);
	T_EQ(pst_name_truncate("x", UINT64_MAX), -EFBIG);
	info.sz = sizeof(info);
	T_EQ(pst_name_stat("nothing+opens://x", &info), -EPROTONOSUPPORT);
	T_CHECK(strstr(pst_error_text(), "nothing+opens://"));
	T_EQ(pst_name_rename("x", "nothing+opens://x"), -EPROTONOSUPPORT);
	T_EQ(pst_name_rename("x", "pst://127.0.0.1:1/x"), -EXDEV);
	T_EQ(pst_name_unlink("pst://127.0.0.1:1"), -EINVAL);
	T_EQ(pst_name_stat("pst://127.0.0.1:1/", &info), -ECONNREFUSED);
	T_EQ(s.nr, 0);
}

static void a_list_ends_when_the_program_says_so(void)
{
	const char *dir = rig_dir;
	char path[PATH_MAX];

	for (int i = 0; i < 5; i++) {
		(void)snprintf(path, sizeof(path), "%s/%d", dir, i);
		T_EQ(mkdir(path, 0700), 0);
		(void)snprintf(path, sizeof(path), "%s/%d/file", dir, i);
		make_file(path);
	}
	for (unsigned tree = 0; tree < 2; tree++) {
		for (int ret = -1; ret <= 1; ret += 2) {
			struct seen s = { .stop_at = 3, .ret = 77 * ret };

			T_EQ(pst_name_list(dir, tree ? PST_NAME_TREE : 0, see, &s), 77 * ret);
			T_EQ(s.nr, 3);
		}
	}
}

static void deep_trees_are_refused(void)
{
	char path[PATH_MAX], root[PATH_MAX];
	struct seen s = { 0 };

	(void)snprintf(root, sizeof(root), "%s/deep", rig_dir);
	(void)snprintf(path, sizeof(path), "%s", root);
	for (int i = 0; i < 129; i++) {
		T_EQ(mkdir(path, 0700), 0);
		(void)strcat(path, "/d");
	}
	make_file(path);
	T_EQ(pst_name_list(root, PST_NAME_TREE, see, &s), 0);
	T_EQ(s.nr, 1);
	T_EQ(strlen(s.last), 2 * 129 - 1);
	T_EQ(unlink(path), 0);
	T_EQ(mkdir(path, 0700), 0);
	T_EQ(pst_name_list(root, PST_NAME_TREE, see, &s), -ELOOP);
}

int main(void)
{
	rig_init();
	RIG_RUN1(bad_arguments);
	RIG_RUN1(a_list_ends_when_the_program_says_so);
	RIG_RUN1(deep_trees_are_refused);
	return rig_done();
}
