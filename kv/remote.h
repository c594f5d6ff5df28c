/* SPDX-License-Identifier: MIT */
/*
 * The client of a served store: docs/PROTOCOL.md, "A store of blocks".  Each worker has its own
 * connection, and transfers one block at a time.  A block is copied through the worker's memory, so
 * the caller's memory is not in use while the network or the server hangs.
 */
#ifndef KV_REMOTE_H
#define KV_REMOTE_H

#include "kv/store.h"

/* Return true if the name is that of a server, and not of a directory. */
bool remote_is_root(const char *name);

/* Find the server of a name, and check that it answers.  Return 0, or -errno with a sentence. */
int remote_root(struct pst_kv *kv, const char *name);
void remote_root_end(struct pst_kv *kv);

/* Execute a job of a worker.  Return its result. */
int64_t remote_step(struct worker *w, struct job *job);
/* End the connection of a worker. */
void remote_hang_up(struct worker *w);

#endif
