/* SPDX-License-Identifier: MIT */
/*
 * Judge kernel support for the two mechanisms that move bytes between a disk and a GPU.
 *
 * nvidia-fs is a module that is called by a patched NVMe driver.  P2PDMA belongs to the kernel, and
 * needs a GPU driver that registers all GPU memory with it.  NVIDIA's open driver does so if told
 * to; from the first use of CUDA on, the GPU then has a pool "p2pmem" in sysfs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "gds/facts/internal.h"

#define DRIVER_LEAST 565
#define BAR_SMALL GIB(1) /* bytes; every GPU that works with P2PDMA has a larger BAR */

#define REGISTRY                                                                                  \
	"options nvidia NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1\" in " \
	"/etc/modprobe.d/ (and in the initramfs)"

/* ----------------------------------------------------------------- symbols */

/* Symbols from /proc/kallsyms, which shows every function's name to all users. */
struct symbols {
	bool read;
	bool p2pdma;    /* the kernel has P2PDMA */
	bool nvme_hook; /* an NVMe driver can call nvidia-fs */
};

static bool symbol(char *line, void *arg)
{
	struct symbols *s = arg;
	char *name = strrchr(line, '\t'); /* the module's name comes last, in brackets */

	if (name)
		*name = '\0';
	name = strrchr(line, ' ');
	if (!name)
		return false;
	s->read = true;
	name++;
	if (strcmp(name, "pci_p2pdma_add_resource") == 0)
		s->p2pdma = true;
	else if (strcmp(name, "nvme_v1_register_nvfs_dma_ops") == 0 ||
		 strcmp(name, "nvme_v2_register_nvfs_dma_ops") == 0 ||
		 strcmp(name, "nvme_rdma_v1_register_nvfs_dma_ops") == 0)
		s->nvme_hook = true;
	return s->p2pdma && s->nvme_hook;
}

static struct symbols symbols(const struct gds_look *l)
{
	struct gds_path p = gds_path(l->root, "/proc/kallsyms");
	struct symbols s = { 0 };

	(void)gds_each_line(&p, symbol, &s);
	return s;
}

/* --------------------------------------------------------------- nvidia-fs */

static bool on_nvme(const struct gds_look *l)
{
	for (unsigned i = 0; i < l->disks.nr; i++)
		if (l->disks.list[i].nvme)
			return true;
	return false;
}

static bool module_loaded(const char *root)
{
	struct gds_path proc = gds_path(root, "/proc/driver/nvidia-fs");
	struct gds_path sys = gds_path(root, "/sys/module/nvidia_fs");

	return gds_exists(&proc) || gds_exists(&sys);
}

static void judge_nvidia_fs(const struct gds_look *l, struct gds_fact *f)
{
	struct gds_path version = gds_path(l->root, "/proc/driver/nvidia-fs/version");
	struct gds_path count = gds_path(l->root, "/proc/driver/nvidia-fs/devcount");
	struct gds_path node = gds_path(l->root, "/dev/nvidia-fs0");
	char text[48], nodes[16];
	struct symbols s;
	int err;

	if (!gds_exists(&node) && !module_loaded(l->root)) {
		gds_say(f, PST_CHECK_MISSING, 0,
			"nvidia-fs is not loaded; install the package nvidia-gds (or "
			"nvidia-fs-dkms) and run modprobe nvidia-fs, or set up P2PDMA");
		return;
	}
	if (access(node.s, R_OK | W_OK) < 0) {
		err = errno;
		gds_say(f, PST_CHECK_MISSING, err,
			"nvidia-fs is loaded, but /dev/nvidia-fs0 cannot be used: %s; give a "
			"container all of /dev/nvidia-fs*, and the user the right to read and "
			"write them",
			err_name(err));
		return;
	}
	s = symbols(l);
	if (on_nvme(l) && s.read && !s.nvme_hook) {
		gds_say(f, PST_CHECK_MISSING, 0,
			"nvidia-fs is loaded, but the driver of NVMe cannot call it "
			"(nvme_v1_register_nvfs_dma_ops); install NVIDIA's, of DOCA or MLNX_OFED "
			"(mlnx-nvme-dkms), or set up P2PDMA");
		return;
	}
	(void)gds_line(&version, text, sizeof(text));
	(void)gds_line(&count, nodes, sizeof(nodes));
	gds_say(f, PST_CHECK_OK, 0, "nvidia-fs is loaded%s%s%s%s", *text ? ", " : "", text,
		*nodes ? ", devices: " : "", nodes);
}

