/* SPDX-License-Identifier: MIT */
/*
 * Find devices and their bridges in sysfs.  A device's folder is below those of its bridges, so its
 * real path lists them.
 *
 * The files may be a copy from another machine, or made up for a container: every text is truncated
 * to fit, and every number is checked.
 */
#include "cli/doctor/topo.h"

#include <ctype.h>
#include <dirent.h>
#include <glob.h>
#include <limits.h>

#include "tools/common/util.h"

#define VENDOR_AMD 0x1002u
#define VENDOR_NVIDIA 0x10deu
#define VENDOR_INTEL 0x8086u

#define BASE_DISK 0x01u
#define BASE_NIC 0x02u
#define BASE_DISPLAY 0x03u
#define BASE_ACCEL 0x12u
#define CLASS_COPROCESSOR 0x0b40u
#define CLASS_INFINIBAND 0x0c06u /* class code of older InfiniBand devices */

#define CPUS_MAX 4096u
#define NODES_MAX 1024u

const char *topo_distance_name(enum topo_distance d)
{
	static const char *const names[] = { "SELF", "PIX", "PXB", "PHB", "NODE", "SYS" };

	return d < TOPO_DISTANCES ? names[d] : "none";
}

const char *topo_kind_name(enum topo_kind k)
{
	static const char *const names[] = { "accelerator", "nic", "disk" };

	return k < TOPO_KINDS ? names[k] : "other";
}

const char *topo_name(const struct topo_dev *d)
{
	return d->nr_names ? d->names[0] : d->pci;
}

/* ---------------------------------------------------------------- distances */

/* Return how many bridges two devices share, counted from the host bridge. */
static unsigned topo_shared(const struct topo_dev *a, const struct topo_dev *b)
{
	unsigned n = 0;

	while (n < a->nr_bridges && n < b->nr_bridges && !strcmp(a->bridges[n], b->bridges[n]))
		n++;
	return n;
}

enum topo_distance topo_distance(const struct topo *t, const struct topo_dev *a,
				 const struct topo_dev *b)
{
	unsigned shared = topo_shared(a, b);

	if (!strcmp(a->pci, b->pci))
		return TOPO_SELF;
	/* The last shared bridge is a switch's upstream port; below it each device has its own
	 * downstream port. */
	if (shared)
		return MAX(a->nr_bridges, b->nr_bridges) - shared <= 1 ? TOPO_PIX : TOPO_PXB;
	if (!strcmp(a->host, b->host))
		return TOPO_PHB;
	if (t->nodes == 1)
		return TOPO_NODE;
	return a->node >= 0 && a->node == b->node ? TOPO_NODE : TOPO_SYS;
}

enum topo_distance topo_nearest(const struct topo *t, const struct topo_dev *d, enum topo_kind kind)
{
	enum topo_distance best = TOPO_DISTANCES;

	for (unsigned i = 0; i < t->nr; i++)
		if (t->devs[i].kind == kind && &t->devs[i] != d)
			best = MIN(best, topo_distance(t, d, &t->devs[i]));
	return best;
}

/* ------------------------------------------------------------------ reading */

/* Return true for an address as sysfs writes it: "0000:17:00.0". */
static bool topo_is_pci(const char *text)
{
	unsigned domain, bus, dev, fn;
	int n = 0;

	return strlen(text) < TOPO_PCI_MAX && isxdigit((unsigned char)*text) &&
	       sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &dev, &fn, &n) == 4 && !text[n];
}

/* Copy the next component of a path and advance; return false at the end. */
static bool topo_component(const char **path, char *ret, size_t len)
{
	const char *p = *path + strspn(*path, "/");
	size_t n = strcspn(p, "/");

	if (!n)
		return false;
	(void)snprintf(ret, len, "%.*s", (int)MIN(n, len - 1), p);
	*path = p + n;
	return true;
}

/* Read one line of a device's file. */
static int topo_fact(const char *sys, const char *pci, const char *fact, char *buf, size_t len)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/%s", sys, pci, fact) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	return read_line(path, buf, len);
}

