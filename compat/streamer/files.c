/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "code.h"
#include "files.h"

#define OBJECT_KEPT_NS NSEC_PER_SEC

void files_init(struct files *f)
{
	*f = (struct files){ .first = NULL };
	(void)pthread_mutex_init(&f->lock, NULL);
}

static void files_file_free(struct open_file *file)
{
	pst_file_close(file->file);
	free(file);
}

void streamer_files_done(struct files *f)
{
	while (f->first) {
		struct open_file *file = f->first;

		f->first = file->next;
		files_file_free(file);
	}
	(void)pthread_mutex_destroy(&f->lock);
}

/* Return true if both describe one inode that has not changed in between. */
static bool files_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static struct open_file *files_find(struct files *f, const char *path, const struct stat *st)
{
	for (struct open_file *file = f->first; file; file = file->next)
		if (files_same(&file->st, st) && !strcmp(file->path, path)) {
			file->users++;
			return file;
		}
	return NULL;
}

/* Find an open object.  An object that was unused for OBJECT_KEPT_NS is ignored, because it may
 * have been replaced. */
static struct open_file *files_find_object(struct files *f, const char *path)
{
	uint64_t now = now_ns();

	for (struct open_file *file = f->first; file; file = file->next)
		if ((file->users || now - file->used_ns < OBJECT_KEPT_NS) &&
		    !strcmp(file->path, path)) {
			file->users++;
			return file;
		}
	return NULL;
}

static int says(char *text, size_t len, int r, const char *what)
{
	(void)snprintf(text, len, "%s", what);
	return r;
}

/* Open the file and fstat() it again, because a link may lead elsewhere by now. */
static int files_open_now(struct open_file *file, char *text, size_t len)
{
	const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY;
	_cleanup_(closep) int fd = -1;
	int r;

	fd = open(file->path, flags | O_NONBLOCK); /* O_NONBLOCK: it may be a pipe by now */
	/* Another process holds a lease on the file: wait until the kernel has broken the lease. */
	if (fd < 0 && errno == EWOULDBLOCK)
		fd = open(file->path, flags);
	if (fd < 0 || fstat(fd, &file->st) < 0 || fcntl(fd, F_SETFL, 0) < 0) {
		r = -errno;
		return says(text, len, r, strerror(-r));
	}
	r = pst_file_wrap(fd, 0, NULL, &file->file);
	return r < 0 ? says(text, len, r, pst_error_text()) : 0;
}

static int files_open_object(const struct files *f, struct open_file *file, char *text, size_t len)
{
	int r;

	if (atomic_load(&f->keys_given))
		return says(text, len, -EACCES,
			    "keys that the program gives are not taken; set AWS_ACCESS_KEY_ID and "
			    "AWS_SECRET_ACCESS_KEY, or a profile (docs/OBJECTS.md)");
	r = pst_file_open(file->path, PST_FILE_READ, NULL, &file->file);
	return r < 0 ? says(text, len, r, pst_error_text()) : 0;
}

/* Check that a file of that name can be opened. */
static int files_look(const char *path, struct stat *ret, char *text, size_t len)
{
	int r;

	if (stat(path, ret) < 0) {
		r = -errno;
		return says(text, len, r, strerror(-r));
	}
	/* Opening a device may have side effects. */
	if (!S_ISREG(ret->st_mode) && !S_ISBLK(ret->st_mode))
		return says(text, len, S_ISDIR(ret->st_mode) ? -EISDIR : -ENXIO,
			    "neither a regular file nor a block device");
	return 0;
}

int files_get(struct files *f, const char *path, struct open_file **ret, char *text, size_t len)
{
	size_t size = strlen(path) + 1;
	bool object = path_is_object(path);
	struct open_file *file;
	struct stat st;
	int r;

	r = object ? 0 : files_look(path, &st, text, len);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&f->lock);
	*ret = object ? files_find_object(f, path) : files_find(f, path, &st);
	(void)pthread_mutex_unlock(&f->lock);
	if (*ret)
		return 0;
	file = calloc(1, sizeof(*file) + size);
	if (!file)
		return says(text, len, -ENOMEM, "out of memory");
	memcpy(file->path, path, size);
	file->users = 1;
	r = object ? files_open_object(f, file, text, len) : files_open_now(file, text, len);
	if (r < 0) {
		free(file);
		return r;
	}
	/* If another thread has also opened the file, it is open twice for a while. */
	(void)pthread_mutex_lock(&f->lock);
	file->next = f->first;
	f->first = file;
	(void)pthread_mutex_unlock(&f->lock);
	*ret = file;
	return 0;
}

/* If too many files are idle, unlink and return the one that was not used for longest. */
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
	file->used_ns = now_ns();
	old = surplus(f);
	(void)pthread_mutex_unlock(&f->lock);
	if (old)
		files_file_free(old);
}