void gds_nvidia_fs(struct gds_look *l, struct gds_fact *f)
{
	judge_nvidia_fs(l, f);
	l->nvidia_fs = f->state;
}

/* ------------------------------------------------------------------ P2PDMA */

/* List of what is missing, with cures: as many as fit. */
struct lacks {
	unsigned nr;
	char found[230], cure[254];
};

/* Append to a list; return false if it does not fit. */
static bool append(char *list, size_t len, const char *what)
{
	size_t n = strlen(list);

	if (n + strlen(what) + 3 > len)
		return false;
	(void)snprintf(list + n, len - n, "%s%s", n ? ", " : "", what);
	return true;
}

static void lack(struct lacks *k, const char *found, const char *cure)
{
	size_t n = strlen(k->found);

	k->nr++;
	if (append(k->found, sizeof(k->found), found) && !append(k->cure, sizeof(k->cure), cure))
		k->found[n] = '\0';
}

struct params {
	bool static_bar;
	bool no_wc;
};

static bool param(char *line, void *arg)
{
	struct params *p = arg;

	/* The value 2 means: only if all of the memory fits. */
	p->static_bar |= strcasestr(line, "RMForceStaticBar1=1") ||
			 strcasestr(line, "RMForceStaticBar1=2");
	/* Write-combined mappings cannot be exported by the driver. */
	p->no_wc |= strcasestr(line, "RmForceDisableIomapWC=1") != NULL;
	return false;
}

static struct params params(const char *root)
{
	struct gds_path p = gds_path(root, "/proc/driver/nvidia/params");
	struct params ret = { 0 };

	(void)gds_each_line(&p, param, &ret);
	return ret;
}

bool gds_kernel_may(const char *root)
{
	struct gds_path proc = gds_path(root, "/proc/driver/nvidia-fs");
	struct gds_path node = gds_path(root, "/dev/nvidia-fs0");

#ifdef __aarch64__
	return true;
#endif
	return gds_exists(&proc) || gds_exists(&node) || params(root).static_bar;
}

static bool config_line(char *line, void *arg)
{
	(void)arg;
	return strcmp(line, "CONFIG_PCI_P2PDMA=y") == 0;
}

/* Return 1 if the kernel has P2PDMA, 0 if not, -ENODATA if unknown. */
static int kernel_has_p2pdma(const struct gds_look *l, const char *release)
{
	static const struct {
		const char *before, *after;
	} configs[] = {
		{ "/boot/config-", "" },
		{ "/lib/modules/", "/config" },
		{ "/lib/modules/", "/build/.config" },
	};
	struct symbols s = symbols(l);

	/* Trust the symbols of the running kernel more than the file of its configuration. */
	if (s.read)
		return s.p2pdma;
	for (unsigned i = 0; *release && !strchr(release, '/') && i < ARRAY_SIZE(configs); i++) {
		struct gds_path p = gds_path(l->root, "%s%s%s", configs[i].before, release,
					     configs[i].after);
		int r = gds_each_line(&p, config_line, NULL);

		if (r >= 0)
			return r;
	}
	return -ENODATA;
}

static void lack_kernel(struct lacks *k, const char *release, int has)
{
	unsigned major = 0, minor = 0;
	char found[96];

	(void)sscanf(release, "%4u.%4u", &major, &minor);
	if (has == 0) {
		(void)snprintf(found, sizeof(found), "kernel %.40s has no CONFIG_PCI_P2PDMA",
			       release);
		lack(k, found, "boot a kernel with CONFIG_PCI_P2PDMA=y");
	} else if (major && (major < 6 || (major == 6 && minor < 2)) && !strstr(release, ".el9")) {
		/* Before 6.2, user space could not use P2PDMA memory. */
		(void)snprintf(found, sizeof(found), "kernel %.40s is older than 6.2", release);
		lack(k, found, "boot a newer one");
	}
}

