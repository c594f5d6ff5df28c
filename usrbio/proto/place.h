/* SPDX-License-Identifier: MIT */
/* Where the server of a mount tells its numbers: a socket, found by the mount point. */
#ifndef PST_USRBIO_PLACE_H
#define PST_USRBIO_PLACE_H

#include <stddef.h>
#include <sys/types.h>

#define USRBIO_PLACE_SUFFIX ".metrics"
#define USRBIO_PLACE_NAME (16 + sizeof(USRBIO_PLACE_SUFFIX))

/*
 * The folder of such sockets of a user: /run/penstock for root, penstock below $XDG_RUNTIME_DIR or
 * /run/user/UID for others.  0 or -ENAMETOOLONG.
 */
int usrbio_place_dir(uid_t uid, char *ret, size_t len);

/* The name there for a mount point, which is a canonical path. */
void usrbio_place_name(const char *dir, char ret[USRBIO_PLACE_NAME]);

#endif
