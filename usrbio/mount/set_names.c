/* SPDX-License-Identifier: MIT */
/* Names of a set's mount: create, unlink, rename, list. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "base/err.h"
#include "tier/change.h"
#include "tier/object.h"
#include "tier/place.h"
#include "tier/progress.h"
#include "tier/stamp.h"
#include "usrbio/mount/caller.h"
#include "usrbio/mount/log.h"
#include "usrbio/mount/set_private.h"

#define FLUSH_NS (5 * NSEC_PER_SEC)

/* ---------------------------------------------------------------- accesses */

/* Write counted opens to the catalogue.  Return -EWOULDBLOCK if another process is changing it. */
static int write_accesses(struct set_source *s)
{
	int r = catalog_begin(s->set->catalog);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < s->nr_accesses && r == 0; i++) {
		r = catalog_access(s->set->catalog, s->accesses[i].path, s->accesses[i].nr);
		/* The file may be deleted by now. */
		if (r == -ENOENT)
			r = 0;
	}
	if (r == 0)
		return catalog_commit(s->set->catalog);
	catalog_rollback(s->set->catalog);
	return r;
}

void set_flush_accesses(struct set_source *s)
{
	int r = s->nr_accesses ? write_accesses(s) : 0;

	s->flushed_ns = now_ns();
	/* Another process uses the catalogue: keep the accesses for the next write, if there is
	 * room. */
	if (r == -EWOULDBLOCK && s->nr_accesses < SET_ACCESSES)
		return;
	if (r < 0)
		log_warn("accesses are not counted", "error=%s",
			 r == -EWOULDBLOCK ? "the catalogue is in use" : log_text(err_text()).s);
	s->nr_accesses = 0;
}

void set_note_access(struct set_source *s, const char *path)
{
	unsigned i = 0;

	while (i < s->nr_accesses && strcmp(s->accesses[i].path, path) != 0)
		i++;
	if (i == s->nr_accesses) {
		(void)snprintf(s->accesses[i].path, sizeof(s->accesses[i].path), "%s", path);
		s->accesses[i].nr = 0;
		s->nr_accesses++;
	}
	s->accesses[i].nr++;
	if (s->nr_accesses == SET_ACCESSES || now_ns() - s->flushed_ns > FLUSH_NS)
		set_flush_accesses(s);
}

/* ------------------------------------------------------------------- nodes */

/* Give a file's node another path, or none.  With set->lock. */
static void move_node(struct fs *fs, int64_t id, const char *path)
{
	struct node *n = node_by_number(&fs->nodes, node_number(&fs->nodes, SET_DEV, (ino_t)id));

	if (!n)
		return;
	free(n->path);
	n->path = path ? strdup(path) : NULL;
	node_put(&fs->nodes, n, 1);
}

/* Update a directory's time in the tree, because the changed file may be on another root. */
static void set_touch_dir(const struct fs *fs, const struct node *dir)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };

	(void)utimensat(fs->proc, fd_name(dir->fd).s, times, 0);
}

/* ------------------------------------------------------------------ create */

static int create_file(struct set_source *s, const char *path, const struct new_file *f)
{
	int root = place_root(s->set, 0), fd, err;
	_cleanup_(closep) int dir = -1;
	struct tier_file file = { 0 };
	const char *base;
	struct stat st;

	if (root < 0)
		return root;
	dir = place_dir(s->set, (unsigned)root, path, &base);
	if (dir < 0)
		return dir;
	err = caller_begin(&f->caller);
	if (err < 0)
		return err;
	fd = openat(dir, base,
		    (f->flags & ~(O_DIRECT | O_APPEND | O_TRUNC)) | O_CREAT | O_EXCL | O_NOFOLLOW |
			    O_NONBLOCK | O_CLOEXEC,
		    f->mode);
	err = -errno;
	caller_end();
	if (fd < 0)
		return err;
	file.root = (unsigned)root;
	(void)snprintf(file.name, sizeof(file.name), "%s", path);
	err = flock(fd, LOCK_SH | LOCK_NB) < 0 || fstat(fd, &st) < 0 ? -errno : 0;
	if (err == 0) {
		file.stamp = stamp_of(&st);
		err = catalog_put(s->set->catalog, &file);
	}
	if (err < 0) {
		(void)unlinkat(dir, base, 0);
		(void)close(fd);
		return err;
	}
	return fd;
}

