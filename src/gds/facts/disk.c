/* SPDX-License-Identifier: MIT */
/*
 * Find the disks below a file: from the device number to the partition, the whole device and,
 * through RAID and device mapper, their components.  Also read the udev record of the device.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/err.h"
#include "gds/facts/internal.h"

#define DEPTH_MAX 8     /* levels; a file system on LVM on RAID on encryption has 4 */
#define VISITS_MAX 64   /* maximum devices visited for one file */
#define ENTRIES_MAX 256 /* entries of one directory */

#define GOOD_DISK "put the file on an NVMe disk"

/* -------------------------------------------------------------------- walk */

struct walk {
	const struct gds_look *l;
	struct gds_disks *d;
	unsigned visits;
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool digits(const char *s)
{
	return *s && strspn(s, "0123456789") == strlen(s);
}

/* Return true for "nvme3", a controller, but not for "nvme3n1". */
static bool is_controller(const char *name)
{
	return strncmp(name, "nvme", 4) == 0 && digits(name + 4);
}

static bool is_nvme(const char *name)
{
	unsigned a, b;
	char end;

	return sscanf(name, "nvme%9un%9u%c", &a, &b, &end) == 2;
}

static void disk_closedirp(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}

/* Find the n-th name that the filter accepts in a directory; return false if there are fewer. */
static bool disk_entry(const struct gds_path *dir, unsigned n, bool (*like)(const char *name),
		       char ret[GDS_NAME_MAX])
{
	_cleanup_(disk_closedirp) DIR *d = opendir(dir->s);
	struct dirent *e;

	for (unsigned i = 0; d && i < ENTRIES_MAX && (e = readdir(d)); i++) {
		if (e->d_name[0] == '.' || strlen(e->d_name) >= GDS_NAME_MAX || !like(e->d_name) ||
		    n--)
			continue;
		gds_copy(ret, GDS_NAME_MAX, e->d_name);
		return true;
	}
	return false;
}

static bool any(const char *name)
{
	(void)name;
	return true;
}

/* Recognise a multipath head: its folder in the subsystem also has links to the controllers. */
static void see_head(const struct gds_look *l, const char *at, struct gds_disk *k)
{
	struct gds_path dir = gds_path(l->root, "%.*s", (int)(base_name(at) - 1 - at), at);
	char name[GDS_NAME_MAX], path[GDS_PATH_MAX];
	struct gds_path link;

	k->multipath = true;
	if (!disk_entry(&dir, 0, is_controller, name))
		return;
	link = gds_path(dir.s, "/%s", name);
	if (gds_real(l->root, &link, path) < 0)
		return;
	gds_pci_of(path, k->pci);
	link = gds_path(dir.s, "/%s/transport", name);
	(void)gds_line(&link, k->transport, sizeof(k->transport));
}

/* Record a whole device that has no components. */
static void see_disk(struct walk *w, const char *at)
{
	struct gds_path integrity = gds_path(w->l->root, "%s/integrity/format", at);
	struct gds_path transport = gds_path(w->l->root, "%s/device/transport", at);
	struct gds_disk *k;

	if (w->d->nr == GDS_DISKS_MAX) {
		w->d->more = true;
		return;
	}
	k = &w->d->list[w->d->nr++];
	gds_copy(k->name, sizeof(k->name), base_name(at));
	gds_pci_of(at, k->pci);
	k->nvme = is_nvme(k->name);
	if (strncmp(at, "/sys/devices/virtual/nvme-subsystem/", 36) == 0)
		see_head(w->l, at, k);
	else if (k->nvme)
		(void)gds_line(&transport, k->transport, sizeof(k->transport));
	(void)gds_line(&integrity, k->integrity, sizeof(k->integrity));
	if (strcmp(k->integrity, "none") == 0 || strcmp(k->integrity, "nop") == 0)
		k->integrity[0] = '\0';
}

/* Name the kind of a device that has components; keep the uppermost such device. */
static void see_layer(const struct walk *w, const char *at)
{
	struct gds_path level = gds_path(w->l->root, "%s/md/level", at);
	struct gds_path uuid = gds_path(w->l->root, "%s/dm/uuid", at);
	char text[24], *layer = w->d->layer;

	if (*layer)
		return;
	if (gds_line(&level, text, sizeof(text)) == 0) {
		(void)snprintf(layer, sizeof(w->d->layer), "md %s", text);
	} else if (gds_line(&uuid, text, sizeof(text)) == 0) {
		text[strcspn(text, "-")] = '\0';
		(void)snprintf(layer, sizeof(w->d->layer), "%s",
			       strcmp(text, "LVM") == 0     ? "LVM"
			       : strcmp(text, "CRYPT") == 0 ? "dm-crypt"
			       : strcmp(text, "mpath") == 0 ? "dm-multipath"
							    : "the device mapper");
	} else {
		(void)snprintf(layer, sizeof(w->d->layer), "a device made of others");
	}
}

/* Visit a device and, recursively, its components: at most DEPTH_MAX levels, VISITS_MAX devices. */
static void disk_visit(struct walk *w, const struct gds_path *link, unsigned depth)
{
	char at[GDS_PATH_MAX], name[GDS_NAME_MAX];
	struct gds_path p, slaves;
	unsigned n = 0;

	if (depth == DEPTH_MAX || w->visits++ >= VISITS_MAX) {
		w->d->more = true;
		return;
	}
	if (gds_real(w->l->root, link, at) < 0)
		return;
	if (!depth)
		gds_copy(w->d->name, sizeof(w->d->name), base_name(at));
	p = gds_path(w->l->root, "%s/partition", at);
	if (gds_exists(&p))
		at[base_name(at) - 1 - at] = '\0';
	slaves = gds_path(w->l->root, "%s/slaves", at);
	for (; n < VISITS_MAX && disk_entry(&slaves, n, any, name); n++) {
		see_layer(w, at);
		p = gds_path(slaves.s, "/%s", name);
		disk_visit(w, &p, depth + 1);
	}
	if (!n)
		see_disk(w, at);
}

void gds_disks_find(struct gds_look *l)
{
	struct gds_path p = gds_path(l->root, "/sys/dev/block/%u:%u", major(l->dev), minor(l->dev));
	struct walk w = { .l = l, .d = &l->disks };

	if (major(l->dev))
		disk_visit(&w, &p, 0);
}

/* -------------------------------------------------------------------- disk */

static const char *sort_of(const char *name)
{
	static const struct {
		const char *begin, *sort;
	} sorts[] = {
		{ "vd", "a virtio disk" },   { "sd", "a SCSI or SATA disk" },
		{ "xvd", "a Xen disk" },     { "loop", "a file that is mounted as a disk" },
		{ "nbd", "a network disk" }, { "rbd", "a network disk" },
		{ "zram", "memory" },        { "ram", "memory" },
		{ "pmem", "memory" },        { "mmcblk", "a memory card" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(sorts); i++)
		if (strncmp(name, sorts[i].begin, strlen(sorts[i].begin)) == 0)
			return sorts[i].sort;
	return "no NVMe disk";
}

static const char *disk_cure_of(const char *name)
{
	if (strncmp(name, "vd", 2) == 0 || strncmp(name, "xvd", 3) == 0)
		return GOOD_DISK ", which a guest has by PCI passthrough of the drive";
	if (strncmp(name, "loop", 4) == 0)
		return "put the file on the file system that holds the mounted one, or on a "
		       "partition of an NVMe disk";
	return GOOD_DISK;
}

/* Return true if one of the disks prevents a direct path. */
static bool bad_disk(const struct gds_look *l, struct gds_fact *f)
{
	for (unsigned i = 0; i < l->disks.nr; i++) {
		const struct gds_disk *k = &l->disks.list[i];
		bool rdma = strcmp(k->transport, "rdma") == 0;

		if (!k->nvme)
			gds_say(f, PST_CHECK_MISSING, 0,
				"%s is %s, and cuFile has a direct way to "
				"NVMe alone; %s",
				k->name, sort_of(k->name), disk_cure_of(k->name));
		else if (*k->integrity)
			gds_say(f, PST_CHECK_MISSING, 0,
				"%s is formatted with protection information (%s); nvme format "
				"--pi=0 /dev/%s, which erases it",
				k->name, k->integrity, k->name);
		else if (rdma && l->nvidia_fs != PST_CHECK_OK)
			gds_say(f, PST_CHECK_MISSING, 0,
				"%s is reached by RDMA, which needs nvidia-fs; load that, "
				"or " GOOD_DISK " of this machine",
				k->name);
		else if (*k->transport && strcmp(k->transport, "pcie") != 0 && !rdma)
			gds_say(f, PST_CHECK_MISSING, 0,
				"%s is reached by %s, which goes through the CPU; connect it by "
				"RDMA, or " GOOD_DISK " of this machine",
				k->name, k->transport);
		else
			continue;
		return true;
	}
	return false;
}

/* Write "nvme0n1 (0000:18:00.0), nvme1n1 (...)". */
static void name_disks(const struct gds_disks *d, char *buf, size_t len)
{
	size_t n = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < d->nr && n < len - 1; i++) {
		const struct gds_disk *k = &d->list[i];

		(void)snprintf(buf + n, len - n, "%s%s%s%s%s", i ? ", " : "", k->name,
			       *k->pci ? " (" : "", k->pci, *k->pci ? ")" : "");
		n += strlen(buf + n);
	}
	if (d->more)
		(void)snprintf(buf + n, len - n, " and more");
}

static void disk_no_disk(const struct gds_look *l, struct gds_fact *f)
{
	if (l->fs == GDS_FS_REMOTE)
		gds_say(f, PST_CHECK_UNNEEDED, 0, "the disks of %s are those of its servers",
			l->mount.type);
	else if (!major(l->dev))
		gds_say(f, PST_CHECK_UNKNOWN, 0, "%s does not say which disk is below it",
			l->mount.found ? l->mount.type : "the file system");
	else
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"/sys/dev/block/%u:%u does not lead to a disk, as where /sys is not "
			"mounted",
			major(l->dev), minor(l->dev));
}

