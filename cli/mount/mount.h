/* SPDX-License-Identifier: MIT */
/* Checks and messages of mount and umount before they begin. */
#ifndef CLI_MOUNT_H
#define CLI_MOUNT_H

#include <limits.h>

#include "tools/common/util.h"

/*
 * The canonical name of a directory that may be served, or have been.
 * 0 or -errno with a sentence: no directory, on a 3FS mount, or too long for usrbio.
 */
int mount_dir(const char *given, char ret[PATH_MAX]);

/* Set the error sentence: why a call on a plain directory failed and what to do.  Return -|err|. */
int mount_fail(int err, const char *dir);

/* The same for a directory in use. */
int mount_busy(const char *dir);

/* Check that programs can create shared memory here.  Return 0, or -errno with a sentence. */
int mount_check_shm(void);

/* Return a text such as ", 3.2 GiB free"; empty if there is no limit. */
struct text mount_shm_text(void);

/*
 * Check that links can be created in that directory iovs.  Return 0, or -errno with a sentence;
 * -ENOENT without one: another process has undone it.
 */
int mount_check_links(int iovs, const char *dir);

#endif
