/* SPDX-License-Identifier: MIT */
#include "tier/recover_object.h"

#include <stdio.h>

#include "base/err.h"
#include "tier/copy.h"
#include "tier/object.h"
#include "tier/stamp.h"

/* What a move left in a directory.  Descriptors are -errno for files that cannot be opened. */
struct remains {
	struct tier_set *set;
	struct tier_move m;
	struct tier_object object;
	int dir, tmp;
	int file, old; /* the file with its name; the source under its temporary name */
	const char *base;
	char old_name[32];
};

static void remains_done(struct remains *l)
{
	closep(&l->dir);
	closep(&l->tmp);
	closep(&l->file);
	closep(&l->old);
}

static bool remains_missing(int fd)
{
	return fd == -ENOENT || fd == -ENOTDIR;
}

static int remains_fail(const struct remains *l, int err, const char *what)
{
	return err_set(err, "%s: %s: %s", l->m.name, what, strerror(err < 0 ? -err : err));
}

static int open_remains(struct remains *l, const struct tier_root *root)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
	char path[64];

	if (root->fd < 0)
		return err_set(ENODEV, "%s", root->why);
	(void)snprintf(l->old_name, sizeof(l->old_name), "%lld.old", (long long)l->m.id);
	(void)snprintf(path, sizeof(path), TIER_TMP "/%s", l->old_name);
	l->tmp = name_open(root->fd, TIER_TMP, O_RDONLY | O_DIRECTORY, 0);
	l->dir = name_parent(root->fd, l->m.name, &l->base);
	l->file = name_open(root->fd, l->m.name, flags, 0);
	l->old = name_open(root->fd, path, flags, 0);
	if (l->tmp < 0)
		return remains_fail(l, l->tmp, "cannot open the root's " TIER_TMP);
	if ((l->file < 0 && !remains_missing(l->file)) || (l->old < 0 && !remains_missing(l->old)))
		return remains_fail(l, l->file < 0 && !remains_missing(l->file) ? l->file : l->old,
				    "cannot open what a move left");
	return 0;
}

/* Return 1 if a file is what the mover copied, 0 if not, or -errno. */
static int left_is_copied(const struct remains *l, int fd)
{
	struct stat st;
	uint32_t crc = 0;
	int r;

	if (!l->m.copied)
		return 0;
	if (fstat(fd, &st) < 0)
		return remains_fail(l, errno, "cannot ask for a file's size");
	if ((uint64_t)st.st_size != l->m.size)
		return 0;
	r = copy_crc(fd, l->m.size, &crc);
	return r < 0 ? remains_fail(l, r, "cannot read a copy") : crc == l->m.crc;
}

static int give_back_name(struct remains *l)
{
	if (l->dir < 0)
		return remains_fail(l, l->dir, "cannot give the file its name back");
	if (renameat2(l->tmp, l->old_name, l->dir, l->base, RENAME_NOREPLACE) < 0)
		return remains_fail(l, errno, "cannot give the file its name back");
	l->file = TAKE_FD(l->old);
	return 0;
}

static int remove_old(struct remains *l)
{
	if (unlinkat(l->tmp, l->old_name, 0) < 0)
		return remains_fail(l, errno, "cannot remove a second copy");
	closep(&l->old);
	l->old = -ENOENT;
	return 0;
}

/* Remove the file that has the name. */
static int remains_remove(struct remains *l)
{
	if (unlinkat(l->dir, l->base, 0) < 0)
		return remains_fail(l, errno, "cannot remove a second copy");
	closep(&l->file);
	l->file = -ENOENT;
	return 0;
}

static int sync_remains(const struct remains *l)
{
	if ((l->dir >= 0 && fsync(l->dir) < 0) || (l->tmp >= 0 && fsync(l->tmp) < 0))
		return remains_fail(l, errno, "cannot sync a directory");
	return 0;
}

/* Count a move that cannot be ended now. */
static int remains_wait(struct recover_counts *counts)
{
	counts->waiting++;
	(void)snprintf(counts->why, sizeof(counts->why), "%s", err_text());
	return 0;
}

/* ------------------------------------------------------------------- down */

/* Before the commit the source is the file, perhaps under its temporary name. */
static int source_stays(struct remains *l)
{
	int r;

	if (l->old < 0)
		return 0;
	if (l->file < 0)
		return give_back_name(l);
	/* A file system without a journal may show both names of a rename. */
	r = copy_equal(l->old, l->file);
	if (r < 0)
		return remains_fail(l, r, "cannot compare the copies");
	return r == 1 ? remove_old(l)
		      : err_set(EEXIST,
				"%s: another program made a file of that name: rename one "
				"of the two",
				l->m.name);
}

/* Return 1 if the object of the move is the file of the name, 0 if not, or -errno. */
static int object_is_file(const struct remains *l)
{
	struct tier_object o;
	struct tier_file f;
	int r = catalog_find(l->set->catalog, l->m.name, &f);

	if (r == 0)
		r = f.root == l->m.dst ? catalog_object(l->set->catalog, f.id, &o) : -ENOENT;
	return r == -ENOENT ? 0 : r < 0 ? r : strcmp(o.key, l->object.key) == 0;
}

/*
 * The file was removed after the commit.  Whatever has its name now was made later, even if it has
 * the same bytes.  Return as settle_committed() does.
 */
