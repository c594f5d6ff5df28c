/* SPDX-License-Identifier: MIT */
#ifndef PST_TRUST_H
#define PST_TRUST_H

#include <limits.h>

#include "base/base.h"

/*
 * Resolve the path of a file that nobody but root and the caller can have put there.
 *
 * The rule: the file, every folder from the root on and every symbolic link on the way belong to
 * root or to the effective uid; file and folders give group and others no right to write, which
 * covers ACLs too, as their mask is the group's part of the mode.  A sticky folder such as /tmp
 * may be passed through to a folder, because nobody can replace that, but holds neither the file
 * nor a link.  A mounted FUSE file system is refused, since its server says who owns what.
 *
 * There is no time between check and use that others could use: they cannot change anything that
 * passed.  So the path in ret, which is absolute and without links, stays good.
 *
 * Return: 0; -EPERM when others may change the file there; -EINVAL for a relative path; or an error
 * of the kernel's.  With a sentence.
 */
int trust_path(const char *path, char ret[PATH_MAX]);

#endif
