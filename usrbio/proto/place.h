/* SPDX-License-Identifier: MIT */
/*
 * Where the server of a mount serves its metrics: a UNIX socket whose name is computed from the
 * mount point, or a port of the loopback interface.
 */
#ifndef PST_USRBIO_PLACE_H
#define PST_USRBIO_PLACE_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#define USRBIO_PLACE_SUFFIX ".metrics"
#define USRBIO_PLACE_NAME (16 + sizeof(USRBIO_PLACE_SUFFIX))

/*
 * Write the directory of a user's sockets: /run/penstock for root, otherwise penstock below
 * $XDG_RUNTIME_DIR or /run/user/UID.  Return 0 or -ENAMETOOLONG.
 */
int usrbio_place_dir(uid_t uid, char *ret, size_t len);

/* Write the socket's name for a mount point, which is a canonical path. */
void usrbio_place_name(const char *dir, char ret[USRBIO_PLACE_NAME]);

/*
 * Parse 127.0.0.1:PORT or [::1]:PORT.  Any address of 127.0.0.0/8 is accepted; names are not
 * resolved.
 *
 * Return: bytes of the address; 0 if the text is a path, because it has a slash or does not end
 * with a colon and a number; -EINVAL for an invalid address or port; -EPERM for an address that
 * other machines can reach.
 */
int usrbio_place_tcp(const char *text, struct sockaddr_storage *ret);

#endif
