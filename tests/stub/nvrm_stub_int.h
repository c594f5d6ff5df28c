/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the NVIDIA driver's stub share.  One lock in nvrm_stub.c
 * guards all state; call the functions below with it held.
 *
 *	nvrm_stub.c	device files and wrapped calls
 *	nvrm_stub_rm.c	the resource manager: clients, objects, controls, mappings
 */
#ifndef PST_NVRM_STUB_INT_H
#define PST_NVRM_STUB_INT_H

#include <sys/stat.h>

#include "base/base.h"
#include "base/list.h"
#include "nvrm_stub.h"

/* An open device file, identified by its inode, as descriptors may be duplicated. */
struct file {
	struct list link;
	dev_t dev;
	ino_t ino;
	int device; /* number of the device; -1: /dev/nvidiactl */
	bool tied, used;
	/* The mapping that the next mmap() makes. */
	int mem_fd;
	uint64_t off, len;
	uint32_t access;
	struct mapping *mapping;
};

struct mapping {
	struct list link;
	uint32_t object;
	uint64_t linear, len;
	uintptr_t at; /* address; 0: not mapped, or reused by another mapping */
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

/* End the process: the caller broke a rule that the driver does not check. */
__attribute__((noreturn, format(printf, 1, 2))) void stub_wrong(const char *fmt, ...);

/* Numbers of a CUDA device in the driver: minor, instance, id. */
uint32_t stub_minor_of(int device);
uint32_t stub_instance_of(int device);
uint32_t stub_id_of(int device);

struct file *stub_file_of(int fd);
/* Return true if the process has a descriptor of the device's file. */
bool stub_is_open(int device);

/* Return the device whose memory a link of /proc names, or -1. */
int stub_memory_at(const char *path, const char *kind);

/* Execute an escape of the resource manager; return 0 or -EINVAL.  @fail: the status to return;
 * frees and unmaps take place nevertheless. */
int stub_rm(unsigned nr, void *arg, uint32_t fail);

#endif
