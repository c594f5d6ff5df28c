/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <stdio.h>

#include "base/err.h"
#include "tier/copy.h"
#include "tier/move.h"
#include "tier/object.h"
#include "tier/recover_object.h"
#include "tier/stamp.h"

/* Leftovers of a move.  Descriptors are -errno for files that cannot be opened. */
struct left {
	struct tier_set *set;
	struct tier_move m;
	int src_dir, dst_dir, src_tmp;
	int src, dst, old; /* source; copy; source under its temporary name */
	const char *src_base, *dst_base;
	char old_name[32];
};

static void left_done(struct left *l)
{
	closep(&l->src_dir);
	closep(&l->dst_dir);
	closep(&l->src_tmp);
	closep(&l->src);
	closep(&l->dst);
	closep(&l->old);
}

static bool missing(int fd)
{
	return fd == -ENOENT || fd == -ENOTDIR;
}

static int fail_left(const struct left *l, int err, const char *what)
{
	return err_set(err, "%s: %s: %s", l->m.name, what, strerror(err < 0 ? -err : err));
}

static int open_left(struct left *l)
{
	int src_root = l->set->roots[l->m.src].fd, dst_root = l->set->roots[l->m.dst].fd;
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
	char path[64];

	(void)snprintf(l->old_name, sizeof(l->old_name), "%lld.old", (long long)l->m.id);
	(void)snprintf(path, sizeof(path), TIER_TMP "/%s", l->old_name);
	l->src_tmp = name_open(src_root, TIER_TMP, O_RDONLY | O_DIRECTORY, 0);
	l->src_dir = name_parent(src_root, l->m.name, &l->src_base);
	l->dst_dir = name_parent(dst_root, l->m.name, &l->dst_base);
	l->src = name_open(src_root, l->m.name, flags, 0);
	l->dst = name_open(dst_root, l->m.name, flags, 0);
	l->old = name_open(src_root, path, flags, 0);
	if ((l->src < 0 && !missing(l->src)) || (l->dst < 0 && !missing(l->dst)) ||
	    (l->old < 0 && !missing(l->old)))
		return fail_left(l,
				 l->src < 0 && !missing(l->src)   ? l->src
				 : l->dst < 0 && !missing(l->dst) ? l->dst
								  : l->old,
				 "cannot open what a move left");
	return 0;
}

/* Remove a copy; sync_dirs() makes that durable. */
static int remove_at(const struct left *l, int dir, const char *base)
{
	if (unlinkat(dir, base, 0) < 0)
		return fail_left(l, errno, "cannot remove a second copy");
	return 0;
}

/* Handle a source with a temporary name: delete it if the copy has the same bytes, else give it its
 * name back. */
static int settle_old(struct left *l)
{
	int r = 0;

	if (l->old < 0)
		return 0;
	/* A file system without a journal may show both names of a rename. */
	if (l->src >= 0)
		r = copy_equal(l->old, l->src);
	else if (l->m.committed && l->dst >= 0)
		r = copy_equal(l->old, l->dst);
	if (r < 0)
		return fail_left(l, r, "cannot compare the copies");
	if (r == 1)
		return remove_at(l, l->src_tmp, l->old_name);
	if (renameat2(l->src_tmp, l->old_name, l->src_dir, l->src_base, RENAME_NOREPLACE) < 0)
		return fail_left(l, errno, "cannot give the file its name back");
	l->src = TAKE_FD(l->old);
	return 0;
}

/* Return 1 if a file is still what the mover copied, 0 if not, or -errno. */
static int is_copied(const struct left *l, int fd)
{
	struct stat st;
	uint32_t crc = 0;
	int r;

	if (!l->m.copied)
		return 0;
	if (fstat(fd, &st) < 0)
		return fail_left(l, errno, "cannot ask for a file's size");
	if ((uint64_t)st.st_size != l->m.size)
		return 0;
	r = copy_crc(fd, l->m.size, &crc);
	return r < 0 ? fail_left(l, r, "cannot read a copy") : crc == l->m.crc;
}

/*
 * Decide between a source and a target that differ.  If the target is still what the mover copied,
 * the source was written later: remove the target.  If the source is still what the mover copied
 * and the move was committed, the target was written: remove the source.  Otherwise keep both, and
 * the source remains the set's file.
 */
static int settle_written(struct left *l, struct recover_counts *counts)
{
	int src = is_copied(l, l->src), dst = src < 0 ? src : is_copied(l, l->dst), r;

	if (dst < 0)
		return dst;
	if (dst) {
		r = remove_at(l, l->dst_dir, l->dst_base);
		counts->undone += r == 0;
		return r < 0 ? r : (int)l->m.src;
	}
	if (src && l->m.committed) {
		r = remove_at(l, l->src_dir, l->src_base);
		counts->completed += r == 0;
		return r < 0 ? r : (int)l->m.dst;
	}
	counts->conflicts++;
	return (int)l->m.src;
}