static int settle_removed(struct remains *l)
{
	int same = l->old < 0 ? 0 : left_is_copied(l, l->old), r;

	if (same < 0 || l->old < 0)
		return same;
	r = same ? remove_old(l) : source_stays(l);
	return r < 0 ? r : !same;
}

/*
 * After the commit the object is the file, unless the source was written later, or the object is
 * lost.  Return 1 if the source is the file, 0 if the object is, or -errno.
 */
static int settle_committed(struct remains *l, struct recover_counts *counts)
{
	const struct tier_root *root = &l->set->roots[l->m.dst];
	struct object_facts facts;
	int fd = l->old >= 0 ? l->old : l->file, same, r = object_is_file(l);

	if (r <= 0)
		return r < 0 ? r : settle_removed(l);
	if (fd < 0)
		return 0;
	same = left_is_copied(l, fd);
	if (same < 0)
		return same;
	/* The source is the last copy if somebody removed or replaced the object. */
	r = same ? object_same(root, &l->object, l->m.size, &facts) : -ESTALE;
	if (r == -ESTALE) {
		r = source_stays(l);
		return r < 0 ? r : 1;
	}
	if (r < 0)
		return r;
	if (l->old >= 0)
		r = remove_old(l);
	if (r < 0 || l->file < 0)
		return r;
	same = left_is_copied(l, l->file);
	if (same < 0)
		return same;
	/* Another program made a file of that name after the commit. */
	if (!same)
		counts->conflicts++;
	return same ? remains_remove(l) : 0;
}

/* Record the file's root, note an unused object for deletion, and end the move. */
static int note_down(struct remains *l, bool source)
{
	struct catalog *c = l->set->catalog;
	struct tier_file f;
	struct stat st;
	int r = catalog_begin(c);

	if (r < 0)
		return r;
	r = source ? catalog_find(c, l->m.name, &f) : 0;
	if (r == 0 && source)
		r = catalog_object_release(c, &f, object_due());
	/* A file that was made after this one was removed keeps its root. */
	if (r == 0 && source && f.root == l->m.dst && l->file >= 0) {
		if (fstat(l->file, &st) < 0)
			r = remains_fail(l, errno, "cannot ask for the file's size");
		f.root = l->m.src;
		f.gen++;
		f.has_crc = false;
		f.stamp = stamp_of(&st);
		f.bytes = (uint64_t)st.st_blocks * 512;
		if (r == 0)
			r = catalog_put(c, &f);
	}
	if ((r == 0 || r == -ENOENT) && source && *l->object.key)
		r = catalog_garbage_put(c, l->object.key, l->m.size, object_due());
	if (r == 0 || r == -ENOENT)
		r = catalog_sent_end(c, &l->m);
	if (r == 0)
		r = catalog_move_end(c, &l->m);
	if (r == 0)
		return catalog_commit(c);
	catalog_rollback(c);
	return r;
}

int recover_down(struct tier_set *set, const struct tier_move *m, struct recover_counts *counts)
{
	_cleanup_(remains_done) struct remains l = {
		.set = set, .m = *m, .dir = -1, .tmp = -1, .file = -1, .old = -1
	};
	int r = catalog_sent(set->catalog, m, &l.object), source = 1;

	if (r < 0 && r != -ENOENT)
		return r;
	r = open_remains(&l, &set->roots[m->src]);
	if (r == 0 && m->committed)
		r = source = settle_committed(&l, counts);
	else if (r == 0)
		r = source_stays(&l);
	if (r >= 0)
		r = sync_remains(&l);
	if (r < 0)
		return remains_wait(counts);
	*(source ? &counts->undone : &counts->completed) += 1;
	r = note_down(&l, source);
	if (r == 0)
		set_moved(set, m->name);
	return r;
}

/* --------------------------------------------------------------------- up */

/* End a move after its commit: the file is on its disk. */
static int end_up(struct tier_set *set, const struct tier_move *m, struct recover_counts *counts)
{
	int r = catalog_move_end(set->catalog, m);

	if (r < 0)
		return r;
	counts->completed++;
	set_moved(set, m->name);
	return 0;
}

/* Return 1 if the file of the name is an object, 0 if not, or -errno. */
static int is_object_still(struct tier_set *set, const struct tier_move *m)
{
	struct tier_file f;
	int r = catalog_find(set->catalog, m->name, &f);

	return r == -ENOENT ? 0 : r < 0 ? r : f.root == m->src;
}

int recover_up(struct tier_set *set, const struct tier_move *m, struct recover_counts *counts)
{
	_cleanup_(remains_done) struct remains l = {
		.set = set, .m = *m, .dir = -1, .tmp = -1, .file = -1, .old = -1
	};
	int r, same = 0, object;

	if (m->committed)
		return end_up(set, m, counts);
	object = is_object_still(set, m);
	if (object < 0)
		return object;
	r = open_remains(&l, &set->roots[m->dst]);
	/* If the file was removed meanwhile, the copy with its name was, too: what has the name now
	 * was made later, even if it has the same bytes. */
	if (r == 0 && l.file >= 0 && object)
		r = same = left_is_copied(&l, l.file);
	if (r >= 0 && l.file >= 0 && object && !same)
		counts->conflicts++;
	if (same > 0)
		r = remains_remove(&l);
	if (r >= 0)
		r = sync_remains(&l);
	if (r < 0)
		return remains_wait(counts);
	counts->undone++;
	r = catalog_move_end(set->catalog, m);
	if (r == 0)
		set_moved(set, m->name);
	return r;
}