/* Parse "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64 580.159.04 Release Build ...". */
static unsigned driver_version(const char *line)
{
	unsigned major, minor;

	for (const char *p = line; *p; p++)
		if ((p == line || p[-1] == ' ') && *p >= '0' && *p <= '9' &&
		    sscanf(p, "%5u.%5u", &major, &minor) == 2)
			return major;
	return 0;
}

static void lack_driver(const struct gds_look *l, struct lacks *k)
{
	struct gds_path p = gds_path(l->root, "/proc/driver/nvidia/version");
	struct params set = params(l->root);
	char line[256], found[96];
	unsigned version;

	if (gds_line(&p, line, sizeof(line)) < 0) {
		lack(k, "the NVIDIA driver is not loaded", "modprobe nvidia");
		return;
	}
	version = driver_version(line);
	if (!strstr(line, "Open Kernel Module")) {
		(void)snprintf(found, sizeof(found), "GPU driver %u is not the open one", version);
		lack(k, found, "install the open kernel modules, 565 or newer");
	} else if (version && version < DRIVER_LEAST) {
		(void)snprintf(found, sizeof(found), "GPU driver %u is older than 565", version);
		lack(k, found, "install a newer one");
	}
	if (!set.static_bar)
		lack(k, "the GPU driver was not told RMForceStaticBar1=1", REGISTRY);
	else if (!set.no_wc)
		lack(k, "the GPU driver was not told RmForceDisableIomapWC=1", REGISTRY);
}

struct bars {
	unsigned line;
	uint64_t largest;
};

static bool bar(char *line, void *arg)
{
	unsigned long long first, last, flags;
	struct bars *b = arg;

	if (b->line++ >= 6) /* lines after the 6 BARs are other resources */
		return true;
	if (sscanf(line, "%18llx %18llx %18llx", &first, &last, &flags) == 3 && first &&
	    last >= first)
		b->largest = MAX(b->largest, (uint64_t)(last - first) + 1);
	return false;
}

static void lack_bar(const struct gds_look *l, struct lacks *k)
{
	struct gds_path p = gds_path(l->root, "/sys/bus/pci/devices/%s/resource", l->pci);
	struct bars b = { 0 };
	char found[96];

	(void)gds_each_line(&p, bar, &b);
	if (!b.largest || b.largest >= BAR_SMALL)
		return;
	(void)snprintf(found, sizeof(found), "the GPU shows %" PRIu64 " MiB of its memory (BAR1)",
		       b.largest >> 20);
	lack(k, found, "turn on Resizable BAR in the firmware");
}

static void lack_single_path(const struct gds_look *l, struct lacks *k)
{
	char found[96];

	for (unsigned i = 0; i < l->disks.nr; i++) {
		if (!l->disks.list[i].multipath)
			continue;
		(void)snprintf(found, sizeof(found), "%s is a multipath head",
			       l->disks.list[i].name);
		lack(k, found, "boot with nvme_core.multipath=N");
		return;
	}
}

/* Read the size of the GPU's P2PDMA pool; return false if it has none. */
static bool pool(const struct gds_look *l, unsigned long long *ret)
{
	struct gds_path p = gds_path(l->root, "/sys/bus/pci/devices/%s/p2pmem/size", l->pci);
	char text[32];

	return *l->pci && gds_line(&p, text, sizeof(text)) == 0 && sscanf(text, "%19llu", ret) == 1;
}

static void kernel_complete(const struct gds_look *l, const char *release, int has,
			    struct gds_fact *f)
{
	struct gds_path p = gds_path(l->root, "/sys/module/nvme_core/parameters/multipath");
	unsigned long long size = 0;
	bool pooled = pool(l, &size);
	char multipath[4];

