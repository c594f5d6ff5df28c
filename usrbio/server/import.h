/* SPDX-License-Identifier: MIT */
/*
 * Device memory of another process.
 *
 * Small requests use a window: bytes of the file are read into host memory, and the CPU stores them
 * to the device.  That needs neither the vendor's library nor a context on the device.  The first
 * request that is too large for a window makes a thread import the memory by that library and waits
 * meanwhile; from then on libpenstock moves all bytes.  Without a window, the memory is imported at
 * once.
 *
 * Any thread may make every call.
 */
#ifndef SERVER_IMPORT_H
#define SERVER_IMPORT_H

#include <penstock.h>

#include "base/base.h"

#define IMPORT_PIECE KIB(64) /* most bytes of a request that the CPU stores */
#define IMPORT_LOAD KIB(4)   /* most bytes of a request that the CPU loads, which is slow */

struct import;

/*
 * Create an import, as server_buffer_add_grant(), with one reference, the owner's.
 */
int import_new(const struct pst_grant *grant, unsigned number, struct import **ret);

struct import *import_ref(struct import *im);
/* Drop a reference; the last one closes the memory. */
void import_unref(struct import *im);

/* Return true if a request of that length may use the window. */
bool import_fits(struct import *im, bool for_read, uint64_t len);

/* Copy by the window.  Return 0 or -ERANGE. */
int import_store(struct import *im, uint64_t off, const void *from, uint64_t len);
int import_load(struct import *im, uint64_t off, void *to, uint64_t len);

/*
 * Return the memory for requests of libpenstock, valid while the caller holds a reference.  Return:
 * 0; -EAGAIN while a thread imports it; -errno if that failed.
 */
int import_mem(struct import *im, struct pst_mem **ret);

/*
 * Drop the owner's reference, after waiting until no request touches the memory, or until the
 * deadline.
 */
void import_end(struct import *im, uint64_t until_ns);

#endif