void gds_disk(struct gds_look *l, struct gds_fact *f)
{
	const struct gds_disks *d = &l->disks;
	char names[200];

	if (!d->nr) {
		disk_no_disk(l, f);
		return;
	}
	if (bad_disk(l, f))
		return;
	name_disks(d, names, sizeof(names));
	if (!*d->layer && strcmp(d->name, d->list[0].name) == 0)
		gds_say(f, PST_CHECK_OK, 0, "%s", names);
	else if (!*d->layer)
		gds_say(f, PST_CHECK_OK, 0, "%s on %s", d->name, names);
	else if (strcmp(d->layer, "md raid0") == 0 && l->nvidia_fs == PST_CHECK_OK)
		gds_say(f, PST_CHECK_OK, 0, "%s, %s of %s", d->name, d->layer, names);
	else if (strncmp(d->layer, "md ", 3) == 0)
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"%s is %s of %s, which not every cuFile and kernel takes: nvidia-fs takes "
			"raid0; a trial tells",
			d->name, d->layer, names);
	else
		gds_say(f, PST_CHECK_MISSING, 0,
			"%s is %s over %s, through which cuFile has no direct way; put the file "
			"system on a disk or partition itself",
			d->name, d->layer, names);
}

/* -------------------------------------------------------------------- udev */

