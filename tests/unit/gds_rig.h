/* SPDX-License-Identifier: MIT */
/*
 * Fake machines: a folder that stands for /, and faked results of fstat(2), statx(2) and open
 * with O_DIRECT for the file.
 */
#ifndef PST_GDS_RIG_H
#define PST_GDS_RIG_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/err.h"
#define T_ERROR_TEXT() err_text()
#include "scratch.h"
#include "t.h"
#include "gds/facts/internal.h"

#define GPU "0000:17:00.0"
#define SWITCH "pci0000:16/0000:16:01.0/0000:17:00.0" /* a switch's upstream port */

static struct {
	char root[64];
	int fd;
	mode_t mode;
	dev_t dev, rdev;
	int fstat_err, open_err;
	int dio; /* O_DIRECT: 0 needs 512; 1 impossible; -1 unknown */
	struct gds_fact list[GDS_FACTS_MAX];
	int nr;
} rig;

/* ------------------------------------------------------------ what is wrapped */

int __real_open64(const char *path, int flags, ...);
int __real_fstat64(int fd, struct stat64 *st);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_fstat64(int fd, struct stat64 *st);
int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *stx);

int __wrap_open64(const char *path, int flags, ...)
{
	if (!(flags & O_DIRECT))
		return __real_open64(path, flags, 0600);
	if (rig.open_err) {
		errno = rig.open_err;
		return -1;
	}
	return __real_open64("/dev/null", O_RDONLY | O_CLOEXEC);
}

int __wrap_fstat64(int fd, struct stat64 *st)
{
	int r = __real_fstat64(fd, st);

	if (fd != rig.fd || r < 0)
		return r;
	if (rig.fstat_err) {
		errno = rig.fstat_err;
		return -1;
	}
	st->st_mode = rig.mode;
	st->st_dev = rig.dev;
	st->st_rdev = rig.rdev;
	return 0;
}

int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *stx)
{
	uint32_t told[2] = { rig.dio ? 0 : 512, rig.dio ? 0 : 512 };

	(void)dir, (void)path, (void)flags, (void)mask;
	stx->stx_mask = rig.dio < 0 ? 0 : 0x2000u; /* STATX_DIOALIGN */
	memcpy((char *)stx + 0x98, told, sizeof(told));
	return 0;
}

/* ----------------------------------------------------------------- the folder */

