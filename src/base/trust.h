/* SPDX-License-Identifier: MIT */
#ifndef PST_TRUST_H
#define PST_TRUST_H

#include <limits.h>

#include "base/base.h"

/*
 * Resolve the path of a file that only root and the caller can have put there.
 *
 * The file, every folder from the root on and every symbolic link on the way must belong to root or
 * to the effective uid.  File and folders must give group and others no right to write, which
 * covers ACLs too, because their mask is the group's part of the mode.  A sticky folder such as
 * /tmp may lead to a folder, because nobody can replace that, but may contain neither the file nor
 * a link.  A mounted FUSE file system is refused, because its server decides who owns what.
 *
 * Nobody else can change anything between check and use.  So the path in ret, which is absolute and
 * without links, stays valid.
 *
 * Return: 0; -EPERM if others may change the file; -EINVAL for a relative path; or an -errno of the
 * kernel.  With a sentence.
 */
int trust_path(const char *path, char ret[PATH_MAX]);

#endif
