/* SPDX-License-Identifier: MIT */
/*
 * The threads that answer the kernel.  Each thread reads a request and answers it.
 *
 * A user can make requests slow: by a slow file, a full disk, a lease.  So each user has a limited
 * number of requests in flight.  Further requests wait in a line, without a thread, and are
 * answered in order.  Requests on names and on files are counted separately: the kernel locks a
 * directory during a request on a name, and other users may need that directory, so such a request
 * must not wait behind a slow file.
 */
#ifndef MOUNT_LOOP_H
#define MOUNT_LOOP_H

#include "usrbio/mount/fs.h"

/* Limits of requests in flight: on names and on files of one user, on files of all users, and of
 * threads that answer requests. */
#define LOOP_USER_NAMES 128u
#define LOOP_USER_FILES 64u
#define LOOP_FILES 512u
#define LOOP_THREADS 768u

/* Maximum users whose requests wait for leases.  Requests of further users fail with EBUSY. */
#define LOOP_LEASES 256u

/* Maximum bytes of one user's waiting requests.  Further requests fail with EBUSY. */
#define LOOP_USER_BYTES MIB(256)

/* Answer one request on the calling thread. */
typedef void (*loop_answer)(struct fs *fs, const struct fuse_buf *request);

/*
 * Serve until the session ends by a signal (fuse_set_signal_handlers()) or by unmounting.  Return 0
 * or -errno.
 */
int loop_run(struct fs *fs, loop_answer answer);

/*
 * Let this thread's current request wait for a lease, and answer it again later.  Takes over the
 * request.
 */
void loop_again(fuse_req_t req);

#endif
