/* SPDX-License-Identifier: MIT */
#include "tier/scrub.h"

#include <stdio.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "tier/copy.h"
#include "tier/object.h"
#include "tier/stamp.h"

struct names {
	char **name;
	size_t nr, room;
};

static void names_done(struct names *n)
{
	for (size_t i = 0; i < n->nr; i++)
		free(n->name[i]);
	free(n->name);
}

/* Collect the names first, so that the database is not locked while files are read. */
static int add_name(const struct tier_file *f, void *arg)
{
	struct names *n = arg;

	if (n->nr == n->room) {
		size_t room = MAX(2 * n->room, (size_t)1024);
		char **more = reallocarray(n->name, room, sizeof(*more));

		if (!more)
			return err_set(ENOMEM, "out of memory");
		n->name = more;
		n->room = room;
	}
	n->name[n->nr] = strdup(f->name);
	if (!n->name[n->nr])
		return err_set(ENOMEM, "out of memory");
	n->nr++;
	return 0;
}

/* Read the object of a file, and compare its checksum, as scrub_file() does. */
static int scrub_object(struct tier_set *set, const struct tier_file *f,
			struct scrub_counts *counts)
{
	_cleanup_(freep) char *buf = malloc(OBJECT_PIECE);
	struct tier_root *root = &set->roots[f->root];
	struct object_facts facts;
	struct object_attrs attrs;
	struct tier_object o;
	uint32_t crc = 0;
	int r = buf ? catalog_object(set->catalog, f->id, &o) : err_set(ENOMEM, "out of memory");

	if (r == -ENOENT)
		return err_set(EBADMSG, "the catalogue does not know its object: make it again "
					"with 'penstock tier scrub --rebuild'");
	if (r == 0)
		r = object_marker(set, root);
	if (r == 0)
		r = object_same(root, &o, f->stamp.size, &facts);
	for (uint64_t off = 0, n; r == 0 && off < facts.size; off += n) {
		n = MIN(OBJECT_PIECE, facts.size - off);
		r = object_get(root, o.key, &facts, buf, n, off);
		crc = crc32c(crc, buf, n);
	}
	if (r == -ESTALE)
		return err_set(EBADMSG, "%s", err_text());
	if (r == 0)
		r = object_attrs(set, facts.meta, &attrs);
	if (r < 0)
		return r;
	if (crc != attrs.crc || (f->has_crc && crc != f->crc))
		return err_set(EBADMSG, "its object does not match its checksum");
	counts->checked++;
	counts->bytes += facts.size;
	return 0;
}

/* Check one file.  Return 0 if it matches or its checksum was added; -EBADMSG if it differs;
 * another -errno if it cannot be read now. */
static int scrub_file(struct tier_set *set, const char *name, struct scrub_counts *counts)
{
	_cleanup_(closep) int fd = -1;
	struct tier_stamp stamp, after;
	struct tier_file f;
	struct stat st;
	uint32_t crc;
	int r = catalog_find(set->catalog, name, &f);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (f.root >= set->nr_roots || !root_usable(&set->roots[f.root]))
		return err_set(ENODEV, "its root cannot be used");
	if (root_is_object(&set->roots[f.root]))
		return scrub_object(set, &f, counts);
	fd = name_open(set->roots[f.root].fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd < 0)
		return err_set(fd, "cannot open it: %s", strerror(-fd));
	if (fstat(fd, &st) < 0)
		return err_set(errno, "cannot ask for its size: %s", strerror(errno));
	stamp = stamp_of(&st);
	copy_uncache(fd);
	r = copy_crc(fd, stamp.size, &crc);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return err_set(errno, "cannot ask for its size: %s", strerror(errno));
	after = stamp_of(&st);
	if (!stamp_same(&stamp, &after))
		return err_set(EAGAIN, "it was written meanwhile");
	if (f.has_crc && stamp_same(&f.stamp, &stamp)) {
		if (f.crc != crc)
			return err_set(EBADMSG, "its content does not match its checksum");
		counts->checked++;
		counts->bytes += stamp.size;
		return 0;
	}
	counts->added++;
	f.gen += !stamp_same(&f.stamp, &stamp);
	f.stamp = stamp;
	f.bytes = (uint64_t)st.st_blocks * 512;
	f.crc = crc;
	f.has_crc = true;
	return catalog_put(set->catalog, &f);
}

struct strays {
	struct tier_set *set;
	struct scrub_counts *counts;
};

static int find_stray(void *arg, const char *key, uint64_t size)
{
	struct strays *s = arg;
	int r;

	(void)size;
	if (!strncmp(key, TIER_DIR "/", sizeof(TIER_DIR)))
		return 0;
	r = catalog_object_known(s->set->catalog, key);
	if (r == 0 && !s->counts->strays++)
		(void)snprintf(s->counts->stray, sizeof(s->counts->stray), "%s", key);
	return MIN(r, 0);
}

int scrub_set(struct tier_set *set, void (*bad)(const char *name, const char *why, void *arg),
	      void *arg, struct scrub_counts *ret)
{
	_cleanup_(names_done) struct names names = { 0 };
	struct strays s = { set, ret };
	int r = catalog_each(set->catalog, add_name, &names), root = object_root(set);

	*ret = (struct scrub_counts){ 0 };
	for (size_t i = 0; i < names.nr && r == 0; i++) {
		int err = scrub_file(set, names.name[i], ret);

		if (err == 0)
			continue;
		*(err == -EBADMSG ? &ret->bad : &ret->unreadable) += 1;
		bad(names.name[i], err_text(), arg);
	}
	if (r == 0 && root >= 0) {
		r = object_list(&set->roots[root], find_stray, &s);
		if (r < 0)
			bad("the list of objects", err_text(), arg);
		ret->unreadable += r < 0;
		r = 0;
	}
	return r;
}
