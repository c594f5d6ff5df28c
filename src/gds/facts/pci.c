/* SPDX-License-Identifier: MIT */
/*
 * Judge the GPU and the PCI bridges between it and the disks.
 *
 * A device's sysfs path lists the bridges above it: host bridge, bridges, device.  Bytes between
 * GPU and disk turn around at the last bridge that both paths share.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/acs.h"
#include "base/err.h"
#include "gds/facts/internal.h"

#define VENDOR "0x10de" /* PCI vendor NVIDIA */

/* --------------------------------------------------------------- addresses */

static unsigned pci_hex(const char *s)
{
	return (unsigned)strspn(s, "0123456789abcdefABCDEF");
}

bool gds_is_pci(const char *s)
{
	unsigned n = pci_hex(s);

	if (n < 4 || n > 8 || s[n] != ':')
		return false;
	s += n + 1;
	return pci_hex(s) == 2 && s[2] == ':' && pci_hex(s + 3) == 2 && s[5] == '.' &&
	       s[6] >= '0' && s[6] <= '7' && !s[7];
}

/* Copy the next component of a path; return false at its end. */
static bool component(const char **path, char *buf, size_t len)
{
	size_t n;

	while (**path == '/')
		++*path;
	n = strcspn(*path, "/");
	if (!n)
		return false;
	(void)snprintf(buf, len, "%.*s", (int)MIN(n, len - 1), *path);
	*path += n;
	return true;
}

void gds_pci_of(const char *path, char ret[GDS_PCI_MAX])
{
	char part[64];

	ret[0] = '\0';
	while (component(&path, part, sizeof(part)))
		if (gds_is_pci(part))
			gds_copy(ret, GDS_PCI_MAX, part);
}

/* ------------------------------------------------------------------- chain */

/* The bridges from the host bridge down to a device. */
struct chain {
	char host[GDS_PCI_MAX]; /* "pci0000:00" */
	unsigned nr;            /* bridges; 0: unknown */
	char at[GDS_HOPS_MAX][GDS_PCI_MAX];
};

static struct chain chain_of(const struct gds_look *l, const char *pci)
{
	struct gds_path p = gds_path(l->root, "/sys/bus/pci/devices/%s", pci);
	char path[GDS_PATH_MAX], part[64];
	struct chain c = { .nr = 0 };
	const char *at = path;

	if (!*pci || gds_real(l->root, &p, path) < 0)
		return c;
	while (component(&at, part, sizeof(part))) {
		if (strncmp(part, "pci", 3) == 0 && isxdigit((unsigned char)part[3])) {
			/* A nested host bridge, such as Intel's VMD, has its own address space. */
			gds_copy(c.host, sizeof(c.host), part);
			c.nr = 0;
		} else if (gds_is_pci(part) && c.nr < GDS_HOPS_MAX) {
			gds_copy(c.at[c.nr++], GDS_PCI_MAX, part);
		}
	}
	return c;
}

/* Return how many of the uppermost bridges two devices share. */
static unsigned shared(const struct chain *a, const struct chain *b)
{
	unsigned n = 0;

	if (strcmp(a->host, b->host) != 0)
		return 0;
	while (n < a->nr && n < b->nr && strcmp(a->at[n], b->at[n]) == 0)
		n++;
	return n;
}

static bool has_pci(const struct gds_disks *d)
{
	for (unsigned i = 0; i < d->nr; i++)
		if (*d->list[i].pci)
			return true;
	return false;
}

static void pci_no_disk(const struct gds_look *l, struct gds_fact *f)
{
	if (l->disks.nr)
		gds_say(f, PST_CHECK_UNKNOWN, 0, "%s has no PCI address", l->disks.list[0].name);
	else
		gds_say(f, PST_CHECK_UNKNOWN, 0, "the disk is not known");
}

/* --------------------------------------------------------------------- gpu */

static void pci_bound(const struct gds_look *l, struct gds_fact *f)
{
	struct gds_path p = gds_path(l->root, "/sys/bus/pci/devices/%s/driver", l->pci);
	char driver[GDS_PATH_MAX];
	const char *name;

	if (gds_real(l->root, &p, driver) < 0) {
		gds_say(f, PST_CHECK_MISSING, 0, "no driver is bound to GPU %s; modprobe nvidia",
			l->pci);
		return;
	}
	name = strrchr(driver, '/') + 1;
	if (strcmp(name, "nvidia") != 0)
		gds_say(f, PST_CHECK_MISSING, 0,
			"GPU %s is bound to the driver %.60s; unbind it "
			"(/sys/bus/pci/drivers/%.60s/unbind) and modprobe nvidia",
			l->pci, name, name);
	else
		gds_say(f, PST_CHECK_OK, 0, "%s, on the driver nvidia", l->pci);
}

