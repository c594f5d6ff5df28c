/* SPDX-License-Identifier: MIT */
/*
 * The conversation with the kernel.  libfuse has most of it; what its version 3.14 does not know
 * of is put in between: files without a name, FUSE passthrough, and set-user-ID bits that the
 * source takes away by itself.
 */
#ifndef MOUNT_SESSION_H
#define MOUNT_SESSION_H

#include "usrbio/mount/fs.h"

/* Mount it.  0 or -errno, with a sentence on standard error. */
int session_open(struct fs *fs);

/* Serve until it is unmounted or SIGINT, SIGTERM or SIGHUP comes.  0 or -errno. */
int session_run(struct fs *fs);

/* The kernel forgets bytes that it has kept of a file.  Any thread but those that answer it. */
void session_forget(void *fs, uint64_t ino, uint64_t off, uint64_t len);

/* Unmount it, unless it is already. */
void session_close(struct fs *fs);

#endif
