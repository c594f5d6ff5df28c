/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/log.h"

#include "args.h"
#include "code.h"
#include "list.h"

#define DEPTH_MAX 128 /* nested folders; each keeps a descriptor open */

/* A listing, with copies of its strings. */
struct search {
	char *prefix;
	struct strings allow, ignore;
	int recursive;
	runai_list_fn fn;
	void *user_data;
};

static void search_done(struct search *s)
{
	free(s->prefix);
	strings_done(&s->allow);
	strings_done(&s->ignore);
}

static bool matches(const struct strings *patterns, const char *path)
{
	for (uint64_t i = 0; i < patterns->nr; i++)
		if (fnmatch(patterns->at[i], path, 0) == 0)
			return true;
	return false;
}

static void list_give(const struct search *s, const char *path, uint64_t size)
{
	if (s->allow.nr && !matches(&s->allow, path))
		return;
	if (!matches(&s->ignore, path))
		s->fn(path, (size_t)size, s->user_data);
}

static int unreadable(const char *path, int err)
{
	log_error("list %s: %s", path, strerror(err));
	return code_of(err) == RUNAI_FD_LIMIT ? RUNAI_FD_LIMIT : RUNAI_FILE_ACCESS;
}

static int folder(const struct search *s, const char *path, unsigned depth);

/* Handle a name from readdir().  A file that was removed in between is no error. */
static int streamer_list_entry(const struct search *s, const char *path, unsigned depth)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? RUNAI_SUCCESS : unreadable(path, errno);
	if (S_ISDIR(st.st_mode))
		return s->recursive ? folder(s, path, depth + 1) : RUNAI_SUCCESS;
	if (S_ISLNK(st.st_mode) && stat(path, &st) < 0)
		return RUNAI_SUCCESS; /* a dangling link */
	if (S_ISREG(st.st_mode))
		list_give(s, path, (uint64_t)st.st_size);
	return RUNAI_SUCCESS;
}

static void list_closedirp(DIR **dir)
{
	if (*dir)
		(void)closedir(*dir);
}

static int folder(const struct search *s, const char *path, unsigned depth)
{
	size_t len = strlen(path);
	const char *slash = len && path[len - 1] == '/' ? "" : "/";
	_cleanup_(list_closedirp) DIR *dir = NULL;
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
		code = streamer_list_entry(s, below, depth);
	}
	return code;
}

/* Handle an entry of a bucket. */
static int list_object(void *arg, const char *name, const struct pst_name_info *info)
{
	struct search *s = arg;
	_cleanup_(freep) char *path = NULL;
	size_t len = strlen(s->prefix);

	if (info->kind != PST_NAME_FILE)
		return 0;
	if (asprintf(&path, "%s%s%s", s->prefix, s->prefix[len - 1] == '/' ? "" : "/", name) < 0) {
		path = NULL;
		return RUNAI_UNKNOWN;
	}
	list_give(s, path, info->size);
	return 0;
}

static int list_bucket(struct search *s)
{
	int r = pst_name_list(s->prefix, s->recursive ? PST_NAME_TREE : 0, list_object, s);

	if (r < 0)
		log_error("list %s: %s", s->prefix, pst_error_text());
	return r < 0 ? code_of(r) : r;
}

int list_files(const struct listing *l, const char *prefix)
{
	_cleanup_(search_done) struct search s = {
		.recursive = l->recursive,
		.fn = l->fn,
		.user_data = l->user_data,
	};
	struct stat st;
	int code;

	if (!l->fn) {
		log_error("list: the function is NULL");
		return RUNAI_INVALID;
	}
	code = copy_string(prefix, &s.prefix);
	if (!code)
		code = copy_strings(l->allow, l->nr_allow, &s.allow);
	if (!code)
		code = copy_strings(l->ignore, l->nr_ignore, &s.ignore);
	if (code)
		return code;
	code = code_of_path(s.prefix);
	if (code) {
		log_error("list %s: %s", s.prefix, code_text(code));
		return code;
	}
	if (path_is_object(s.prefix))
		return list_bucket(&s);
	if (stat(s.prefix, &st) < 0)
		return unreadable(s.prefix, errno);
	if (!S_ISDIR(st.st_mode)) {
		log_error("list %s: it is no folder", s.prefix);
		return RUNAI_UNKNOWN;
	}
	return folder(&s, s.prefix, 0);
}
