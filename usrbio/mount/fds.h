/* SPDX-License-Identifier: MIT */
/*
 * Shares of the server's descriptors.
 *
 * Open files, open directories, publications and workers of a user need descriptors of the server.
 * A user may have half as many descriptors as are free: the first user gets at most a third, and
 * later users still find some.  A sixteenth is reserved for root.
 *
 * A process has one mount, so there is one set of shares.  All calls may be made from any thread.
 */
#ifndef MOUNT_FDS_H
#define MOUNT_FDS_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Initialize, once, before starting threads.  files is the limit RLIMIT_NOFILE; inodes is the
 * number of inodes kept open, which count for no user.  alone: the server serves one user, who may
 * use all descriptors.
 */
void fds_init(unsigned files, unsigned inodes, bool alone);

/* Take nr descriptors from the user's share.  Return 0, and later call fds_give(); -EMFILE if
 * the share is used up. */
int fds_take(uid_t uid, unsigned nr);
void fds_give(uid_t uid, unsigned nr);

#endif
