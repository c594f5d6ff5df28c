/* SPDX-License-Identifier: MIT */
/* Get a mount's metrics from its server's socket. */
#ifndef CLI_TOP_FETCH_H
#define CLI_TOP_FETCH_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

struct place {
	char dir[PATH_MAX];  /* the mount point, or "" */
	char path[PATH_MAX]; /* path of the socket, or address and port */
	uid_t owner;         /* owner of the mount; its server runs as this user */
};

/* Find the mount at that path.  Return 0, or -errno with a sentence. */
int place_find(const char *given, struct place *ret);

/*
 * Find the mounts whose metrics this user may read.  Return 0 with at least one, to be freed;
 * -errno with a sentence.
 */
int place_find_all(struct place **ret, unsigned *ret_nr);

/* Get the server's text, NUL-terminated; the caller frees it.  Return 0, or -errno with a
 * sentence. */
int place_ask(const struct place *p, char **ret, size_t *ret_len);

#endif
