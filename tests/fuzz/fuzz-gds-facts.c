/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as lines of mountinfo, as lines of a udev record and as a PCI device's
 * configuration space.  Parsed texts must be terminated, and a second parse of the configuration
 * space must give the same.
 */
#include <stdlib.h>
#include <string.h>

#include "gds/facts/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static void ends(const char *text, size_t size)
{
	must(memchr(text, 0, size) != NULL);
}

static void try_mount(char *line)
{
	struct gds_mount m;

	if (!gds_mount_parse(line, &m))
		return;
	must(m.found);
	ends(m.type, sizeof(m.type));
	ends(m.source, sizeof(m.source));
	ends(m.where, sizeof(m.where));
	ends(m.options, sizeof(m.options));
	must(!gds_mount_has(&m, "data=ordered") || strstr(m.options, "data=ordered"));
}

static void try_udev(const char *line)
{
	struct gds_udev u = { 0 };

	gds_udev_line(line, &u);
	ends(u.usage, sizeof(u.usage));
	ends(u.type, sizeof(u.type));
	must(!*u.usage || !*u.type);
}

static void try_path(const char *text)
{
	char pci[GDS_PCI_MAX];

	gds_pci_of(text, pci);
	must(!*pci || (gds_is_pci(pci) && strstr(text, pci)));
}

static void try_config(const uint8_t *data, size_t len)
{
	int r = gds_acs_redirects(data, len);

	must(len <= 64 ? r < 0 : r == 0 || r == 1);
	must(r == gds_acs_redirects(data, len));
}

/* Parse each line in its own allocation, so that a sanitizer sees reads past its end. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	size_t from = 0;

	try_config(data, MIN(len, (size_t)GDS_CONFIG_MAX));
	while (from < len) {
		const uint8_t *end = memchr(data + from, '\n', len - from);
		size_t n = (end ? (size_t)(end - data) : len) - from;
		char *line = malloc(n + 1);

		must(line != NULL);
		if (n)
			memcpy(line, data + from, n);
		line[n] = '\0';
		try_path(line);
		try_udev(line);
		try_mount(line);
		free(line);
		from += n + 1;
	}
	return 0;
}
