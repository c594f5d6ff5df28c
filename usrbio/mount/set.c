/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/set.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>

#include "base/err.h"
#include "tier/change.h"
#include "tier/move.h"
#include "tier/object.h"
#include "tier/place.h"
#include "tier/scan.h"
#include "tier/stamp.h"
#include "usrbio/mount/caller.h"
#include "usrbio/mount/log.h"
#include "usrbio/mount/set_private.h"

#define AGAIN_MS 10u
#define STAT_TRIES 4u /* most tries of stat(2) on a file that keeps moving */

static bool set_owns(const char *source)
{
	return strncmp(source, SET_SCHEME, sizeof(SET_SCHEME) - 1) == 0;
}

/* ------------------------------------------------------------------- waits */

uint64_t set_deadline(void)
{
	return now_ns() + SET_WAIT_NS;
}

bool set_try_again(int *err, uint64_t until)
{
	const struct timespec ts = { .tv_nsec = AGAIN_MS * (long)NSEC_PER_MSEC };

	if (*err != -EWOULDBLOCK)
		return false;
	if (now_ns() >= until) {
		*err = -EBUSY;
		return false;
	}
	(void)nanosleep(&ts, NULL);
	return true;
}

/* ------------------------------------------------------------------- start */

static int mirror(struct set_source *s, unsigned root, int fd, char *path, size_t len);

static int mirror_entry(struct set_source *s, unsigned root, int dir, const char *name, char *path,
			size_t len)
{
	size_t name_len = strlen(name);
	const char *base;
	struct stat st;
	int fd;

	if (!strcmp(name, ".") || !strcmp(name, "..") || (!len && !strcmp(name, TIER_DIR)) ||
	    len + name_len + 3 > TIER_NAME_SIZE)
		return 0;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
	    st.st_dev != s->set->roots[root].dev)
		return 0;
	if (len)
		path[len++] = '/';
	memcpy(path + len, name, name_len);
	/* Append a dummy name, because name_make_parent() makes only the directories above the last
	 * name. */
	memcpy(path + len + name_len, "/x", 3);
	fd = name_make_parent(s->set->roots[s->tree].fd, s->set->roots[root].fd, path, &base);
	path[len + name_len] = '\0';
	if (fd < 0)
		return err_set(fd, "cannot make the directory %s of %s below %s: %s", path,
			       s->set->roots[root].path, s->set->roots[s->tree].path,
			       strerror(-fd));
	(void)close(fd);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_set(errno, "cannot open %s/%s: %s", s->set->roots[root].path, path,
			       strerror(errno));
	return mirror(s, root, fd, path, len + name_len);
}

/* Make the subdirectories of a root's directory in the tree.  Takes over fd. */
static int mirror(struct set_source *s, unsigned root, int fd, char *path, size_t len)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!d) {
		(void)close(fd);
		return err_set(ENOMEM, "out of memory");
	}
	while (r == 0 && (e = readdir(d)))
		r = mirror_entry(s, root, dirfd(d), e->d_name, path, len);
	path[len] = '\0';
	(void)closedir(d);
	return r;
}

static int make_tree(struct set_source *s)
{
	char path[TIER_NAME_SIZE] = "";
	int r = 0;

	for (unsigned i = 0; i < s->set->nr_roots; i++)
		if (!root_is_object(&s->set->roots[i]) &&
		    (root_is_object(&s->set->roots[s->tree]) ||
		     s->set->roots[i].class >= s->set->roots[s->tree].class))
			s->tree = i;
	for (unsigned i = 0; i < s->set->nr_roots && r == 0; i++) {
		int fd = i == s->tree || root_is_object(&s->set->roots[i])
				 ? -1
				 : name_open(s->set->roots[i].fd, ".", O_RDONLY | O_DIRECTORY, 0);

		if (i == s->tree || root_is_object(&s->set->roots[i]))
			continue;
		r = fd < 0 ? err_set(fd, "cannot open %s: %s", s->set->roots[i].path, strerror(-fd))
			   : mirror(s, i, fd, path, 0);
	}
	return r;
}

