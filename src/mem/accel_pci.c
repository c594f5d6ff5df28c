/* SPDX-License-Identifier: MIT */
/*
 * The path of a device in sysfs names its route: host bridge, bridges, device.  Transfers between
 * two devices turn around at the last bridge that both routes share.
 */
#include "mem/accel_pci.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/acs.h"
#include "base/err.h"
#include "base/sysfs.h"

#define ENDS_MAX 64u   /* maximum devices that are examined */
#define HOPS_MAX 16u   /* maximum bridges and devices of a route, from the host bridge down */
#define ADDRESS_MAX 16 /* bytes of an address; room for "10000:00:00.0" and more */

/* A device and its route. */
struct end {
	char name[40]; /* such as "accel0" */
	unsigned nr;
	char at[HOPS_MAX][ADDRESS_MAX]; /* addresses of the bridges from the top, then of the
					 * device */
	bool memory;                    /* true: the device has memory to share; false: it moves
					 * bytes */
};

struct ends {
	unsigned nr, memories, movers;
	struct end of[ENDS_MAX];
};

/* ------------------------------------------------------------------ ways */

static bool is_address(const char *s)
{
	unsigned domain, bus, slot, fn;
	int n = 0;

	return sscanf(s, "%8x:%2x:%2x.%1x%n", &domain, &bus, &slot, &fn, &n) == 4 && !s[n] &&
	       strlen(s) < ADDRESS_MAX;
}

/* Get the route of a device from its real path.  Return false if the device is not on PCI. */
static bool way_of(struct end *e, char *path)
{
	char *save = NULL;

	for (char *c = strtok_r(path, "/", &save); c; c = strtok_r(NULL, "/", &save)) {
		if (!strncmp(c, "pci", 3) && isxdigit((unsigned char)c[3])) {
			/* A second host bridge, such as Intel's VMD, begins another PCI domain, so
			 * start again. */
			e->nr = 0;
		} else if (is_address(c) && e->nr < HOPS_MAX) {
			(void)snprintf(e->at[e->nr++], ADDRESS_MAX, "%s", c);
		}
	}
	return e->nr > 0;
}

static const char *address_of(const struct end *e)
{
	return e->at[e->nr - 1];
}

static void ends_add(struct ends *s, const char *dir, const char *name, bool memory)
{
	struct end *e = &s->of[s->nr];
	char path[PATH_MAX];

	if (s->nr == ENDS_MAX || !realpath(dir, path))
		return;
	*e = (struct end){ .memory = memory };
	(void)snprintf(e->name, sizeof(e->name), "%.39s", name);
	if (!way_of(e, path))
		return;
	s->nr++;
	s->memories += memory;
	s->movers += !memory;
}

/* Add the devices to which the nodes of a class belong.  @below is the subfolder of a node that
 * leads to its device. */
static void ends_find(struct ends *s, const char *root, const char *pattern, const char *below,
		      bool memory)
{
	char path[PATH_MAX];
	glob_t g;

	(void)snprintf(path, sizeof(path), "%.300s%s", root, pattern);
	if (glob(path, 0, NULL, &g) != 0)
		return;
	for (size_t i = 0; i < g.gl_pathc; i++) {
		const char *name = strrchr(g.gl_pathv[i], '/') + 1;

		(void)snprintf(path, sizeof(path), "%.400s%s", g.gl_pathv[i], below);
		ends_add(s, path, name, memory);
	}
	globfree(&g);
}

static void ends_of(struct ends *s, const char *root)
{
	char path[PATH_MAX], *slash;
	glob_t g;

	*s = (struct ends){ 0 };
	ends_find(s, root, "/sys/class/accel/accel[0-9]*", "/device", true);
	ends_find(s, root, "/sys/class/habanalabs/hl[0-9]*", "/device", true);
	ends_find(s, root, "/sys/class/drm/renderD*", "/device", true);
	ends_find(s, root, "/sys/class/infiniband/*", "/device", false);
	ends_find(s, root, "/sys/class/nvme/nvme*", "/device", false);
	(void)snprintf(path, sizeof(path), "%.300s/sys/bus/pci/devices/*/p2pmem", root);
	if (glob(path, 0, NULL, &g) != 0)
		return;
	for (size_t i = 0; i < g.gl_pathc; i++) {
		slash = strrchr(g.gl_pathv[i], '/');
		*slash = '\0';
		ends_add(s, g.gl_pathv[i], strrchr(g.gl_pathv[i], '/') + 1, true);
	}
	globfree(&g);
}

