/* SPDX-License-Identifier: MIT */
/*
 * Names of files in a set, and opening files beneath a root.
 *
 * A name is a relative path such as "llama/part-1.safetensors".  Every open uses openat2() with
 * RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV, so no name, symbolic link or mount
 * leads out of a root.
 */
#ifndef PST_TIER_NAME_H
#define PST_TIER_NAME_H

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/base.h"

#define TIER_DIR ".tier"     /* folder in each root; no name of a set begins with it */
#define TIER_TMP ".tier/tmp" /* incomplete copies, and sources being removed */
#define TIER_NAME_SIZE 4000u /* bytes of a name with its NUL; less than PATH_MAX */

/* Check a name.  Return 0, or -EINVAL with a sentence: it is empty, absolute, too long, contains
 * "." or "..", or is below TIER_DIR. */
int name_check(const char *name);

/* Open a file beneath a root.  Return a descriptor, or -errno without a sentence. */
int name_open(int root_fd, const char *name, int flags, mode_t mode);

/*
 * Open the directory of a name, so that it can be synced; *ret_base is the name's last part.
 * Return a descriptor, or -errno without a sentence.
 */
int name_parent(int root_fd, const char *name, const char **ret_base);

/*
 * Open the directory of a name below dst_fd, creating missing directories with mode and owner of
 * those at src_fd, or with mode 0755 if src_fd is -1.  Each new directory is durable when this
 * returns.  Otherwise as name_parent().
 */
int name_make_parent(int dst_fd, int src_fd, const char *name, const char **ret_base);

#endif
