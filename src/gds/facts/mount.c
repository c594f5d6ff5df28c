/* SPDX-License-Identifier: MIT */
/*
 * Judge what cuFile can do with the file system of a file's mount, and judge O_DIRECT on the file.
 *
 * The mount is found by its id from /proc/self/fdinfo: several mounts may share a device, and a
 * path may be hidden by another mount.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/dio.h"
#include "base/err.h"
#include "gds/facts/internal.h"

#define GOOD_PLACE "put the file on ext4 or XFS on an NVMe disk"

struct kind {
	const char *type; /* a type that ends in a dot is a prefix */
	enum gds_fs fs;
	const char *what, *cure; /* sentence and cure for GDS_FS_NEVER; NULL: the default text */
};

static const struct kind kinds[] = {
	{ "ext4", GDS_FS_LOCAL, NULL, NULL },
	{ "xfs", GDS_FS_LOCAL, NULL, NULL },
	{ "nfs", GDS_FS_REMOTE, NULL, NULL },
	{ "nfs4", GDS_FS_REMOTE, NULL, NULL },
	{ "lustre", GDS_FS_REMOTE, NULL, NULL },
	{ "wekafs", GDS_FS_REMOTE, NULL, NULL },
	{ "gpfs", GDS_FS_REMOTE, NULL, NULL },
	{ "beegfs", GDS_FS_REMOTE, NULL, NULL },
	{ "scatefs", GDS_FS_REMOTE, NULL, NULL },
	{ "virtiofs", GDS_FS_REMOTE, NULL, NULL },
	{ "overlay", GDS_FS_NEVER, "is the layers of a container",
	  "mount a directory of ext4 or XFS on an NVMe disk into the container (as a volume or a "
	  "bind mount) and put the file there" },
	{ "9p", GDS_FS_NEVER, "comes through the host's CPU",
	  "give the guest an NVMe disk with ext4 or XFS" },
	{ "tmpfs", GDS_FS_NEVER, "keeps its bytes in memory", NULL },
	{ "ramfs", GDS_FS_NEVER, "keeps its bytes in memory", NULL },
	{ "devtmpfs", GDS_FS_NEVER, "keeps its bytes in memory", NULL },
	{ "hugetlbfs", GDS_FS_NEVER, "keeps its bytes in memory", NULL },
	{ "squashfs", GDS_FS_NEVER, "unpacks what it reads", NULL },
	{ "fuse", GDS_FS_NEVER, "is served by a program", NULL },
	{ "fuseblk", GDS_FS_NEVER, "is served by a program", NULL },
	{ "fuse.", GDS_FS_NEVER, "is served by a program", NULL },
	{ "btrfs", GDS_FS_NEVER, NULL, NULL },
	{ "zfs", GDS_FS_NEVER, NULL, NULL },
	{ "bcachefs", GDS_FS_NEVER, NULL, NULL },
	{ "f2fs", GDS_FS_NEVER, NULL, NULL },
	{ "ext2", GDS_FS_NEVER, NULL, NULL },
	{ "ext3", GDS_FS_NEVER, NULL, NULL },
	{ "erofs", GDS_FS_NEVER, NULL, NULL },
	{ "vfat", GDS_FS_NEVER, NULL, NULL },
};

static const struct kind *find_kind(const char *type)
{
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t len = strlen(kinds[i].type);

		if (strcmp(kinds[i].type, type) == 0 ||
		    (kinds[i].type[len - 1] == '.' && strncmp(kinds[i].type, type, len) == 0))
			return &kinds[i];
	}
	return NULL;
}

/* ------------------------------------------------------------------- mount */

/* Cut off the next word; return NULL at the end. */
static char *mount_word(char **line)
{
	char *w = *line, *end;

	if (!w || !*w)
		return NULL;
	end = strchr(w, ' ');
	if (end)
		*end++ = '\0';
	*line = end;
	return w;
}

/* Decode the kernel's octal escapes, such as "\040" for a blank. */
static void mount_unescape(char *s)
{
	char *to = s;

	while (*s) {
		unsigned v = 0;
		int n = 0;

		while (n < 3 && *s == '\\' && s[n + 1] >= '0' && s[n + 1] <= '7')
			v = 8 * v + (unsigned)(s[1 + n++] - '0');
		*to++ = n == 3 && v && v < 256 ? (char)v : *s;
		s += n == 3 && v && v < 256 ? 4 : 1;
	}
	*to = '\0';
}

