/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/log.h"

#include "list.h"

#define DEPTH_MAX 128 /* folders in folders, each an open descriptor */

static bool matches(const char *const *patterns, unsigned nr, const char *path)
{
	for (unsigned i = 0; i < nr; i++)
		if (fnmatch(patterns[i], path, 0) == 0)
			return true;
	return false;
}

static void give(const struct listing *l, const char *path, const struct stat *st)
{
	if (l->nr_allow && !matches(l->allow, l->nr_allow, path))
		return;
	if (!matches(l->ignore, l->nr_ignore, path))
		l->fn(path, (size_t)st->st_size, l->user_data);
}

static int unreadable(const char *path, int err)
{
	log_error("list %s: %s", path, strerror(err));
	return code_of(err) == RUNAI_FD_LIMIT ? RUNAI_FD_LIMIT : RUNAI_FILE_ACCESS;
}

static int folder(const struct listing *l, const char *path, unsigned depth);

/* Looks at a name that readdir() gave.  A file that has gone meanwhile is no error. */
static int entry(const struct listing *l, const char *path, unsigned depth)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? RUNAI_SUCCESS : unreadable(path, errno);
	if (S_ISDIR(st.st_mode))
		return l->recursive ? folder(l, path, depth + 1) : RUNAI_SUCCESS;
	if (S_ISLNK(st.st_mode) && stat(path, &st) < 0)
		return RUNAI_SUCCESS; /* it leads nowhere */
	if (S_ISREG(st.st_mode))
		give(l, path, &st);
	return RUNAI_SUCCESS;
}

static void closedirp(DIR **dir)
{
	if (*dir)
		(void)closedir(*dir);
}

static int folder(const struct listing *l, const char *path, unsigned depth)
{
	size_t len = strlen(path);
	const char *slash = len && path[len - 1] == '/' ? "" : "/";
	_cleanup_(closedirp) DIR *dir = NULL;
	int code = RUNAI_SUCCESS;
	struct dirent *e;

	if (depth > DEPTH_MAX)
		return unreadable(path, ELOOP);
	dir = opendir(path);
	if (!dir)
		return unreadable(path, errno);
	while (code == RUNAI_SUCCESS) {
		_cleanup_(freep) char *below = NULL;

		errno = 0;
		e = readdir(dir);
		if (!e)
			return errno ? unreadable(path, errno) : RUNAI_SUCCESS;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (asprintf(&below, "%s%s%s", path, slash, e->d_name) < 0) {
			below = NULL;
			return RUNAI_UNKNOWN;
		}
		code = entry(l, below, depth);
	}
	return code;
}

static bool all_there(const char *const *patterns, unsigned nr)
{
	if (nr && !patterns)
		return false;
	for (unsigned i = 0; i < nr; i++)
		if (!patterns[i])
			return false;
	return true;
}

int list_files(const struct listing *l, const char *prefix)
{
	struct stat st;
	int code;

	if (!prefix || !l->fn || !all_there(l->allow, l->nr_allow) ||
	    !all_there(l->ignore, l->nr_ignore)) {
		log_error("list: the prefix, the function or a pattern is NULL");
		return RUNAI_INVALID;
	}
	code = code_of_path(prefix);
	if (code) {
		log_error("list %s: %s", prefix, code_text(code));
		return code;
	}
	if (stat(prefix, &st) < 0)
		return unreadable(prefix, errno);
	if (!S_ISDIR(st.st_mode)) {
		log_error("list %s: it is no folder", prefix);
		return RUNAI_UNKNOWN;
	}
	return folder(l, prefix, 0);
}
