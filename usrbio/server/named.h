/* SPDX-License-Identifier: MIT */
/*
 * A file that is opened by its name when the first request needs it.
 *
 * Opening a file of a storage service waits for the network, so a thread of its own does that.  The
 * request and those after it in its ring wait meanwhile; other rings do not.
 *
 * Any thread may make every call.
 */
#ifndef SERVER_NAMED_H
#define SERVER_NAMED_H

#include <penstock.h>

#include "base/base.h"

struct named;

/* Create one with one reference, the owner's.  Return 0 or -ENOMEM. */
int named_new(const char *name, uint32_t flags, struct named **ret);

/* Drop a reference; the last one closes the file. */
void named_unref(struct named *nd);

/*
 * Return the file, valid while the caller holds a reference.  Return: 0; -EAGAIN while a thread
 * opens it; -errno if that failed, which is tried again a second later.
 */
int named_file(struct named *nd, struct pst_file **ret);

#endif