static unsigned topo_hex(const char *sys, const char *pci, const char *fact)
{
	char line[32];

	return topo_fact(sys, pci, fact, line, sizeof(line)) < 0
		       ? 0
		       : (unsigned)strtoul(line, NULL, 16);
}

static unsigned topo_lanes(const char *sys, const char *pci, const char *fact)
{
	char line[32];
	uint64_t n;

	/* The kernel writes 0 or 255 if the device does not report a width. */
	if (topo_fact(sys, pci, fact, line, sizeof(line)) < 0 || parse_number(line, 1, 64, &n) < 0)
		return 0;
	return (unsigned)n;
}

static int topo_node(const char *sys, const char *pci)
{
	char line[32];
	uint64_t node;

	/* The kernel writes -1 for unknown. */
	if (topo_fact(sys, pci, "numa_node", line, sizeof(line)) < 0 ||
	    parse_number(line, 0, NODES_MAX - 1, &node) < 0)
		return -1;
	return (int)node;
}

/* Parse a set of CPUs in the kernel's form: hexadecimal digits and commas, the lowest CPU last. */
static bool topo_cpus(const char *path, uint8_t ret[CPUS_MAX / 4])
{
	char line[512];
	size_t n = 0;

	memset(ret, 0, CPUS_MAX / 4);
	if (read_line(path, line, sizeof(line)) < 0)
		return false;
	for (size_t i = strlen(line); i-- > 0 && n < CPUS_MAX / 4;) {
		char digit[2] = { line[i], '\0' };

		if (line[i] == ',')
			continue;
		if (!isxdigit((unsigned char)line[i]))
			return false;
		ret[n++] = (uint8_t)strtoul(digit, NULL, 16);
	}
	return n > 0;
}

/* Return the NUMA node that has all CPUs near a device; -1 if there is none.  Used for kernels
 * without numa_node. */
static int topo_node_of_cpus(const char *sys, const char *pci, unsigned nodes)
{
	uint8_t near[CPUS_MAX / 4], of[CPUS_MAX / 4];
	char path[PATH_MAX];
	int found = -1;

	(void)snprintf(path, sizeof(path), "%.*s/bus/pci/devices/%s/local_cpus", PATH_MAX - 64, sys,
		       pci);
	if (!topo_cpus(path, near))
		return -1;
	for (unsigned node = 0; node < nodes; node++) {
		bool some = false, all = true;

		(void)snprintf(path, sizeof(path), "%.*s/devices/system/node/node%u/cpumap",
			       PATH_MAX - 64, sys, node);
		if (!topo_cpus(path, of))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
			some = some || (near[i] & of[i]);
			all = all && !(near[i] & ~of[i]);
		}
		if (some && all)
			found = (int)node;
	}
	return found;
}

static bool topo_is_kind(unsigned class, unsigned vendor, enum topo_kind *ret)
{
	switch (class >> 16) {
	case BASE_DISK:
		*ret = TOPO_DISK;
		return true;
	case BASE_NIC:
		*ret = TOPO_NIC;
		return true;
	case BASE_DISPLAY:
		/* Display controllers of other vendors only drive a server's console. */
		*ret = TOPO_ACCEL;
		return vendor == VENDOR_NVIDIA || vendor == VENDOR_AMD || vendor == VENDOR_INTEL;
	case BASE_ACCEL:
		*ret = TOPO_ACCEL;
		return true;
	default:
		break;
	}
	if (class >> 8 == CLASS_INFINIBAND) {
		*ret = TOPO_NIC;
		return true;
	}
	/* Intel's QuickAssist has no memory that others could access. */
	*ret = TOPO_ACCEL;
	return class >> 8 == CLASS_COPROCESSOR && vendor != VENDOR_INTEL;
}

