/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "files.h"

void files_init(struct files *f)
{
	*f = (struct files){ .first = NULL };
	(void)pthread_mutex_init(&f->lock, NULL);
}

static void file_free(struct open_file *file)
{
	pst_file_close(file->file);
	free(file);
}

void files_done(struct files *f)
{
	while (f->first) {
		struct open_file *file = f->first;

		f->first = file->next;
		file_free(file);
	}
	(void)pthread_mutex_destroy(&f->lock);
}

/* The same inode, not changed since. */
static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static struct open_file *find(struct files *f, const char *path, const struct stat *st)
{
	for (struct open_file *file = f->first; file; file = file->next)
		if (same(&file->st, st) && !strcmp(file->path, path)) {
			file->users++;
			return file;
		}
	return NULL;
}

int files_get(struct files *f, const char *path, struct open_file **ret, char *text, size_t len)
{
	size_t size = strlen(path) + 1;
	struct open_file *file;
	struct stat st;
	int r;

	if (stat(path, &st) < 0) {
		r = -errno;
		(void)snprintf(text, len, "%s", strerror(-r));
		return r;
	}
	(void)pthread_mutex_lock(&f->lock);
	*ret = find(f, path, &st);
	(void)pthread_mutex_unlock(&f->lock);
	if (*ret)
		return 0;
	file = calloc(1, sizeof(*file) + size);
	if (!file) {
		(void)snprintf(text, len, "out of memory");
		return -ENOMEM;
	}
	memcpy(file->path, path, size);
	file->st = st;
	file->users = 1;
	r = pst_file_open(path, PST_FILE_READ, NULL, &file->file);
	if (r < 0) {
		(void)snprintf(text, len, "%s", pst_error_text());
		free(file);
		return r;
	}
	/* Another thread may have opened it meanwhile: then it is open twice for a while. */
	(void)pthread_mutex_lock(&f->lock);
	file->next = f->first;
	f->first = file;
	(void)pthread_mutex_unlock(&f->lock);
	*ret = file;
	return 0;
}

/* The file that nobody has used for longest, out of the list, if more than enough are idle. */
static struct open_file *surplus(struct files *f)
{
	struct open_file **oldest = NULL, *file;
	unsigned idle = 0;

	for (struct open_file **at = &f->first; *at; at = &(*at)->next) {
		if ((*at)->users)
			continue;
		idle++;
		if (!oldest || (*at)->used < (*oldest)->used)
			oldest = at;
	}
	if (idle <= FILES_IDLE_MAX)
		return NULL;
	file = *oldest;
	*oldest = file->next;
	return file;
}

void files_put(struct files *f, struct open_file *file)
{
	struct open_file *old;

	(void)pthread_mutex_lock(&f->lock);
	file->users--;
	file->used = ++f->uses;
	old = surplus(f);
	(void)pthread_mutex_unlock(&f->lock);
	if (old)
		file_free(old);
}
