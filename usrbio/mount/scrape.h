/* SPDX-License-Identifier: MIT */
/*
 * A thread that serves the mount's metrics: GET /metrics over a socket.
 *
 * A client may send anything or nothing, or may not read the answer.  So each client gets a limited
 * number of bytes and some seconds, and delays no other client.
 */
#ifndef MOUNT_SCRAPE_H
#define MOUNT_SCRAPE_H

#include "usrbio/mount/fs.h"

struct scrape;

/* Start the thread.  path: of the socket; NULL: a name computed from the mount point.  Return 0, or
 * -errno as listen_open(). */
int scrape_start(struct fs *fs, const char *path, struct scrape **ret);

const char *scrape_path(const struct scrape *s);

/* Stop the thread; s may be NULL. */
void scrape_stop(struct scrape *s);

#endif
