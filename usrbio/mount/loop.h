/* SPDX-License-Identifier: MIT */
/*
 * The threads that answer the kernel.  Each reads a request and answers it.
 *
 * A request may take long for a reason of its user: a slow file, a full disk, a lease.  So each
 * user may have a limited number of requests under way.  More of his wait in line, without a
 * thread, and are answered in their order.  Requests on names and those on files are counted apart:
 * the kernel holds a directory for the former, which others may be waiting for, so that none of
 * them waits behind a slow file.
 */
#ifndef MOUNT_LOOP_H
#define MOUNT_LOOP_H

#include "usrbio/mount/fs.h"

/* Requests in flight at once: of one user, and of all. */
#define LOOP_USER_NAMES 128u
#define LOOP_USER_FILES 64u
#define LOOP_FILES 512u
#define LOOP_THREADS 768u

/* Users whose requests wait for leases at once.  Another one's fail with EBUSY. */
#define LOOP_LEASES 256u

/* Bytes of one user's requests that wait in line.  More requests fail with EBUSY. */
#define LOOP_USER_BYTES MIB(256)

/* Answer one request; the thread is the caller's. */
typedef void (*loop_answer)(struct fs *fs, const struct fuse_buf *request);

/*
 * Serve until the session ends: by a signal (fuse_set_signal_handlers()), or because it is
 * unmounted.  0 or -errno.
 */
int loop_run(struct fs *fs, loop_answer answer);

/*
 * Let the current request of this thread wait for a lease, and answer it later.  Takes over the
 * request.
 */
void loop_again(fuse_req_t req);

#endif