void gds_gpu(struct gds_look *l, struct gds_fact *f)
{
	struct gds_path bus = gds_path(l->root, "/sys/bus/pci/devices");
	struct gds_path p = gds_path(l->root, "/sys/bus/pci/devices/%s/vendor", l->pci);
	char vendor[16];
	int r = gds_line(&p, vendor, sizeof(vendor));

	if (!gds_exists(&bus))
		gds_say(f, PST_CHECK_UNKNOWN, ENOENT,
			"/sys/bus/pci is not there, so nothing is known of GPU %s; mount sysfs on "
			"/sys",
			l->pci);
	else if (r < 0)
		gds_say(f, PST_CHECK_MISSING, -r,
			"there is no PCI device %s (%s); see lspci -D -d 10de: for those of NVIDIA",
			l->pci, err_name(r));
	else if (strcmp(vendor, VENDOR) != 0)
		gds_say(f, PST_CHECK_MISSING, 0,
			"the PCI device %s is of vendor %s, not of NVIDIA; see lspci -D -d 10de:",
			l->pci, vendor);
	else
		pci_bound(l, f);
}

/* ------------------------------------------------------------------- iommu */

/* Read how the IOMMU translates a device's addresses: "" for no translation, "DMA", "identity", ...
 * Return 0 or -errno. */
static int translation(const struct gds_look *l, const char *pci, char *ret, size_t len)
{
	struct gds_path dev = gds_path(l->root, "/sys/bus/pci/devices/%s", pci);
	struct gds_path group = gds_path(l->root, "/sys/bus/pci/devices/%s/iommu_group", pci);
	struct gds_path type = gds_path(l->root, "/sys/bus/pci/devices/%s/iommu_group/type", pci);

	*ret = '\0';
	if (!gds_exists(&dev))
		return -ENOENT;
	return gds_exists(&group) ? gds_line(&type, ret, len) : 0;
}

void gds_iommu(struct gds_look *l, struct gds_fact *f)
{
	const char *pci[GDS_DISKS_MAX + 1];
	bool identity = false;
	char type[24];
	unsigned n = 0;

	if (*l->pci)
		pci[n++] = l->pci;
	for (unsigned i = 0; i < l->disks.nr; i++)
		if (*l->disks.list[i].pci)
			pci[n++] = l->disks.list[i].pci;
	for (unsigned i = 0; i < n; i++) {
		int r = translation(l, pci[i], type, sizeof(type));

		if (r < 0) {
			gds_say(f, PST_CHECK_UNKNOWN, -r,
				"the IOMMU group of %s cannot be read: %s", pci[i], err_name(r));
			return;
		}
		if (*type && strcmp(type, "identity") != 0) {
			gds_say(f, PST_CHECK_MISSING, 0,
				"the IOMMU translates the addresses of %s (%s), and what a disk "
				"sends to a GPU may go astray; boot with iommu=pt, or without "
				"(intel_iommu=off, amd_iommu=off)",
				pci[i], type);
			return;
		}
		identity |= *type != '\0';
	}
	if (!n)
		pci_no_disk(l, f);
	else
		gds_say(f, PST_CHECK_OK, 0,
			identity ? "the IOMMU leaves addresses as they are (%s%s)"
				 : "no IOMMU is in use (%s%s)",
			pci[0], n > 1 ? " and what is below the file" : "");
}

/* --------------------------------------------------------------------- acs */

int gds_acs_redirects(const uint8_t *config, size_t len)
{
	return acs_redirects(config, len);
}

static int redirects(const struct gds_look *l, const char *pci)
{
	struct gds_path p = gds_path(l->root, "/sys/bus/pci/devices/%s/config", pci);
	uint8_t config[GDS_CONFIG_MAX];
	ssize_t n = gds_read(&p, config, sizeof(config));

	return n < 0 ? (int)n : gds_acs_redirects(config, (size_t)n);
}

struct acs_search {
	const struct gds_look *l;
	unsigned looked, listed;
	bool more; /* there are more bridges than the list holds */
	int err;
	char unread[GDS_PCI_MAX];
	char list[240]; /* bridges, in the kernel command line's form */
};

static void see_bridge(struct acs_search *s, const char *pci)
{
	int r = redirects(s->l, pci);
	size_t n = strlen(s->list);

	s->looked++;
	if (r < 0 && !s->err) {
		s->err = r;
		gds_copy(s->unread, sizeof(s->unread), pci);
	}
	if (r <= 0 || strstr(s->list, pci))
		return;
	if (n + strlen(pci) + 2 > sizeof(s->list)) {
		s->more = true;
		return;
	}
	s->listed++;
	(void)snprintf(s->list + n, sizeof(s->list) - n, "%s%s", n ? ";" : "", pci);
}