	(void)gds_line(&p, multipath, sizeof(multipath));
	if (size)
		gds_say(f, PST_CHECK_OK, 0, "the GPU's driver gave %llu MiB to P2PDMA (p2pmem)%s",
			size >> 20,
			*multipath == 'Y' ? ", nvme_core.multipath is Y where NVIDIA asks for N"
					  : "");
	else if (has < 0)
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"whether kernel %.40s has CONFIG_PCI_P2PDMA cannot be read here; zgrep "
			"P2PDMA /proc/config.gz",
			release);
	else if (pooled)
		gds_say(f, PST_CHECK_UNKNOWN, 0,
			"kernel and driver are set up for P2PDMA, but the pool of GPU %s (p2pmem) "
			"is empty; dmesg may say why, and whether Resizable BAR is on",
			l->pci);
	else
		gds_say(f, PST_CHECK_OK, 0,
			"kernel %.40s has P2PDMA, and the GPU's driver was told to use it%s",
			release,
			*multipath == 'Y' ? ", nvme_core.multipath is Y where NVIDIA asks for N"
					  : "");
}

static void judge_p2pdma(const struct gds_look *l, struct gds_fact *f)
{
	struct gds_path p = gds_path(l->root, "/proc/sys/kernel/osrelease");
	unsigned long long size = 0;
	struct lacks k = { 0 };
	char release[128];
	int has = 1;

	if (l->fs == GDS_FS_REMOTE) {
		gds_say(f, PST_CHECK_MISSING, 0,
			"P2PDMA reaches NVMe disks of this machine alone, not %s; set up nvidia-fs",
			l->mount.type);
		return;
	}
	(void)gds_line(&p, release, sizeof(release));
	(void)pool(l, &size);
	if (!size) {
		has = kernel_has_p2pdma(l, release);
		lack_kernel(&k, release, has);
		lack_driver(l, &k);
		if (*l->pci)
			lack_bar(l, &k);
	}
	lack_single_path(l, &k);
	if (k.nr)
		gds_say(f, PST_CHECK_MISSING, 0, "%s; %s", k.found, k.cure);
	else
		kernel_complete(l, release, has, f);
}

void gds_p2pdma(struct gds_look *l, struct gds_fact *f)
{
	judge_p2pdma(l, f);
	l->p2pdma = f->state;
}

/* ---------------------------------------------------------------- stand-in */

/* Reword a missing fact, truncating its text to fit. */
static void soften(struct gds_fact *f, int state, const char *before, const char *after)
{
	char text[sizeof(f->text)];

	gds_copy(text, sizeof(text), f->text);
	if (state == PST_CHECK_UNNEEDED)
		text[strstr(text, "; ") ? (size_t)(strstr(text, "; ") - text) : strlen(text)] =
			'\0';
	gds_say(f, state, f->err, "%s%.*s%s", before,
		(int)(sizeof(text) - 1 - strlen(before) - strlen(after)), text, after);
}

void gds_stand_in(struct gds_fact *nvidia_fs, struct gds_fact *p2pdma, bool shared)
{
	struct gds_fact *both[] = { nvidia_fs, p2pdma };
	static const char *const names[] = { "nvidia-fs", "P2PDMA" };
	int states[] = { nvidia_fs->state, p2pdma->state };

	for (unsigned i = 0; i < 2; i++) {
		char after[80];

		if (states[i] != PST_CHECK_MISSING)
			continue;
		if (states[!i] == PST_CHECK_OK) {
			(void)snprintf(after, sizeof(after), ", but %s stands in for it",
				       names[!i]);
			soften(both[i], PST_CHECK_UNNEEDED, "", after);
		} else if (states[!i] == PST_CHECK_UNKNOWN) {
			(void)snprintf(after, sizeof(after),
				       ", unless %s works, which is not known", names[!i]);
			soften(both[i], PST_CHECK_UNKNOWN, "", after);
		} else if (shared) {
			soften(both[i], PST_CHECK_UNKNOWN,
			       "not needed where CPU and GPU share memory, which is not known; "
			       "else: ",
			       "");
		}
	}
}
