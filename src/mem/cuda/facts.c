/* SPDX-License-Identifier: MIT */
/*
 * Facts about a GPU, its driver and its place in the machine, in words.  The driver's library tells
 * about the device, and files of the kernel tell the rest.  Containers often have only some of
 * these files.  NVML is not used, because it may not be installed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sysfs.h"
#include "mem/cuda/cuda.h"
#include "mem/facts.h"

static const char unknown[] = "unknown";

/* ----------------------------------------------------------- kernel module */

void cuda_driver_version(const char *sys, const char *proc, char *ret, size_t len)
{
	char line[256], *save = NULL;

	if (sysfs_line(sys, ret, len) == 0)
		return;
	(void)snprintf(ret, len, "%s", unknown);
	if (sysfs_line(proc, line, sizeof(line)) < 0)
		return;
	/* The line is "...  Kernel Module for x86_64 580.159.04 Release Build ...": find the word
	 * that has only digits and dots. */
	for (char *w = strtok_r(line, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
		if (!strchr(w, '.') || w[strspn(w, "0123456789.")])
			continue;
		(void)snprintf(ret, len, "%s", w);
		return;
	}
}

const char *cuda_module_kind(const char *proc, const char *taint)
{
	char line[256];

	if (sysfs_line(proc, line, sizeof(line)) == 0) {
		if (strstr(line, "Open Kernel Module"))
			return "open";
		if (strstr(line, "Kernel Module"))
			return "proprietary";
	}
	/* The kernel marks modules: P for a proprietary licence, O for a module from outside its
	 * tree.  Both kinds of driver have O. */
	if (sysfs_line(taint, line, sizeof(line)) == 0) {
		if (strchr(line, 'P'))
			return "proprietary";
		if (strchr(line, 'O'))
			return "open";
	}
	return unknown;
}

static void add_module(struct facts *f)
{
	static const char proc[] = "/proc/driver/nvidia/version";
	char version[32];

	cuda_driver_version("/sys/module/nvidia/version", proc, version, sizeof(version));
	facts_add(f, "driver", "%s", version);
	facts_add(f, "kernel module", "%s", cuda_module_kind(proc, "/sys/module/nvidia/taint"));
}

/* --------------------------------------------------------------------- bar */

uint64_t cuda_bar_size(const char *resource)
{
	FILE *f = fopen(resource, "re");
	uint64_t start, end, most = 0;
	char line[128];

	if (!f)
		return 0;
	/* The first six lines are the BARs.  The largest BAR shows the memory (the vendor calls it
	 * BAR1), but its number differs between generations. */
	for (int i = 0; i < 6 && fgets(line, sizeof(line), f); i++)
		if (sscanf(line, "%" SCNx64 " %" SCNx64, &start, &end) == 2 && end > start)
			most = MAX(most, end - start + 1);
	(void)fclose(f);
	return most;
}

static uint64_t bar_of(const struct pst_device *info)
{
	char path[96];

	if (!info->pci[0])
		return 0;
	(void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", info->pci);
	return cuda_bar_size(path);
}

uint64_t cuda_aperture(unsigned device)
{
	return bar_of(&cuda_device(device)->info);
}

static void add_bar(struct facts *f, const struct pst_device *info)
{
	uint64_t size = bar_of(info);

	if (!size)
		facts_add(f, "bar1", "%s", unknown);
	else
		facts_add(f, "bar1", "%" PRIu64 " MiB%s", size >> 20,
			  info->total && size >= info->total ? ", all of the memory" : "");
}

/* -------------------------------------------------------------- attributes */

static const char *yes_no(bool yes)
{
	return yes ? "yes" : "no";
}

static void add_flag(struct facts *f, const struct cuda_dev *d, const char *name, uint32_t attr)
{
	int v;

	facts_add(f, name, "%s", cuda_attribute(d, attr, &v) ? yes_no(v) : unknown);
}

static void add_version(struct facts *f, const struct cuda_dev *d)
{
	int v, major, minor;

	if (cu.cuDriverGetVersion(&v) == CU_OK)
		facts_add(f, "cuda", "%d.%d", v / 1000, v % 1000 / 10);
	else
		facts_add(f, "cuda", "%s", unknown);
	if (cuda_attribute(d, CU_DEV_COMPUTE_MAJOR, &major) &&
	    cuda_attribute(d, CU_DEV_COMPUTE_MINOR, &minor))
		facts_add(f, "compute capability", "%d.%d", major, minor);
	else
		facts_add(f, "compute capability", "%s", unknown);
}

static void add_engines(struct facts *f, const struct cuda_dev *d)
{
	int v;

	if (cuda_attribute(d, CU_DEV_ASYNC_ENGINES, &v))
		facts_add(f, "async engines", "%d", v);
	else
		facts_add(f, "async engines", "%s", unknown);
}

static void add_rdma(struct facts *f, const struct cuda_dev *d)
{
	static const char *const flushes[] = { "none", "host", "stream", "host and stream" };
	const char *ordering = unknown, *flush = unknown;
	int v;

	add_flag(f, d, "gpudirect rdma", CU_DEV_GDR);
	if (cuda_attribute(d, CU_DEV_GDR_ORDERING, &v)) {
		if (v == CU_ORDERING_NONE)
			ordering = "none";
		else if (v == CU_ORDERING_OWNER)
			ordering = "for the device itself";
		else if (v == CU_ORDERING_ALL)
			ordering = "for all devices";
	}
	facts_add(f, "gpudirect rdma writes ordered", "%s", ordering);
	if (cuda_attribute(d, CU_DEV_GDR_FLUSH, &v) && v >= 0 && v < (int)ARRAY_SIZE(flushes))
		flush = flushes[v];
	facts_add(f, "gpudirect rdma writes flushed by", "%s", flush);
}

static void add_dma_buf(struct facts *f, const struct cuda_dev *d)
{
	/* The attribute tells about the device and its kernel module, the function about the
	 * library. */
	if (cu.cuMemGetHandleForAddressRange)
		add_flag(f, d, "dma-buf", CU_DEV_DMA_BUF);
	else
		facts_add(f, "dma-buf", "no");
}

void cuda_device_text(unsigned idx, struct facts *f)
{
	const struct cuda_dev *d = cuda_device(idx);

	add_module(f);
	add_version(f, d);
	add_bar(f, &d->info);
	add_dma_buf(f, d);
	add_rdma(f, d);
	add_flag(f, d, "unified addressing", CU_DEV_UNIFIED_ADDRESSING);
	add_flag(f, d, "virtual memory management", CU_DEV_VMM);
	add_flag(f, d, "shareable by descriptor", CU_DEV_HANDLE_FD);
	add_flag(f, d, "host memory can be registered", CU_DEV_HOST_REGISTER);
	add_flag(f, d, "files can be registered read-only", CU_DEV_READ_ONLY_REGISTER);
	add_engines(f, d);
	facts_add(f, "batched copies", "%s",
		  yes_no(cu.cuMemcpyBatchAsync_v2 || cu.cuMemcpyBatchAsync));
	add_flag(f, d, "integrated", CU_DEV_INTEGRATED);
}