static int set_begin(const char *name, struct set_source *s)
{
	struct recover_counts recovered;
	struct scan_counts scanned;
	int r = set_open(name, &s->set);

	if (r == 0)
		r = set_whole(s->set);
	if (r == 0)
		r = set_lock(s->set);
	if (r < 0)
		return r;
	r = recover_set(s->set, &recovered);
	if (r == 0 && recovered.waiting)
		r = err_set(EBUSY,
			    "a move waits to be ended: %s; 'penstock tier status %s' tries again",
			    recovered.why, name);
	if (r == 0)
		r = scan_set(s->set, &scanned);
	if (r == 0 && scanned.twice)
		r = err_set(EEXIST,
			    "two directories of the set have a file %s; see which one is right "
			    "and remove the other",
			    scanned.twice_name);
	if (r == 0)
		r = make_tree(s);
	set_unlock(s->set);
	/* From here on, use the catalogue only with s->lock held. */
	catalog_hurry(s->set->catalog);
	return r;
}

static void set_source_close(struct fs *fs)
{
	struct set_source *s = TAKE_PTR(fs->set);
	uint64_t until = set_deadline();
	int err;

	if (!s)
		return;
	do {
		set_flush_accesses(s);
		err = s->nr_accesses ? -EWOULDBLOCK : 0;
	} while (set_try_again(&err, until));
	(void)set_close(s->set);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

static int set_source_open(struct fs *fs, int *ret_root_fd, struct stat *ret_root)
{
	const char *name = fs->opts->source + sizeof(SET_SCHEME) - 1;
	struct set_source *s = calloc(1, sizeof(*s));
	char link[64];
	ssize_t n;
	int r;

	(void)ret_root;
	if (!s)
		return -ENOMEM;
	fs->set = s;
	(void)pthread_mutex_init(&s->lock, NULL);
	r = set_begin(name, s);
	if (r == 0) {
		*ret_root_fd = openat(s->set->roots[s->tree].fd, ".",
				      O_PATH | O_DIRECTORY | O_CLOEXEC);
		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", *ret_root_fd);
		n = *ret_root_fd < 0 ? -1 : readlink(link, s->tree_path, PATH_MAX - 1);
		r = n < 0 ? err_set(errno, "cannot open the tree %s: %s",
				    s->set->roots[s->tree].path, strerror(errno))
			  : 0;
		s->tree_len = n > 1 ? (size_t)n : 0;
	}
	if (r < 0) {
		(void)fprintf(stderr, "penstock: %s\n", err_text());
		set_source_close(fs);
	}
	return r;
}

static void set_source_begin(struct fs *fs)
{
	/* Use the first number here: its inode numbers are mapped without hashing. */
	(void)node_number(&fs->nodes, SET_DEV, 1);
}

/* ------------------------------------------------------------------- names */

int set_path(const struct set_source *s, const struct node *dir, const char *name,
	     char ret[TIER_NAME_SIZE])
{
	char link[64], at[PATH_MAX];
	const char *rel;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dir->fd);
	n = readlink(link, at, sizeof(at) - 1);
	if (n < 0)
		return -errno;
	at[n] = '\0';
	if (strncmp(at, s->tree_path, s->tree_len) != 0 ||
	    (at[s->tree_len] && at[s->tree_len] != '/'))
		return -ESTALE;
	rel = at + s->tree_len;
	rel += *rel == '/';
	if (snprintf(ret, TIER_NAME_SIZE, "%s%s%s", rel, *rel && *name ? "/" : "", name) >=
	    (int)TIER_NAME_SIZE)
		return -ENAMETOOLONG;
	return *ret && name_check(ret) < 0 ? -ENOENT : 0;
}