/* Read the host bridge and the bridges from the target of the device's link. */
static int topo_place(const char *sys, struct topo_dev *d)
{
	char path[PATH_MAX], real[PATH_MAX], part[64];
	const char *at = real;

	if (snprintf(path, sizeof(path), "%s/bus/pci/devices/%s", sys, d->pci) >= (int)sizeof(path))
		return fail(ENAMETOOLONG, "the name of %s is too long", sys);
	if (!realpath(path, real))
		return fail(errno, "cannot follow %s: %s", path, strerror(errno));
	while (topo_component(&at, part, sizeof(part))) {
		if (!strncmp(part, "pci", 3) && isxdigit((unsigned char)part[3]) &&
		    strlen(part) < TOPO_PCI_MAX) {
			/* A host bridge below a device, such as Intel's VMD, starts a new address
			 * space. */
			(void)snprintf(d->host, sizeof(d->host), "%.*s", (int)sizeof(d->host) - 1,
				       part);
			d->nr_bridges = 0;
		} else if (topo_is_pci(part) && strcmp(part, d->pci) != 0) {
			if (d->nr_bridges == TOPO_BRIDGES_MAX)
				return fail(E2BIG, "%s is behind more than %u bridges", d->pci,
					    TOPO_BRIDGES_MAX);
			(void)snprintf(d->bridges[d->nr_bridges++], TOPO_PCI_MAX, "%.*s",
				       (int)TOPO_PCI_MAX - 1, part);
		}
	}
	return 0;
}

static int topo_add(const char *sys, const char *pci, struct topo *t)
{
	unsigned class = topo_hex(sys, pci, "class"), vendor = topo_hex(sys, pci, "vendor");
	enum topo_kind kind;
	struct topo_dev *d;
	int r;

	if (!topo_is_kind(class, vendor, &kind))
		return 0;
	if (t->nr == TOPO_DEVS_MAX)
		return fail(E2BIG, "there are more than %u accelerators, NICs and disks",
			    TOPO_DEVS_MAX);
	d = &t->devs[t->nr];
	*d = (struct topo_dev){ .kind = kind, .class = class, .vendor = vendor };
	(void)snprintf(d->pci, sizeof(d->pci), "%.*s", (int)sizeof(d->pci) - 1, pci);
	r = topo_place(sys, d);
	if (r < 0)
		return r;
	d->device = topo_hex(sys, pci, "device");
	d->node = topo_node(sys, pci);
	for (unsigned i = d->nr_bridges; d->node < 0 && i-- > 0;)
		d->node = topo_node(sys, d->bridges[i]);
	if (d->node < 0)
		d->node = topo_node_of_cpus(sys, pci, t->nodes);
	d->width = topo_lanes(sys, pci, "current_link_width");
	d->width_max = topo_lanes(sys, pci, "max_link_width");
	/* The line has a form like "32.0 GT/s PCIe". */
	if (topo_fact(sys, pci, "max_link_speed", d->speed, sizeof(d->speed)) < 0 ||
	    !isdigit((unsigned char)*d->speed))
		d->speed[0] = '\0';
	if (strstr(d->speed, " GT/s"))
		strstr(d->speed, " GT/s")[strlen(" GT/s")] = '\0';
	t->nr++;
	return 0;
}

static int topo_order(const void *a, const void *b)
{
	const struct topo_dev *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	/* Longer addresses have a domain of more than four digits. */
	if (strlen(x->pci) != strlen(y->pci))
		return strlen(x->pci) < strlen(y->pci) ? -1 : 1;
	return strcmp(x->pci, y->pci);
}

/* -------------------------------------------------------------------- names */

/* Find the device to which a folder below /sys/class belongs: the last device in its real path. */
static struct topo_dev *topo_owner(struct topo *t, const char *path)
{
	char real[PATH_MAX], part[64], pci[TOPO_PCI_MAX] = "";
	const char *at = real;

	if (!realpath(path, real))
		return NULL;
	while (topo_component(&at, part, sizeof(part)))
		if (topo_is_pci(part))
			(void)snprintf(pci, sizeof(pci), "%.*s", (int)sizeof(pci) - 1, part);
	for (unsigned i = 0; i < t->nr; i++)
		if (!strcmp(t->devs[i].pci, pci))
			return &t->devs[i];
	return NULL;
}

