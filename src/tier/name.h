/* SPDX-License-Identifier: MIT */
/*
 * Names of files in a set, and files beneath a root.
 *
 * A name is a relative path such as "llama/part-1.safetensors".  Every open goes through openat2()
 * with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV: no name, symbolic link or mount
 * leads out of a root.
 */
#ifndef PST_TIER_NAME_H
#define PST_TIER_NAME_H

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/base.h"

#define TIER_DIR ".tier"     /* in each root; names of a set do not begin with it */
#define TIER_TMP ".tier/tmp" /* copies that are not complete, sources that are being removed */
#define TIER_NAME_SIZE 4000u /* bytes of a name with its NUL: less than PATH_MAX */

/* 0, or -EINVAL with a sentence: empty, absolute, with "." or "..", too long, below TIER_DIR. */
int name_check(const char *name);

/* A descriptor or -errno; sets no sentence. */
int name_open(int root_fd, const char *name, int flags, mode_t mode);

/*
 * Open the directory of a name so that it can be synced; *ret_base is the name's last part.
 * A descriptor or -errno; sets no sentence.
 */
int name_parent(int root_fd, const char *name, const char **ret_base);

/*
 * The same at dst_fd, and make missing directories there, with mode and owner of those at src_fd.
 * Each new directory is durable when this returns.
 */
int name_make_parent(int dst_fd, int src_fd, const char *name, const char **ret_base);

#endif
