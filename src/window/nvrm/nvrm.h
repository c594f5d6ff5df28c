/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the nvrm backend share.
 *
 *	nvrm.c		windows
 *	client.c	the process' client of the driver and its GPUs
 *	esc.c	the driver's calls, one function each, and its status codes
 *	driver.c	which drivers are known, and PST_NVRM
 *	handle.c	the 64 bytes of an IPC handle
 *
 * Any thread may call everything here.  A forked child has no business here: it would use its
 * parent's objects, and pst_*() turns it away before.
 */
#ifndef PST_WINDOW_NVRM_H
#define PST_WINDOW_NVRM_H

#include <penstock.h>

#include "base/base.h"
#include "window/nvrm/nvrm_types.h"

/* ------------------------------------------------------------------ driver */

enum nvrm_mode {
	NVRM_MODE_AUTO, /* drivers of known branches */
	NVRM_MODE_OFF,
	NVRM_MODE_FORCE, /* any driver; nothing else is skipped */
};

/* The mode for a value of PST_NVRM.  NULL and "" are auto; so are unknown ones, with a warning. */
enum nvrm_mode nvrm_mode_of(const char *value);

/* PST_NVRM, read once; auto in set-uid programs. */
enum nvrm_mode nvrm_mode(void);

/* May a driver that says this version be used?  0, or -EOPNOTSUPP with a sentence. */
int nvrm_driver_known(const char *version, enum nvrm_mode mode);

/* ------------------------------------------------------------------ handle */

/* An allocation, as its IPC handle says: it begins at off of the object of another client. */
struct nvrm_handle {
	uint32_t client, object;
	uint64_t off;
};

/*
 * Read an IPC handle of an allocation of size bytes.  It checks all members that can be checked;
 * the driver refuses the others if they are wrong.
 * @pids: of the owner, as any of its pid namespaces sees it; @nr 0: the owner is unknown
 *
 * Return: 0; -EINVAL, or -EOPNOTSUPP for a handle of another layout, with a sentence.
 */
int nvrm_handle_parse(const uint8_t ipc[64], uint64_t size, const uint32_t *pids, unsigned nr,
		      struct nvrm_handle *ret);

#define NVRM_PIDS_MAX 32 /* the kernel nests that many namespaces */

/* This process' pids; how many there are, at least 1. */
unsigned nvrm_own_pids(uint32_t pids[NVRM_PIDS_MAX]);

/* ------------------------------------------------------------------ client */

/* A GPU with a device object in this process' client.  Immutable while somebody has it. */
struct nvrm_gpu;

/* By PCI address and UUID.  0; -ENODEV, -EACCES, -EOPNOTSUPP, -EMFILE with a sentence. */
int nvrm_gpu_get(const char *pci, const uint8_t uuid[16], struct nvrm_gpu **ret);
/* Only by UUID; zeros mean the machine's only GPU, and -EOPNOTSUPP where there are more. */
int nvrm_gpu_find(const uint8_t uuid[16], struct nvrm_gpu **ret);
/* The last one ends the client.  No object may be left. */
void nvrm_gpu_put(struct nvrm_gpu *g);

/* An object of the GPU's memory, which keeps that memory. */
int nvrm_gpu_dup(struct nvrm_gpu *g, const struct nvrm_handle *h, uint32_t *ret_object);
int nvrm_gpu_import(struct nvrm_gpu *g, int fd, uint32_t *ret_object);
void nvrm_gpu_free(struct nvrm_gpu *g, uint32_t object);

struct nvrm_mapping {
	int fd; /* to mmap() from, len bytes at 0; then the caller's to close */
	uint64_t linear;
	uint32_t caching; /* enum pst_caching */
};

/* off and len are multiples of the page size. */
int nvrm_gpu_map(struct nvrm_gpu *g, uint32_t object, uint64_t off, uint64_t len, uint32_t rights,
		 struct nvrm_mapping *ret);
/* After munmap(). */
void nvrm_gpu_unmap(struct nvrm_gpu *g, uint32_t object, uint64_t linear);

/* ----------------------------------------------------------------- escapes */

/*
 * Each is one ioctl() on the descriptor of /dev/nvidiactl.  0, or -errno with a sentence that
 * has the driver's status; with PST_LOG=debug each leaves a line.
 */
int nvrm_esc_version(int ctl, char ret[64]);
int nvrm_esc_cards(int ctl, struct nvrm_cards *ret);
int nvrm_esc_tie(int fd, int ctl); /* on a descriptor of /dev/nvidiaN */
/* *object 0: the driver chooses one. */
int nvrm_esc_alloc(int ctl, uint32_t client, uint32_t parent, uint32_t *object, uint32_t class,
		   void *params, uint32_t size);
int nvrm_esc_control(int ctl, uint32_t client, uint32_t object, uint32_t cmd, void *params,
		     uint32_t size);
int nvrm_esc_dup(int ctl, uint32_t client, uint32_t parent, uint32_t object,
		 const struct nvrm_handle *src);
int nvrm_esc_map(int ctl, struct nvrm_map *map);
/* Of ends, failures are only logged. */
void nvrm_esc_unmap(int ctl, uint32_t client, uint32_t device, uint32_t object, uint64_t linear);
void nvrm_esc_free(int ctl, uint32_t client, uint32_t parent, uint32_t object);

#endif