/* Return how many bridges two routes share, from the top. */
static unsigned ways_share(const struct end *a, const struct end *b)
{
	unsigned n = 0;

	while (n < a->nr && n < b->nr && !strcmp(a->at[n], b->at[n]))
		n++;
	return n;
}

/* Call fn for each pair of memory and mover that are different devices.  Return the number of
 * pairs. */
static unsigned pairs(const struct ends *s,
		      void (*fn)(void *arg, const struct end *memory, const struct end *mover),
		      void *arg)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < s->nr; i++)
		for (unsigned j = 0; j < s->nr; j++) {
			const struct end *m = &s->of[i], *v = &s->of[j];

			if (!m->memory || v->memory || !strcmp(address_of(m), address_of(v)))
				continue;
			fn(arg, m, v);
			nr++;
		}
	return nr;
}

/* If there is no memory or no mover, write a check that says so, and return true. */
static bool says_none(const struct ends *s, const char *check, struct pst_check *ret)
{
	if (s->memories && s->movers)
		return false;
	accel_say(ret, check, PST_CHECK_UNNEEDED, ENOENT, "%s",
		  s->memories ? "no network card for RDMA and no NVMe controller is on PCI"
			      : "no accelerator and no lender is on PCI");
	return true;
}

/* ------------------------------------------------------------------ route */

struct routes {
	unsigned near, far;
	const struct end *memory, *mover; /* ends of the first pair without a common bridge; if
					   * there is none, of the first pair */
	const char *bridge;               /* common bridge of the first pair that has one */
};

static void see_route(void *arg, const struct end *memory, const struct end *mover)
{
	unsigned n = ways_share(memory, mover);
	struct routes *s = arg;
	bool first = n ? !s->near && !s->far : !s->far;

	if (n && !s->near)
		s->bridge = memory->at[n - 1];
	if (first) {
		s->memory = memory;
		s->mover = mover;
	}
	s->near += n > 0;
	s->far += n == 0;
}

void accel_route(const char *root, struct pst_check *ret)
{
	struct routes s = { 0 };
	struct ends ends;

	ends_of(&ends, root);
	if (says_none(&ends, "route", ret))
		return;
	if (!pairs(&ends, see_route, &s))
		accel_say(ret, "route", PST_CHECK_UNNEEDED, ENOENT,
			  "memory and mover are one device");
	else if (!s.far)
		accel_say(ret, "route", PST_CHECK_OK, 0,
			  "%u of %u pairs are behind one bridge: %s and %s behind %s", s.near,
			  s.near, s.memory->name, s.mover->name, s.bridge);
	else
		accel_say(ret, "route", PST_CHECK_UNKNOWN, 0,
			  "%u of %u pairs share no bridge, such as %s (%s) and %s (%s): transfers "
			  "pass the root complex, which the kernel allows for AMD's since Zen and "
			  "for some of Intel's; put both behind one switch",
			  s.far, s.near + s.far, s.memory->name, address_of(s.memory),
			  s.mover->name, address_of(s.mover));
}

/* ------------------------------------------------------------------ ACS */

struct acs {
	const char *root;
	unsigned looked, listed;
	bool more; /* the list has no room for all bridges */
	int err;
	char unread[ADDRESS_MAX];
	char list[240]; /* bridges, in the form of the kernel's command line */
};

static int bridge_redirects(const char *root, const char *pci)
{
	uint8_t config[ACS_CONFIG_MAX];
	char path[400];
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "%.300s/sys/bus/pci/devices/%s/config", root, pci);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, config, sizeof(config));
	if (n < 0)
		n = -errno;
	(void)close(fd);
	return n < 0 ? (int)n : acs_redirects(config, (size_t)n);
}

