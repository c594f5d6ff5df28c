/* SPDX-License-Identifier: MIT */
/*
 * The C side of the NIXL plug-in; docs/NIXL.md describes how to build and use it.
 *
 * plugin.cpp translates between NIXL's classes and these calls.  All calls are safe from any thread
 * and return 0 or -errno, after logging a sentence with cause and cure.
 */
#ifndef PENSTOCK_NIXL_PLUG_H
#define PENSTOCK_NIXL_PLUG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct plug_engine; /* worker threads with a queue each */
struct plug_region; /* a registered range of memory, or a registered file */
struct plug_req;    /* a transfer: planned once, posted any number of times */

enum plug_kind {
	PLUG_HOST,   /* DRAM_SEG */
	PLUG_DEVICE, /* VRAM_SEG */
	PLUG_FILE,   /* FILE_SEG */
};

struct plug_param {
	const char *name;
	const char *value;
};

/* An option's name and default value, both as text; the last one has no name. */
extern const struct plug_param plug_defaults[];

/* A descriptor of a transfer.  Nothing in it has been checked. */
struct plug_range {
	uint64_t addr; /* an address, or an offset in the file */
	uint64_t len;  /* bytes; 0 moves nothing */
	struct plug_region *region;
};

/* Print one line to standard error. */
void plug_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Return true if the NIXL that loads the plug-in has the interface that it was built for. */
bool plug_version_ok(void);

int plug_engine_new(const struct plug_param *params, size_t nr, struct plug_engine **ret_e);
/* Cancel all transfers and stop the threads.  Return NULL. */
struct plug_engine *plug_engine_free(struct plug_engine *e);

/*
 * Register memory, or a file: by meta, "ro:PATH" or "rw,create:PATH" as NIXL documents it, or by
 * dev, a descriptor.
 */
int plug_region_new(struct plug_engine *e, enum plug_kind kind, uint64_t addr, uint64_t len,
		    uint64_t dev, const char *meta, size_t meta_len, struct plug_region **ret_r);
/*
 * Wait until no transfer uses the region, and free it.  -EBUSY if a transfer may still use it after
 * 30 seconds: the region is then kept forever.
 */
int plug_region_free(struct plug_engine *e, struct plug_region *r);

/* Check and plan a transfer between mem[i] and file[i]. */
int plug_req_new(struct plug_engine *e, bool write, const struct plug_range *mem,
		 const struct plug_range *file, size_t nr, struct plug_req **ret_req);
/* Start a transfer.  Return 1 if it runs, 0 if it has nothing to move; -EALREADY if it runs. */
int plug_req_post(struct plug_engine *e, struct plug_req *req);
/* Return 1 while a transfer runs, else its result; -ENOTCONN if it was never posted. */
int plug_req_check(const struct plug_req *req);
/*
 * Cancel a transfer that runs, wait until nothing can touch its memory, and free it.  -EBUSY if
 * something still may after 10 seconds: the transfer is then not freed.
 */
int plug_req_free(struct plug_engine *e, struct plug_req *req);

#ifdef __cplusplus
}
#endif
#endif
