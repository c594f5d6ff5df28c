/* SPDX-License-Identifier: MIT */
/*
 * Device memory of another process.
 *
 * Small requests go through a window on it: bytes of the file are read into host memory, and the
 * CPU stores them.  That needs no library of the device's vendor, and no context on the device.
 * The first request that is too large for that makes a thread import the memory by that library;
 * it waits meanwhile, and from then on libpenstock moves all bytes.  Where there is no window, the
 * memory is imported at once.
 *
 * Every call may be made from any thread.
 */
#ifndef SERVER_IMPORT_H
#define SERVER_IMPORT_H

#include <penstock.h>

#include "base/base.h"

#define IMPORT_PIECE KIB(64) /* most bytes that the CPU stores */
#define IMPORT_LOAD KIB(4)   /* and loads, which is slow */

struct import;

/*
 * As server_buffer_add_grant() says.  One reference, the owner's.
 */
int import_new(const struct pst_grant *grant, unsigned number, struct import **ret);

struct import *import_ref(struct import *im);
/* The last one closes the memory. */
void import_unref(struct import *im);

/* May a request of that length go through the window? */
bool import_fits(struct import *im, bool for_read, uint64_t len);

/* 0; -ERANGE. */
int import_store(struct import *im, uint64_t off, const void *from, uint64_t len);
int import_load(struct import *im, uint64_t off, void *to, uint64_t len);

/*
 * The memory for requests of libpenstock, while the caller has a reference.
 *
 * Return: 0; -EAGAIN: a thread imports it; -errno: that failed.
 */
int import_mem(struct import *im, struct pst_mem **ret);

/*
 * The owner's reference ends.  First it waits until no request touches the memory, or for the
 * deadline.
 */
void import_end(struct import *im, uint64_t until_ns);

#endif
