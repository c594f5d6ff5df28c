// SPDX-License-Identifier: MIT
/*
 * Which facts there are, and in which order.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "topo/gds_int.h"

#define MODULE_CURE                                                                           \
	"install NVIDIA's package nvidia-gds (or nvidia-fs-dkms) and modprobe nvidia-fs, or " \
	"set up P2PDMA"

void gds_say(struct gds_fact *f, int state, int err, const char *fmt, ...)
{
	va_list ap;

	f->state = state;
	f->err = err;
	va_start(ap, fmt);
	(void)vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	for (char *p = f->text; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

static bool exists(const char *root, const char *path)
{
	char buf[512];

	return snprintf(buf, sizeof(buf), "%s%s", root, path) < (int)sizeof(buf) &&
	       access(buf, F_OK) == 0;
}

/* P2PDMA needs this of the GPU driver's parameters. */
static bool has_static_bar(const char *root)
{
	_cleanup_(closep) int fd = -1;
	char text[8192];
	ssize_t n;

	if (snprintf(text, sizeof(text), "%s/proc/driver/nvidia/params", root) >= (int)sizeof(text))
		return false;
	fd = open(text, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	text[MAX(n, 0)] = '\0';
	return strcasestr(text, "RMForceStaticBar1=1") != NULL;
}

bool gds_kernel_may(const char *root)
{
#ifdef __aarch64__
	return true;
#endif
	return exists(root, "/proc/driver/nvidia-fs") || exists(root, "/dev/nvidia-fs0") ||
	       has_static_bar(root);
}

static void nvidia_fs(const struct gds_look *l, struct gds_fact *f)
{
	if (exists(l->root, "/dev/nvidia-fs0"))
		gds_say(f, PST_GDS_OK, 0, "nvidia-fs is loaded");
	else if (exists(l->root, "/proc/driver/nvidia-fs"))
		gds_say(f, PST_GDS_MISSING, ENOENT,
			"nvidia-fs is loaded, but there is no /dev/nvidia-fs0; in a container give "
			"it the devices /dev/nvidia-fs*");
	else
		gds_say(f, PST_GDS_MISSING, ENODEV, "nvidia-fs is not loaded; " MODULE_CURE);
}

static void p2pdma(const struct gds_look *l, struct gds_fact *f)
{
	if (has_static_bar(l->root))
		gds_say(f, PST_GDS_UNKNOWN, 0,
			"the GPU driver has RMForceStaticBar1=1, the rest was not looked at");
	else
		gds_say(f, PST_GDS_MISSING, 0,
			"the GPU driver has no RMForceStaticBar1=1; set the option "
			"NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1\" of "
			"the module nvidia");
}

static void not_looked_at(const struct gds_look *l, struct gds_fact *f)
{
	(void)l;
	gds_say(f, PST_GDS_UNKNOWN, 0, "was not looked at");
}

static const struct {
	const char *name;
	void (*look)(const struct gds_look *l, struct gds_fact *f);
} facts[] = {
	{ "gpu", not_looked_at },        { "nvidia-fs", nvidia_fs }, { "p2pdma", p2pdma },
	{ "filesystem", not_looked_at }, { "disk", not_looked_at },  { "udev", not_looked_at },
	{ "direct-io", not_looked_at },  { "iommu", not_looked_at }, { "acs", not_looked_at },
	{ "distance", not_looked_at },
};

int gds_facts(const char *root, int fd, const char *pci, struct gds_fact ret[GDS_FACTS_MAX])
{
	struct gds_look l = { .root = root, .fd = fd };
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(errno, "a file cannot be looked at: %s", err_name(errno));
	if (pci && snprintf(l.pci, sizeof(l.pci), "%s", pci) >= (int)sizeof(l.pci))
		return err_set(EINVAL, "%s is no PCI address", pci);
	(void)memset(ret, 0, GDS_FACTS_MAX * sizeof(*ret));
	for (unsigned i = 0; i < ARRAY_SIZE(facts); i++) {
		(void)snprintf(ret[i].name, sizeof(ret[i].name), "%s", facts[i].name);
		facts[i].look(&l, &ret[i]);
	}
	return (int)ARRAY_SIZE(facts);
}