static void accel_see_bridge(struct acs *s, const char *pci)
{
	int r = bridge_redirects(s->root, pci);
	size_t n = strlen(s->list);

	s->looked++;
	if (r < 0 && !s->err) {
		s->err = r;
		(void)snprintf(s->unread, sizeof(s->unread), "%s", pci);
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

/* Look at the last common bridge, and at everything below it on both routes, as the kernel does. */
static void see_bridges(void *arg, const struct end *memory, const struct end *mover)
{
	unsigned n = ways_share(memory, mover);

	if (!n)
		return;
	for (unsigned i = n - 1; i < memory->nr; i++)
		accel_see_bridge(arg, memory->at[i]);
	for (unsigned i = n; i < mover->nr; i++)
		accel_see_bridge(arg, mover->at[i]);
}

void accel_acs(const char *root, struct pst_check *ret)
{
	struct acs s = { .root = root };
	struct ends ends;

	ends_of(&ends, root);
	if (says_none(&ends, "acs", ret))
		return;
	(void)pairs(&ends, see_bridges, &s);
	if (s.listed)
		accel_say(ret, "acs", PST_CHECK_MISSING, 0,
			  "ACS at %u bridge%s sends transfers between devices up to the root "
			  "complex; boot with pci=disable_acs_redir=%s (in quotes for the boot "
			  "loader), or until then setpci -s ADDRESS ECAP_ACS+6.w=0:2c for each%s",
			  s.listed, s.listed > 1 ? "s" : "", s.list,
			  s.more ? "; then look for more" : "");
	else if (s.err == -EACCES)
		accel_say(ret, "acs", PST_CHECK_UNKNOWN, EACCES,
			  "the configuration of %s is for root to read, so ACS is not known; ask "
			  "again as root",
			  s.unread);
	else if (s.err)
		accel_say(ret, "acs", PST_CHECK_UNKNOWN, -s.err,
			  "the configuration of %s cannot be read, so ACS is not known: %s; mount "
			  "sysfs on /sys",
			  s.unread, err_name(-s.err));
	else if (!s.looked)
		accel_say(ret, "acs", PST_CHECK_OK, 0,
			  "no bridge is above both ends of a transfer");
	else
		accel_say(ret, "acs", PST_CHECK_OK, 0,
			  "no bridge between them sends transfers up to the root complex");
}

/* ------------------------------------------------------------------ IOMMU */

/* Return true if the IOMMU translates addresses for a device.  Return false if the device has no
 * IOMMU group. */
static bool translates(const char *root, const char *pci)
{
	char path[400], type[32];

	(void)snprintf(path, sizeof(path), "%.300s/sys/bus/pci/devices/%s/iommu_group/type", root,
		       pci);
	return sysfs_line(path, type, sizeof(type)) == 0 && !strncmp(type, "DMA", 3);
}

static unsigned groups(const char *root, unsigned *ret_translate)
{
	char path[400], type[32];
	unsigned nr = 0;
	glob_t g;

	*ret_translate = 0;
	(void)snprintf(path, sizeof(path), "%.300s/sys/kernel/iommu_groups/*/type", root);
	if (glob(path, 0, NULL, &g) != 0)
		return 0;
	for (size_t i = 0; i < g.gl_pathc; i++, nr++)
		*ret_translate += sysfs_line(g.gl_pathv[i], type, sizeof(type)) == 0 &&
				  !strncmp(type, "DMA", 3);
	globfree(&g);
	return nr;
}

void accel_iommu(const char *root, struct pst_check *ret)
{
	unsigned translate, nr = groups(root, &translate);
	const struct end *first = NULL;
	struct ends ends;
	unsigned of = 0;

	ends_of(&ends, root);
	for (unsigned i = 0; i < ends.nr; i++)
		if (translates(root, address_of(&ends.of[i]))) {
			first = of++ ? first : &ends.of[i];
		}
	if (!nr)
		accel_say(ret, "iommu", PST_CHECK_OK, 0, "no IOMMU is between the devices");
	else if (!translate)
		accel_say(ret, "iommu", PST_CHECK_OK, 0, "%u groups, none of which translates", nr);
	else if (ends.nr && !of)
		accel_say(
			ret, "iommu", PST_CHECK_OK, 0,
			"%u of %u groups translate addresses, and no accelerator, lender, network "
			"card or NVMe controller is in them",
			translate, nr);
	else
		accel_say(ret, "iommu", PST_CHECK_UNKNOWN, 0,
			  "%u of %u groups translate addresses%s%s%s: transfers between devices "
			  "take the way through the root complex, or are refused; iommu=pt on the "
			  "kernel's command line leaves them alone",
			  translate, nr, first ? ", those of " : "", first ? first->name : "",
			  of > 1 ? " and others" : "");
}
