/* SPDX-License-Identifier: MIT */
/*
 * A thread that answers who asks for the numbers of the mount: GET /metrics over a socket.
 *
 * Whoever may open the socket may send anything, nothing, or take no answer: he has a few bytes, a
 * few seconds, and keeps nobody else waiting.
 */
#ifndef MOUNT_SCRAPE_H
#define MOUNT_SCRAPE_H

#include "usrbio/mount/fs.h"

struct scrape;

/* path: of the socket; NULL: by the mount point.  0 or -errno as listen_open(). */
int scrape_start(struct fs *fs, const char *path, struct scrape **ret);

const char *scrape_path(const struct scrape *s);

/* NULL is accepted. */
void scrape_stop(struct scrape *s);

#endif