/* Point the node's descriptor at another inode.  Takes over fd. */
static void point(struct node *n, int fd)
{
	struct stat now, st;

	if (fstat(n->fd, &now) < 0 || fstat(fd, &st) < 0 || now.st_ino != st.st_ino ||
	    now.st_dev != st.st_dev)
		/* Other threads that use the descriptor at this moment get the old or the new copy,
		 * which have the same bytes. */
		(void)dup3(fd, n->fd, O_CLOEXEC);
	(void)close(fd);
}

/* Look up a file.  With set->lock. */
static int file_entry(struct fs *fs, const char *path, struct fuse_entry_param *ret)
{
	struct set_source *s = fs->set;
	struct tier_file f;
	struct stat st, key;
	struct node *n;
	int fd = change_find(s->set, path, &f), mine, err;

	if (fd < 0)
		return fd;
	err = fstat(fd, &st) < 0 ? -errno : 0;
	/* The mover has removed the file since it was found. */
	if (err == 0 && !st.st_nlink)
		err = -EWOULDBLOCK;
	if (err < 0) {
		(void)close(fd);
		return err;
	}
	key = st;
	key.st_dev = SET_DEV;
	key.st_ino = (ino_t)f.id;
	mine = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	err = mine < 0 ? -errno : node_get(&fs->nodes, mine, fs->nodes.root.mnt, &key, &n);
	if (err < 0) {
		(void)close(fd);
		return err;
	}
	point(n, fd);
	if (!n->path || strcmp(n->path, path) != 0) {
		free(n->path);
		n->path = strdup(path);
	}
	*ret = (struct fuse_entry_param){
		.ino = fs_ino(fs, n),
		.attr = st,
		.attr_timeout = fs_attr_timeout(fs, n),
		.entry_timeout = fs->timeout,
	};
	ret->attr.st_ino = n->number;
	return 0;
}

static int set_lookup(struct fs *fs, struct node *dir, const char *name,
		      struct fuse_entry_param *ret)
{
	uint64_t until = set_deadline();
	char path[TIER_NAME_SIZE];
	struct stat st;
	int err;

	caller_end();
	if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
		if (st.st_dev != dir->dev || (dir == &fs->nodes.root && !strcmp(name, TIER_DIR)))
			return -ENOENT;
		return fs_lookup_plain(fs, dir, name, ret);
	}
	err = set_path(fs->set, dir, name, path);
	if (err < 0)
		return err;
	do {
		(void)pthread_mutex_lock(&fs->set->lock);
		err = file_entry(fs, path, ret);
		(void)pthread_mutex_unlock(&fs->set->lock);
	} while (set_try_again(&err, until));
	if (err == -EREMOTE && !fs->set->told_object) {
		fs->set->told_object = true;
		log_warn("files that are objects cannot be opened in a mount; move them to a disk "
			 "with penstock tier migrate SET NAME --to CLASS",
			 "first=%s", log_text(path).s);
	}
	return err;
}

static int set_created(struct fs *fs, int fd, struct node *dir, const char *name,
		       struct fuse_entry_param *ret)
{
	(void)fd;
	return set_lookup(fs, dir, name, ret);
}

/* ------------------------------------------------------------------- nodes */

/*
 * Find the current place of a node's file.  Return 0, also if the file has no name any more; -errno
 * if the search failed.  With set->lock.
 */
static int find_node(struct fs *fs, struct node *n)
{
	struct tier_file f;
	int fd = n->path ? change_find(fs->set->set, n->path, &f) : -ENOENT;

	switch (fd) {
	case -EWOULDBLOCK:
	/* The file is an object now.  Its old inode must not be used: a write would be lost. */
	case -EREMOTE:
	case -EMFILE:
	case -ENFILE:
	case -ENOMEM:
	case -EIO:
		return fd;
	default:
		break;
	}
	if (fd < 0)
		return 0;
	/* A different file now has the name: the node stays a file without a name. */
	if ((ino_t)f.id == n->ino)
		point(n, fd);
	else
		(void)close(fd);
	return 0;
}

