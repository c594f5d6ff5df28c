/* SPDX-License-Identifier: MIT */
/*
 * The session with the kernel.  libfuse implements most of it.  These functions add what libfuse
 * 3.14 lacks: O_TMPFILE, FUSE passthrough, and leaving it to the source to clear set-user-ID bits.
 */
#ifndef MOUNT_SESSION_H
#define MOUNT_SESSION_H

#include "usrbio/mount/fs.h"

/* Mount the file system.  Return 0, or -errno with a sentence on standard error. */
int session_open(struct fs *fs);

/* Serve until the mount is unmounted, or SIGINT, SIGTERM or SIGHUP arrives.  Return 0 or -errno. */
int session_run(struct fs *fs);

/* Make the kernel drop its cache of a range.  Call this from any thread that does not answer the
 * kernel. */
void session_forget(void *fs, uint64_t ino, uint64_t off, uint64_t len, bool ends);

/* Unmount the file system if it is still mounted. */
void session_close(struct fs *fs);

#endif
