/* SPDX-License-Identifier: MIT */
#include "cli/doctor/mounts.h"

/*
 * File systems that keep files on disks, here or elsewhere, without having a block device as their
 * source.
 */
static const char *const types[] = {
	"9p",   "afs",   "beegfs",  "btrfs", "ceph",     "cifs",   "gpfs",   "lustre", "nfs",
	"nfs4", "pvfs2", "scatefs", "smb3",  "virtiofs", "vboxsf", "wekafs", "zfs",
};

/* Skip these file systems on block devices: they do not hold models. */
static const char *const images[] = { "cramfs", "erofs", "iso9660", "squashfs", "udf" };

static bool is_in(const char *type, const char *const *v, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (!strcmp(type, v[i]))
			return true;
	return false;
}

static bool is_wanted(const struct mount *m)
{
	if (m->major)
		return !is_in(m->type, images, ARRAY_SIZE(images));
	return is_in(m->type, types, ARRAY_SIZE(types));
}

/* Decode \ooo, by which the kernel escapes blanks, newlines and backslashes. */
static bool unescape(char *ret, size_t len, const char *text)
{
	size_t n = 0;

	for (; *text && n + 1 < len; n++) {
		bool octal = text[0] == '\\' && strspn(text + 1, "01234567") >= 3;

		ret[n] = octal ? (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 |
					(text[3] - '0'))
			       : *text;
		text += octal ? 4 : 1;
	}
	ret[n] = '\0';
	return !*text;
}

/* Parse a line such as "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root
 * rw,errors=continue". */
static bool parse(char *line, struct mount *ret)
{
	char *save = NULL, *word = strtok_r(line, " \n", &save), *path = NULL;

	for (unsigned i = 0; word && (i < 6 || strcmp(word, "-") != 0); i++) {
		if (i == 2 && sscanf(word, "%u:%u", &ret->major, &ret->minor) != 2)
			return false;
		if (i == 4)
			path = word;
		word = strtok_r(NULL, " \n", &save);
	}
	if (!word || !path || !unescape(ret->path, sizeof(ret->path), path))
		return false;
	word = strtok_r(NULL, " \n", &save);
	(void)unescape(ret->type, sizeof(ret->type), word ? word : "");
	word = word ? strtok_r(NULL, " \n", &save) : NULL;
	(void)unescape(ret->source, sizeof(ret->source), word ? word : "");
	return ret->type[0] && ret->path[0] == '/';
}

static struct mount *same_device(struct mount *v, int nr, const struct mount *m)
{
	for (int i = 0; i < nr; i++)
		if (v[i].major == m->major && v[i].minor == m->minor)
			return &v[i];
	return NULL;
}

int mounts_find(struct mount ret[MOUNTS_MAX], unsigned *ret_more)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_(freep) struct mount *m = calloc(1, sizeof(*m));
	_cleanup_(freep) char *line = NULL;
	size_t len = 0;
	int nr = 0;

	*ret_more = 0;
	if (!f)
		return fail(errno, "/proc/self/mountinfo cannot be read: %s", strerror(errno));
	if (!m)
		return fail(ENOMEM, "out of memory");
	while (getline(&line, &len, f) > 0) {
		struct mount *other;

		if (!parse(line, m) || !is_wanted(m))
			continue;
		other = same_device(ret, nr, m);
		if (!other && nr == MOUNTS_MAX)
			++*ret_more;
		else if (!other)
			ret[nr++] = *m;
		else if (strlen(m->path) < strlen(other->path))
			*other = *m;
	}
	return nr;
}
