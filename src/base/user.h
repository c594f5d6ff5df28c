/* SPDX-License-Identifier: MIT */
#ifndef PST_USER_H
#define PST_USER_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Return true if this uid of a file or process stands for one user.  In a user namespace, all users
 * without a mapping show the same uid, the overflow uid.
 */
bool user_is_mapped(uid_t uid);

/* Return true if it is this process' user; false if that user has no mapping either. */
bool user_is_own(uid_t uid);

#endif
