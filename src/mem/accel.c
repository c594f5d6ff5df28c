/* SPDX-License-Identifier: MIT */
#include "mem/accel.h"

#include <glob.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/sysfs.h"
#include "mem/accel_pci.h"
#include "mem/mem.h"

#define SHOWN_MAX 6u /* maximum names in a list */

void accel_say(struct pst_check *c, const char *name, uint32_t state, int err, const char *fmt, ...)
{
	va_list ap;

	*c = (struct pst_check){ .sz = sizeof(*c), .state = state, .err = err };
	(void)snprintf(c->name, sizeof(c->name), "%s", name);
	va_start(ap, fmt);
	(void)vsnprintf(c->text, sizeof(c->text), fmt, ap);
	va_end(ap);
}

/* ----------------------------------------------------------------- the kernel */

static bool is_at_least(const char *release, unsigned major, unsigned minor)
{
	unsigned a = 0, b = 0;

	(void)sscanf(release, "%u.%u", &a, &b);
	return a > major || (a == major && b >= minor);
}

static void check_kernel(const char *release, struct pst_check *ret)
{
	if (is_at_least(release, 6, 2))
		accel_say(ret, "kernel", PST_CHECK_OK, 0,
			  "Linux %s: dma-bufs for network cards, and O_DIRECT with memory of PCI "
			  "devices",
			  release);
	else if (is_at_least(release, 5, 12))
		accel_say(ret, "kernel", PST_CHECK_MISSING, 0,
			  "Linux %s has dma-bufs for network cards, and no O_DIRECT with memory of "
			  "PCI devices; for that, boot 6.2 or newer",
			  release);
	else
		accel_say(ret, "kernel", PST_CHECK_MISSING, 0,
			  "Linux %s has no dma-bufs for network cards (5.12) and no O_DIRECT with "
			  "memory of PCI devices (6.2); boot a newer one",
			  release);
}

/* Return 1 if the kernel's configuration has name=y, 0 if not, -1 if the configuration is not
 * found. */
static int config_of(const char *root, const char *release, const char *name)
{
	char path[300], tail[100], line[200], want[64];
	size_t len = (size_t)snprintf(want, sizeof(want), "%s=y", name);
	FILE *f = NULL;
	int found = 0;

	for (unsigned i = 0; !f && i < 2; i++) {
		(void)snprintf(tail, sizeof(tail),
			       i ? "/lib/modules/%.60s/config" : "/boot/config-%.60s", release);
		(void)snprintf(path, sizeof(path), "%s%s", root, tail);
		f = fopen(path, "re");
	}
	if (!f)
		return -1;
	while (!found && fgets(line, sizeof(line), f))
		found = !strncmp(line, want, len) && line[len] == '\n';
	(void)fclose(f);
	return found;
}

static void check_config(const char *root, const char *release, const char *name,
			 const char *option, const char *what, struct pst_check *ret)
{
	int has = config_of(root, release, option);

	if (has > 0)
		accel_say(ret, name, PST_CHECK_OK, 0, "%s=y: %s", option, what);
	else if (has == 0)
		accel_say(
			ret, name, PST_CHECK_MISSING, 0,
			"%s is not set, so there is no way for %s; boot a kernel with it (Debian's "
			"from 13 backports on, Ubuntu's)",
			option, what);
	else
		accel_say(ret, name, PST_CHECK_UNKNOWN, 0,
			  "no configuration of this kernel in /boot or /lib/modules; ask zgrep %s "
			  "/proc/config.gz",
			  option);
}

/* ------------------------------------------------------------------- nodes */

/* Append a name to a list of names with commas.  nr is the number of names so far. */
static void list_add_name(char *list, size_t len, unsigned nr, const char *name)
{
	size_t n = strlen(list);

	if (nr < SHOWN_MAX)
		(void)snprintf(list + n, len - n, "%s%s", nr ? ", " : "", name);
	else if (nr == SHOWN_MAX)
		(void)snprintf(list + n, len - n, " and more");
}

static const char *last_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool glob_below(const char *root, const char *pattern, glob_t *ret)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s%s", root, pattern);
	return glob(path, 0, NULL, ret) == 0;
}

static void check_udmabuf(const char *root, struct pst_check *ret)
{
	char path[300];
	bool there;

	(void)snprintf(path, sizeof(path), "%s/dev/udmabuf", root);
	there = access(path, F_OK) == 0;
	if (there && access(path, R_OK | W_OK) == 0)
		accel_say(ret, "udmabuf", PST_CHECK_OK, 0, "host memory becomes a dma-buf");
	else if (there)
		accel_say(
			ret, "udmabuf", PST_CHECK_MISSING, errno,
			"/dev/udmabuf may not be opened; give this user the device (group kvm, as "
			"a rule)");
	else
		accel_say(ret, "udmabuf", PST_CHECK_UNNEEDED, ENOENT,
			  "no /dev/udmabuf, by which host memory becomes a dma-buf for tests; "
			  "modprobe udmabuf, or boot a kernel with CONFIG_UDMABUF");
}

static void check_heaps(const char *root, struct pst_check *ret)
{
	char list[200] = "";
	glob_t g;

	if (!glob_below(root, "/dev/dma_heap/*", &g)) {
		accel_say(ret, "dma-heap", PST_CHECK_UNNEEDED, ENOENT,
			  "no /dev/dma_heap, which allocates dma-bufs of host memory");
		return;
	}
	for (unsigned i = 0; i < g.gl_pathc; i++)
		list_add_name(list, sizeof(list), i, last_of(g.gl_pathv[i]));
	globfree(&g);
	accel_say(ret, "dma-heap", PST_CHECK_OK, 0, "/dev/dma_heap has %s", list);
}

