/* SPDX-License-Identifier: MIT */
#ifndef PST_USER_H
#define PST_USER_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Does this uid, which the kernel gave for a file or a process, stand for one user?  In a user
 * namespace all users without a number in it bear the same one, the overflow uid.
 */
bool user_is_mapped(uid_t uid);

/* Is it this process' user?  Not when that has no number here either. */
bool user_is_own(uid_t uid);

#endif
