/* SPDX-License-Identifier: MIT */
/* Checks before mount and umount, and their messages. */
#ifndef CLI_MOUNT_H
#define CLI_MOUNT_H

#include <limits.h>

#include "tools/common/util.h"

/*
 * Return the canonical name of a directory that is, was or will be served.  Return 0, or -errno
 * with a sentence: no directory, a directory on a 3FS mount, or too long a name for usrbio.
 */
int mount_dir(const char *given, char ret[PATH_MAX]);

/* Set the sentence: why a call on a plain directory failed, and the cure.  Return -|err|. */
int mount_fail(int err, const char *dir);

/* Set the sentence for a directory in use, with the cure.  Return -errno. */
int mount_busy(const char *dir);

/* Check that programs can create shared memory here.  Return 0, or -errno with a sentence. */
int mount_check_shm(void);

/* Return a text such as ", 3.2 GiB free"; "" if there is no limit. */
struct text mount_shm_text(void);

/*
 * Check that links can be created in the directory iovs.  Return 0, or -errno with a sentence;
 * -ENOENT without one if another process has undone it.
 */
int mount_check_links(int iovs, const char *dir);

#endif