/* Check the bridges from the GPU and from the disk up to the bridge that both share. */
static void see_way(struct acs_search *s, const struct chain *gpu, const struct chain *disk)
{
	unsigned n = shared(gpu, disk);

	for (unsigned i = n ? n - 1 : gpu->nr; i < gpu->nr; i++)
		see_bridge(s, gpu->at[i]);
	for (unsigned i = n ? n : disk->nr; i < disk->nr; i++)
		see_bridge(s, disk->at[i]);
}

void gds_acs(struct gds_look *l, struct gds_fact *f)
{
	struct chain gpu = chain_of(l, l->pci), disk;
	struct acs_search s = { .l = l };
	const char *unplaced = l->pci;

	if (!has_pci(&l->disks)) {
		pci_no_disk(l, f);
		return;
	}
	if (gpu.nr)
		unplaced = NULL;
	for (unsigned i = 0; gpu.nr && i < l->disks.nr; i++) {
		disk = chain_of(l, l->disks.list[i].pci);
		if (!disk.nr)
			unplaced = l->disks.list[i].name;
		see_way(&s, &gpu, &disk);
	}
	if (s.listed)
		gds_say(f, PST_CHECK_MISSING, 0,
			"ACS sends what passes between GPU and disk up to the root, at %u "
			"bridge%s; boot with pci=disable_acs_redir=%s (in quotes for the boot "
			"loader), or until then setpci -s ADDRESS ECAP_ACS+6.w=0:2c for each%s",
			s.listed, s.listed > 1 ? "s" : "", s.list,
			s.more ? "; then look for more" : "");
	else if (s.err == -EACCES)
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"the configuration of %s is for root to read, so ACS is not known; ask "
			"again as root",
			s.unread);
	else if (s.err)
		gds_say(f, PST_CHECK_UNKNOWN, -s.err,
			"the configuration of %s cannot be read, so ACS is not known: %s", s.unread,
			err_name(s.err));
	else if (unplaced)
		gds_say(f, PST_CHECK_UNKNOWN, 0, "the place of %s on PCI is not known", unplaced);
	else if (!s.looked)
		gds_say(f, PST_CHECK_OK, 0,
			"no bridge is above both GPU and disk, so none can send requests a longer "
			"way");
	else
		gds_say(f, PST_CHECK_OK, 0,
			"no bridge between GPU and disk sends requests up to the root");
}

/* ---------------------------------------------------------------- distance */

static int pci_node_of(const struct gds_look *l, const char *pci)
{
	struct gds_path p = gds_path(l->root, "/sys/bus/pci/devices/%s/numa_node", pci);
	char text[16];
	int node;

	return gds_line(&p, text, sizeof(text)) == 0 && sscanf(text, "%9d", &node) == 1 ? node : -1;
}

/* Report the distance of one disk; return false if it is as near as possible. */
static bool far(const struct gds_look *l, const struct gds_disk *k, const struct chain *gpu,
		struct gds_fact *f)
{
	struct chain disk = chain_of(l, k->pci);
	unsigned n = shared(gpu, &disk);
	int a = pci_node_of(l, l->pci), b = pci_node_of(l, k->pci);

	if (!gpu->nr || !disk.nr)
		gds_say(f, PST_CHECK_UNKNOWN, 0, "the place of %s on PCI is not known",
			gpu->nr ? k->name : l->pci);
	else if (n)
		gds_say(f, PST_CHECK_OK, 0,
			"GPU and %s are both below the bridge %s, %u and %u steps", k->name,
			disk.at[n - 1], gpu->nr - n, disk.nr - n);
	else if (a >= 0 && b >= 0 && a != b)
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"the GPU is on NUMA node %d, %s on node %d: bytes cross between CPUs, "
			"slowly or not at all; use a disk on node %d",
			a, k->name, b, a);
	else
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"GPU and %s share no bridge: bytes pass the CPU's root complex (%s, %s), "
			"and the kind of CPU decides whether that goes and how fast; best is a "
			"disk behind the GPU's own switch",
			k->name, gpu->host, disk.host);
	return f->state != PST_CHECK_OK;
}

void gds_distance(struct gds_look *l, struct gds_fact *f)
{
	struct chain gpu = chain_of(l, l->pci);

	if (!has_pci(&l->disks)) {
		pci_no_disk(l, f);
		return;
	}
	for (unsigned i = 0; i < l->disks.nr; i++)
		if (*l->disks.list[i].pci && far(l, &l->disks.list[i], &gpu, f))
			return;
}
