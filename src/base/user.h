/* SPDX-License-Identifier: MIT */
#ifndef PST_USER_H
#define PST_USER_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Return true if this uid of a file or process identifies one user.  In a user namespace, all users
 * without a mapping have the same uid, the overflow uid.
 */
bool user_is_mapped(uid_t uid);

/* Return true if uid is this process' user, and is mapped. */
bool user_is_own(uid_t uid);

#endif
