/* SPDX-License-Identifier: MIT */
/*
 * Gaudi devices, found in sysfs.  Opening a primary node would take the device away from its user,
 * and libSynapse may hang on a machine without devices, so this file opens no device and loads no
 * library.
 *
 * Newer drivers have /sys/class/accel/accelN, like drivers of other vendors.  Older drivers
 * have /sys/class/habanalabs/hlN.  Attributes are in the node's folder or in its "device" folder.
 */
#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/err.h"
#include "base/log.h"
#include "base/sysfs.h"
#include "mem/gaudi/gaudi.h"

#define VENDOR 0x1da3u /* PCI vendor id of Habana Labs */

const char *gaudi_root = "";

static struct gaudi_dev devices[GAUDI_DEVICES_MAX];
static unsigned nr_devices;

/* Read an attribute of a node, from its folder or from that of its PCI device. */
static int node_line(const char *node, const char *attr, char *buf, size_t len)
{
	char path[400];

	(void)snprintf(path, sizeof(path), "%.300s/%s", node, attr);
	if (sysfs_line(path, buf, len) == 0)
		return 0;
	(void)snprintf(path, sizeof(path), "%.300s/device/%s", node, attr);
	return sysfs_line(path, buf, len);
}

static bool is_habana(const char *node)
{
	char line[32] = "";
	unsigned vendor = 0;

	return node_line(node, "vendor", line, sizeof(line)) == 0 &&
	       sscanf(line, "%x", &vendor) == 1 && vendor == VENDOR;
}

/* Make the UUID from the numbers of the PCI address, because spellings of an address differ. */
static bool gaudi_uuid(const char *pci, uint8_t ret[static 16])
{
	static const uint8_t tag[] = { 'h', 'b', 'n', ':' };
	unsigned domain = 0, bus = 0, slot = 0, fn = 0;

	if (sscanf(pci, "%8x:%2x:%2x.%1x", &domain, &bus, &slot, &fn) != 4)
		return false;
	memset(ret, 0, 16);
	memcpy(ret, tag, sizeof(tag));
	memcpy(ret + 4, &domain, sizeof(domain));
	ret[8] = (uint8_t)bus;
	ret[9] = (uint8_t)slot;
	ret[10] = (uint8_t)fn;
	return true;
}

static void gaudi_add(const char *node, const char *dev_dir)
{
	struct gaudi_dev *d = &devices[nr_devices];
	const char *name = strrchr(node, '/') + 1;
	char pci[24] = "";

	if (!is_habana(node))
		return;
	/* Skip control nodes, which have no PCI address. */
	if (node_line(node, "pci_addr", pci, sizeof(pci)) < 0 || !gaudi_uuid(pci, d->uuid) ||
	    gaudi_by_pci(pci))
		return;
	if (nr_devices == GAUDI_DEVICES_MAX) {
		log_warn("more than %u Gaudi devices, ignoring %s", GAUDI_DEVICES_MAX, pci);
		return;
	}
	d->idx = nr_devices;
	(void)snprintf(d->name, sizeof(d->name), "gaudi:%u", d->idx);
	for (char *p = pci; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	(void)snprintf(d->pci, sizeof(d->pci), "%s", pci);
	(void)snprintf(d->node, sizeof(d->node), "%s", node);
	(void)snprintf(d->dev, sizeof(d->dev), "%s%.40s", dev_dir, name);
	if (node_line(node, "device_type", d->type, sizeof(d->type)) < 0)
		d->type[0] = '\0';
	(void)pthread_mutex_init(&d->lock, NULL);
	(void)pthread_rwlock_init(&d->syn_calls, NULL);
	list_init(&d->held);
	d->fd = -1;
	nr_devices++;
}

int gaudi_find(void)
{
	static const struct {
		const char *pattern, *dev;
	} classes[] = {
		{ "/sys/class/accel/accel[0-9]*", "/dev/accel/" },
		{ "/sys/class/habanalabs/hl[0-9]*", "/dev/" },
	};
	const char *env = secure_getenv("PST_GAUDI_ROOT");
	char pattern[300];
	glob_t g;

	if (env)
		gaudi_root = env;
	for (unsigned c = 0; c < ARRAY_SIZE(classes); c++) {
		(void)snprintf(pattern, sizeof(pattern), "%.200s%s", gaudi_root,
			       classes[c].pattern);
		if (glob(pattern, 0, NULL, &g) != 0)
			continue;
		for (size_t i = 0; i < g.gl_pathc; i++)
			if (strlen(g.gl_pathv[i]) < sizeof(devices[0].node))
				gaudi_add(g.gl_pathv[i], classes[c].dev);
		globfree(&g);
	}
	return nr_devices ? 0
			  : err_set(ENODEV, "no Gaudi device here: no node of PCI vendor 1da3 in "
					    "/sys/class/accel or /sys/class/habanalabs; load the "
					    "kernel module habanalabs");
}

unsigned gaudi_nr_devices(void)
{
	return nr_devices;
}

struct gaudi_dev *gaudi_device(unsigned idx)
{
	return &devices[idx];
}

struct gaudi_dev *gaudi_by_uuid(const uint8_t uuid[16])
{
	for (unsigned i = 0; i < nr_devices; i++)
		if (!memcmp(devices[i].uuid, uuid, 16))
			return &devices[i];
	return NULL;
}

struct gaudi_dev *gaudi_by_pci(const char *pci)
{
	uint8_t uuid[16];

	return gaudi_uuid(pci, uuid) ? gaudi_by_uuid(uuid) : NULL;
}

struct gaudi_dev *gaudi_by_fd(int fd)
{
	char path[300], pci[24] = "";
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode))
		return NULL;
	(void)snprintf(path, sizeof(path), "%.200s/sys/dev/char/%u:%u", gaudi_root,
		       major(st.st_rdev), minor(st.st_rdev));
	return node_line(path, "pci_addr", pci, sizeof(pci)) < 0 ? NULL : gaudi_by_pci(pci);
}

void gaudi_status(const struct gaudi_dev *d, char *buf, size_t len)
{
	if (node_line(d->node, "status", buf, len) < 0)
		buf[0] = '\0';
}

bool gaudi_is_old(const struct gaudi_dev *d)
{
	return !strncmp(d->type, "GOYA", 4) ||
	       (!strncmp(d->type, "GAUDI", 5) && !isdigit((unsigned char)d->type[5]));
}

int gaudi_too_old(const struct gaudi_dev *d)
{
	return err_set(EOPNOTSUPP,
		       "%s is a %s, whose driver maps no device memory and exports none by its "
		       "address; use a Gaudi 2 or newer",
		       d->name, *d->type ? d->type : "device of the first generation");
}
