/* SPDX-License-Identifier: MIT */
/*
 * Device memory of another process.
 *
 * Small requests use a window: bytes of the file are read into host memory, and the CPU stores them
 * to the device.  This needs neither the vendor's library nor a context on the device.  The first
 * request that is too large for a window waits while a thread imports the memory by the vendor's
 * library; then libpenstock moves all bytes.  Without a window, the memory is imported at once.
 *
 * All calls may be made from any thread.
 */
#ifndef SERVER_IMPORT_H
#define SERVER_IMPORT_H

#include <penstock.h>

#include "base/base.h"

#define IMPORT_PIECE KIB(64) /* longest request that the CPU stores, bytes */
#define IMPORT_LOAD KIB(4)   /* longest request that the CPU loads, which is slow, bytes */

struct import;

/* Create an import from the arguments of server_buffer_add_grant(), with the owner's reference. */
int import_new(const struct pst_grant *grant, unsigned number, struct import **ret);

struct import *import_ref(struct import *im);
/* Drop a reference; the last one closes the memory. */
void import_unref(struct import *im);

/* Return true if a request of that length may use the window. */
bool import_fits(struct import *im, bool for_read, uint64_t len);

/* Copy through the window.  Return 0 or -ERANGE. */
int import_store(struct import *im, uint64_t off, const void *from, uint64_t len);
int import_load(struct import *im, uint64_t off, void *to, uint64_t len);

/*
 * Get the memory for requests of libpenstock; valid while the caller holds a reference.  Return: 0;
 * -EAGAIN while a thread imports it; -errno if that failed.
 */
int import_mem(struct import *im, struct pst_mem **ret);

/*
 * Wait until no request touches the memory, or until the deadline, and drop the owner's reference.
 */
void import_end(struct import *im, uint64_t until_ns);

#endif