/*
 * Create a file, or find an existing one, in one transaction: otherwise another process could
 * create the file on another root in between.  Return -EWOULDBLOCK to be called again later.  The
 * caller holds the lock.
 *
 * A crash before the commit leaves a file whose creation was not answered; the next scan or lookup
 * adds the file to the catalogue.
 */
static int create_or_find(struct set_source *s, const char *path, const struct new_file *f)
{
	struct catalog *c = s->set->catalog;
	int err = catalog_begin(c), fd;
	struct tier_file file;
	bool made;

	if (err < 0)
		return err;
	fd = change_find(s->set, path, &file);
	made = fd == -ENOENT;
	if (made)
		fd = create_file(s, path, f);
	if (fd < 0) {
		catalog_rollback(c);
		return fd;
	}
	err = catalog_commit(c);
	if (err == 0 && made)
		return fd;
	(void)close(fd);
	if (made)
		(void)change_unlink_all(s->set, path, 0, UINT_MAX);
	/* Another process created the file after the kernel's lookup; at ESTALE the kernel looks it
	 * up again. */
	return err < 0 ? err : f->how & O_EXCL ? -EEXIST : -ESTALE;
}

int set_create(struct fs *fs, const struct node *dir, const struct new_file *f)
{
	struct set_source *s = fs->set;
	uint64_t until = set_deadline();
	char path[TIER_NAME_SIZE];
	struct stat st;
	int err;

	caller_end();
	if (!strcmp(f->name, "."))
		return -EOPNOTSUPP;
	if (fstatat(dir->fd, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
		return -EISDIR;
	err = set_path(s, dir, f->name, path);
	if (err < 0)
		return err;
	do {
		(void)pthread_mutex_lock(&s->lock);
		err = create_or_find(s, path, f);
		(void)pthread_mutex_unlock(&s->lock);
	} while (set_try_again(&err, until));
	if (err >= 0)
		set_touch_dir(fs, dir);
	return err;
}

/* ------------------------------------------------------------------ remove */

/* Unlink a file.  -EWOULDBLOCK: try again later.  With set->lock. */
static int unlink_file(struct fs *fs, const char *path)
{
	struct tier_file f;
	int err = change_unlink(fs->set->set, path, &f);

	if (err == 0)
		move_node(fs, f.id, NULL);
	return err;
}

static int set_unlink(struct fs *fs, const struct node *dir, const char *name)
{
	struct set_source *s = fs->set;
	uint64_t until = set_deadline();
	char path[TIER_NAME_SIZE];
	int err;

	caller_end();
	err = set_path(s, dir, name, path);
	if (err < 0)
		return err;
	do {
		(void)pthread_mutex_lock(&s->lock);
		err = unlink_file(fs, path);
		(void)pthread_mutex_unlock(&s->lock);
	} while (set_try_again(&err, until));
	if (err == 0)
		set_touch_dir(fs, dir);
	return err;
}

static int is_object(const struct tier_file *f, void *arg)
{
	const struct set_source *s = arg;

	return file_is_object(s->set, f) ? -ENOTEMPTY : 0;
}

/* Return -ENOTEMPTY if a file below the directory is an object.  With set->lock. */
static int check_no_objects(struct set_source *s, const char *path)
{
	return object_root(s->set) < 0 ? 0
				       : catalog_each_below(s->set->catalog, path, is_object, s);
}

static int set_rmdir(struct fs *fs, const struct node *dir, const char *name)
{
	struct set_source *s = fs->set;
	char path[TIER_NAME_SIZE];
	int err;

	caller_end();
	err = set_path(s, dir, name, path);
	if (err < 0)
		return err;
	(void)pthread_mutex_lock(&s->lock);
	err = check_no_objects(s, path);
	/* Other roots get the directory again when a file needs it. */
	if (err == 0)
		err = change_unlink_all(s->set, path, AT_REMOVEDIR, s->tree);
	if (err == 0 && unlinkat(dir->fd, name, AT_REMOVEDIR) < 0)
		err = -errno;
	(void)pthread_mutex_unlock(&s->lock);
	return err;
}

int set_remove(struct fs *fs, struct node *dir, const char *name, int flags)
{
	return flags & AT_REMOVEDIR ? set_rmdir(fs, dir, name) : set_unlink(fs, dir, name);
}

/* ------------------------------------------------------------------ rename */

static int is_empty(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	unsigned nr = 0;

	if (!d) {
		closep(&fd);
		return -errno;
	}
	while (readdir(d))
		nr++;
	(void)closedir(d);
	return nr <= 2;
}

static int rename_dir(struct set_source *s, const struct node *dir, const char *name,
		      const char *path, const struct node *to, const char *to_name,
		      const char *to_path, unsigned flags)
{
	int r = is_empty(dir->fd, name);

	if (r < 0)
		return r;
	if (r == 0 || check_no_objects(s, path) < 0 ||
	    change_unlink_all(s->set, path, AT_REMOVEDIR, s->tree) < 0)
		return -EXDEV;
	r = change_unlink_all(s->set, to_path, AT_REMOVEDIR, s->tree);
	if (r == 0 && renameat2(dir->fd, name, to->fd, to_name, flags) < 0)
		r = -errno;
	return r;
}

/* Rename a file.  -EWOULDBLOCK: try again later.  With set->lock. */
static int rename_file(struct fs *fs, const char *path, const char *to_path, unsigned flags)
{
	struct tier_file f, old;
	int err = change_rename(fs->set->set, path, to_path, flags, &f, &old);

	if (err < 0)
		return err;
	if (old.id)
		move_node(fs, old.id, NULL);
	move_node(fs, f.id, to_path);
	return 0;
}

/* Rename a file or an empty directory.  -EWOULDBLOCK: try again later.  With set->lock. */
static int rename_any(struct fs *fs, const struct node *dir, const char *name, const char *path,
		      const struct node *to, const char *to_name, const char *to_path,
		      unsigned flags)
{
	struct set_source *s = fs->set;
	struct tier_file f;
	struct stat st, at;
	bool is_dir, at_dir;
	int fd, err;

	is_dir = fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
	at_dir = fstatat(to->fd, to_name, &at, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(at.st_mode);
	if (!is_dir)
		return at_dir ? -EISDIR : rename_file(fs, path, to_path, flags);
	fd = change_find(s->set, to_path, &f);
	if (fd < 0 && fd != -ENOENT)
		return fd;
	err = fd >= 0 ? -ENOTDIR : rename_dir(s, dir, name, path, to, to_name, to_path, flags);
	closep(&fd);
	return err;
}

int set_rename(struct fs *fs, struct node *dir, const char *name, struct node *to,
	       const char *to_name, unsigned flags)
{
	char path[TIER_NAME_SIZE], to_path[TIER_NAME_SIZE];
	struct set_source *s = fs->set;
	uint64_t until = set_deadline();
	int err;

	caller_end();
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		return -EINVAL;
	err = set_path(s, dir, name, path);
	if (err == 0)
		err = set_path(s, to, to_name, to_path);
	if (err < 0)
		return err;
	do {
		(void)pthread_mutex_lock(&s->lock);
		err = rename_any(fs, dir, name, path, to, to_name, to_path, flags);
		(void)pthread_mutex_unlock(&s->lock);
	} while (set_try_again(&err, until));
	if (err == 0) {
		set_touch_dir(fs, dir);
		set_touch_dir(fs, to);
	}
	return err;
}

void set_dir_attr(struct fs *fs, const struct node *dir)
{
	struct set_source *s = fs->set;
	char path[TIER_NAME_SIZE];
	struct stat st;

	caller_end();
	if (set_path(s, dir, "", path) < 0 || fstat(dir->fd, &st) < 0)
		return;
	for (unsigned i = 0; *path && i < s->set->nr_roots; i++) {
		_cleanup_(closep) int fd = -1;

		if (i == s->tree || root_is_object(&s->set->roots[i]))
			continue;
		fd = name_open(s->set->roots[i].fd, path, O_RDONLY | O_DIRECTORY, 0);
		if (fd >= 0 &&
		    (fchown(fd, st.st_uid, st.st_gid) < 0 || fchmod(fd, st.st_mode & 07777) < 0))
			log_warn("a directory's owner and mode differ between roots",
				 "root=%s error=%s", log_text(s->set->roots[i].path).s,
				 log_errno(-errno));
	}
}

/* -------------------------------------------------------------------- list */

struct listing {
	struct fs *fs;
	const char *path; /* path of the directory */
	struct source_entry *at;
	size_t nr, room;
};

static int add_entry(struct listing *l, const char *name, uint64_t number, mode_t type)
{
	if (l->nr == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct source_entry *more = reallocarray(l->at, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->at = more;
		l->room = room;
	}
	l->at[l->nr] = (struct source_entry){ .number = number, .type = type };
	(void)snprintf(l->at[l->nr++].name, sizeof(l->at->name), "%s", name);
	return 0;
}

/* Add a file with its number in the catalogue, if the set has it. */
static int add_file(struct listing *l, const char *name)
{
	uint64_t until = set_deadline();
	char path[TIER_NAME_SIZE];
	struct tier_file f;
	int fd;

	if (snprintf(path, sizeof(path), "%s%s%s", l->path, *l->path ? "/" : "", name) >=
	    (int)sizeof(path))
		return 0;
	do {
		(void)pthread_mutex_lock(&l->fs->set->lock);
		fd = change_find(l->fs->set->set, path, &f);
		(void)pthread_mutex_unlock(&l->fs->set->lock);
	} while (set_try_again(&fd, until));
	/* An object has a number as well. */
	if (fd < 0 && fd != -EREMOTE)
		return fd == -ENOENT ? 0 : fd;
	closep(&fd);
	return add_entry(l, name, node_number(&l->fs->nodes, SET_DEV, (ino_t)f.id), S_IFREG);
}

static int list_entry_of(struct listing *l, const struct node *dir, int fd, const char *name,
			 bool tree)
{
	struct stat st;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return tree ? add_entry(l, name, dir->number, S_IFDIR) : 0;
	if (!*l->path && !strcmp(name, TIER_DIR))
		return 0;
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISREG(st.st_mode))
		return add_file(l, name);
	if (!tree || !S_ISDIR(st.st_mode) || st.st_dev != dir->dev)
		return 0;
	return add_entry(l, name, node_number(&l->fs->nodes, dir->dev, st.st_ino), S_IFDIR);
}

static int list_root(struct listing *l, const struct node *dir, unsigned root)
{
	const struct set_source *s = l->fs->set;
	int fd = name_open(s->set->roots[root].fd, *l->path ? l->path : ".", O_RDONLY | O_DIRECTORY,
			   0),
	    err = 0;
	struct dirent *e;
	DIR *d;

	if (fd < 0)
		return fd == -ENOENT && root != s->tree ? 0 : fd;
	d = fdopendir(fd);
	if (!d) {
		(void)close(fd);
		return -ENOMEM;
	}
	while (err == 0 && (e = readdir(d)))
		err = list_entry_of(l, dir, dirfd(d), e->d_name, root == s->tree);
	(void)closedir(d);
	return err;
}

/* Add a file that is an object, if it is in the directory itself. */
static int set_list_object(const struct tier_file *f, void *arg)
{
	struct listing *l = arg;
	const char *name = f->name + strlen(l->path) + (*l->path != '\0');

	if (!file_is_object(l->fs->set->set, f) || strchr(name, '/'))
		return 0;
	return add_entry(l, name, node_number(&l->fs->nodes, SET_DEV, (ino_t)f->id), S_IFREG);
}

static int list_objects(struct listing *l)
{
	struct set_source *s = l->fs->set;
	uint64_t until = set_deadline();
	size_t nr = l->nr;
	int err;

	do {
		l->nr = nr;
		(void)pthread_mutex_lock(&s->lock);
		err = *l->path ? catalog_each_below(s->set->catalog, l->path, set_list_object, l)
			       : catalog_each(s->set->catalog, set_list_object, l);
		(void)pthread_mutex_unlock(&s->lock);
	} while (set_try_again(&err, until));
	return err;
}

/* Add a file that moved during the listing: neither root may have had it when it was read. */
static int add_moved(struct listing *l, const struct progress_move *m)
{
	size_t len = strlen(l->path);
	const char *name = m->name + len + (len > 0);

	if (strncmp(m->name, l->path, len) != 0 || (len && m->name[len] != '/') || !*name ||
	    strchr(name, '/') || strlen(name) > NAME_MAX)
		return 0;
	return add_file(l, name);
}

static int set_names_by_name(const void *a, const void *b)
{
	const struct source_entry *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int list_once(struct listing *l, const struct node *dir, bool *ret_again)
{
	const struct progress *p = l->fs->set->set->progress;
	uint64_t before = progress_count(p), after;
	struct progress_move m;
	size_t kept = 0;
	int err = 0;

	l->nr = 0;
	for (unsigned i = 0; i < l->fs->set->set->nr_roots && err == 0; i++)
		err = root_is_object(&l->fs->set->set->roots[i]) ? list_objects(l)
								 : list_root(l, dir, i);
	progress_now(p, &m);
	if (err == 0 && m.nr)
		err = add_moved(l, &m);
	after = progress_count(p);
	*ret_again = after - before >= PROGRESS_ENDED - 1;
	for (uint64_t i = before; i < after && err == 0 && !*ret_again; i++)
		if (progress_ended(p, i, &m))
			err = add_moved(l, &m);
	if (err < 0)
		return err;
	qsort(l->at, l->nr, sizeof(*l->at), set_names_by_name);
	for (size_t i = 0; i < l->nr; i++)
		if (!kept || strcmp(l->at[kept - 1].name, l->at[i].name) != 0)
			l->at[kept++] = l->at[i];
	l->nr = kept;
	return 0;
}

int set_list(struct fs *fs, struct node *dir, struct source_entry **ret, size_t *ret_nr)
{
	char path[TIER_NAME_SIZE];
	struct listing l = { .fs = fs, .path = path };
	bool again = true;
	int err;

	caller_end();
	err = set_path(fs->set, dir, "", path);
	for (unsigned i = 0; i < 100 && again && err == 0; i++)
		err = list_once(&l, dir, &again);
	if (err == 0 && again)
		err = -EAGAIN;
	if (err < 0) {
		free(l.at);
		return err;
	}
	*ret = l.at;
	*ret_nr = l.nr;
	return 0;
}

int set_statfs(struct fs *fs, const struct node *n, struct statvfs *ret)
{
	struct tier_space all = { 0 }, one;
	int r = fstatvfs(n->fd, ret) < 0 ? -errno : 0;

	(void)pthread_mutex_lock(&fs->set->lock);
	for (unsigned c = 0; c < TIER_CLASSES && r == 0; c++) {
		r = class_space(fs->set->set, (enum tier_class)c, &one);
		all.size += one.size;
		all.avail += one.avail;
	}
	(void)pthread_mutex_unlock(&fs->set->lock);
	if (r < 0)
		return r;
	ret->f_bsize = ret->f_frsize = 4096;
	ret->f_blocks = all.size / 4096;
	ret->f_bfree = ret->f_bavail = all.avail / 4096;
	return 0;
}