/* Point a file's node at the file's current place, if it has moved. */
static void set_refresh(struct fs *fs, struct node *n)
{
	struct stat st;

	if (n->dev != SET_DEV || (fstat(n->fd, &st) == 0 && st.st_nlink))
		return;
	caller_end();
	(void)pthread_mutex_lock(&fs->set->lock);
	(void)find_node(fs, n);
	(void)pthread_mutex_unlock(&fs->set->lock);
}

/* Get attributes; repeat if the file moved between set_refresh() and stat(2). */
static int set_stat(struct fs *fs, struct node *n, struct stat *ret)
{
	int err = fs_stat_plain(fs, n, ret);

	for (unsigned i = 0; i < STAT_TRIES && err == 0 && !ret->st_nlink; i++) {
		set_refresh(fs, n);
		err = fs_stat_plain(fs, n, ret);
	}
	return err;
}

static bool set_same_file(int a, int b)
{
	struct stat sa, sb;

	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_ino == sb.st_ino &&
	       sa.st_dev == sb.st_dev;
}

/* Lock the current file of a node.  With set->lock. */
static int hold_locked(struct fs *fs, struct node *n)
{
	int fd, err = find_node(fs, n);

	if (err < 0)
		return err;
	fd = openat(fs->proc, fd_name(n->fd).s, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_SH | LOCK_NB) < 0) {
		err = -errno;
		(void)close(fd);
		return err;
	}
	/* Check again: the file may have moved before it was locked. */
	err = find_node(fs, n);
	if (err == 0 && set_same_file(fd, n->fd))
		return fd;
	(void)close(fd);
	return err < 0 ? err : -EWOULDBLOCK;
}

/*
 * Keep a file from moving.  Return a descriptor with a shared lock; -EWOULDBLOCK while the mover
 * renames it; -errno.
 */
static int set_hold(struct fs *fs, struct node *n)
{
	int r;

	caller_end();
	(void)pthread_mutex_lock(&fs->set->lock);
	r = hold_locked(fs, n);
	(void)pthread_mutex_unlock(&fs->set->lock);
	return r;
}

/* Open a file as file_open() does, and keep it from moving until the descriptor is closed. */
static int set_open_file(struct fs *fs, struct node *n, int flags)
{
	int held = set_hold(fs, n), fd;

	if (held < 0)
		return held;
	fd = file_open(fs, n, flags);
	/* This cannot fail because of the mover: held has a shared lock, so the mover has no
	 * exclusive lock. */
	if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0) {
		int err = -errno;

		(void)close(fd);
		fd = err;
	}
	(void)close(held);
	if (fd < 0)
		return fd;
	(void)pthread_mutex_lock(&fs->set->lock);
	if (n->path) {
		/* Before a write, tell readers where the file is: a killed mover may not have told
		 * them. */
		if ((flags & O_ACCMODE) != O_RDONLY)
			set_moved(fs->set->set, n->path);
		set_note_access(fs->set, n->path);
	}
	(void)pthread_mutex_unlock(&fs->set->lock);
	return fd;
}

const struct source_ops source_set = {
	.owns = set_owns,
	.has_fds = true,
	/* No passthrough: the kernel cannot be told that a file has moved. */
	.only_cache = true,
	.open = set_source_open,
	.begin = set_source_begin,
	.close = set_source_close,
	.refresh = set_refresh,
	.stat = set_stat,
	.lookup = set_lookup,
	.remove = set_remove,
	.rename = set_rename,
	.list = set_list,
	.statfs = set_statfs,
	.close_files = files_done,
	.announce = file_announce_plain,
	.sync = file_sync_plain,
	.open_file = set_open_file,
	.create = set_create,
	.created = set_created,
	.hold = set_hold,
	.dir_changed = set_dir_attr,
};