static void mount_take(char *to, size_t len, char *from)
{
	mount_unescape(from);
	gds_copy(to, len, from);
}

bool gds_mount_parse(char *line, struct gds_mount *ret)
{
	char *id, *dev, *where, *type, *source, *options, *tail = strstr(line, " - ");
	unsigned long number;
	unsigned major, minor;
	char end, *stop;

	if (!tail)
		return false;
	*tail = '\0';
	tail += 3;
	id = mount_word(&line);
	(void)mount_word(&line); /* skip the parent mount's id */
	dev = mount_word(&line);
	(void)mount_word(&line); /* skip the mount's root in the file system */
	where = mount_word(&line);
	type = mount_word(&tail);
	source = mount_word(&tail);
	options = mount_word(&tail);
	if (!id || !dev || !where || !type || !source || !options)
		return false;
	number = strtoul(id, &stop, 10);
	if (*id < '0' || *id > '9' || *stop || number == ULONG_MAX ||
	    sscanf(dev, "%9u:%9u%c", &major, &minor, &end) != 2)
		return false;
	(void)memset(ret, 0, sizeof(*ret));
	ret->id = number;
	ret->dev = makedev(major, minor);
	mount_take(ret->type, sizeof(ret->type), type);
	mount_take(ret->source, sizeof(ret->source), source);
	mount_take(ret->where, sizeof(ret->where), where);
	gds_copy(ret->options, sizeof(ret->options), options);
	ret->found = true;
	return true;
}

bool gds_mount_has(const struct gds_mount *m, const char *want)
{
	size_t len = strlen(want);

	for (const char *p = m->options; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (strncmp(p, want, len) == 0 && (p[len] == ',' || !p[len]))
			return true;
	}
	return false;
}

struct mount_search {
	unsigned long id; /* 0: unknown */
	dev_t dev;
	struct gds_mount found;
};

static bool mount_id(char *line, void *arg)
{
	struct mount_search *s = arg;

	return sscanf(line, "mnt_id: %19lu", &s->id) == 1;
}

/* Match the mount's id; without one, take the last mount of the device, which is most likely
 * visible. */
static bool mount_line(char *line, void *arg)
{
	struct mount_search *s = arg;
	struct gds_mount m;

	if (!gds_mount_parse(line, &m) || (m.id != s->id && m.dev != s->dev))
		return false;
	s->found = m;
	return m.id == s->id;
}

void gds_mount_find(struct gds_look *l)
{
	struct gds_path info = gds_path(l->root, "/proc/self/fdinfo/%d", l->fd);
	struct gds_path mounts = gds_path(l->root, "/proc/self/mountinfo");
	struct mount_search s = { .dev = l->st.st_dev };
	const struct kind *kind;

	if (S_ISBLK(l->st.st_mode)) {
		l->fs = GDS_FS_LOCAL;
		return;
	}
	(void)gds_each_line(&info, mount_id, &s);
	(void)gds_each_line(&mounts, mount_line, &s);
	l->mount = s.found;
	kind = s.found.found ? find_kind(s.found.type) : NULL;
	if (kind)
		l->fs = kind->fs;
}

/* -------------------------------------------------------------- filesystem */

static void never(const struct gds_mount *m, struct gds_fact *f)
{
	const struct kind *kind = find_kind(m->type);

	gds_say(f, PST_CHECK_MISSING, 0, "%s at %.100s %s, and cuFile has no direct way to it; %s",
		m->type, m->where,
		kind && kind->what ? kind->what : "is read by copies through host memory",
		kind && kind->cure ? kind->cure : GOOD_PLACE);
}

/*
 * nvidia-fs accepts ext4 only if the mount options contain data=ordered literally; the kernel's
 * default is not shown there.  P2PDMA does not require it.
 */
