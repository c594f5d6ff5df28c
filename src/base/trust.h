/* SPDX-License-Identifier: MIT */
#ifndef PST_TRUST_H
#define PST_TRUST_H

#include <limits.h>

#include "base/base.h"

/*
 * Resolve the path of a file that only root and the caller can have put there.
 *
 * The file, every folder from the root on and every symbolic link of the path must belong to root
 * or to the effective uid.  Group and others must not have write permission for file and folders.
 * That includes ACLs, because an ACL's mask is the group's part of the mode.  A sticky folder such
 * as /tmp may be on the path, because other users cannot replace a folder in it.  But neither the
 * file nor a link may be in a sticky folder.  A mounted FUSE file system is refused, because its
 * server decides who owns what.
 *
 * No other user can change anything between check and use.  So the path in ret, which is absolute
 * and without links, stays valid.
 *
 * Return: 0; -EPERM if others may change the file; -EINVAL for a relative path; or an -errno of the
 * kernel.  With a sentence.
 */
int trust_path(const char *path, char ret[PATH_MAX]);

#endif
