/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the nvrm backend share.
 *
 *	nvrm.c		windows
 *	client.c	the process' client of the driver and its GPUs
 *	esc.c	the driver's calls, one function each, and its status codes
 *	driver.c	the supported drivers, and PST_NVRM
 *	handle.c	the 64 bytes of an IPC handle
 *
 * Any thread may call everything here.  A forked child must not, because it would use its parent's
 * objects; the public calls refuse a forked child.
 */
#ifndef PST_WINDOW_NVRM_H
#define PST_WINDOW_NVRM_H

#include <penstock.h>

#include "base/base.h"
#include "window/nvrm/nvrm_types.h"

/* ------------------------------------------------------------------ driver */

enum nvrm_mode {
	NVRM_MODE_AUTO, /* use drivers of known branches */
	NVRM_MODE_OFF,
	NVRM_MODE_FORCE, /* use any driver; all other checks remain */
};

/* Return the mode for a value of PST_NVRM.  NULL and "" mean auto, and so do unknown values, with a
 * warning. */
enum nvrm_mode nvrm_mode_of(const char *value);

/* Return the mode of PST_NVRM, which is read once; auto in set-uid programs. */
enum nvrm_mode nvrm_mode(void);

/* Check that a driver of this version may be used.  Return 0, or -EOPNOTSUPP with a sentence. */
int nvrm_driver_known(const char *version, enum nvrm_mode mode);

/* ------------------------------------------------------------------ handle */

/* An allocation as its IPC handle describes it: it begins at off in the object of another
 * client. */
struct nvrm_handle {
	uint32_t client, object;
	uint64_t off;
};

/*
 * Read an IPC handle of an allocation of size bytes, and check all words that can be checked.  If
 * other words are wrong, the driver refuses the handle.
 * @pids: pids of the owner, in any of its pid namespaces
 * @nr:   number of pids; 0: the owner is unknown
 *
 * Return: 0; -EINVAL, or -EOPNOTSUPP for a handle of another layout, with a sentence.
 */
int nvrm_handle_parse(const uint8_t ipc[64], uint64_t size, const uint32_t *pids, unsigned nr,
		      struct nvrm_handle *ret);

#define NVRM_PIDS_MAX 32 /* maximum nested pid namespaces in the kernel */

/* Get this process' pids.  Return their number, at least 1. */
unsigned nvrm_own_pids(uint32_t pids[NVRM_PIDS_MAX]);

/* ------------------------------------------------------------------ client */

/* A GPU with a device object in this process' client.  Immutable while it is referenced. */
struct nvrm_gpu;

/* Reference a GPU by PCI address and UUID.  Return 0; -ENODEV, -EACCES, -EOPNOTSUPP or -EMFILE with
 * a sentence. */
int nvrm_gpu_get(const char *pci, const uint8_t uuid[16], struct nvrm_gpu **ret);
/* Reference a GPU by its UUID.  A UUID of zeros means the machine's only GPU; -EOPNOTSUPP if there
 * are more. */
int nvrm_gpu_find(const uint8_t uuid[16], struct nvrm_gpu **ret);
/* Drop a reference.  All objects must be freed before.  The last reference ends the client. */
void nvrm_gpu_put(struct nvrm_gpu *g);

/* Create an object for memory of the GPU, from a handle or a descriptor.  The object keeps the
 * memory alive. */
int nvrm_gpu_dup(struct nvrm_gpu *g, const struct nvrm_handle *h, uint32_t *ret_object);
int nvrm_gpu_import(struct nvrm_gpu *g, int fd, uint32_t *ret_object);
void nvrm_gpu_free(struct nvrm_gpu *g, uint32_t object);

struct nvrm_mapping {
	int fd; /* for mmap() of len bytes at 0; closed by the caller */
	uint64_t linear;
	uint32_t caching; /* enum pst_caching */
};

/* Prepare a mapping.  off and len are multiples of the page size. */
int nvrm_gpu_map(struct nvrm_gpu *g, uint32_t object, uint64_t off, uint64_t len, uint32_t rights,
		 struct nvrm_mapping *ret);
/* End a mapping, after munmap(). */
void nvrm_gpu_unmap(struct nvrm_gpu *g, uint32_t object, uint64_t linear);

/* ----------------------------------------------------------------- escapes */

/*
 * Each function is one ioctl() on the descriptor of /dev/nvidiactl.  Return 0, or -errno with a
 * sentence that has the driver's status.  With PST_LOG=debug, each logs a line.
 */
int nvrm_esc_version(int ctl, char ret[64]);
int nvrm_esc_cards(int ctl, struct nvrm_cards *ret);
int nvrm_esc_tie(int fd, int ctl); /* fd is a descriptor of /dev/nvidiaN */
/* If *object is 0, the driver chooses a handle. */
int nvrm_esc_alloc(int ctl, uint32_t client, uint32_t parent, uint32_t *object, uint32_t class,
		   void *params, uint32_t size);
int nvrm_esc_control(int ctl, uint32_t client, uint32_t object, uint32_t cmd, void *params,
		     uint32_t size);
int nvrm_esc_dup(int ctl, uint32_t client, uint32_t parent, uint32_t object,
		 const struct nvrm_handle *src);
int nvrm_esc_map(int ctl, struct nvrm_map *map);
/* Failures to end a mapping or an object are only logged. */
void nvrm_esc_unmap(int ctl, uint32_t client, uint32_t device, uint32_t object, uint64_t linear);
void nvrm_esc_free(int ctl, uint32_t client, uint32_t parent, uint32_t object);

#endif
