/* SPDX-License-Identifier: MIT */
#include "tier/scan.h"

#include <dirent.h>
#include <stdio.h>

#include "base/err.h"
#include "tier/stamp.h"

#define DEPTH_MAX 256u /* nested directories; each keeps a descriptor open */

/*
 * A scan holds the catalogue for PART_NS, then pauses for BREAK_NS, so that others can change it.
 * A mount that waits for the catalogue polls every 10 ms (usrbio/mount/set_names.c).
 */
#define PART_NS (200 * NSEC_PER_MSEC)
#define BREAK_NS (20 * NSEC_PER_MSEC)

struct scan {
	struct tier_set *set;
	struct scan_counts *counts;
	unsigned root;
	uint64_t part_ns; /* now_ns() when the part began */
	char name[TIER_NAME_SIZE];
};

static void scan_closedirp(DIR **dir)
{
	if (*dir)
		(void)closedir(*dir);
}

/* End the part and begin the next one, if its time is over. */
static int take_turns(struct scan *s)
{
	const struct timespec pause = { .tv_nsec = (long)BREAK_NS };
	int r;

	if (now_ns() - s->part_ns < PART_NS)
		return 0;
	r = catalog_commit(s->set->catalog);
	if (r < 0)
		return r;
	(void)nanosleep(&pause, NULL);
	r = catalog_begin(s->set->catalog);
	s->part_ns = now_ns();
	return r;
}

/* Return true if the root in the catalogue has a file of this name. */
static bool other_has(const struct scan *s, const struct tier_file *f)
{
	const struct tier_root *root = f->root < s->set->nr_roots ? &s->set->roots[f->root] : NULL;
	_cleanup_(closep) int fd = -1;

	if (f->root == s->root || !root)
		return false;
	/* A root that cannot be opened keeps its files.  For objects the catalogue is
	 * authoritative. */
	if (root->fd < 0)
		return true;
	fd = name_open(root->fd, f->name, O_PATH, 0);
	return fd != -ENOENT && fd != -ENOTDIR;
}

static int found(struct scan *s, const struct stat *st)
{
	struct tier_stamp stamp = stamp_of(st);
	struct tier_file f = { 0 };
	int r = catalog_find(s->set->catalog, s->name, &f);

	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && other_has(s, &f)) {
		if (!s->counts->twice++)
			memcpy(s->counts->twice_name, s->name, TIER_NAME_SIZE);
		return 0;
	}
	s->counts->files++;
	s->counts->bytes += (uint64_t)st->st_size;
	if (st->st_nlink > 1)
		s->counts->links++;
	if (r == 0 && f.root == s->root && stamp_same(&f.stamp, &stamp))
		return catalog_scan_seen(s->set->catalog, f.id);
	memcpy(f.name, s->name, TIER_NAME_SIZE);
	f.has_crc = f.has_crc && stamp_same(&f.stamp, &stamp);
	f.root = s->root;
	f.gen++;
	f.stamp = stamp;
	f.bytes = (uint64_t)st->st_blocks * 512;
	r = catalog_put(s->set->catalog, &f);
	return r < 0 ? r : catalog_scan_seen(s->set->catalog, f.id);
}

static int fail_at(const struct scan *s, int err, const char *what)
{
	return err_set(err, "cannot %s %s/%s: %s", what, s->set->roots[s->root].path, s->name,
		       strerror(err));
}

static int scan_walk(struct scan *s, int fd, size_t len, unsigned depth);

