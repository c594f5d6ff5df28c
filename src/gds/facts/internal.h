/* SPDX-License-Identifier: MIT */
/*
 * Declarations shared by the files behind facts.h: the input of all facts (struct gds_look), and
 * one function per fact.
 *
 *	read.c    read files and links below a root, within bounds
 *	mount.c   find a file's mount; O_DIRECT
 *	disk.c    find the disks below it and the udev record
 *	kernel.c  judge nvidia-fs and P2PDMA
 *	pci.c     judge the GPU and the PCI bridges between it and the disks
 *	list.c    list all facts
 *
 * The sentence of a missing need is "finding; cure".
 */
#ifndef PST_GDS_INT_H
#define PST_GDS_INT_H

#include <penstock.h>
#include <sys/stat.h>

#include "gds/facts/facts.h"

#define GDS_PATH_MAX 512u   /* longest path without the root; sysfs stays far below */
#define GDS_PCI_MAX 24u     /* "0000:17:00.0" with its NUL; a domain may have 8 digits */
#define GDS_NAME_MAX 48u    /* name of a block device with its NUL */
#define GDS_DISKS_MAX 16u   /* disks recorded below one file system */
#define GDS_HOPS_MAX 32u    /* bridges above a PCI device */
#define GDS_CONFIG_MAX 4096 /* bytes of a PCI device's configuration space */

/* How cuFile can access a file system. */
enum gds_fs {
	GDS_FS_UNTOLD, /* untested, or the mount is unknown */
	GDS_FS_LOCAL,  /* direct by nvidia-fs or P2PDMA, if the disk below allows it */
	GDS_FS_REMOTE, /* direct by nvidia-fs only */
	GDS_FS_NEVER,  /* always copied through host memory */
};

struct gds_mount {
	bool found;
	unsigned long id;
	dev_t dev;
	char type[32];
	char source[128]; /* source may be truncated */
	char where[256];
	char options[1024]; /* options of the file system, not of the mount; may be truncated */
};

struct gds_disk {
	char name[GDS_NAME_MAX];
	char pci[GDS_PCI_MAX]; /* PCI address, or "" */
	char transport[16];    /* transport of an NVMe disk: "pcie", "rdma", ...; "" if unknown */
	char integrity[32];    /* format of protection information; "" for none */
	bool nvme;
	bool multipath; /* a multipath head: stands for several NVMe paths */
};

struct gds_disks {
	char name[GDS_NAME_MAX]; /* the file system's device; "" if no disk is known */
	char layer[32];          /* device above the disks: "md raid0", "LVM"; "" for none */
	unsigned nr;
	bool more; /* there are more disks than disks[] holds */
	struct gds_disk list[GDS_DISKS_MAX];
};

/* The file and the GPU that all facts are about. */
struct gds_look {
	const char *root; /* prefix of every path */
	int fd;
	struct stat st;
	dev_t dev;             /* block device below the file; major 0: unknown */
	char pci[GDS_PCI_MAX]; /* the GPU's address in lower case; "" if none is given */
	enum gds_fs fs;
	struct gds_mount mount;
	struct gds_disks disks;
	int nvidia_fs, p2pdma; /* states of both facts before gds_stand_in() */
};

/* ---------------------------------------------------------------- read.c */

/* A path with the root in front; "" (which cannot be opened) if it is too long. */
struct gds_path {
	char s[GDS_PATH_MAX + 256];
};
struct gds_path gds_path(const char *root, const char *fmt, ...) _printf_(2, 3);

bool gds_exists(const struct gds_path *p);

/*
 * Read at most len bytes of a regular file.
 *
 * Return the number of bytes or -errno.
 */
ssize_t gds_read(const struct gds_path *p, void *buf, size_t len);

/*
 * Read the first line of a file without its newline, truncated to len.
 *
 * Return 0, or -errno with @buf empty.
 */
int gds_line(const struct gds_path *p, char *buf, size_t len);

/* Copy text, truncated to len. */
void gds_copy(char *buf, size_t len, const char *text);

/*
 * Call fn for each line until it returns true.  Lines over 8 KiB are skipped; reading stops after
 * 64 MiB.
 *
 * Return 1 if fn returned true, 0 if not, or -errno if the file cannot be read.
 */
int gds_each_line(const struct gds_path *p, bool (*fn)(char *line, void *arg), void *arg);

/*
 * Resolve all links of a path beneath /sys/; the result has no root.
 *
 * Return 0 or -errno; -EXDEV if the path leads out of /sys/.
 */
int gds_real(const char *root, const struct gds_path *p, char ret[GDS_PATH_MAX]);

/* --------------------------------------------------------------- mount.c */

/* Parse a line of mountinfo, which is modified; return false if it is malformed. */
bool gds_mount_parse(char *line, struct gds_mount *ret);

/* Return true if the word is among the comma-separated options. */
bool gds_mount_has(const struct gds_mount *m, const char *word);

/* Fill l->mount and l->fs. */
void gds_mount_find(struct gds_look *l);

void gds_filesystem(struct gds_look *l, struct gds_fact *f);
void gds_direct_io(struct gds_look *l, struct gds_fact *f);

/* ---------------------------------------------------------------- disk.c */

struct gds_udev {
	char usage[32]; /* ID_FS_USAGE; "" if the record has none */
	char type[32];  /* ID_FS_TYPE */
};

/* Take the facts from a line of a udev record. */
void gds_udev_line(const char *line, struct gds_udev *u);

/* Fill l->disks. */
void gds_disks_find(struct gds_look *l);

void gds_disk(struct gds_look *l, struct gds_fact *f);
void gds_udev(struct gds_look *l, struct gds_fact *f);

/* -------------------------------------------------------------- kernel.c */

void gds_nvidia_fs(struct gds_look *l, struct gds_fact *f);
void gds_p2pdma(struct gds_look *l, struct gds_fact *f);

/* If one of the two facts is met and the other is missing, mark the missing one as unneeded.  If
 * CPU and GPU may share memory, mark both. */
void gds_stand_in(struct gds_fact *nvidia_fs, struct gds_fact *p2pdma, bool shared);

/* ----------------------------------------------------------------- pci.c */

/* Return true for a PCI address as sysfs writes it. */
bool gds_is_pci(const char *text);

/* Find the last PCI device in a sysfs path; "" if there is none. */
void gds_pci_of(const char *path, char ret[GDS_PCI_MAX]);

/*
 * Return 1 if a bridge with this configuration space redirects requests between its devices to the
 * root, 0 if not, or -EACCES if the end of the space is missing, as for unprivileged users.
 */
int gds_acs_redirects(const uint8_t *config, size_t len);

void gds_gpu(struct gds_look *l, struct gds_fact *f);
void gds_iommu(struct gds_look *l, struct gds_fact *f);
void gds_acs(struct gds_look *l, struct gds_fact *f);
void gds_distance(struct gds_look *l, struct gds_fact *f);

#endif
