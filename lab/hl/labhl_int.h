/* SPDX-License-Identifier: MIT */
/* Shared by the files of the module: main.c serves libhl-thunk, control.c serves tests and sysfs,
 * bar.c exports memory that the CPU may map. */
#ifndef LABHL_INT_H
#define LABHL_INT_H

#include <linux/bitmap.h>
#include <linux/cdev.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>

#include "labhl.h"

#define PAGES_MAX 64u
#define FIRST_VA 0x1001000000000000ull
#define GAUDI2_ID 0x1020u /* PCI device id */

struct memory {
	struct list_head link; /* in context's list of memory */
	u32 handle;
	u64 va; /* device address; 0: not mapped */
	u64 size;
	unsigned int nr;    /* number of pages */
	u8 page[PAGES_MAX]; /* page numbers in the device */
	unsigned int nr_exports;
};

struct context {
	struct list_head memories;
	struct accel *dev;
	struct file *file;
	bool dead; /* a reset has ended the context */
};

struct accel {
	struct cdev cdev;
	struct device *node;
	unsigned int idx;
	phys_addr_t bar;
	unsigned int nr_pages;
	DECLARE_BITMAP(used, PAGES_MAX);
	struct context *ctx; /* the open context, or one that dma-bufs still hold */
	bool resetting;
	u64 next_va;
	char type[24];
};

extern struct mutex labhl_lock; /* covers all data below */
extern struct accel labhl_accels[LABHL_DEVICES];
extern u32 labhl_id; /* PCI device id that the devices report */
extern struct labhl_state labhl_count;
extern struct labhl_fail labhl_fail;
extern u32 labhl_fail_seen;

extern const struct file_operations labhl_fops;

/* Return the bus address of a byte of memory; *ret_run: contiguous bytes from there within the
 * page. */
phys_addr_t labhl_bus_of(const struct accel *d, const struct memory *m, u64 off, u64 *ret_run);

/* Export len bytes of a BAR from bus address bus as a dma-buf.  Return a descriptor or -errno. */
int labhl_bar_export(phys_addr_t bus, u64 len);

#endif