static void topo_add_name(struct topo_dev *d, const char *name)
{
	if (d->nr_names < TOPO_NAMES_MAX)
		(void)snprintf(d->names[d->nr_names], TOPO_NAME_MAX, "%.*s", (int)TOPO_NAME_MAX - 1,
			       name);
	d->nr_names++;
}

/* Name the devices of a kind after their folders below a class in sysfs.  With stands_in, name only
 * devices that have no name yet. */
static void topo_name_class(const char *sys, const char *class, enum topo_kind kind, bool stands_in,
			    struct topo *t)
{
	char pattern[PATH_MAX], path[PATH_MAX];
	glob_t g;

	(void)snprintf(pattern, sizeof(pattern), "%.*s/class/%s", PATH_MAX - 64, sys, class);
	if (glob(pattern, 0, NULL, &g) != 0)
		return;
	for (size_t i = 0; i < g.gl_pathc; i++) {
		struct topo_dev *d = topo_owner(t, g.gl_pathv[i]);

		if (!d || d->kind != kind || (stands_in && d->nr_names))
			continue;
		(void)snprintf(path, sizeof(path), "%.*s/partition", PATH_MAX - 16, g.gl_pathv[i]);
		if (access(path, F_OK) < 0)
			topo_add_name(d, strrchr(g.gl_pathv[i], '/') + 1);
	}
	globfree(&g);
}

/* Add Penstock's own names for this machine's accelerators. */
static void topo_name_accels(struct topo *t)
{
	struct pst_device devs[64];
	int n;

	for (unsigned i = 0; i < ARRAY_SIZE(devs); i++)
		devs[i] = (struct pst_device){ .sz = sizeof(devs[i]) };
	n = MIN(pst_device_list(devs, ARRAY_SIZE(devs)), (int)ARRAY_SIZE(devs));
	for (int i = 0; i < n; i++)
		for (unsigned k = 0; k < t->nr; k++)
			if (t->devs[k].kind == TOPO_ACCEL &&
			    !strcasecmp(t->devs[k].pci, devs[i].pci))
				topo_add_name(&t->devs[k], devs[i].name);
}

static unsigned topo_nodes(const char *sys)
{
	char pattern[PATH_MAX];
	unsigned n = 1;
	glob_t g;

	(void)snprintf(pattern, sizeof(pattern), "%.*s/devices/system/node/node[0-9]*",
		       PATH_MAX - 64, sys);
	if (glob(pattern, 0, NULL, &g) == 0) {
		n = MAX((unsigned)g.gl_pathc, 1u);
		globfree(&g);
	}
	return n;
}

static void dirp(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}

int topo_find(const char *sys, struct topo *ret)
{
	_cleanup_(dirp) DIR *dir = NULL;
	char path[PATH_MAX];
	struct dirent *e;
	int r = 0;

	*ret = (struct topo){ .nodes = topo_nodes(sys) };
	(void)snprintf(path, sizeof(path), "%.*s/bus/pci/devices", PATH_MAX - 64, sys);
	dir = opendir(path);
	if (!dir)
		return fail(errno, "%s: %s; mount sysfs, or name a sysfs with --sysfs", path,
			    strerror(errno));
	while (r == 0 && (e = readdir(dir)))
		if (topo_is_pci(e->d_name))
			r = topo_add(sys, e->d_name, ret);
	if (r < 0)
		return r;
	qsort(ret->devs, ret->nr, sizeof(*ret->devs), topo_order);
	for (unsigned i = 0; i < ret->nr; i++)
		ret->devs[i].num = ret->of_kind[ret->devs[i].kind]++;
	if (!strcmp(sys, "/sys"))
		topo_name_accels(ret);
	topo_name_class(sys, "accel/accel*", TOPO_ACCEL, false, ret);
	topo_name_class(sys, "drm/card*[0-9]", TOPO_ACCEL, true, ret);
	topo_name_class(sys, "infiniband/*", TOPO_NIC, false, ret);
	topo_name_class(sys, "net/*", TOPO_NIC, false, ret);
	topo_name_class(sys, "block/*", TOPO_DISK, false, ret);
	topo_name_class(sys, "nvme/*", TOPO_DISK, true, ret);
	return 0;
}
