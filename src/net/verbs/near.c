/* SPDX-License-Identifier: MIT */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sysfs.h"
#include "mem/mem.h"
#include "net/verbs/near.h"
#include "net/verbs/selftest.h"

/* Added for each kind of link; more than the bridges on any way. */
#define PER_KIND 256u

const char *near_sysfs = "/sys";

/* Return the part of a device's real path that begins with its host bridge ("pci0000:16/..."), or
 * NULL if the device is on no PCI bus. */
static const char *near_place(const char *link, char real[PATH_MAX])
{
	const char *at = realpath(link, real);

	while (at) {
		at = strstr(at, "/pci");
		if (at && strspn(at + 4, "0123456789abcdef") >= 4)
			return at + 1;
		at = at ? at + 1 : NULL;
	}
	return NULL;
}

static int near_node(const char *dir)
{
	char path[PATH_MAX + 16], line[32];

	(void)snprintf(path, sizeof(path), "%s/numa_node", dir);
	return sysfs_line(path, line, sizeof(line)) < 0 ? -1 : (int)strtol(line, NULL, 10);
}

/* Count the names in a path. */
static unsigned near_names(const char *path)
{
	unsigned nr = 0;

	for (; path; nr++) {
		path = strchr(path, '/');
		path = path ? path + 1 : NULL;
	}
	return nr;
}

/* Return how many leading names two paths share. */
static unsigned near_shared(const char *a, const char *b)
{
	unsigned nr = 0;
	size_t n, m;

	while (*a && *b) {
		n = strcspn(a, "/");
		m = strcspn(b, "/");
		if (n != m || memcmp(a, b, n) != 0)
			break;
		nr++;
		a += n + (a[n] == '/');
		b += m + (b[m] == '/');
	}
	return nr;
}

unsigned near_distance(const char *nic, const char *pci)
{
	char link[PATH_MAX], real_a[PATH_MAX], real_b[PATH_MAX];
	const char *a, *b;
	unsigned same;
	int node;

	(void)snprintf(link, sizeof(link), "%s/class/infiniband/%s/device", near_sysfs, nic);
	a = near_place(link, real_a);
	(void)snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", near_sysfs, pci);
	b = near_place(link, real_b);
	if (!a || !b)
		return NEAR_UNKNOWN;
	same = near_shared(a, b);
	if (same > 1) /* a switch below the host bridge */
		return near_names(a) + near_names(b) - 2 * same;
	if (same == 1)
		return PER_KIND + near_names(a) + near_names(b);
	node = near_node(real_a);
	return node >= 0 && node == near_node(real_b) ? 2 * PER_KIND : 3 * PER_KIND;
}

unsigned near_memory(const char *nic)
{
	char pci[64][sizeof(((struct pst_device *)0)->pci)];
	unsigned nr = mem_used_pci(pci, ARRAY_SIZE(pci)), least = NEAR_UNKNOWN;

	for (unsigned i = 0; i < nr; i++)
		least = MIN(least, near_distance(nic, pci[i]));
	return least;
}

const struct nic_choice near_tested = { .test = selftest_host, .far = near_memory };
const struct nic_choice near_untested = { .far = near_memory };