static int walk_entry(struct scan *s, int dir_fd, const char *entry, size_t len, unsigned depth)
{
	size_t entry_len = strlen(entry);
	struct stat st;
	int fd, r;

	if (depth == 0 && !strcmp(entry, TIER_DIR))
		return 0;
	/* Let others use the catalogue only here: within a part nobody can rename the files found
	 * so far. */
	r = take_turns(s);
	if (r < 0)
		return r;
	if (fstatat(dir_fd, entry, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : fail_at(s, errno, "look into");
	if (len + 1 + entry_len >= TIER_NAME_SIZE) {
		s->counts->special++;
		return 0;
	}
	if (len)
		s->name[len++] = '/';
	memcpy(s->name + len, entry, entry_len + 1);
	len += entry_len;
	if (S_ISREG(st.st_mode))
		return found(s, &st);
	if (!S_ISDIR(st.st_mode) || st.st_dev != s->set->roots[s->root].dev) {
		s->counts->special++;
		return 0;
	}
	if (depth == DEPTH_MAX)
		return err_set(ELOOP, "%s/%s is %u directories deep", s->set->roots[s->root].path,
			       s->name, DEPTH_MAX);
	fd = openat(dir_fd, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : fail_at(s, errno, "open");
	return scan_walk(s, fd, len, depth + 1);
}

/* Scan a directory; takes over fd. */
static int scan_walk(struct scan *s, int fd, size_t len, unsigned depth)
{
	_cleanup_(scan_closedirp) DIR *dir = fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!dir) {
		(void)close(fd);
		return err_set(ENOMEM, "out of memory");
	}
	while (r == 0) {
		errno = 0;
		e = readdir(dir);
		if (!e)
			break;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		r = walk_entry(s, dirfd(dir), e->d_name, len, depth);
		s->name[len] = '\0';
	}
	return r == 0 && errno ? fail_at(s, errno, "list") : r;
}

/* Return true if a root has no file of this name. */
static bool is_gone(const struct scan *s, const struct tier_file *f)
{
	_cleanup_(closep) int fd = name_open(s->set->roots[s->root].fd, f->name, O_PATH, 0);
	struct stat st;

	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -EXDEV;
	return fstat(fd, &st) == 0 && !S_ISREG(st.st_mode);
}

/* Drop files that a root does not have any more.  Check each: a file that was added or renamed
 * during the scan may be unmarked although it exists. */
static int drop_unseen(struct scan *s)
{
	struct tier_file f = { .id = 0 };
	int r = 0;

	while (r == 0) {
		r = catalog_scan_unseen(s->set->catalog, s->root, f.id, &f);
		if (r == 0 && is_gone(s, &f))
			r = catalog_drop(s->set->catalog, f.name);
		if (r == 0)
			r = take_turns(s);
	}
	return r == -ENOENT ? 0 : r;
}

static int scan_roots(struct scan *s, bool scanned[])
{
	int r = catalog_scan_begin(s->set->catalog);

	/* Scan the fastest class first, because in a conflict the fastest copy wins. */
	for (unsigned class = 0; class < TIER_CLASSES && r == 0; class ++) {
		for (unsigned i = 0; i < s->set->nr_roots && r == 0; i++) {
			const struct tier_root *root = &s->set->roots[i];
			int fd;

			if (root->class != class || root->fd < 0)
				continue;
			s->root = i;
			s->name[0] = '\0';
			fd = name_open(root->fd, ".", O_RDONLY | O_DIRECTORY, 0);
			if (fd < 0)
				return err_set(fd, "cannot open %s: %s", root->path, strerror(-fd));
			r = scan_walk(s, fd, 0, 0);
			scanned[i] = true;
		}
	}
	for (unsigned i = 0; i < s->set->nr_roots && r == 0; i++) {
		s->root = i;
		r = scanned[i] ? drop_unseen(s) : 0;
	}
	return r;
}

int scan_set(struct tier_set *set, struct scan_counts *ret)
{
	_cleanup_(freep) struct scan *s = calloc(1, sizeof(*s));
	bool scanned[TIER_ROOTS_MAX] = { false };
	int r;

	*ret = (struct scan_counts){ 0 };
	if (!s)
		return err_set(ENOMEM, "out of memory");
	s->set = set;
	s->counts = ret;
	s->part_ns = now_ns();
	r = catalog_begin(set->catalog);
	if (r < 0)
		return r;
	r = scan_roots(s, scanned);
	if (r == 0)
		return catalog_commit(set->catalog);
	catalog_rollback(set->catalog);
	return r;
}
