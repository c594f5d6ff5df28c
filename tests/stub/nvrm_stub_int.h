/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of the double.  One lock guards all of it, in nvrm_stub.c; the functions
 * declared here are called with the lock held.
 *
 *	nvrm_stub.c	device files and what is wrapped
 *	nvrm_stub_rm.c	the resource manager: clients, objects, controls, mappings
 */
#ifndef PST_NVRM_STUB_INT_H
#define PST_NVRM_STUB_INT_H

#include <sys/stat.h>

#include "base/base.h"
#include "base/list.h"
#include "nvrm_stub.h"

/* An open device file, known by its inode; descriptors come and go. */
struct file {
	struct list link;
	dev_t dev;
	ino_t ino;
	int device; /* -1: /dev/nvidiactl */
	bool tied, used;
	/* One mmap() may do this. */
	int mem_fd;
	uint64_t off, len;
	uint32_t access;
	struct mapping *mapping;
};

struct mapping {
	struct list link;
	uint32_t object;
	uint64_t linear, len;
	uintptr_t at; /* 0 before mmap() */
};

struct object {
	struct list link;
	uint32_t client, parent, handle, class; /* class 0: memory */
	int device, fd;
	uint64_t size;
};

extern struct stub_rm {
	struct list files, objects, mappings;
	uint32_t clients;
	uint64_t linear;
} stub_rm_state;

/* The caller broke a rule that the driver does not check: end the process. */
__attribute__((noreturn, format(printf, 1, 2))) void stub_wrong(const char *fmt, ...);

/* Of CUDA's device. */
uint32_t stub_minor_of(int device);
uint32_t stub_instance_of(int device);
uint32_t stub_id_of(int device);

struct file *stub_file_of(int fd);
/* Has the process a descriptor of the device's file? */
bool stub_is_open(int device);

/* The device whose memory a link of /proc leads to; -1: to something else. */
int stub_memory_at(const char *path, const char *kind);

/* An escape of the resource manager: 0, or -EINVAL.  fail: the status to give instead; what
 * ends things does so nevertheless. */
int stub_rm(unsigned nr, void *arg, uint32_t fail);

#endif
