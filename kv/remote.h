/* SPDX-License-Identifier: MIT */
/*
 * The client of a served store: docs/PROTOCOL.md, "A store of blocks".  Each worker has a
 * connection of its own, and does one block at a time on it.  A block goes through the worker's own
 * memory, so nothing uses the caller's memory while the network or the server hangs.
 */
#ifndef KV_REMOTE_H
#define KV_REMOTE_H

#include "kv/store.h"

/* Return true if the name is that of a server. */
bool remote_is_root(const char *name);

/* Find the server of a name, and ask it once.  Return 0, or -errno with a sentence. */
int remote_root(struct pst_kv *kv, const char *name);
void remote_root_end(struct pst_kv *kv);

/* Do a job of a worker.  Return its result. */
int64_t remote_step(struct worker *w, struct job *job);
/* End the connection of a worker. */
void remote_hang_up(struct worker *w);

#endif
