/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "base/sysfs.h"

int sysfs_line(const char *path, char *buf, size_t len)
{
	char line[512];
	FILE *f = fopen(path, "re");
	char *p;

	if (!f)
		return -errno;
	p = fgets(line, sizeof(line), f);
	(void)fclose(f);
	if (!p)
		return -ENODATA;
	line[strcspn(line, "\n")] = '\0';
	(void)snprintf(buf, len, "%s", line);
	return 0;
}

int sysfs_numa_node(const char *pci)
{
	char path[96], line[32];

	(void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci);
	/* The kernel also reports -1 for an unknown node. */
	return sysfs_line(path, line, sizeof(line)) < 0 ? -1 : (int)strtol(line, NULL, 10);
}
