/* SPDX-License-Identifier: MIT */
/* Shared by the files of the module: main.c answers libhl-thunk, control.c tests and sysfs, bar.c
 * exports memory that the CPU may map. */
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
	struct list_head link; /* of its context */
	u32 handle;
	u64 va; /* 0: not mapped */
	u64 size;
	unsigned int nr;    /* pages */
	u8 page[PAGES_MAX]; /* their numbers in the device */
	unsigned int nr_exports;
};

struct context {
	struct list_head memories;
	struct accel *dev;
	struct file *file;
	bool dead; /* a reset ended it */
};

struct accel {
	struct cdev cdev;
	struct device *node;
	unsigned int idx;
	phys_addr_t bar;
	unsigned int nr_pages;
	DECLARE_BITMAP(used, PAGES_MAX);
	struct context *ctx; /* the one that is open, or still held by its dma-bufs */
	bool resetting;
	u64 next_va;
	char type[24];
};

extern struct mutex labhl_lock; /* covers all of the following */
extern struct accel labhl_accels[LABHL_DEVICES];
extern u32 labhl_id; /* PCI device id that the devices tell */
extern struct labhl_state labhl_count;
extern struct labhl_fail labhl_fail;
extern u32 labhl_fail_seen;

extern const struct file_operations labhl_fops;

/* Address on the bus of a byte of memory, and how many follow it in the page. */
phys_addr_t labhl_bus_of(const struct accel *d, const struct memory *m, u64 off, u64 *ret_run);

/* A dma-buf of len bytes of a BAR from bus on: a descriptor or -errno. */
int labhl_bar_export(phys_addr_t bus, u64 len);

#endif