/* Return the index of the root whose file stays, or -errno. */
static int settle_both(struct left *l, struct recover_counts *counts)
{
	int r;

	if (l->src < 0 && l->dst < 0)
		return (int)l->m.src;
	if (l->src < 0 || l->dst < 0) {
		*(l->src < 0 ? &counts->completed : &counts->undone) += 1;
		return (int)(l->src < 0 ? l->m.dst : l->m.src);
	}
	r = copy_equal(l->src, l->dst);
	if (r < 0)
		return fail_left(l, r, "cannot compare the copies");
	if (r == 0)
		return settle_written(l, counts);
	if (l->m.committed)
		r = remove_at(l, l->src_dir, l->src_base);
	else
		r = remove_at(l, l->dst_dir, l->dst_base);
	if (r < 0)
		return r;
	*(l->m.committed ? &counts->completed : &counts->undone) += 1;
	return (int)(l->m.committed ? l->m.dst : l->m.src);
}

/* Sync directories that a killed mover may have changed without a sync. */
static int sync_dirs(const struct left *l)
{
	if ((l->src_dir >= 0 && fsync(l->src_dir) < 0) ||
	    (l->dst_dir >= 0 && fsync(l->dst_dir) < 0) ||
	    (l->src_tmp >= 0 && fsync(l->src_tmp) < 0))
		return fail_left(l, errno, "cannot sync a directory");
	return 0;
}

/* Record the file's root and end the move, in one transaction. */
static int note(struct left *l, unsigned root)
{
	int fd = root == l->m.src ? l->src : l->dst;
	struct tier_file f;
	struct stat st;
	int r = catalog_begin(l->set->catalog);

	if (r < 0)
		return r;
	r = catalog_find(l->set->catalog, l->m.name, &f);
	if (r == 0 && f.root != root && fd >= 0) {
		if (fstat(fd, &st) < 0)
			r = fail_left(l, errno, "cannot ask for the file's size");
		f.root = root;
		f.gen++;
		f.has_crc = false;
		f.stamp = stamp_of(&st);
		f.bytes = (uint64_t)st.st_blocks * 512;
		if (r == 0)
			r = catalog_put(l->set->catalog, &f);
	}
	if (r == 0 || r == -ENOENT)
		r = catalog_move_end(l->set->catalog, &l->m);
	if (r == 0)
		return catalog_commit(l->set->catalog);
	catalog_rollback(l->set->catalog);
	return r;
}

static int recover_move(struct tier_set *set, const struct tier_move *m,
			struct recover_counts *counts)
{
	_cleanup_(left_done) struct left l = { set, *m, -1, -1, -1, -1, -1, -1, NULL, NULL, "" };
	int r, root;

	if (m->src >= set->nr_roots || m->dst >= set->nr_roots)
		return err_set(EUCLEAN, "the journal names a root that set.conf does not have");
	if (root_is_object(&set->roots[m->dst]))
		return recover_down(set, m, counts);
	if (root_is_object(&set->roots[m->src]))
		return recover_up(set, m, counts);
	if (set->roots[m->src].fd < 0 || set->roots[m->dst].fd < 0) {
		counts->waiting++;
		(void)snprintf(counts->why, sizeof(counts->why), "%s",
			       set->roots[set->roots[m->src].fd < 0 ? m->src : m->dst].why);
		return 0;
	}
	r = open_left(&l);
	if (r == 0)
		r = settle_old(&l);
	if (r == 0)
		r = settle_both(&l, counts);
	root = r;
	if (r >= 0)
		r = sync_dirs(&l);
	/* If a copy cannot be read or removed now, keep the journal's record and both copies. */
	if (r < 0) {
		counts->waiting++;
		(void)snprintf(counts->why, sizeof(counts->why), "%s", err_text());
		return 0;
	}
	r = note(&l, (unsigned)root);
	/* The mover may have died before it told readers. */
	if (r == 0)
		set_moved(set, m->name);
	return r;
}

/* Remove incomplete copies.  Nobody else creates any while the set is locked. */
static int recover_sweep(const struct tier_root *root)
{
	int fd = name_open(root->fd, TIER_TMP, O_RDONLY | O_DIRECTORY, 0);
	struct dirent *e;
	DIR *dir;

	if (fd < 0)
		return err_set(fd, "cannot open %s/" TIER_TMP ": %s", root->path, strerror(-fd));
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return err_set(ENOMEM, "out of memory");
	}
	while ((e = readdir(dir))) {
		size_t len = strlen(e->d_name);

		if (len > 4 && !strcmp(e->d_name + len - 4, ".new"))
			(void)unlinkat(dirfd(dir), e->d_name, 0);
	}
	(void)closedir(dir);
	return 0;
}

int recover_set(struct tier_set *set, struct recover_counts *ret)
{
	struct tier_move m = { .id = 0 };
	int r;

	*ret = (struct recover_counts){ 0 };
	while ((r = catalog_move_first(set->catalog, m.id, &m)) == 0) {
		r = recover_move(set, &m, ret);
		if (r < 0)
			return r;
	}
	if (r != -ENOENT)
		return r;
	r = 0;
	for (unsigned i = 0; i < set->nr_roots && r == 0; i++)
		if (set->roots[i].fd >= 0 && !set->roots[i].read_only)
			r = recover_sweep(&set->roots[i]);
	return r;
}