/* Check for devices whose drivers export dma-bufs: GPUs (DRM) and other accelerators. */
static void check_exporters(const char *root, struct pst_check *ret)
{
	static const char *const classes[] = { "/sys/class/drm/renderD*", "/sys/class/accel/accel*",
					       "/sys/class/habanalabs/hl*" };
	char list[300] = "", path[400], driver[256];
	unsigned nr = 0;
	glob_t g;

	for (unsigned c = 0; c < ARRAY_SIZE(classes); c++) {
		if (!glob_below(root, classes[c], &g))
			continue;
		for (size_t i = 0; i < g.gl_pathc; i++) {
			char name[120];
			ssize_t n;

			(void)snprintf(path, sizeof(path), "%.300s/device/driver", g.gl_pathv[i]);
			n = readlink(path, driver, sizeof(driver) - 1);
			driver[n > 0 ? n : 0] = '\0';
			(void)snprintf(name, sizeof(name), "%.40s (%.60s)", last_of(g.gl_pathv[i]),
				       n > 0 ? last_of(driver) : "no driver");
			list_add_name(list, sizeof(list), nr++, name);
		}
		globfree(&g);
	}
	if (nr)
		accel_say(ret, "exporters", PST_CHECK_OK, 0,
			  "%s; pst_mem_import() takes their dma-bufs", list);
	else
		accel_say(ret, "exporters", PST_CHECK_UNNEEDED, ENOENT,
			  "no accelerator has a driver here: nothing in /sys/class/drm, accel or "
			  "habanalabs; load its module (amdgpu, xe, i915, habanalabs)");
}

static void check_lenders(const char *root, struct pst_check *ret)
{
	char list[300] = "", pci[32], path[400], bytes[32], name[100];
	glob_t g;

	if (!glob_below(root, "/sys/bus/pci/devices/*/p2pmem/allocate", &g)) {
		accel_say(
			ret, "lenders", PST_CHECK_UNNEEDED, ENOENT,
			"no PCI device lends memory; an NVMe controller with a memory buffer (CMB) "
			"does, on a kernel with CONFIG_PCI_P2PDMA");
		return;
	}
	for (unsigned i = 0; i < g.gl_pathc; i++) {
		const char *dir = strstr(g.gl_pathv[i], "/devices/") + strlen("/devices/");

		(void)snprintf(pci, sizeof(pci), "%.*s", (int)strcspn(dir, "/"), dir);
		(void)snprintf(path, sizeof(path), "%.*s/size",
			       (int)(last_of(g.gl_pathv[i]) - 1 - g.gl_pathv[i]), g.gl_pathv[i]);
		if (sysfs_line(path, bytes, sizeof(bytes)) < 0)
			(void)snprintf(bytes, sizeof(bytes), "?");
		(void)snprintf(name, sizeof(name), "%s (%s bytes)", pci, bytes);
		list_add_name(list, sizeof(list), i, name);
	}
	globfree(&g);
	accel_say(ret, "lenders", PST_CHECK_OK, 0, "%s; pst_mem_alloc(\"p2pmem:0\") takes it",
		  list);
}

int accel_machine(const char *root, const char *release, struct pst_check *ret)
{
	check_kernel(release, &ret[0]);
	check_config(root, release, "p2pdma", "CONFIG_PCI_P2PDMA",
		     "transfers between PCI devices without host memory", &ret[1]);
	check_exporters(root, &ret[2]);
	check_lenders(root, &ret[3]);
	check_udmabuf(root, &ret[4]);
	check_heaps(root, &ret[5]);
	accel_route(root, &ret[6]);
	accel_acs(root, &ret[7]);
	accel_iommu(root, &ret[8]);
	return ACCEL_CHECKS;
}

/* ------------------------------------------------------------------- a device */

static int try_export(const struct mem_ops *ops, unsigned device, uint64_t *ret_size)
{
	struct mem_dmabuf d;
	struct mem_alloc *a;
	int r = mem_alloc(ops, device, KIB(64), 0, &a);

	if (r < 0)
		return r;
	r = mem_export_dmabuf(a, 0, KIB(64), &d);
	if (r == 0) {
		(void)close(d.fd); /* close first: Gaudi's driver keeps memory while its dma-buf is
				    * open */
		*ret_size = d.size;
	}
	mem_free(a);
	return r;
}

int accel_device(const char *name, struct pst_check *ret)
{
	const struct mem_ops *ops;
	uint64_t size = 0;
	unsigned device;
	int r = mem_find(name, &ops, &device);

	if (r < 0)
		return r;
	if (!ops->export_dmabuf) {
		accel_say(ret, "export", PST_CHECK_UNNEEDED, EOPNOTSUPP,
			  ops->caps & MEM_CAP_PEER
				  ? "no dma-buf is made of it; disks reach it by the path p2p"
				  : "no dma-buf is made of it; devices reach it by its address");
	} else if (!ops->alloc) {
		accel_say(ret, "export", PST_CHECK_OK, 0,
			  "what another driver exports is imported, and exported again");
	} else {
		r = try_export(ops, device, &size);
		if (r == -EBUSY || r == -EAGAIN) /* another user has the device */
			accel_say(ret, "export", PST_CHECK_UNKNOWN, -r, "%.480s", err_text());
		else if (r < 0)
			accel_say(ret, "export", PST_CHECK_MISSING, -r, "%.480s", err_text());
		else
			accel_say(ret, "export", PST_CHECK_OK, 0,
				  "its memory became a dma-buf of %" PRIu64 " bytes", size);
	}
	return 1;
}
