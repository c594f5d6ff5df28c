/* SPDX-License-Identifier: MIT */
/* The list of facts, in order. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "gds/facts/internal.h"

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

static const struct {
	const char *name;
	void (*judge)(struct gds_look *l, struct gds_fact *f);
	bool of_gpu; /* the fact needs a GPU */
} facts[] = {
	{ "gpu", gds_gpu, true },
	{ "nvidia-fs", gds_nvidia_fs, false },
	{ "p2pdma", gds_p2pdma, false },
	{ "filesystem", gds_filesystem, false },
	{ "disk", gds_disk, false },
	{ "udev", gds_udev, false },
	{ "direct-io", gds_direct_io, false },
	{ "iommu", gds_iommu, false },
	{ "acs", gds_acs, true },
	{ "distance", gds_distance, true },
};

#ifdef __aarch64__
#define MEMORY_MAY_BE_SHARED true
#else
#define MEMORY_MAY_BE_SHARED false
#endif

static int list_look_at(struct gds_look *l, const char *pci)
{
	if (pci && *pci && !gds_is_pci(pci))
		return err_set(EINVAL, "\"%.32s\" is no PCI address as 0000:17:00.0 is", pci);
	if (fstat(l->fd, &l->st) < 0)
		return err_set(errno, "the file cannot be looked at: %s", err_name(errno));
	if (!S_ISREG(l->st.st_mode) && !S_ISDIR(l->st.st_mode) && !S_ISBLK(l->st.st_mode))
		return err_set(EINVAL, "neither a file nor a directory nor a block device");
	for (unsigned i = 0; pci && pci[i]; i++)
		l->pci[i] = (char)tolower((unsigned char)pci[i]);
	l->dev = S_ISBLK(l->st.st_mode) ? l->st.st_rdev : l->st.st_dev;
	gds_mount_find(l);
	gds_disks_find(l);
	return 0;
}

int gds_facts(const char *root, int fd, const char *pci, struct gds_fact ret[GDS_FACTS_MAX])
{
	struct gds_look l = { .root = root, .fd = fd };
	struct gds_fact *nvidia_fs = NULL, *p2pdma = NULL, *f = ret;
	int r = list_look_at(&l, pci);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < ARRAY_SIZE(facts); i++) {
		if (facts[i].of_gpu && !*l.pci)
			continue;
		(void)memset(f, 0, sizeof(*f));
		gds_copy(f->name, sizeof(f->name), facts[i].name);
		facts[i].judge(&l, f);
		if (facts[i].judge == gds_nvidia_fs)
			nvidia_fs = f;
		else if (facts[i].judge == gds_p2pdma)
			p2pdma = f;
		f++;
	}
	gds_stand_in(nvidia_fs, p2pdma, MEMORY_MAY_BE_SHARED);
	return (int)(f - ret);
}