/* Write the path below the root to buf, and make its parent folders. */
static inline void at(char buf[static 1024], const char *path)
{
	(void)snprintf(buf, 1024, "%s%s", rig.root, path);
	for (char *p = buf + strlen(rig.root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		(void)mkdir(buf, 0700);
		*p = '/';
	}
}

static inline void put_bytes(const char *path, const void *bytes, size_t len)
{
	char buf[1024];
	int fd;

	at(buf, path);
	(void)unlink(buf);
	fd = open(buf, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	T_CHECK(fd >= 0);
	T_EQ(write(fd, bytes, len), len);
	T_EQ(close(fd), 0);
}

__attribute__((format(printf, 2, 3))) static inline void put(const char *path, const char *fmt, ...)
{
	char text[4096];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	put_bytes(path, text, strlen(text));
}

static inline void put_dir(const char *path)
{
	char buf[1024];

	at(buf, path);
	T_CHECK(mkdir(buf, 0700) == 0 || errno == EEXIST);
}

/* Make a symbolic link to another path below the root, relative like those of sysfs. */
static inline void put_link(const char *path, const char *to)
{
	char buf[1024], up[1024] = "";

	at(buf, path);
	for (const char *p = path + 1; (p = strchr(p, '/')); p++)
		(void)strcat(up, "../");
	(void)strcat(up, to + 1);
	(void)unlink(buf);
	T_EQ(symlink(up, buf), 0);
}

static inline void forget(const char *path)
{
	char buf[1024];

	(void)snprintf(buf, sizeof(buf), "%s%s", rig.root, path);
	(void)scratch_remove(buf);
}

/* Begin with an empty machine. */
static inline void machine(void)
{
	if (*rig.root)
		forget("");
	T_EQ(scratch_new(NULL, rig.root, sizeof(rig.root)), 0);
	if (rig.fd > 0)
		(void)close(rig.fd);
	rig.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	T_CHECK(rig.fd > 0);
	rig.mode = S_IFREG | 0600;
	rig.dev = makedev(259, 1);
	rig.rdev = 0;
	rig.fstat_err = rig.open_err = rig.dio = 0;
}

static inline void machine_gone(void)
{
	forget("");
	(void)close(rig.fd);
}

/* Put the file on a mount of this type, with mount id 36. */
static inline void on(const char *type, const char *source, const char *options)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", rig.fd);
	put(path, "pos:\t0\nflags:\t0100000\nmnt_id:\t36\nino:\t12\n");
	put("/proc/self/mountinfo",
	    "22 1 0:21 / /proc rw,relatime - proc proc rw\n"
	    "36 22 %u:%u / /data rw,relatime shared:7 - %s %s %s\n",
	    major(rig.dev), minor(rig.dev), type, source, options);
}

/* Add a PCI device at the end of a path of bridges, such as SWITCH "/0000:18:00.0". */
static inline void pci(const char *way, const char *vendor)
{
	const char *name = strrchr(way, '/') + 1;
	char path[600], to[600];

	(void)snprintf(to, sizeof(to), "/sys/devices/%s", way);
	(void)snprintf(path, sizeof(path), "%s/vendor", to);
	put(path, "%s\n", vendor);
	(void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", name);
	put_link(path, to);
}

/* Write the configuration space of a device, with these bits in its ACS control register. */
static inline void acs(const char *way, unsigned bits)
{
	uint8_t config[4096] = { 0 };
	char path[600];

	config[0x100] = 0x01; /* AER, and the next capability at 0x148 */
	config[0x102] = 0x81;
	config[0x103] = 0x14;
	config[0x148] = 0x0d; /* ACS, the last capability */
	config[0x14a] = 0x01;
	config[0x148 + 6] = (uint8_t)bits;
	(void)snprintf(path, sizeof(path), "/sys/devices/%s/config", way);
	put_bytes(path, config, sizeof(config));
}

static inline void bridge(const char *way, unsigned bits)
{
	pci(way, "0x1000");
	acs(way, bits);
}

static inline void gpu(const char *way)
{
	char path[600];

	pci(way, "0x10de");
	(void)snprintf(path, sizeof(path), "/sys/devices/%s/driver", way);
	put_dir("/sys/bus/pci/drivers/nvidia");
	put_link(path, "/sys/bus/pci/drivers/nvidia");
	acs(way, 0);
}

/* Make a block device whose folder in sysfs is this one. */
static inline void block(const char *folder, unsigned maj, unsigned min)
{
	char path[64];

	put_dir(folder);
	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", maj, min);
	put_link(path, folder);
}

/* Add NVMe disk n, with the device number 259:min. */
static inline void nvme(const char *way, unsigned n, unsigned min)
{
	char path[600];

	pci(way, "0x144d");
	acs(way, 0);
	(void)snprintf(path, sizeof(path), "/sys/devices/%s/nvme/nvme%u/transport", way, n);
	put(path, "pcie\n");
	(void)snprintf(path, sizeof(path), "/sys/devices/%s/nvme/nvme%u/nvme%un1", way, n, n);
	block(path, 259, min);
	(void)strcat(path, "/device");
	{
		char to[600];

		(void)snprintf(to, sizeof(to), "/sys/devices/%s/nvme/nvme%u", way, n);
		put_link(path, to);
	}
}

static inline void udev(const char *type)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/run/udev/data/b%u:%u", major(rig.dev), minor(rig.dev));
	put(path, "S:disk/by-id/x\nE:ID_FS_UUID=1\nE:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=%s\n",
	    type);
}

static inline void nvidia_fs(void)
{
	put("/proc/driver/nvidia-fs/version", "version: 2.28\n");
	put("/proc/driver/nvidia-fs/devcount", "16\n");
	put("/dev/nvidia-fs0", "x");
}

#define SYMBOLS "0000000000000000 T _text\n0000000000000000 t other\t[m]\n"

static inline void p2pdma(void)
{
	put("/proc/sys/kernel/osrelease", "6.8.0-71-generic\n");
	put("/proc/kallsyms", SYMBOLS "0000000000000000 T pci_p2pdma_add_resource\n");
	put("/proc/driver/nvidia/version",
	    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n");
	put("/proc/driver/nvidia/params",
	    "ResmanDebugLevel: 4294967295\n"
	    "RegistryDwords: \"RMForceStaticBar1=1;RmForceDisableIomapWC=1\"\n");
}

/* ------------------------------------------------------------------ the facts */

static inline int ask(const char *pci_name)
{
	rig.nr = gds_facts(rig.root, rig.fd, pci_name, rig.list);
	return rig.nr;
}

static inline const struct gds_fact *fact(const char *name)
{
	for (int i = 0; i < rig.nr; i++)
		if (!strcmp(rig.list[i].name, name))
			return &rig.list[i];
	T_FAIL("there is no fact %s", name);
}

/* Check the state of a fact, and the beginning and end of its text. */
static inline void says(const char *name, int state, const char *begin, const char *end)
{
	const struct gds_fact *f = fact(name);
	size_t len = strlen(f->text), n = strlen(end);

	if (f->state != state || strncmp(f->text, begin, strlen(begin)) != 0 || len < n ||
	    strcmp(f->text + len - n, end) != 0)
		T_FAIL("%s is %d: %.380s", name, f->state, f->text);
	for (const char *p = f->text; *p; p++)
		T_CHECK(*p >= ' ' && *p <= '~');
	/* The text of a missing requirement must contain a cure. */
	T_CHECK(f->state != PST_CHECK_MISSING || strstr(f->text, "; "));
}

#endif
