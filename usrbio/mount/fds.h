/* SPDX-License-Identifier: MIT */
/*
 * Shares of the server's descriptors.
 *
 * Open files and directories, publications and workers of users use descriptors of the server.  A
 * user may use half as many as are free.  So a user who takes as many as possible gets a third of
 * them, and the next user still finds some.  A sixteenth is reserved for root.
 *
 * There is one mount in a process, so this state exists once.  Any thread may make every call.
 */
#ifndef MOUNT_FDS_H
#define MOUNT_FDS_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Initialize, once, before there are other threads. files is what RLIMIT_NOFILE allows; inodes are
 * those kept open that count for no user. alone: there are no other users, and nothing is shared.
 */
void fds_init(unsigned files, unsigned inodes, bool alone);

/* Take nr descriptors from the user's share.  Return 0, and call fds_give() later; -EMFILE if the
 * share is used up. */
int fds_take(uid_t uid, unsigned nr);
void fds_give(uid_t uid, unsigned nr);

#endif
