/* SPDX-License-Identifier: MIT */
/*
 * A file that is opened by its name at the first request.
 *
 * Opening a file of a storage service waits for the network, so a spawned thread does it.  The
 * request and later ones of its ring wait for the open; other rings do not.
 *
 * All calls may be made from any thread.
 */
#ifndef SERVER_NAMED_H
#define SERVER_NAMED_H

#include <penstock.h>

#include "base/base.h"

struct named;

/* Create an object with the owner's reference.  Return 0 or -ENOMEM. */
int named_new(const char *name, uint32_t flags, struct named **ret);

/* Drop a reference; the last one closes the file. */
void named_unref(struct named *nd);

/*
 * Get the file; valid while the caller holds a reference.  Return: 0; -EAGAIN while a thread opens
 * it; -errno if that failed.  The error is returned for a second; the next call opens again.
 */
int named_file(struct named *nd, struct pst_file **ret);

#endif
