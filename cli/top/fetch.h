/* SPDX-License-Identifier: MIT */
/* The numbers of a mount, from the socket of its server. */
#ifndef CLI_TOP_FETCH_H
#define CLI_TOP_FETCH_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

struct place {
	char dir[PATH_MAX];  /* the mount point, or "" */
	char path[PATH_MAX]; /* of the socket, or address and port */
	uid_t owner;         /* of the mount, as whom its server runs */
};

/* Find the mount at that place.  0; -errno with a sentence. */
int place_find(const char *given, struct place *ret);

/*
 * Find the mounts of this machine whose numbers this user may read.  At least one, to be freed;
 * -errno with a sentence.
 */
int place_find_all(struct place **ret, unsigned *ret_nr);

/* Get the server's text, with a 0 at its end; the caller frees it.  Return 0, or -errno with a
 * sentence. */
int place_ask(const struct place *p, char **ret, size_t *ret_len);

#endif