static void ext4(const struct gds_look *l, struct gds_fact *f)
{
	const struct gds_mount *m = &l->mount;

	if (gds_mount_has(m, "data=ordered") || l->p2pdma == PST_CHECK_OK)
		gds_say(f, PST_CHECK_OK, 0, "ext4 at %.200s", m->where);
	else if (l->nvidia_fs == PST_CHECK_OK || strstr(m->options, "data="))
		gds_say(f, PST_CHECK_MISSING, 0,
			"ext4 at %.150s was not mounted with data=ordered, which nvidia-fs asks "
			"for; add data=ordered to its options in /etc/fstab, unmount it and mount "
			"it again",
			m->where);
	else
		gds_say(f, PST_CHECK_OK, 0,
			"ext4 at %.150s; nvidia-fs would need it to be mounted with data=ordered",
			m->where);
}

static void remote(const struct gds_look *l, struct gds_fact *f)
{
	const struct gds_mount *m = &l->mount;

	if (strncmp(m->type, "nfs", 3) != 0)
		gds_say(f, PST_CHECK_OK, 0, "%s at %.200s, which nvidia-fs alone serves", m->type,
			m->where);
	else if (gds_mount_has(m, "proto=rdma"))
		gds_say(f, PST_CHECK_OK, 0, "%s by RDMA at %.200s, which nvidia-fs alone serves",
			m->type, m->where);
	else
		gds_say(f, PST_CHECK_MISSING, 0,
			"%s at %.150s does not use RDMA; mount it with the options "
			"proto=rdma,port=20049 from a server that has it",
			m->type, m->where);
}

void gds_filesystem(struct gds_look *l, struct gds_fact *f)
{
	const struct gds_mount *m = &l->mount;

	if (S_ISBLK(l->st.st_mode))
		gds_say(f, PST_CHECK_OK, 0, "a block device, without a file system between");
	else if (!m->found)
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"the mount of the file is not in /proc/self/mountinfo, so its file system "
			"is not known");
	else if (l->fs == GDS_FS_NEVER)
		never(m, f);
	else if (l->fs == GDS_FS_REMOTE)
		remote(l, f);
	else if (l->fs == GDS_FS_UNTOLD)
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"what cuFile does with %s at %.150s is not known here; a trial tells",
			m->type, m->where);
	else if (strcmp(m->type, "ext4") == 0)
		ext4(l, f);
	else
		gds_say(f, PST_CHECK_OK, 0, "%s at %.200s", m->type, m->where);
}

/* --------------------------------------------------------------- direct-io */

static void not_opened(const struct gds_look *l, int err, struct gds_fact *f)
{
	if (err == EINVAL)
		gds_say(f, PST_CHECK_MISSING, err, "%s has no O_DIRECT; " GOOD_PLACE,
			l->mount.found ? l->mount.type : "its file system");
	else
		gds_say(f, PST_CHECK_UNKNOWN, err,
			"the file cannot be opened again, with O_DIRECT, to see whether it has "
			"that: %s",
			err_name(err));
}

void gds_direct_io(struct gds_look *l, struct gds_fact *f)
{
	_cleanup_(closep) int fd = -1;
	uint32_t mem = 0, off = 0;
	char path[32];
	int r = dio_align(l->fd, &mem, &off);

	if (S_ISDIR(l->st.st_mode) && r < 0) {
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"a directory does not tell whether its files have O_DIRECT; ask with a "
			"file");
		return;
	}
	if (r == -EOPNOTSUPP) {
		gds_say(f, PST_CHECK_MISSING, 0,
			"this file has no O_DIRECT, as where data is encrypted, compressed or "
			"journaled; put it where that is off");
		return;
	}
	if (r == -ERANGE) {
		gds_say(f, PST_CHECK_MISSING, 0,
			"O_DIRECT on this file asks for alignments that are not served, beyond 4 "
			"KiB of memory or 64 KiB of offsets; use another file system");
		return;
	}
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", l->fd);
	fd = S_ISDIR(l->st.st_mode) ? -1 : open(path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && !S_ISDIR(l->st.st_mode))
		not_opened(l, errno, f);
	else if (r == 0)
		gds_say(f, PST_CHECK_OK, 0,
			"O_DIRECT, with memory aligned to %u and offsets to %u bytes", mem, off);
	else if (S_ISBLK(l->st.st_mode))
		gds_say(f, PST_CHECK_OK, 0, "O_DIRECT, as block devices have it");
	else
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"O_DIRECT was accepted, but neither kernel nor file system say "
			"(STATX_DIOALIGN) that it goes to the disk");
}
