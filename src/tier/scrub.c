/* SPDX-License-Identifier: MIT */
#include "tier/scrub.h"

#include "base/err.h"
#include "tier/copy.h"
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
	if (f.root >= set->nr_roots || set->roots[f.root].fd < 0)
		return err_set(ENODEV, "its root cannot be used");
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

int scrub_set(struct tier_set *set, void (*bad)(const char *name, const char *why, void *arg),
	      void *arg, struct scrub_counts *ret)
{
	_cleanup_(names_done) struct names names = { 0 };
	int r = catalog_each(set->catalog, add_name, &names);

	*ret = (struct scrub_counts){ 0 };
	for (size_t i = 0; i < names.nr && r == 0; i++) {
		int s = scrub_file(set, names.name[i], ret);

		if (s == 0)
			continue;
		*(s == -EBADMSG ? &ret->bad : &ret->unreadable) += 1;
		bad(names.name[i], err_text(), arg);
	}
	return r;
}
