/* SPDX-License-Identifier: MIT */
/*
 * Shares of the server's descriptors.
 *
 * Open files and directories, publications and workers of users each keep some of the descriptors
 * that the server may have.  A user may keep half as many as are free, so that one who takes all he
 * can gets a third of them, and whoever comes next finds some.  A sixteenth is left for root.
 *
 * There is one mount in a process, so there is one of these.  Calls come from any thread.
 */
#ifndef MOUNT_FDS_H
#define MOUNT_FDS_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Once, before there are other threads.  files: what RLIMIT_NOFILE allows; inodes: those that are
 * kept open without counting for a user.  alone: there are no other users, and nothing is shared.
 */
void fds_init(unsigned files, unsigned inodes, bool alone);

/* 0, and then fds_give(); -EMFILE: the user has his share. */
int fds_take(uid_t uid, unsigned nr);
void fds_give(uid_t uid, unsigned nr);

#endif