void gds_udev_line(const char *line, struct gds_udev *u)
{
	if (strncmp(line, "E:ID_FS_USAGE=", 14) == 0)
		gds_copy(u->usage, sizeof(u->usage), line + 14);
	else if (strncmp(line, "E:ID_FS_TYPE=", 13) == 0)
		gds_copy(u->type, sizeof(u->type), line + 13);
}

static bool udev_line(char *line, void *arg)
{
	gds_udev_line(line, arg);
	return false;
}

static void no_record(const struct gds_look *l, int err, struct gds_fact *f)
{
	struct gds_path whole = gds_path(l->root, "/run/udev/data");
	const char *type = l->mount.found ? l->mount.type : "ext4";

	if (err != ENOENT)
		gds_say(f, PST_CHECK_UNKNOWN, err, "/run/udev/data/b%u:%u cannot be read: %s",
			major(l->dev), minor(l->dev), err_name(err));
	else if (gds_exists(&whole))
		gds_say(f, PST_CHECK_MISSING, err,
			"udev has no record of the file system's device, /run/udev/data/b%u:%u; "
			"run udevadm trigger --subsystem-match=block",
			major(l->dev), minor(l->dev));
	else
		gds_say(f, PST_CHECK_MISSING, err,
			"no udev runs here, and cuFile takes no file without its record; in a "
			"container mount the host's /run/udev read-only, else run udevd and "
			"udevadm trigger, or write the lines E:ID_FS_USAGE=filesystem and "
			"E:ID_FS_TYPE=%s into /run/udev/data/b%u:%u",
			type, major(l->dev), minor(l->dev));
}

void gds_udev(struct gds_look *l, struct gds_fact *f)
{
	struct gds_path p = gds_path(l->root, "/run/udev/data/b%u:%u", major(l->dev),
				     minor(l->dev));
	struct gds_udev u = { 0 };
	bool raw = S_ISBLK(l->st.st_mode);
	int r;

	if (!major(l->dev)) {
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"%s has no block device that udev could have a record of",
			l->mount.found ? l->mount.type : "the file system");
		return;
	}
	r = gds_each_line(&p, udev_line, &u);
	if (r < 0)
		no_record(l, -r, f);
	else if (!raw && strcmp(u.usage, "filesystem") != 0)
		gds_say(f, PST_CHECK_MISSING, 0,
			"/run/udev/data/b%u:%u has no line E:ID_FS_USAGE=filesystem; run udevadm "
			"trigger --action=change --name-match=%s, or add the line",
			major(l->dev), minor(l->dev), l->disks.name);
	else if (!raw && (!*u.type || (l->mount.found && strcmp(u.type, l->mount.type) != 0)))
		gds_say(f, PST_CHECK_MISSING, 0,
			"/run/udev/data/b%u:%u says E:ID_FS_TYPE=%s, not %s; run udevadm trigger "
			"--action=change --name-match=%s, or put the line right",
			major(l->dev), minor(l->dev), u.type,
			l->mount.found ? l->mount.type : "its type", l->disks.name);
	else
		gds_say(f, PST_CHECK_OK, 0, "/run/udev/data/b%u:%u names %s", major(l->dev),
			minor(l->dev), raw ? "the device" : u.type);
}
